// SPDX-License-Identifier: Apache-2.0
// Compares one tensor with the exact one, element by element: the class (NaN, +inf, -inf, finite) first, then
// |got - want| <= bound. Nothing is averaged, nothing is skipped silently.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/problem/dtype.h"
#include "reference/problem/problem.h"
#include "reference/problem/values.h"
#include "reference/verify/verdict.h"

namespace attest {

/// Score of one element: 0 where equal, |got - want| / bound, infinity where the class differs. An infinity where
/// a finite value is wanted is accepted only where want with its bound reaches the end of the type's range.
/// bound = infinity means unspecified, and gives 0 unless got is NaN where want is not.
double element_score(double want, double got, double bound, Dtype type);

/// Elements [tokens, heads, width]. `lengths` are those of the side the tensor is on, to name places.
/// `deviations` is what the bounds are worth in standard deviations (Bounds::deviations), for rms and bias; 0: not known.
TensorVerdict judge_tensor(std::string name, std::span<const std::int64_t> lengths, const Values& want,
                           const Values& got, const Values& bound, Dtype type, double deviations = 0);

/// Where the wrong elements of a tensor lie, from how many of them each sequence, head, row and column has.
class ClusterCount {
 public:
  ClusterCount(std::int64_t batch, std::int64_t heads, std::int64_t width) : by_b_(batch), by_h_(heads), by_d_(width) {}
  void add(const Place& place);
  /// "all in head 1, rows 64 to 127, every column"; empty where nothing was added.
  std::string describe() const;

 private:
  std::vector<std::int64_t> by_b_;
  std::vector<std::int64_t> by_h_;
  std::vector<std::int64_t> by_d_;
  std::int64_t count_ = 0;
  std::int64_t first_row_ = 0;
  std::int64_t last_row_ = 0;
};

}  // namespace attest
