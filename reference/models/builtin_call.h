// SPDX-License-Identifier: Apache-2.0
// What every built-in model does around its algorithm to be a kernel of the ABI: refuse invalid calls by name, turn
// exceptions into a status, and declare the arithmetic that they share.
#pragma once

#include <string>

#include "reference/models/model_options.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

inline bool problem_is_f64(const attest_call& call) { return call.problem->dtype == ATTEST_F64; }
inline std::int32_t attest_dtype_of(Dtype type) { return static_cast<std::int32_t>(type); }

using ModelFunction = void (*)(const attest_call&, const ModelOptions&);
using OptionsFunction = ModelOptions (*)(const attest_problem&);
using DeclareFunction = void (*)(const attest_problem&, attest_numerics&);
using DeclineFunction = std::string (*)(const attest_problem&);  // empty: will run

std::int32_t answer_support(const attest_problem& problem, DeclineFunction declined, char* reason, std::size_t bytes);
std::int32_t run_checked(const attest_call& call, std::int32_t direction, ModelFunction model, OptionsFunction options,
                         DeclineFunction declined);
/// Arithmetic of tiles of these options: float chains (double for f64), own exp, P as the options say.
void declare_shared(const attest_problem& problem, const ModelOptions& options, attest_numerics& numerics);

inline std::string declines_nothing(const attest_problem&) { return {}; }
inline void declares_no_more(const attest_problem&, attest_numerics&) {}

/// The kernel record of a model. `declare` changes what declare_shared() filled in.
template <ModelFunction forward, ModelFunction backward, OptionsFunction options,
          DeclareFunction declare = declares_no_more, DeclineFunction declined = declines_nothing>
constexpr attest_kernel builtin_kernel(const char* name, const char* description) {
  attest_kernel kernel{};
  kernel.struct_size = sizeof(attest_kernel);
  kernel.abi_version = ATTEST_ABI_VERSION;
  kernel.name = name;
  kernel.description = description;
  kernel.device = ATTEST_CPU;
  kernel.directions = ATTEST_FORWARD | ATTEST_BACKWARD;
  kernel.conventions.bitwise_forward = 1;
  kernel.conventions.bitwise_backward = 1;
  kernel.supports = [](const attest_problem* problem, char* reason, std::size_t bytes) {
    return answer_support(*problem, declined, reason, bytes);
  };
  kernel.numerics = [](const attest_problem* problem, attest_numerics* numerics) {
    declare_shared(*problem, options(*problem), *numerics);
    declare(*problem, *numerics);
  };
  kernel.forward = [](const attest_call* call) {
    return run_checked(*call, ATTEST_FORWARD, forward, options, declined);
  };
  kernel.backward = [](const attest_call* call) {
    return run_checked(*call, ATTEST_BACKWARD, backward, options, declined);
  };
  return kernel;
}

}  // namespace attest
