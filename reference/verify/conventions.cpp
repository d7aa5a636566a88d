// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/conventions.h"

#include <cmath>
#include <limits>

#include "reference/problem/dtype.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The mean of v over all keys of the sequence, which is what equal finite scores give; its own rounding as bound.
void give_mean_row(const Problem& problem, const Inputs& inputs, std::int64_t b, std::int64_t token, std::int64_t h,
                   ExactWithBounds& truth) {
  const std::int64_t keys = problem.seq_k[b];
  if (keys == 0) return;
  const std::int64_t first = token_offsets(problem.seq_k)[b];
  const double n = static_cast<double>(keys);
  for (std::int64_t d = 0; d < problem.width_v(); ++d) {
    double sum = 0;
    double magnitude = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      const double v = inputs.v.at(first + j, h / problem.group(), d);
      sum += v;
      magnitude += std::abs(v);
    }
    truth.exact.o.at(token, h, d) = sum / n;
    truth.bounds.o.at(token, h, d) = magnitude / n * (format_of(problem.output_dtype()).unit_roundoff() + (n + 8) * 0x1p-23) +
                                     format_of(problem.output_dtype()).min_subnormal();
  }
}

}  // namespace

void apply_conventions(const attest_conventions& conventions, const Problem& problem, const Inputs& inputs,
                       ExactWithBounds& truth) {
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t i = 0; i < problem.seq_q[b]; ++i, ++token) {
      for (std::int64_t h = 0; h < problem.heads_q; ++h) {
        double& lse = truth.exact.lse[token * problem.heads_q + h];
        double& lse_bound = truth.bounds.lse[token * problem.heads_q + h];
        if (lse == -kInfinity) {
          if (conventions.empty_rows == ATTEST_EMPTY_NAN) {
            for (double& o : truth.exact.o.row(token, h)) o = std::numeric_limits<double>::quiet_NaN();
          } else if (conventions.empty_rows == ATTEST_EMPTY_MEAN) {
            give_mean_row(problem, inputs, b, token, h, truth);
            lse_bound = kInfinity;  // the logarithm of the kernel's own mask value, which it does not state
          }
          if (conventions.empty_lse == ATTEST_EMPTY_LSE_POS_INF) lse = kInfinity;
        }
        if (conventions.lse_unit == ATTEST_LSE_BASE2) {
          constexpr double log2_e = 1.4426950408889634074;
          lse *= log2_e;
          // One more float32 rounding comes with the conversion.
          lse_bound = lse_bound * log2_e + std::abs(std::isinf(lse) ? 0 : lse) * 0x1p-24;
        }
      }
    }
  }
}

}  // namespace attest
