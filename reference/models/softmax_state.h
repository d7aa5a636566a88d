// SPDX-License-Identifier: Apache-2.0
// The state of an online softmax over some set of keys, and its algebra: (m, l, u) = (largest score, sum of
// exp(s - m), sum of exp(s - m) v). The neutral element is (-inf, 0, 0); merging two states gives the state of the
// union of their keys, in any order and grouping (Milakov and Gimelshein 2018, section 3.1; papers call u the
// un-normalised output). All models of this folder keep their rows in this type.
//
//   SoftmaxState<double> state{.u = row};  absorb(state, scores, values);  finish(state)  ->  u = O, returns LSE
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

namespace attest {

template <typename Real>
struct SoftmaxState {
  Real m = -std::numeric_limits<Real>::infinity();
  Real l = 0;
  std::span<Real> u;  // [Dv]
};

/// Larger of the two, NaN if either is: a NaN score must reach the row's result, which std::max loses.
template <typename Real>
Real max_or_nan(Real a, Real b) {
  return (b > a || b != b) ? b : a;
}

/// exp(from - to) for from <= to, with both at -inf (nothing seen yet) giving 1 instead of NaN.
template <typename Real>
Real rescale_factor(Real from, Real to) {
  return from == to ? Real(1) : std::exp(from - to);
}

/// Moves the state to a new reference m', at least m for safety: l and u are multiplied by exp(m - m').
template <typename Real>
void move_reference(SoftmaxState<Real>& state, Real m) {
  const Real factor = rescale_factor(state.m, m);
  state.m = m;
  if (factor == Real(1)) return;
  state.l *= factor;
  for (Real& x : state.u) x *= factor;
}

/// state := state (+) other. A state without keys changes nothing, bit for bit.
template <typename Real>
void merge(SoftmaxState<Real>& state, const SoftmaxState<Real>& other) {
  const Real m = max_or_nan(state.m, other.m);
  move_reference(state, m);
  const Real factor = rescale_factor(other.m, m);
  state.l += factor * other.l;
  for (std::size_t c = 0; c < state.u.size(); ++c) state.u[c] += factor * other.u[c];
}

/// Adds one tile of keys: scores [n], -inf where hidden, and values [n, Dv].
template <typename Real>
void absorb(SoftmaxState<Real>& state, std::span<const Real> scores, std::span<const Real> values) {
  Real m = state.m;
  for (Real s : scores) m = max_or_nan(m, s);
  move_reference(state, m);
  const std::size_t width = state.u.size();
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (scores[j] == -std::numeric_limits<Real>::infinity()) continue;
    const Real p = std::exp(scores[j] - m);
    state.l += p;
    for (std::size_t c = 0; c < width; ++c) state.u[c] += p * values[j * width + c];
  }
}

/// Turns u into O = u / l, times `factor`, and returns LSE = m + log l. No keys: O = 0, LSE = -inf.
template <typename Real>
Real finish(SoftmaxState<Real>& state, Real factor = Real(1)) {
  if (state.m == -std::numeric_limits<Real>::infinity()) return state.m;
  const Real inverse = factor / state.l;
  for (Real& x : state.u) x *= inverse;
  return static_cast<Real>(static_cast<double>(state.m) + std::log(static_cast<double>(state.l)));
}

}  // namespace attest
