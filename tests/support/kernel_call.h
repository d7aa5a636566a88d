// SPDX-License-Identifier: Apache-2.0
// One call of a kernel over the ABI with buffers that it owns, for tests of kernels without the harness: every output
// starts as NaN, so that what a kernel does not write shows.
//
//   KernelCall call(problem, inputs);
//   ASSERT_EQ(call.run(*kernel), ATTEST_OK) << call.message();
//   call.outputs().o.at(token, head, column);
#pragma once

#include <string>
#include <vector>

#include "reference/oracle/exact.h"  // the shape of the results, struct Exact, and nothing else
#include "reference/problem/inputs.h"
#include "reference/problem/kernel_abi.h"
#include "reference/problem/problem.h"

namespace attest {

class KernelCall {
 public:
  /// `absent`: sizes only, for what never runs.
  enum class Data : std::uint8_t { present, absent };
  KernelCall(const Problem& problem, const Inputs& inputs, Data data = Data::present);
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  /// Forward, then, if the problem asks for it, backward from the forward's own o and lse.
  std::int32_t run(const attest_kernel& kernel);
  std::int32_t forward(const attest_kernel& kernel) { return kernel.forward(&call_); }
  std::int32_t backward(const attest_kernel& kernel) { return kernel.backward(&call_); }

  attest_call& call() { return call_; }  // to spoil it
  attest_problem& problem() { return problem_; }
  const char* message() const { return message_; }
  /// The raw storage of a tensor, and the outputs without padding.
  std::vector<std::byte>& bytes(TensorId id) { return storage_[static_cast<std::size_t>(id)]; }
  Exact outputs() const;

 private:
  void place(TensorId id, const Values& values);
  Values take(TensorId id) const;
  attest_tensor& tensor(TensorId id);

  Problem source_;
  attest_problem problem_{};
  attest_call call_{};
  std::vector<std::byte> storage_[8];
  std::vector<std::byte> lse_, d_lse_, bias_, d_bias_;
  std::vector<std::uint8_t> mask_, block_mask_;
  std::vector<float> slopes_;
  std::vector<std::int32_t> cu_q_, cu_k_, seq_q_, seq_k_;
  char message_[200] = {};
};

}  // namespace attest
