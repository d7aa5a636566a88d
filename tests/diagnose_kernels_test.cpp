// SPDX-License-Identifier: Apache-2.0
// The outputs of real kernels, which round as they declare, are accused of nothing.
#include <gtest/gtest.h>

#include "reference/diagnose/explain.h"
#include "reference/models/builtin_kernels.h"
#include "reference/problem/case_text.h"
#include "reference/problem/inputs.h"
#include "reference/problem/invalid_request.h"
#include "tests/support/bound_study.h"
#include "tests/support/diagnosis_study.h"
#include "tests/support/kernel_call.h"

namespace attest {
namespace {

/// Every built-in kernel on the problem; how many took it.
int expect_none_accused(const Problem& problem) {
  int runs = 0;
  const Inputs inputs = make_inputs(problem);
  for (const attest_kernel* kernel : builtin_cpu_kernels()) {
    KernelCall call(problem, inputs);
    if (call.run(*kernel) != ATTEST_OK) continue;
    ++runs;
    attest_numerics numerics = {};
    numerics.struct_size = sizeof numerics;
    kernel->numerics(&call.problem(), &numerics);
    const Exact got = call.outputs();
    const diagnose::Explanation found = diagnose::explain(diagnose::evidence_of(
        problem, inputs, {&got.o, &got.lse, &got.dq, &got.dk, &got.dv, &got.d_bias}, make_profile(numerics, problem)));
    for (const diagnose::Candidate& cause : found.causes()) ADD_FAILURE() << kernel->name << " is accused of " << found.name_of(cause) << ": " << print_case(problem);
    for (const diagnose::TensorFit& fit : found.contract.tensors) EXPECT_EQ(fit.explained, fit.total) << fit.tensor << " of " << kernel->name << ": " << print_case(problem);
  }
  return runs;
}

TEST(DiagnosisOfKernels, AccusesNoneOnRandomShapesAndMasks) {
  int runs = 0;
  for (std::uint64_t index = 0; index < 40; ++index) {
    const Problem problem = testing_support::random_problem(4, index);
    runs += expect_none_accused(problem);
  }
  EXPECT_GT(runs, 100);
}

TEST(DiagnosisOfKernels, AccusesNoneOnAnyFamilyOfInputs) {
  int runs = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Problem problem = study_problem(seed, 40);
    try {
      validate(problem);
    } catch (const InvalidRequest&) {
      continue;
    }
    runs += expect_none_accused(problem);
  }
  EXPECT_GT(runs, 100);
}

}  // namespace
}  // namespace attest
