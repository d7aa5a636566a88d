// SPDX-License-Identifier: Apache-2.0
// The sample kernel, loaded as any foreign kernel is: one exported symbol, right answers, and a reason for everything
// that it declines.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/problem/case_text.h"
#include "tests/support/kernel_call.h"
#include "tests/support/slow_oracle.h"

namespace attest {
namespace {

const attest_kernel* sample() {
  static void* const library = dlopen(ATTEST_SAMPLE_KERNEL, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto list = reinterpret_cast<decltype(&attest_kernels)>(dlsym(library, "attest_kernels"));
  const attest_kernel* const* kernels = nullptr;
  return list != nullptr && list(ATTEST_ABI_VERSION, &kernels) == 1 ? kernels[0] : nullptr;
}

TEST(SampleKernel, AnswersAsTheSlowOracleDoes) {
  ASSERT_NE(sample(), nullptr);
  for (const char* text : {"layout=bhsd heads=4/2 dim=16/8 q=20 k=33 direction=forward",
                           "layout=bhsd batch=2 heads=2 dim=16 q=20 k=9 causal=bottom-right direction=forward"}) {
    const Problem problem = parse_case(text);
    const Inputs inputs = make_inputs(problem);
    KernelCall call(problem, inputs);
    char reason[100] = {};
    ASSERT_EQ(sample()->supports(&call.problem(), reason, sizeof reason), 1) << reason;
    ASSERT_EQ(call.run(*sample()), ATTEST_OK) << call.message();
    const slow::Result want = slow::attention(problem, inputs);
    const Exact got = call.outputs();
    for (std::size_t at = 0; at < got.o.data.size(); ++at) {
      ASSERT_NEAR(got.o.data[at], want.value.o.data[at], 1e-5 * want.magnitude.o.data[at]) << text;
    }
    for (std::size_t at = 0; at < got.lse.size(); ++at) {
      if (got.lse[at] != want.value.lse[at]) {
        ASSERT_NEAR(got.lse[at], want.value.lse[at], 1e-5) << text;
      }
    }
  }
}

TEST(SampleKernel, SaysWhyItDeclines) {
  ASSERT_NE(sample(), nullptr);
  const std::pair<const char*, const char*> declined[] = {
      {"layout=bhsd", "forward only"},
      {"direction=forward", "layout bhsd only"},
      {"layout=bhsd direction=forward dtype=f16", "f32 only"},
      {"layout=bhsd direction=forward causal=top-left", "causal bottom-right or no mask"},
      {"layout=bhsd direction=forward softcap=2", "no explicit masks, biases, softcap or dropout"},
      {"layout=bhsd direction=forward q=3,4 k=5,5", "no padding"},
  };
  for (const auto& [text, why] : declined) {
    const Problem problem = parse_case(text);
    KernelCall call(problem, make_inputs(problem));
    char reason[100] = {};
    EXPECT_EQ(sample()->supports(&call.problem(), reason, sizeof reason), 0);
    EXPECT_STREQ(reason, why);
  }
}

TEST(SampleKernel, SpeaksOneAbiVersionOnly) {
  void* const library = dlopen(ATTEST_SAMPLE_KERNEL, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto list = reinterpret_cast<decltype(&attest_kernels)>(dlsym(library, "attest_kernels"));
  const attest_kernel* const* kernels = nullptr;
  EXPECT_EQ(list(ATTEST_ABI_VERSION + 1, &kernels), 0u);
}

}  // namespace
}  // namespace attest
