// SPDX-License-Identifier: Apache-2.0
// Error bounds for every element that a kernel returns, from the inputs and the kernel's declared arithmetic. A correct
// kernel satisfies |got - exact| <= bound; docs/numerics.md derives it.
//
//   const NumericsProfile profile = make_profile(numerics, problem);
//   const ExactWithBounds truth = exact_attention_with_bounds(problem, inputs, profile, BoundMode::gen);
#pragma once

#include <cstdint>
#include <vector>

#include "reference/oracle/exact.h"
#include "reference/oracle/numerics_profile.h"

namespace attest {

/// gen: rounding errors add like a random walk (4 standard deviations), for inputs without structure.
/// det: the worst case, for every input and every order of summation.
/// captured: gen with 6 standard deviations and rounding of P that may be common to a row, for real data.
enum class BoundMode : std::uint8_t { gen, det, captured };

/// Where a fault could hide: keys whose loss would stay within the bounds (docs/numerics.md, "Coverage"). A key counts once
/// for each key/value head that sees it; an edge once for each row whose visible keys end before the keys do.
struct Coverage {
  std::int64_t keys = 0, uncovered_keys = 0;
  std::int64_t tile_edges = 0, uncovered_tile_edges = 0;  // of these keys, the first and last of 64
  std::int64_t mask_edges = 0, uncovered_mask_edges = 0;
  std::int64_t rows = 0, uncovered_rows = 0;  // no key of an uncovered row would be missed; none counted without a forward
  void add(const Coverage& other);
};

/// Shapes as in Exact. Infinity where no bound can be stated: rows with a NaN or infinite result, and those whose
/// scores are so large that the declared arithmetic decides nothing about them (docs/numerics.md, "Trust").
struct Bounds {
  Values o;                      // [tokens_q, Hq, Dv]
  std::vector<double> lse;       // [tokens_q, Hq]
  Values dq;                     // [tokens_q, Hq, D]; gradients empty for forward only
  Values dk;                     // [tokens_k, Hkv, D]
  Values dv;                     // [tokens_k, Hkv, Dv]
  Operand<double> d_bias;        // [B|1, Hq|1, Sq|1, Sk|1] as the bias; empty unless asked for
  std::int64_t unspecified = 0;  // how many of all these are infinite
  Coverage coverage;
  double deviations = 0;         // standard deviations that the bounds are worth: 4, captured 6; 0: worst cases (det)
};

/// fast: squares in float where they suffice for a per cent of the bound. in_double: always double, so that another
/// compiler or library changes no more than the last bits.
enum class BoundArithmetic : std::uint8_t { fast, in_double };

struct ExactWithBounds {
  Exact exact;
  Bounds bounds;
};

ExactWithBounds exact_attention_with_bounds(const Problem& problem, const Inputs& inputs,
                                            const NumericsProfile& profile, BoundMode mode);

/// The bounds alone, around an exact result of the same problem.
Bounds error_bounds(const Problem& problem, const Inputs& inputs, const Exact& exact, const NumericsProfile& profile,
                    BoundMode mode, BoundArithmetic arithmetic = BoundArithmetic::fast);

}  // namespace attest
