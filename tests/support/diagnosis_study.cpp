// SPDX-License-Identifier: Apache-2.0
#include "tests/support/diagnosis_study.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "reference/oracle/numerics_profile.h"
#include "reference/problem/inputs.h"

namespace attest::testing_support {
namespace {

const char* preset_of(Dtype type) {
  switch (type) {
    case Dtype::f64: return "emulated-f64";
    case Dtype::f16: return "f16-tensorcore";
    case Dtype::bf16: return "bf16-tensorcore";
    default: return "f32-simt";
  }
}

void round_values(Dtype type, std::vector<double>& values) {
  for (double& x : values) x = round_to(type, x);
}

}  // namespace

diagnose::Explanation diagnose_fault(const Problem& problem, const Fault& fault) {
  const Inputs inputs = make_inputs(problem);
  const StoredInputs stored = store(problem, inputs, 77);
  Exact got = faulty_attention(problem, inputs, stored, fault);
  for (Values* values : {&got.o, &got.dq, &got.dk, &got.dv}) round_values(problem.output_dtype(), values->data);
  round_values(problem.lse_dtype(), got.lse);
  round_values(problem.lse_dtype(), got.d_bias.data);
  diagnose::Evidence evidence = diagnose::evidence_of(problem, inputs, {&got.o, &got.lse, &got.dq, &got.dk, &got.dv, &got.d_bias},
                                                      make_profile(numerics_preset(preset_of(problem.dtype)), problem));
  for (const TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::d_o}) {
    const StoredTensorValues& t = stored.tensors[static_cast<std::size_t>(id)];
    if (t.data.empty()) continue;
    evidence.tensors[static_cast<std::size_t>(id)] =
        diagnose::TensorRows(reinterpret_cast<const std::byte*>(t.data.data()), Dtype::f64, t.extents, t.strides);
  }
  return diagnose::explain(evidence);
}

Problem random_problem(std::uint64_t seed, std::uint64_t index) {
  std::mt19937_64 random(random_word(seed, 1, index));
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto chance = [&](int percent) { return below(100) < percent; };
  Problem p;
  p.dtype = std::array{Dtype::f32, Dtype::f16, Dtype::bf16}[below(3)];
  p.layout = std::array{Layout::bshd, Layout::bhsd, Layout::thd}[below(3)];
  p.pad = chance(30) ? PadSide::left : PadSide::right;
  p.heads_kv = 1 + below(3);
  p.heads_q = p.heads_kv * std::array<std::int64_t, 3>{1, 2, 3}[below(3)];
  p.dim = std::array<std::int64_t, 4>{8, 16, 24, 32}[below(4)];
  if (chance(30)) p.dim_v = 8 + 8 * below(3);
  p.seq_q.clear();
  p.seq_k.clear();
  const std::int64_t batch = 1 + below(3);
  const bool equal = chance(40), level = chance(50);
  for (std::int64_t b = 0; b < batch; ++b) {
    const bool repeat = level && b > 0;
    p.seq_k.push_back(repeat ? p.seq_k[0] : 20 + below(100));
    p.seq_q.push_back(equal ? p.seq_k.back() : repeat ? p.seq_q[0] : 20 + below(60));
  }
  if (p.layout != Layout::thd && chance(30)) {
    p.extent_q = p.max_q() + below(8);
    p.extent_k = p.max_k() + 1 + below(8);
  }
  if (chance(20)) p.scale = 0.1 + 0.05 * static_cast<double>(below(10));
  if (chance(15)) p.softcap = 1 + static_cast<double>(below(3));
  if (chance(15)) p.alibi = true;
  if (chance(20)) p.bias = Bias{{chance(50), chance(50), true, true}, std::nullopt, 0};
  const bool d_bias = p.bias && chance(70);
  if (chance(50)) p.causal = chance(50) ? Causal::top_left : Causal::bottom_right;
  if (chance(25)) p.window = Window{2 + below(20), below(10), Causal::none};
  if (p.window && p.causal == Causal::none && chance(50)) p.window->alignment = Causal::top_left;
  if (chance(12)) p.mask = ExplicitMask{{chance(50), chance(50), true, true}, 0.7};
  if (chance(12)) p.block = BlockMask{16, 16, 0, 0, 0.5};
  if (chance(20)) p.dropout = Dropout{0.1 + 0.1 * static_cast<double>(below(4)), static_cast<std::uint64_t>(2 + below(1000)), 0};
  p.direction = chance(50) ? Direction::both : Direction::forward;
  p.d_bias = p.wants_backward() && d_bias;
  p.d_lse = p.wants_backward() && chance(20);
  p.fill.seed = random();
  return p;
}

Fault random_fault(const Problem& problem, std::uint64_t seed, std::uint64_t index) {
  const std::vector<Fault> faults = faults_for(problem);
  std::vector<std::string> causes;
  for (const Fault& one : faults) {
    if (std::find(causes.begin(), causes.end(), one.cause) == causes.end()) causes.push_back(one.cause);
  }
  const std::string& cause = causes[random_word(seed, 2, index) % causes.size()];
  std::vector<Fault> of_cause;
  std::copy_if(faults.begin(), faults.end(), std::back_inserter(of_cause), [&](const Fault& one) { return one.cause == cause; });
  return of_cause[random_word(seed, 3, index) % of_cause.size()];
}

bool named_first(const diagnose::Explanation& explanation, const std::string& cause) {
  const auto causes = explanation.causes();
  return std::any_of(causes.begin(), causes.end(), [&](const auto& c) { return explanation.name_of(c) == cause; });
}

std::string first_name(const diagnose::Explanation& explanation, const std::string& prefer) {
  if (explanation.as_contracted()) return "(as contracted)";
  if (named_first(explanation, prefer)) return prefer;
  const auto causes = explanation.causes();
  return causes.empty() ? "(none)" : explanation.name_of(causes.front());
}

}  // namespace attest::testing_support
