// SPDX-License-Identifier: Apache-2.0
// Deliberately wrong variants of the models. Each rounds, rescales or accumulates otherwise than it declares, in a way
// that kernels have been seen to, and each must fail the whole pipeline; the right model passes the same case.
#include <gtest/gtest.h>

#include "reference/models/builtin_call.h"
#include "reference/models/flash.h"
#include "reference/models/tiled_models.h"
#include "reference/problem/case_text.h"
#include "reference/verify/check.h"
#include "reference/verify/report.h"

namespace attest {
namespace {

/// Whatever the variant does, it declares what the right model does.
void declares_the_right_one(const attest_problem& problem, attest_numerics& numerics) {
  declare_shared(problem, default_options(problem), numerics);
}

template <auto change>
ModelOptions changed(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  change(options);
  return options;
}

template <auto change, ModelFunction forward = flash_forward>
constexpr attest_kernel wrong(const char* name) {
  return builtin_kernel<forward, flash_backward, changed<change>, declares_the_right_one>(name, "deliberately wrong");
}

constexpr void as_printed(ModelOptions& o) { o.rescale = Rescale::as_printed; }
constexpr void lags_too_far(ModelOptions& o) { o.rescale_threshold = 200; }
constexpr void p_in_e4m3(ModelOptions& o) { o.p_forward = Dtype::f8e4m3; }
constexpr void p_in_bf16(ModelOptions& o) { o.p_forward = Dtype::bf16; }
constexpr void ds_in_bf16(ModelOptions& o) { o.p_backward = Dtype::bf16; }
constexpr void p_saturates(ModelOptions& o) { o.p_offset = 12; }
constexpr void scores_in_f16(ModelOptions& o) { o.s = Dtype::f16; }
constexpr void parts_in_bf16(ModelOptions& o) { o.o_between = Dtype::bf16; }
constexpr void fp8_operands(ModelOptions& o) { o.fp8 = Fp8Operands{}; }
constexpr void few_bits(ModelOptions& o) { o.accumulation = attest_accumulation{8, 11, 0x1p-11, 1, 0}; }
constexpr void narrow_sums(ModelOptions& o) { o.accumulation = attest_accumulation{1, 0, 0x1p-11, 0, 0}; }

struct Variant {
  attest_kernel wrong;
  const attest_kernel* right;
  const char* text;    // a case that tells them apart
  const char* tensor;  // on which it shows
};

const Variant kVariants[] = {
    {wrong<as_printed>("as-printed"), &kFlashKernel, "q=64 k=256 fill=rising", "o"},
    {wrong<as_printed>("as-printed-normal"), &kFlashKernel, "dtype=f16 q=64 k=512", "o"},
    {wrong<lags_too_far>("lags-too-far"), &kFlashKernel, "dtype=f32 q=16 k=512 fill=rising:12", "o"},
    {wrong<p_in_e4m3>("p-in-e4m3"), &kFlashKernel, "dtype=f16 q=64 k=64", "o"},
    {wrong<p_in_bf16>("p-in-bf16"), &kFlashKernel, "dtype=f16 q=256 k=256 dim=128", "o"},
    {wrong<ds_in_bf16>("ds-in-bf16"), &kFlashKernel, "dtype=f16 q=256 k=256 dim=128", "dv"},
    {wrong<p_saturates>("p-saturates"), &kFlashKernel, "dtype=f8e4m3 q=64 k=128", "o"},
    {wrong<scores_in_f16>("scores-in-f16"), &kFlashKernel, "dtype=f16 q=64 k=64 fill=peaked", "lse"},
    {wrong<parts_in_bf16, split_kv_forward>("parts-in-bf16"), &kSplitKvKernel, "q=16 k=300", "o"},
    {wrong<fp8_operands>("fp8-operands"), &kFlashKernel, "dtype=bf16 q=64 k=64", "lse"},
    {wrong<few_bits>("few-bits"), &kFlashKernel, "dtype=f16 q=64 k=256 fill=positive", "o"},
    {wrong<narrow_sums>("narrow-sums"), &kFlashKernel, "dtype=f16 q=64 k=64", "lse"},
};

class WrongModels : public testing::TestWithParam<int> {};

TEST_P(WrongModels, FailWhereTheRightOnePasses) {
  const Variant& variant = kVariants[GetParam()];
  const auto memory = make_host_memory();
  const Problem problem = parse_case(variant.text);
  const Verdict right = check(Kernel(variant.right), problem, *memory);
  EXPECT_EQ(right.state, State::pass) << describe(right);
  const Verdict verdict = check(Kernel(&variant.wrong), problem, *memory);
  EXPECT_EQ(verdict.state, State::fail);
  for (const TensorVerdict& tensor : verdict.tensors)
    if (tensor.tensor == variant.tensor) {
      EXPECT_GT(tensor.wrong, 0) << describe(verdict);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, WrongModels, testing::Range(0, static_cast<int>(std::size(kVariants))),
                         [](const auto& one) {
                           std::string name = kVariants[one.param].wrong.name;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace attest
