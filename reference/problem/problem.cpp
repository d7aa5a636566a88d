// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace attest {
namespace {

double as_kernel_gets_it(const Problem& problem, double value) {
  return problem.dtype == Dtype::f64 ? value : static_cast<double>(static_cast<float>(value));
}

std::int64_t largest(const std::vector<std::int64_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

std::int64_t sum(const std::vector<std::int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

}  // namespace

std::string_view name_of(TensorId id) {
  constexpr std::array<std::string_view, 8> names = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
  return names[static_cast<std::size_t>(id)];
}

std::int64_t Problem::max_q() const { return largest(seq_q); }
std::int64_t Problem::max_k() const { return largest(seq_k); }
std::int64_t Problem::total_q() const { return sum(seq_q); }
std::int64_t Problem::total_k() const { return sum(seq_k); }

std::int64_t Problem::rows_q() const {
  return extent_q.value_or(layout == Layout::thd ? total_q() : max_q());
}

std::int64_t Problem::rows_k() const {
  return extent_k.value_or(layout == Layout::thd ? total_k() : max_k());
}

Dtype Problem::output_dtype() const {
  const bool narrow = dtype == Dtype::f8e4m3 || dtype == Dtype::f8e5m2;
  return out_dtype.value_or(narrow ? Dtype::f16 : dtype);
}

Dtype Problem::bias_dtype() const {
  const bool narrow = dtype == Dtype::f8e4m3 || dtype == Dtype::f8e5m2;
  const Dtype by_default = narrow ? Dtype::f32 : dtype;
  return bias ? bias->dtype.value_or(by_default) : by_default;
}

double Problem::effective_scale() const {
  return as_kernel_gets_it(*this, scale.value_or(1.0 / std::sqrt(static_cast<double>(dim))));
}

double Problem::effective_softcap() const { return as_kernel_gets_it(*this, softcap); }

double Problem::effective_dropout() const { return dropout ? as_kernel_gets_it(*this, dropout->p) : 0.0; }

}  // namespace attest
