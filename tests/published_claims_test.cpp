// SPDX-License-Identifier: Apache-2.0
// What the papers claim of their algorithms, shown on the models: FlashAttention's invariant and identity, the misprint
// of FlashAttention-2, FlashAttention-3's errors, FlashAttention-4's bound, merges in the orders of ring attention.
// Traffic, FLOPs and memory: ledger_test.cpp. What does not follow from the papers: docs/models.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/models/fa1_observer.h"
#include "reference/models/flash.h"
#include "reference/models/forward_steps.h"
#include "reference/models/standard.h"
#include "reference/models/tiled_models.h"
#include "reference/oracle/exact.h"
#include "reference/problem/case_text.h"
#include "tests/support/kernel_call.h"
#include "tests/support/slow_oracle.h"

namespace attest {
namespace {

using Model = void (*)(const attest_call&, const ModelOptions&);

double root_mean_square(const std::vector<double>& got, const std::vector<double>& want) {
  double sum = 0;
  for (std::size_t at = 0; at < want.size(); ++at) sum += (got[at] - want[at]) * (got[at] - want[at]);
  return std::sqrt(sum / static_cast<double>(want.size()));
}

double largest_difference(const std::vector<double>& got, const std::vector<double>& want) {
  double worst = 0;
  for (std::size_t at = 0; at < want.size(); ++at) {
    const double difference = std::abs(got[at] - want[at]);
    worst = difference <= worst ? worst : difference;  // NaN becomes the worst and stays
  }
  return worst;
}

Exact run(Model forward, const Problem& problem, const Inputs& inputs, const ModelOptions& options) {
  KernelCall call(problem, inputs);
  forward(call.call(), options);
  return call.outputs();
}

ModelOptions options_for(const Problem& problem) {
  return default_options(KernelCall(problem, Inputs{}, KernelCall::Data::absent).problem());
}

// Theorem 1: after key tile j of Algorithm 1, O is the exact attention over the keys so far.
TEST(FlashAttention1, HoldsTheExactAttentionOverTheKeysSoFar) {
  const Problem problem = parse_case("dtype=f64 q=9 k=21 dim=4 direction=forward fill=rising");
  const Inputs inputs = make_inputs(problem);
  ModelOptions options = options_for(problem);
  options.query_tile = 4, options.key_tile = 5;
  std::vector<std::int64_t> seen;
  const Fa1Observer observer = [&](std::int64_t keys, const std::vector<double>& o) {
    seen.push_back(keys);
    Problem prefix = problem;
    prefix.seq_k = {keys};
    Inputs first = inputs;
    first.k.tokens = first.v.tokens = keys;
    first.k.data.resize(static_cast<std::size_t>(keys * 4)), first.v.data.resize(static_cast<std::size_t>(keys * 4));
    const slow::Result want = slow::attention(prefix, first);
    for (std::size_t at = 0; at < o.size(); ++at)
      EXPECT_NEAR(o[at], want.value.o.data[at], 1e-13 * want.magnitude.o.data[at]) << keys;
  };
  KernelCall call(problem, inputs);
  fa1_forward_observed(call.call(), options, &observer);
  EXPECT_EQ(seen, (std::vector<std::int64_t>{5, 10, 15, 20, 21}));
}

// Appendix B.4: rowsum(P o dP) = rowsum(dO o O), with dropout too: `standard` takes the left side, the others the right.
TEST(FlashAttention1, FindsDeltaFromTheOutput) {
  for (const char* dropout : {"", " dropout=0.3@5"}) {
    const Problem problem = parse_case(std::string("dtype=f64 heads=2 q=20 k=33 dim=8 causal=bottom-right") + dropout);
    const Inputs inputs = make_inputs(problem);
    const slow::Result exact = slow::attention(problem, inputs);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 20; ++i) {
        double p_dp = 0, do_o = 0, size = 0;
        const auto lse = exact.value.lse[static_cast<std::size_t>(i * 2 + h)];
        for (std::int64_t c = 0; c < 8; ++c) do_o += inputs.d_o.at(i, h, c) * exact.value.o.at(i, h, c);
        for (std::int64_t j = 0; j < 33; ++j) {
          if (!slow::visible(problem, inputs.mask, inputs.block_mask, 0, h, i, j)) continue;
          double s = 0, dp = 0;
          for (std::int64_t c = 0; c < 8; ++c) {
            s += inputs.q.at(i, h, c) * inputs.k.at(j, h, c);
            dp += inputs.d_o.at(i, h, c) * inputs.v.at(j, h, c);
          }
          if (problem.dropout) dp *= slow::kept(problem, 0, h, i, j) ? 1 / (1 - problem.effective_dropout()) : 0;
          p_dp += std::exp(problem.effective_scale() * s - lse) * dp;
          size += std::exp(problem.effective_scale() * s - lse) * std::abs(dp);
        }
        EXPECT_NEAR(p_dp, do_o, 1e-13 * (1 + size)) << h << " " << i << dropout;
      }
    const auto gradients = [&](const attest_kernel& kernel) {
      KernelCall call(problem, inputs);
      EXPECT_EQ(call.run(kernel), ATTEST_OK);
      return call.outputs();
    };
    const Exact left = gradients(kStandardKernel), right = gradients(kFlashKernel);
    EXPECT_LT(largest_difference(left.dq.data, right.dq.data), 1e-13);
    EXPECT_LT(largest_difference(left.dk.data, right.dk.data), 1e-13);
  }
}

// Line 10 of Algorithm 1 prints the inverse of the factor that rescales O. With it a rise of the maximum by x leaves O
// wrong by a factor of about e^(2x); where the maximum never rises after the first tile both agree.
TEST(FlashAttention2, IsWrongWithTheRescaleFactorAsPrinted) {
  for (const char* fill : {"normal", "rising", "falling"}) {
    const Problem problem = parse_case(std::string("dtype=f64 q=16 k=96 dim=16 direction=forward fill=") + fill);
    const Inputs inputs = make_inputs(problem);
    ModelOptions options = options_for(problem);
    options.query_tile = options.key_tile = 16;
    const slow::Result want = slow::attention(problem, inputs);
    EXPECT_LT(largest_difference(run(flash_forward, problem, inputs, options).o.data, want.value.o.data), 1e-12) << fill;
    options.rescale = Rescale::as_printed;
    const double error = largest_difference(run(flash_forward, problem, inputs, options).o.data, want.value.o.data);
    if (std::string(fill) == "falling") {
      EXPECT_LT(error, 1e-12);
    } else {
      EXPECT_GT(error, 0.1) << fill;
    }
  }
}

/// One method of FlashAttention-3's Table 3 on its own distribution: N(0, 1) + N(0, 100) Bernoulli(0.001), f16 inputs.
class Table3 {
 public:
  explicit Table3(std::uint64_t seed)
      : problem_(parse_case("dtype=f16 out=f32 heads=4 q=256 k=512 dim=64 direction=forward fill=outliers@" +
                            std::to_string(seed))),
        inputs_(make_inputs(problem_)), want_(exact_attention(problem_, inputs_).o.data) {}

  double f16(Model forward, Dtype scores) const {
    ModelOptions options = options_for(problem_);
    set_tiles(options, forward);
    options.s = scores;
    return root_mean_square(run(forward, problem_, inputs_, options).o.data, want_);
  }

  /// Tiled: P in e4m3 with a scale per tile, everything else in float. Baseline: one scale a tensor, softmax in f16.
  double fp8(Model forward, Fp8Operands operands) const {
    ModelOptions options = options_for(problem_);
    const bool tiled = forward == fa3_forward;
    set_tiles(options, forward);
    options.fp8 = operands;
    options.s = tiled ? Dtype::f32 : Dtype::f16;
    options.p_forward = Dtype::f8e4m3;
    options.p_offset = tiled ? 8 : 0;
    options.p_tile_scale = tiled;
    return root_mean_square(run(forward, problem_, inputs_, options).o.data, want_);
  }

 private:
  static void set_tiles(ModelOptions& options, Model forward) {
    options.query_tile = forward == standard_forward ? 256 : 128;  // all queries and keys: S is materialised
    options.key_tile = forward == standard_forward ? 512 : 128;
  }

  Problem problem_;
  Inputs inputs_;
  std::vector<double> want_;  // [Sq, Hq, Dv]
};

TEST(FlashAttention3, HasTheErrorsOfTable3InTheirOrder) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const Table3 table(seed);
    const double baseline = table.f16(standard_forward, Dtype::f16);
    const double fa2 = table.f16(flash_forward, Dtype::f32), fa3 = table.f16(fa3_forward, Dtype::f32);
    const double baseline_fp8 = table.fp8(standard_forward, {.per_block = false, .incoherent = false});
    const double full = table.fp8(fa3_forward, {.per_block = true, .incoherent = true});
    const double no_blocks = table.fp8(fa3_forward, {.per_block = false, .incoherent = true});
    const double no_incoherent = table.fp8(fa3_forward, {.per_block = true, .incoherent = false});
    EXPECT_EQ(fa2, fa3);  // the same sums in the same order
    EXPECT_GT(baseline, fa2);
    EXPECT_GT(full, 10 * baseline);
    for (const double incoherent : {full, no_blocks}) {  // which of the two is smaller depends on the draw
      EXPECT_GT(baseline_fp8, incoherent);
      EXPECT_GT(no_incoherent, incoherent);
    }
  }
}

// tau = 2^8: the maximum may lag, so sums may be up to 256 times the usual ones; the result stays.
TEST(FlashAttention4, PostponesRescalingWithinItsBound) {
  for (const char* fill : {"normal", "rising:6", "peaked"}) {
    const Problem problem = parse_case(std::string("dtype=f64 q=24 k=160 dim=16 direction=forward fill=") + fill);
    const Inputs inputs = make_inputs(problem);
    KernelCall call(problem, inputs);
    ModelOptions usual = default_options(call.problem());
    usual.query_tile = usual.key_tile = 16;
    ModelOptions lazy = usual;
    lazy.rescale_threshold = 8;
    double lagged = 0;
    for_each_head<double>(call.call(), usual, [&](ForwardSteps<double>& steps) {
      const auto [head, br, bc, d, dv, ledger] = steps.loop();
      ForwardSteps<double> lazy_steps(head, lazy, ledger);
      ScoreTile<double> s(usual);
      for (std::int64_t i = 0; i < head.queries(); i += br) {
        StateRows<double> followed(br, dv), behind(br, dv);
        for (std::int64_t j = 0; j < head.keys(); j += bc) {
          s.tile = {i, std::min(br, head.queries() - i), j, bc};
          steps.absorb(s, followed);
          lazy_steps.absorb(s, behind);
          for (std::int64_t r = 0; r < s.tile.rows; ++r) {
            const double factor = std::exp(followed[r].m - behind[r].m);
            lagged = std::max(lagged, factor);
            EXPECT_LE(factor, 256 * (1 + 1e-12));
            EXPECT_NEAR(behind[r].l, factor * followed[r].l, 1e-12 * factor * followed[r].l);
          }
        }
      }
    });
    EXPECT_GT(lagged, 2) << fill;  // it was put to use
    const slow::Result want = slow::attention(problem, inputs);
    const Exact got = run(flash_forward, problem, inputs, lazy);
    for (std::size_t at = 0; at < got.o.data.size(); ++at)
      EXPECT_NEAR(got.o.data[at], want.value.o.data[at], 1e-13 * (1 + want.score_magnitude) * want.magnitude.o.data[at]);
  }
}

TEST(FlashDecoding, GivesTheSinglePassForAnyNumberOfParts) {
  const Problem problem =
      parse_case("dtype=f64 heads=2 q=5 k=77 dim=8 causal=bottom-right window=30,-1 direction=forward fill=peaked");
  const Inputs inputs = make_inputs(problem);
  const slow::Result want = slow::attention(problem, inputs);
  for (std::int64_t splits = 1; splits <= 20; ++splits) {
    ModelOptions options = options_for(problem);
    options.query_tile = 4, options.key_tile = 4, options.splits = splits;
    const Exact got = run(split_kv_forward, problem, inputs, options);
    for (std::size_t at = 0; at < got.o.data.size(); ++at)
      EXPECT_NEAR(got.o.data[at], want.value.o.data[at], 2e-13 * want.magnitude.o.data[at]) << splits;
    EXPECT_LT(largest_difference(got.lse, want.value.lse), 1e-12);
  }
}

/// Which of P ranks holds token t of N: plain, zigzag (rank r has chunks r and 2P - 1 - r) and striped sharding.
using Owner = std::int64_t (*)(std::int64_t t, std::int64_t n, std::int64_t ranks);
std::int64_t in_chunks(std::int64_t t, std::int64_t n, std::int64_t ranks) { return t / (n / ranks); }
std::int64_t zigzag(std::int64_t t, std::int64_t n, std::int64_t ranks) {
  const std::int64_t chunk = t / (n / (2 * ranks));
  return std::min(chunk, 2 * ranks - 1 - chunk);
}
std::int64_t striped(std::int64_t t, std::int64_t, std::int64_t ranks) { return t % ranks; }

// Each rank keeps its queries; keys arrive from rank r, r - 1, ... in turn (Ring Attention), causal.
TEST(RingAttention, GivesTheSinglePassInEverySharding) {
  constexpr std::int64_t n = 48;
  const Problem problem = parse_case("dtype=f64 q=48 k=48 dim=4 causal=top-left direction=forward fill=peaked");
  const Inputs in = make_inputs(problem);
  const slow::Result want = slow::attention(problem, in);
  for (const Owner owner : {in_chunks, zigzag, striped})
    for (const std::int64_t ranks : {2, 3, 4, 8})
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<double> u(4);
        SoftmaxState<double> state{.u = u};
        for (std::int64_t step = 0; step < ranks; ++step) {
          const std::int64_t from = (owner(i, n, ranks) - step + ranks) % ranks;
          std::vector<double> scores, values, part_u(4);
          for (std::int64_t j = 0; j < n; ++j) {
            if (owner(j, n, ranks) != from) continue;
            double s = 0;
            for (std::int64_t c = 0; c < 4; ++c) s += in.q.at(i, 0, c) * in.k.at(j, 0, c);
            scores.push_back(j <= i ? problem.effective_scale() * s : -HUGE_VAL);
            for (std::int64_t c = 0; c < 4; ++c) values.push_back(in.v.at(j, 0, c));
          }
          SoftmaxState<double> part{.u = part_u};  // without keys where all are hidden
          absorb<double>(part, scores, values);
          merge(state, part);
        }
        EXPECT_NEAR(finish(state), want.value.lse[static_cast<std::size_t>(i)], 1e-12);
        for (std::int64_t c = 0; c < 4; ++c)
          EXPECT_NEAR(u[static_cast<std::size_t>(c)], want.value.o.at(i, 0, c), 1e-12) << ranks << " " << i;
      }
}

}  // namespace
}  // namespace attest
