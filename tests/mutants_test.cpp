// SPDX-License-Identifier: Apache-2.0
// A mutant counts only if it breaks the contract: on the case that its header names, the slow oracle must disagree with
// it and agree with the kernel that it was made from. Then `attest mutants` must find it, within the budget of CI.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/case_text.h"
#include "tests/support/kernel_call.h"
#include "tests/support/shell.h"
#include "tests/support/slow_oracle.h"
#include "tools/mutant.h"

namespace attest {
namespace {

using testing_support::file_text;
using testing_support::shell;
using tools::Mutant;

const std::vector<Mutant>& all_mutants() {
  static const std::vector<Mutant> mutants = tools::load_mutants({ATTEST_MUTANTS});
  return mutants;
}

const attest_kernel& original_of(const Mutant& mutant) {
  for (const attest_kernel* kernel : builtin_cpu_kernels())
    if (kernel->name == mutant.original) return *kernel;
  throw std::logic_error("no kernel " + mutant.original);
}

constexpr double allowance_of_float() { return 2e-5; }

/// What an element may be off by, relative to the sizes that are summed for it: far above rounding, far below a defect.
double allowance(const Problem& problem) {
  switch (problem.dtype) {
    case Dtype::f64: return 1e-11;
    case Dtype::f32: return allowance_of_float();
    case Dtype::f16: return 4e-3;
    case Dtype::bf16: return 3e-2;
    default: return 0.2;
  }
}

bool agrees(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& size,
            double allowed) {
  for (std::size_t at = 0; at < want.size(); ++at) {
    if (got[at] == want[at]) continue;
    if (!std::isfinite(got[at]) || !std::isfinite(want[at])) return false;
    constexpr double kUnderflow = 1e-30;  // far above the smallest numbers of float
    if (!(std::abs(got[at] - want[at]) <= allowed * size[at] + kUnderflow)) return false;
  }
  return true;
}

/// Scores of a hundred lose what these have of float's precision. LSE is float whatever the inputs are.
bool agrees(const Exact& got, const slow::Result& want, double allowed) {
  const double more = allowed * (1 + want.score_magnitude / 16);
  const double of_lse = std::min(allowed, allowance_of_float()) * (1 + want.score_magnitude / 16);
  const Exact &value = want.value, &size = want.magnitude;
  return agrees(got.o.data, value.o.data, size.o.data, more) && agrees(got.lse, value.lse, size.lse, of_lse) &&
         agrees(got.dq.data, value.dq.data, size.dq.data, more) && agrees(got.dk.data, value.dk.data, size.dk.data, more) &&
         agrees(got.dv.data, value.dv.data, size.dv.data, more) &&
         agrees(got.d_bias.data, value.d_bias.data, size.d_bias.data, more);
}

Exact outputs(const attest_kernel& kernel, const Problem& problem, const Inputs& inputs) {
  KernelCall call(problem, inputs);
  EXPECT_EQ(call.run(kernel), ATTEST_OK) << call.message();
  return call.outputs();
}

bool breaks_value(const attest_kernel& kernel, const Problem& problem) {
  const Inputs inputs = make_inputs(problem);
  return !agrees(outputs(kernel, problem, inputs), slow::attention(problem, inputs), allowance(problem));
}

/// Key 10 and all later ones are hidden from the first nine queries of a causal case: NaN in their K, their V or both
/// must change no bit of those queries, nor of the gradients of the first nine keys, whose other queries give 0.
bool breaks_hidden(const attest_kernel& kernel, const Problem& problem) {
  Inputs inputs = make_inputs(problem);
  const Exact clean = outputs(kernel, problem, inputs);
  const auto same = [](const Values& a, const Values& b) {
    for (std::int64_t i = 0; i < 9; ++i)
      if (std::memcmp(a.row(i, 0).data(), b.row(i, 0).data(), a.row(i, 0).size_bytes()) != 0) return false;
    return true;
  };
  for (const auto& poisoned : {std::vector{&Inputs::k}, {&Inputs::v}, {&Inputs::k, &Inputs::v}}) {
    Inputs bad = inputs;
    for (Values Inputs::*tensor : poisoned)
      for (std::int64_t j = 10; j < problem.seq_k[0]; ++j)
        for (double& value : (bad.*tensor).row(j, 0)) value = std::numeric_limits<double>::quiet_NaN();
    const Exact got = outputs(kernel, problem, bad);
    if (!same(got.o, clean.o) || !same(got.dq, clean.dq) || !same(got.dk, clean.dk) || !same(got.dv, clean.dv)) return true;
  }
  return false;
}

/// Elements of q-side and k-side outputs that were written, against those that tokens have.
bool breaks_untouched(const attest_kernel& kernel, const Problem& problem) {
  KernelCall call(problem, make_inputs(problem));
  EXPECT_EQ(call.run(kernel), ATTEST_OK) << call.message();
  for (const TensorId id : {TensorId::o, TensorId::dq, TensorId::dk, TensorId::dv}) {
    std::int64_t written = 0;
    const std::vector<std::byte>& bytes = call.bytes(id);
    for (std::size_t at = 0; at < bytes.size(); at += 8) written += !std::isnan(load(Dtype::f64, bytes.data() + at));
    const bool query = id == TensorId::o || id == TensorId::dq;
    if (written != (query ? problem.total_q() : problem.total_k()) * problem.dim * problem.heads_q) return true;
  }
  return false;
}

bool breaks(const std::string& proof, const attest_kernel& kernel, const Problem& problem) {
  if (proof == "hidden") return breaks_hidden(kernel, problem);
  if (proof == "untouched") return breaks_untouched(kernel, problem);
  return breaks_value(kernel, problem);
}

TEST(Mutants, BreakTheContractWhereTheirOriginalKeepsIt) {
  for (const Mutant& mutant : all_mutants()) {
    const Problem problem = parse_case(mutant.smallest);
    EXPECT_FALSE(breaks(mutant.proof, original_of(mutant), problem)) << mutant.kernel.name() << " " << mutant.smallest;
    EXPECT_TRUE(breaks(mutant.proof, mutant.kernel.table(), problem)) << mutant.kernel.name() << " " << mutant.smallest;
  }
}

TEST(Mutants, DifferFromTheirOriginalOnlyInCode) {
  for (const Mutant& mutant : all_mutants()) {
    const attest_kernel& original = original_of(mutant);
    EXPECT_EQ(std::memcmp(&mutant.kernel.table().conventions, &original.conventions, sizeof original.conventions), 0);
    for (const char* direction : {"forward", "backward", "both"})
      if (mutant.direction == direction) return;
    ADD_FAILURE() << mutant.kernel.name() << ": " << mutant.direction;
  }
}

TEST(Mutants, AreAllFound) {
  const std::string json = testing::TempDir() + "attest_mutants.json";
  const auto result = shell(std::string(ATTEST_BINARY) + " mutants " + ATTEST_MUTANTS + " --time 60 --json " + json);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json report = nlohmann::json::parse(file_text(json));
  EXPECT_EQ(report.size(), all_mutants().size());
  for (const nlohmann::json& one : report)
    EXPECT_FALSE(one["killed"].get<bool>() && one["by"].get<std::string>().empty()) << one;
}

TEST(MutantsCommand, CountsAKernelThatIsSoundAsNotFound) {
  // The rule of a mean square cannot see an LSE: a defect of LSE alone stays unfound by it, and the exit code says so.
  const auto result = shell(std::string(ATTEST_BINARY) + " mutants " + ATTEST_MUTANTS +
                            " --only lse-in-f16 --rule nmse --friendly --time 5");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_NE(result.output.find("NOT FOUND"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("0 of 1 mutants found by nmse on the friendly grid"), std::string::npos) << result.output;
}

TEST(MutantsCommand, RefusesWhatIsNoMutant) {
  const std::string command = std::string(ATTEST_BINARY) + " mutants ";
  for (const auto& [arguments, says] : std::map<std::string, std::string>{
           {"no/such/folder", "no/such/folder"},
           {ATTEST_SAMPLE_LIBRARY, "a plugin built from tests/mutants"},
           {std::string(ATTEST_MUTANTS) + " --only nobody", "only: got 'nobody'"},
           {std::string(ATTEST_MUTANTS) + " --rule guess", "--rule"},
           {std::string(ATTEST_MUTANTS) + " --json no/such/x --only lse-in-f16", "no/such/x"}}) {
    const auto result = shell(command + arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments << result.output;
    EXPECT_NE(result.output.find(says), std::string::npos) << arguments << result.output;
  }
}

}  // namespace
}  // namespace attest
