// SPDX-License-Identifier: Apache-2.0
// One call of the kernel ABI as the models see it: where elements lie, which keys a query may see, and whether the
// call is valid at all. Offsets are formed in 64 bits; tensors are read and written a row at a time.
#pragma once

#include <cstdint>
#include <string>

#include "reference/problem/dtype.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

/// The storage type of a field of attest_problem (attest_dtype and Dtype share their first six values).
inline Dtype dtype_of(std::int32_t type) { return static_cast<Dtype>(type); }

/// Empty, or why the call must be refused; nothing has been written then.
std::string why_invalid(const attest_problem& problem);
std::string why_invalid(const attest_call& call, std::int32_t direction);

struct SeenKeys {
  std::int64_t first;
  std::int64_t last;  // one past; nothing is seen where last <= first
};

class CallView {
 public:
  explicit CallView(const attest_call& call) : call_(call), problem_(*call.problem) {}

  const attest_call& call() const { return call_; }
  const attest_problem& problem() const { return problem_; }
  std::int64_t queries(std::int64_t b) const { return problem_.seq_q[b]; }
  std::int64_t keys(std::int64_t b) const { return problem_.seq_k[b]; }
  std::int64_t group() const { return problem_.heads_q / problem_.heads_kv; }

  /// Keys that causal, window and length let query i of sequence b see.
  SeenKeys seen_keys(std::int64_t b, std::int64_t i) const;
  /// Explicit and block mask; true where there is none.
  bool shown(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  /// The block mask alone; the problem must have one.
  bool block_shown(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  bool has_masks() const { return problem_.has_mask != 0 || problem_.has_block_mask != 0; }
  /// What is added to the score: bias and ALiBi.
  double added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  bool adds() const { return problem_.has_bias != 0 || problem_.has_alibi != 0; }

  enum class Side : std::uint8_t { query, key };
  /// Tokens [0, length of b) of one head; `write` those of [first, first + count).
  template <typename Real>
  void read(const attest_tensor& tensor, Side side, std::int32_t type, std::int64_t b, std::int64_t head,
            std::int64_t width, Real* to) const;  // [S, width]
  template <typename Real>
  void write(const attest_tensor& tensor, Side side, std::int32_t type, std::int64_t b, std::int64_t head,
             std::int64_t first, std::int64_t count, std::int64_t width, const Real* from) const;  // [count, width]

  double lse(const attest_tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i) const;
  void write_lse(std::int64_t b, std::int64_t h, std::int64_t i, double value) const;

 private:
  std::int64_t element(const attest_tensor& tensor, Side side, std::int64_t b, std::int64_t head, std::int64_t i) const;
  std::int64_t lse_element(const attest_tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i) const;

  const attest_call& call_;
  const attest_problem& problem_;
};

}  // namespace attest
