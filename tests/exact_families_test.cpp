// SPDX-License-Identifier: Apache-2.0
// The exact families: their closed form against the oracle, and every built-in kernel against their bits.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reference/models/builtin_kernels.h"
#include "reference/oracle/closed_form.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/check.h"
#include "reference/verify/exact_cases.h"
#include "reference/verify/report.h"

namespace attest {
namespace {

std::vector<std::string> exact_families() {
  std::vector<std::string> names;
  for (const Family& known : families()) {
    if (known.kind == FamilyKind::exact) names.emplace_back(known.name);
  }
  return names;
}

class ExactFamily : public testing::TestWithParam<std::string> {
 public:
  std::vector<Problem> problems() const {
    std::vector<Problem> all;
    for (const char* text : {"dtype=f16 q=40 k=260 heads=2/1 dim=64", "dtype=bf16 layout=thd q=5,0,40 k=130,7,64 heads=2 dim=64/40",
                             "dtype=f16 layout=bhsd pad=left q=30,9 k=70,33 heads=3/1 dim=64 bias=1hqk causal=bottom-right",
                             "dtype=bf16 q=100 k=100 dim=64 causal=top-left", "dtype=f8e4m3 q=20 k=64 dim=64",
                             "dtype=f16 q=17 k=512 dim=128 direction=forward"}) {
      all.push_back(with_exact_family(parse_case(std::string(text) + " fill=normal@1"), GetParam()));
    }
    return all;
  }
};

void expect_near(const ClosedTensor& closed, const Values& oracle, const std::string& what, std::int64_t& exact) {
  for (std::size_t n = 0; n < closed.exact.size(); ++n) {
    if (closed.exact[n] == 0) continue;
    ++exact;
    ASSERT_NEAR(closed.value.data[n], oracle.data[n], 1e-7 * (1 + std::abs(oracle.data[n]))) << what << " " << n;
  }
}

TEST_P(ExactFamily, TheClosedFormIsWhatTheOracleFinds) {
  std::int64_t exact_o = 0, exact_gradients = 0;
  for (const Problem& problem : problems()) {
    const Inputs inputs = make_inputs(problem);
    const Exact oracle = exact_attention(problem, inputs);
    const ClosedForm form = closed_form(problem, inputs);
    const std::string text = print_case(problem);
    expect_near(form.o, oracle.o, text + " o", exact_o);
    expect_near(form.dq, oracle.dq, text + " dq", exact_gradients);
    expect_near(form.dk, oracle.dk, text + " dk", exact_gradients);
    expect_near(form.dv, oracle.dv, text + " dv", exact_gradients);
    for (std::size_t n = 0; n < form.lse.size(); ++n) {
      if (std::isnan(form.lse[n])) continue;
      if (std::isinf(form.lse[n])) {
        ASSERT_EQ(form.lse[n], oracle.lse[n]) << text;
      } else {
        ASSERT_NEAR(form.lse[n], oracle.lse[n], 1e-7) << text;
      }
    }
  }
  EXPECT_GT(exact_o, 1000);
  if (GetParam().starts_with("exact-uniform") || GetParam() == "exact-duplicate" || GetParam() == "exact-constant" ||
      GetParam() == "exact-diagonal" || GetParam() == "exact-retrieval") {
    EXPECT_GT(exact_gradients, 1000);
  }
}

TEST_P(ExactFamily, BuiltInKernelsGiveTheseBits) {
  const auto memory = make_host_memory();
  for (const attest_kernel* table : builtin_cpu_kernels()) {
    const Kernel kernel(table);
    std::int64_t bitwise = 0;
    for (const Problem& problem : problems()) {
      if (!kernel.why_unsupported(problem).empty()) continue;
      const PreparedCase prepared = prepare(kernel, problem);
      for (const double bound : prepared.truth.bounds.o.data) bitwise += bound == 0;
      const Verdict verdict = check(kernel, prepared, *memory);
      EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
    }
    EXPECT_GT(bitwise, 100) << table->name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExactFamily, testing::ValuesIn(exact_families()), [](const auto& instance) {
  std::string name = instance.param;
  std::erase(name, '-');
  return name;
});

TEST(ExactFamilies, NameWhatAProblemLacks) {
  const auto refused = [](const char* text) {
    try {
      parse_case(text);
    } catch (const InvalidRequest& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refused("dtype=f32 fill=exact-uniform").find("an output type f16 or bf16"), std::string::npos);
  EXPECT_NE(refused("dtype=f16 k=100 fill=exact-uniform").find("k powers of two"), std::string::npos);
  EXPECT_NE(refused("dtype=f16 k=64 fill=exact-ladder").find("scale=0.69314718"), std::string::npos);
  EXPECT_NE(refused("dtype=f16 k=64 softcap=3 fill=exact-opposite").find("no softcap"), std::string::npos);
  EXPECT_NE(refused("dtype=f16 k=64 fill=exact-census").find("either a mask or a bias"), std::string::npos);
  EXPECT_NE(refused("dtype=f16 k=64 fill=exact-dropout").find("dropout=0.5"), std::string::npos);
  EXPECT_NE(refused("dtype=bf16 k=300 fill=exact-prefix").find("at most 255"), std::string::npos);
  EXPECT_NE(refused("dtype=f16 dim=32 fill=exact-retrieval").find("dim of at least 64"), std::string::npos);
  EXPECT_NE(refused("dtype=f16 fill=exact-diagonal").find("window=0,0"), std::string::npos);
  EXPECT_NE(refused("dtype=f16 fill=exact-window window=-1,3").find("limited on both sides"), std::string::npos);
}

TEST(ExactFamilies, BitsAreAskedOnlyOfArithmeticThatHasThem) {
  const Problem problem = parse_case("dtype=f16 k=128 fill=exact-uniform");
  EXPECT_TRUE(bitwise_claims(make_profile(numerics_preset("hopper-f16"), problem)).gradients);
  EXPECT_FALSE(bitwise_claims(make_profile(numerics_preset("f32-simt"), problem)).gradients);
  EXPECT_TRUE(bitwise_claims(make_profile(numerics_preset("f32-simt"), problem)).o);
  EXPECT_FALSE(bitwise_claims(make_profile(numerics_preset("hopper-fp8"), problem)).o);  // sums of 13 bits
}

}  // namespace
}  // namespace attest
