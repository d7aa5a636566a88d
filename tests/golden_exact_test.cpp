// SPDX-License-Identifier: Apache-2.0
// The pack `exact`: which families and outputs it compares bit for bit, and that one step of the output type is a failure.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "golden/case_tensors.h"
#include "golden/exact_bits.h"
#include "golden/make.h"
#include "golden/pack.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/judge.h"
#include "tests/support/slow_oracle.h"

namespace attest::golden {
namespace {

std::vector<GoldenCase> exact_cases() {
  std::vector<GoldenCase> cases;
  const Pack pack = read_pack(ATTEST_SOURCE_DIR "/golden/packs/exact");
  for (const PackEntry& entry : pack.entries) cases.push_back(load_case(pack, entry));
  return cases;
}

struct Bits {
  std::int64_t all = 0;      // elements of an output
  std::int64_t exact = 0;    // compared bit for bit
  std::int64_t nonzero = 0;  // of these, those that are not 0
};

Bits bits_of(GoldenCase& golden, const std::string& output) {
  Bits bits;
  const Dtype type = golden.problem.output_dtype();
  const std::vector<double>& want = output_values(golden.exact, output);
  const std::vector<double>& bounds = output_values(golden.bounds, output);
  for (std::size_t n = 0; n < want.size(); ++n) {
    ++bits.all;
    if (!is_bit_for_bit(type, want[n], bounds[n])) continue;
    ++bits.exact;
    bits.nonzero += round_to(type, want[n]) != 0;
  }
  return bits;
}

/// What each exact family of docs/numerics.md must at least be compared in: a share of o, and nonzero gradients.
struct Asked {
  const char* id;
  const char* family;
  double share_of_o;
  std::vector<std::pair<const char*, std::int64_t>> nonzero;
};

TEST(GoldenExact, HasEveryExactFamily) {
  const std::vector<Asked> asked = {
      {"E1a", "exact-uniform", 1, {{"dq", 200}, {"dv", 400}}},
      {"E1b", "exact-uniform-k", 1, {{"dk", 400}, {"dv", 400}}},
      {"E2", "exact-prefix", 0.2, {}},
      {"E2w", "exact-window", 0.7, {}},
      {"E3", "exact-retrieval", 1, {}},
      {"E4, E10", "exact-census", 1, {}},
      {"E5", "exact-ladder", 0.9, {}},
      {"E5s", "exact-staircase", 0.2, {}},
      {"E6", "exact-dropout", 1, {}},
      {"E7", "exact-constant", 1, {{"dv", 300}}},
      {"E8", "exact-diagonal", 1, {{"dv", 150}}},
      {"E9", "exact-duplicate", 1, {{"dq", 80}, {"dv", 400}}},
      {"E11", "exact-opposite", 1, {}},
  };
  std::map<std::string, std::map<std::string, Bits>> sums;
  std::map<std::string, std::map<Dtype, int>> types;
  for (GoldenCase& golden : exact_cases()) {
    const std::string family(golden.problem.fill.family);
    types[family][golden.problem.dtype] += 1;
    for (const std::string& output : output_names(golden.problem)) {
      const Bits bits = bits_of(golden, output);
      Bits& sum = sums[family][output];
      sum.all += bits.all;
      sum.exact += bits.exact;
      sum.nonzero += bits.nonzero;
    }
  }
  for (const Asked& family : asked) {
    EXPECT_GE(types[family.family][Dtype::f16], 1) << family.id;
    EXPECT_GE(types[family.family][Dtype::bf16], 1) << family.id;
    const Bits& o = sums[family.family]["o"];
    EXPECT_GE(static_cast<double>(o.exact), family.share_of_o * static_cast<double>(o.all)) << family.id;
    for (const auto& [output, least] : family.nonzero) {
      EXPECT_GE(sums[family.family][output].nonzero, least) << family.id << " " << output;
    }
  }
}

/// E2: a wrong number of visible keys shows in every row, whether o is compared bit for bit or not.
TEST(GoldenExact, PrefixCodesAreToldApartByTheirBounds) {
  std::int64_t loose = 0;
  for (GoldenCase& golden : exact_cases()) {
    if (golden.problem.fill.family != "exact-prefix") continue;
    for (std::size_t n = 0; n < golden.exact.o.data.size(); ++n) {
      EXPECT_EQ(golden.exact.o.data[n], std::round(golden.exact.o.data[n]));
      EXPECT_LT(golden.bounds.o.data[n], 0.5) << print_case(golden.problem) << " " << n;
      loose += golden.bounds.o.data[n] > 0;
    }
  }
  EXPECT_GT(loose, 0);
}

/// E10: -inf in a bias is the same as a mask.
TEST(GoldenExact, AHidingBiasEqualsTheMaskedRun) {
  std::int64_t held = 0, empty = 0;
  for (GoldenCase& golden : exact_cases()) {
    if (golden.problem.fill.family != "exact-census" || !golden.problem.bias) continue;
    Problem masked = golden.problem;
    masked.bias.reset();
    masked.mask = ExplicitMask{golden.problem.bias->shape, 0.5};
    Inputs inputs = golden.inputs;
    inputs.mask = {inputs.bias.extent_b, inputs.bias.extent_h, inputs.bias.extent_q, inputs.bias.extent_k, {}};
    for (const double bias : inputs.bias.data) inputs.mask.data.push_back(bias == 0);
    inputs.bias = {};
    Exact want = slow::correctly_rounded(masked, inputs);
    for (const std::string& output : output_names(golden.problem)) {
      EXPECT_EQ(output_values(want, output), output_values(golden.exact, output)) << output;
    }
    for (const double lse : golden.exact.lse) empty += std::isinf(lse);
    ++held;
  }
  EXPECT_GE(held, 2);
  EXPECT_GE(empty, 3);
}

/// What an output is, and what it is not when it is off by one step of its type.
TEST(GoldenExact, AsksForEqualBits) {
  std::int64_t count = 0;
  for (GoldenCase& golden : exact_cases()) {
    const Dtype type = golden.problem.output_dtype();
    for (const std::string& output : golden.exact_tensors) {
      const std::vector<double>& want = output_values(golden.exact, output);
      const std::vector<double>& bounds = output_values(golden.bounds, output);
      for (std::size_t n = 0; n < want.size(); ++n, ++count) {
        const double right = round_to(type, want[n]);
        const double step = type == Dtype::f32 ? 0x1p-23 : type == Dtype::f16 ? 0x1p-10 : 0x1p-7;
        const double above = right == 0 ? 0x1p-24 : right * (1 + step), below = -above + 2 * right;
        ASSERT_LE(element_score(want[n], right, bounds[n], type), 1);
        ASSERT_GT(element_score(want[n], above, bounds[n], type), 1);
        ASSERT_GT(element_score(want[n], below, bounds[n], type), 1);
      }
    }
  }
  EXPECT_GT(count, 8000);
}

GoldenRequest request(const std::string& text, std::vector<std::string> exact = {}) {
  GoldenRequest made;
  made.problem = parse_case(text);
  made.flags = {"ExactSum"};
  made.exact_tensors = std::move(exact);
  made.where = "corpus.txt:1";
  return made;
}

GoldenCase made(const GoldenRequest& request) {
  return make_golden_case(request, {[](const Problem& p, const Inputs& in) { return slow::correctly_rounded(p, in); },
                                    [](const Problem& p, const Inputs& in, auto b, auto h, auto i, auto j) {
                                      return slow::visible(p, in.mask, in.block_mask, b, h, i, j);
                                    },
                                    slow::kept});
}

/// exp(-lse) errs by a last bit of float32 in a kernel that is right: no f32 gradient is asked for its bits unless it is 0.
TEST(GoldenExact, AsksNoBitsThatExpMayMiss) {
  try {
    made(request("q=5 k=8 dim=8 scale=0 fill=integers", {"dv"}));
    FAIL();
  } catch (const InvalidRequest& error) {
    EXPECT_NE(std::string(error.what()).find("corpus.txt:1: exact: got dv with "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("that float32 arithmetic, whose exp errs, gives to the last bit"),
              std::string::npos);
  }
  EXPECT_EQ(made(request("q=5 k=8 dim=8 scale=0 fill=integers", {"dq", "dk"})).bounds.dq.data,
            std::vector<double>(40, 0.0));
}

TEST(GoldenExact, FamiliesOf8BitSumsKeepTheirBounds) {
  GoldenCase golden = made(request("dtype=f8e4m3 q=5 k=16 dim=8 scale=0.125 fill=exact-uniform"));
  EXPECT_TRUE(golden.exact_tensors.empty());
  EXPECT_EQ(bits_of(golden, "o").exact, 0);
}

}  // namespace
}  // namespace attest::golden
