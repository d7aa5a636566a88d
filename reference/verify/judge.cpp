// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// An all-zero tensor scores max |want| / bound. Over 1 it would be caught. Under kTrivial, want is zero within the
// oracle's own rounding, and zeros are the right answer. Between, the check has no power.
constexpr double kTrivial = 1e-4;

/// "3", "64 to 127", or "5 of 0 to 40".
std::string span_of(const std::vector<std::int64_t>& counts) {
  std::int64_t first = -1;
  std::int64_t last = -1;
  std::int64_t hit = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    if (first < 0) first = static_cast<std::int64_t>(i);
    last = static_cast<std::int64_t>(i);
    ++hit;
  }
  if (first == last) return fmt::format("{}", first);
  if (hit == last - first + 1) return fmt::format("{} to {}", first, last);
  return fmt::format("{} of {} to {}", hit, first, last);
}

std::string part(const char* one, const char* many, const std::vector<std::int64_t>& counts) {
  const auto hit = std::count_if(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; });
  if (counts.size() <= 1) return "";
  if (hit == static_cast<std::int64_t>(counts.size())) return fmt::format("every {}, ", one);
  return fmt::format("{} {}, ", hit == 1 ? one : many, span_of(counts));
}

/// Errors in units of the deviation that a correct kernel is expected to have: rounding errors are about uniform, so that
/// each part of the bound is sqrt(3) of its own deviation (docs/numerics.md, "Warnings").
class Deviations {
 public:
  Deviations(Dtype type, double lambda) : lambda_(lambda) {
    const DtypeFormat& format = format_of(type);
    u_ = format.unit_roundoff();
    half_step_ = std::max(format.min_subnormal(), type == Dtype::f64 ? 0.0 : 0x1p-125) / 2;
  }

  void add(double want, double got, double bound) {
    if (lambda_ == 0 || !std::isfinite(bound) || bound <= 0 || !std::isfinite(want) || !std::isfinite(got)) return;
    const double rounding = u_ * std::abs(want);
    const double spread = std::max(bound - rounding - half_step_, 0.0) / (1 + u_) / lambda_;
    const double deviation = std::sqrt((spread * spread + rounding * rounding + half_step_ * half_step_) / 3);
    if (deviation == 0) return;
    const double z = (got - want) / deviation;
    squares_ += z * z;
    leaning_ += std::signbit(want) ? -z : z;
    ++count_;
  }

  void finish(TensorVerdict& verdict) const {
    if (count_ < kFewest) return;
    verdict.rms = std::sqrt(squares_ / static_cast<double>(count_));
    verdict.bias = leaning_ / static_cast<double>(count_);
  }

 private:
  static constexpr std::int64_t kFewest = 1000;  // elements: the mean of fewer may pass 0.15 by chance
  double lambda_, u_, half_step_;
  double squares_ = 0, leaning_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace

double element_score(double want, double got, double bound, Dtype type) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : kInfinity;
  if (std::isnan(got)) return kInfinity;
  if (got == want) return 0;
  if (std::isinf(want)) return kInfinity;
  if (std::isinf(got)) {
    const bool may_overflow = std::signbit(got) == std::signbit(want) && std::abs(want) + bound >= format_of(type).max;
    return may_overflow ? 0 : kInfinity;
  }
  if (std::isinf(bound)) return 0;
  // A bound that is NaN or negative is a fault of ours and must not let anything pass.
  if (!(bound >= 0)) return kInfinity;
  return bound == 0 ? kInfinity : std::abs(got - want) / bound;
}

void ClusterCount::add(const Place& place) {
  const auto count = [](std::vector<std::int64_t>& counts, std::int64_t at) {
    if (at >= 0 && at < static_cast<std::int64_t>(counts.size())) counts[static_cast<std::size_t>(at)] += 1;
  };
  count(by_b_, place.b);
  count(by_h_, place.h);
  count(by_d_, place.d);
  first_row_ = count_ == 0 ? place.i : std::min(first_row_, place.i);
  last_row_ = count_ == 0 ? place.i : std::max(last_row_, place.i);
  ++count_;
}

std::string ClusterCount::describe() const {
  if (count_ == 0) return "";
  const std::string rows =
      first_row_ == last_row_ ? fmt::format("row {}", first_row_) : fmt::format("rows {} to {}", first_row_, last_row_);
  std::string text = part("sequence", "sequences", by_b_) + part("head", "heads", by_h_) + rows + ", " +
                     part("column", "columns", by_d_);
  text.resize(text.size() - 2);  // the last ", "
  return text;
}

TensorVerdict judge_tensor(std::string name, std::span<const std::int64_t> lengths, const Values& want,
                           const Values& got, const Values& bound, Dtype type, double deviations) {
  TensorVerdict verdict;
  Deviations errors(type, deviations);
  verdict.tensor = std::move(name);
  ClusterCount cluster(static_cast<std::int64_t>(lengths.size()), want.heads, want.width);
  double zero_score = 0;
  bool first = true;
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < static_cast<std::int64_t>(lengths.size()); ++b) {
    for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i, ++token) {
      for (std::int64_t h = 0; h < want.heads; ++h) {
        for (std::int64_t d = 0; d < want.width; ++d) {
          const double w = want.at(token, h, d);
          const double g = got.at(token, h, d);
          const double limit = bound.at(token, h, d);
          const double score = element_score(w, g, limit, type);
          const Place place{b, h, i, want.width == 1 ? -1 : d};
          errors.add(w, g, limit);
          verdict.total += 1;
          if (std::isinf(limit) && std::isfinite(w)) verdict.unspecified += 1;
          zero_score = std::max(zero_score, element_score(w, 0, limit, type));
          // Accepted only by <=, so that a NaN score cannot slip through.
          if (!(score <= 1)) {
            verdict.wrong += 1;
            cluster.add(place);
          }
          if (first || score > verdict.score) {
            first = false;
            verdict.score = score;
            verdict.worst = place;
            verdict.want = w;
            verdict.got = g;
            verdict.bound = limit;
          }
        }
      }
    }
  }
  verdict.cluster = cluster.describe();
  errors.finish(verdict);
  const double trivial = type == Dtype::f64 ? 1 : kTrivial;
  verdict.powerless = zero_score <= 1 && zero_score > trivial;
  return verdict;
}

}  // namespace attest
