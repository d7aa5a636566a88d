// SPDX-License-Identifier: Apache-2.0
// The ledgers of the models: equal to the closed forms, to the papers' figures where these follow from their stated
// shapes, and of the growth that Theorem 2 of FlashAttention claims.
#include "reference/models/ledger.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/models/flash.h"
#include "reference/models/io_report.h"
#include "reference/models/tiled_models.h"
#include "reference/models/traffic_formulas.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "tests/support/kernel_call.h"

namespace attest {
namespace {

/// The sizes of a case, for counting; never run.
struct Sizes {
  explicit Sizes(const std::string& text)
      : problem(parse_case(text)), call(problem, Inputs{}, KernelCall::Data::absent) {}
  const attest_problem& abi() { return call.problem(); }
  Problem problem;
  KernelCall call;
};

Ledger count(const std::string& model, const std::string& text, std::int64_t br, std::int64_t bc,
             std::int64_t capacity = 0) {
  Sizes sizes(text);
  return count_model(model, sizes.abi(), nullptr, br, bc, capacity);
}

constexpr const char* kFigure2 = "dtype=f16 batch=64 heads=16 q=1024 k=1024 dim=64";

TEST(Ledger, EqualsTheClosedFormsToTheWord) {
  for (const std::string& model : counted_models())
    for (const auto& [br, bc] : {std::pair<std::int64_t, std::int64_t>{32, 64}, {64, 32}, {128, 256}, {16, 16}}) {
      const TrafficShape shape{512, 32, br, bc, std::min<std::int64_t>(4, 512 / bc)};
      const Traffic forward = count(model, "dtype=f16 q=512 k=512 dim=32 direction=forward", br, bc).total();
      const Traffic backward = count(model, "dtype=f16 q=512 k=512 dim=32 direction=backward", br, bc).total();
      EXPECT_EQ(forward.reads, forward_traffic(model, shape).reads) << model << br << "x" << bc;
      EXPECT_EQ(forward.writes, forward_traffic(model, shape).writes) << model << br << "x" << bc;
      EXPECT_EQ(backward.reads, backward_traffic(model, shape).reads) << model << br << "x" << bc;
      EXPECT_EQ(backward.writes, backward_traffic(model, shape).writes) << model << br << "x" << bc;
    }
}

TEST(Ledger, CountsTheSameWhetherDataIsThereOrNot) {
  const Problem problem = parse_case("dtype=f16 heads=2 q=100,33 k=90,70 dim=8 causal=bottom-right");
  const Inputs inputs = make_inputs(problem);
  const auto compare = [&](const char* model, auto forward) {
    KernelCall call(problem, inputs);
    Ledger with_data;
    ModelOptions options = default_options(call.problem());
    options.query_tile = 16, options.key_tile = 32, options.ledger = &with_data;
    forward(call.call(), options);
    attest_problem sizes = call.problem();
    sizes.directions = ATTEST_FORWARD;
    const Ledger counted = count_model(model, sizes, nullptr, 16, 32, 0);
    EXPECT_EQ(with_data.total().reads, counted.total().reads) << model;
    EXPECT_EQ(with_data.total().writes, counted.total().writes) << model;
    EXPECT_EQ(with_data.matmul_flops(), counted.matmul_flops()) << model;
    EXPECT_EQ(with_data.other_flops(), counted.other_flops()) << model;
    EXPECT_EQ(with_data.peak_fast(), counted.peak_fast()) << model;
  };
  compare("flash", flash_forward);
  compare("fa1", fa1_forward);
  compare("fa3", fa3_forward);
  compare("split-kv", split_kv_forward);
  compare("rabe-staats", rabe_staats_forward);
  compare("two-pass", two_pass_forward);
}

TEST(Ledger, GivesTheStandardTrafficOfFigure2) {
  EXPECT_NEAR(static_cast<double>(count("standard", kFigure2, 1, 1).bytes(2)) / 1e9, 25.233, 5e-4);
  // 18 N^2 + 12 N d with the mask and dropout kernels; the paper prints 40.3 GB.
  const Ledger more = count("standard", std::string(kFigure2) + " mask=11qk:0.9 dropout=0.1@1", 1, 1);
  EXPECT_NEAR(static_cast<double>(more.bytes(2)) / 1e9, 40.265, 5e-4);
}

TEST(Ledger, GivesTheTiledTrafficOfFigure2) {
  const auto gigabytes = [](std::int64_t bc, std::int64_t br) {
    return static_cast<double>(count("fa1", kFigure2, br, bc).bytes(2)) / 1e9;
  };
  EXPECT_NEAR(gigabytes(384, 64), 4.605, 5e-4);
  EXPECT_NEAR(gigabytes(256, 64), 5.692, 5e-4);
  EXPECT_NEAR(gigabytes(64, 64), 18.73, 5e-3);
  EXPECT_NEAR(gigabytes(128, 64), 10.04, 5e-3);
  EXPECT_NEAR(gigabytes(512, 64), 3.52, 5e-3);
  // One key tile: 6 N d + 6 N forward and 12 N d + 2 N backward.
  Sizes sizes(kFigure2);
  attest_problem one = sizes.abi();
  one.directions = ATTEST_FORWARD;
  EXPECT_NEAR(static_cast<double>(count_model("fa1", one, nullptr, 64, 1024, 0).bytes(2)) / 1e9, 0.818, 5e-4);
  one.directions = ATTEST_BACKWARD;
  EXPECT_NEAR(static_cast<double>(count_model("fa1", one, nullptr, 64, 1024, 0).bytes(2)) / 1e9, 1.615, 5e-4);
}

// The printed 66.6 and 75.2 GFLOP do not follow from the stated shape.
TEST(Ledger, GivesTheFlopsOfFigure2) {
  EXPECT_NEAR(static_cast<double>(count("standard", kFigure2, 1, 1).matmul_flops()) / 1e9, 824.6, 0.05);
  EXPECT_NEAR(static_cast<double>(count("fa1", kFigure2, 64, 256).matmul_flops()) / 1e9, 962.1, 0.05);
  EXPECT_NEAR(static_cast<double>(count("flash", kFigure2, 64, 64).matmul_flops()) / 1e9, 962.1, 0.05);
}

TEST(Ledger, HasTheGrowthOfTheorem2) {
  // Non-increasing in M, and N^2 d^2 / M within a constant while d <= M <= N d.
  const std::string text = "dtype=f16 q=4096 k=4096 dim=64 direction=forward";
  double last = HUGE_VAL;
  for (std::int64_t m = 1024; m <= 4096 * 64; m *= 2) {
    const std::int64_t bc = (m + 4 * 64 - 1) / (4 * 64), br = std::min<std::int64_t>(bc, 64);
    const auto elements = static_cast<double>(count("fa1", text, br, bc).elements());
    EXPECT_LE(elements, last) << m;
    last = elements;
    const double shape = 4096.0 * 4096 * 64 * 64 / static_cast<double>(m);
    EXPECT_GT(elements / shape, 10) << m;
    EXPECT_LT(elements / shape, 20) << m;
  }
  // Standard: N d + N^2 within a constant.
  for (std::int64_t n = 256; n <= 16384; n *= 4) {
    const std::string lengths = "q=" + std::to_string(n) + " k=" + std::to_string(n);
    const auto elements =
        static_cast<double>(count("standard", "dtype=f16 dim=64 direction=forward " + lengths, 1, 1).elements());
    EXPECT_NEAR(elements / (static_cast<double>(n) * 64 + static_cast<double>(n * n)), 4.0, 1e-12);
  }
}

TEST(Ledger, HasLinearExtraMemoryWhereTiledAndQuadraticWhereNot) {
  const auto extra = [](const char* model, std::int64_t n) {
    const std::string text = "dtype=f16 dim=64 q=" + std::to_string(n) + " k=" + std::to_string(n);
    return count(model, text, 64, 64).extra_slow();
  };
  for (const char* model : {"flash", "fa1", "fa3", "two-pass", "split-kv"})
    EXPECT_EQ(extra(model, 4096), 4 * extra(model, 1024)) << model;
  EXPECT_EQ(extra("flash", 1024), 2 * 1024);
  EXPECT_EQ(extra("standard", 4096), 16 * extra("standard", 1024));
}

TEST(Ledger, RefusesTilesThatDoNotFit) {
  const std::string text = "dtype=f16 q=256 k=256 dim=64 direction=forward";
  // FA2 holds Q, O, l, m and K, V, S: 64 (128 + 2) + 64 (128 + 64).
  const std::int64_t held = 64 * 130 + 64 * 192;
  EXPECT_EQ(count("flash", text, 64, 64, held).peak_fast(), held);
  EXPECT_THROW(count("flash", text, 64, 64, held - 1), InvalidRequest);
}

TEST(Ledger, SkipsWhatACausalMaskHides) {
  const auto reads = [](const char* causal) {
    return count("flash", std::string("dtype=f16 q=1024 k=1024 dim=64 direction=forward causal=") + causal, 64, 64)
        .total()
        .reads;
  };
  EXPECT_EQ(reads("none"), 1024 * 64 + 16 * 16 * 2 * 64 * 64);
  EXPECT_EQ(reads("top-left"), 1024 * 64 + 16 * 17 / 2 * 2 * 64 * 64);
}

// Proposition 4: with a share s of the blocks shown, the part of the traffic that grows with N^2 is s of the whole.
TEST(Ledger, ScalesWithTheBlocksShown) {
  Sizes sizes("dtype=f16 q=1024 k=1024 dim=64 block=64x64:local=0 direction=forward");
  std::vector<std::uint8_t> mask(16 * 16, 0);
  for (std::size_t tile = 0; tile < 16; ++tile) mask[tile * 16 + tile] = 1;
  const attest_operand diagonal{mask.data(), 0, 0, 16, 1};
  const Traffic got = count_model("fa1", sizes.abi(), &diagonal, 64, 64, 0).total();
  EXPECT_EQ(got.reads, 2 * 1024 * 64 + (2 * 1024 * 64 + 2 * 1024));
  EXPECT_EQ(got.writes, 1024 * 64 + 2 * 1024 + (1024 * 64 + 2 * 1024));
}

TEST(TrafficFormulas, ReproduceTheMemoryTable) {
  const auto mebibytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const std::pair<std::int64_t, double> pytorch[] = {{128, 36},    {256, 104},   {512, 336},
                                                     {1024, 1184}, {2048, 4416}, {4096, 17024}};
  for (const auto& [n, printed] : pytorch) EXPECT_EQ(mebibytes(standard_memory_bytes(16 * 8, n, 64)), printed) << n;
  const std::pair<std::int64_t, double> flash[] = {{128, 22},     {256, 44},     {512, 104},   {1024, 209},
                                                   {2048, 418},   {4096, 836},   {8192, 1672}, {16384, 3344},
                                                   {32768, 6688}, {65536, 13376}};
  for (const auto& [n, printed] : flash)
    EXPECT_EQ(std::floor(mebibytes(flash_memory_bytes(16 * 8, n, 64))), printed) << n;
}

TEST(IoReport, NamesEveryModelWithItsFloor) {
  Sizes sizes(kFigure2);
  const IoReport report = io_report(sizes.abi(), nullptr, {});
  ASSERT_EQ(report.rows.size(), counted_models().size());
  EXPECT_EQ(report.rows[0].model, "standard");
  EXPECT_NEAR(report.rows[0].seconds, 25.233e9 / 1.555e12, 1e-5);
  for (const IoRow& row : report.rows) {
    EXPECT_LE(row.ledger.peak_fast(), report.fast_elements) << row.model;
    EXPECT_NE(print_table(report).find(row.model), std::string::npos);
  }
  EXPECT_NE(print_ledger(report.rows[0]).find("dS = P o"), std::string::npos);
}

TEST(IoReport, DrawsBothPanels) {
  Sizes sizes("dtype=f16 q=256 k=256 dim=64 direction=forward");
  const std::string svg = draw_traffic(sizes.abi(), {});
  EXPECT_TRUE(svg.starts_with("<svg")) << svg.substr(0, 80);
  std::size_t curves = 0;
  for (std::size_t at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1)) ++curves;
  EXPECT_EQ(curves, 2 * counted_models().size());
}

}  // namespace
}  // namespace attest
