// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/explain.h"

#include <cmath>

#include "reference/oracle/bound_parts.h"

namespace attest {
namespace {

std::int64_t token_of(const std::vector<std::int64_t>& lengths, const Place& place) {
  std::int64_t token = place.i;
  for (std::int64_t b = 0; b < place.b; ++b) token += lengths[static_cast<std::size_t>(b)];
  return token;
}

BoundElement element_of(const Problem& p, const TensorVerdict& tensor) {
  const Place at = tensor.worst;
  const bool keys = tensor.tensor == "dk" || tensor.tensor == "dv";
  const std::int64_t token = token_of(keys ? p.seq_k : p.seq_q, at);
  const std::int64_t column = std::max<std::int64_t>(at.d, 0);  // places of tensors of one column do not name it
  const auto of = [=](Values Bounds::*values) {
    return [=](const Bounds& bounds) { return (bounds.*values).at(token, at.h, column); };
  };
  if (tensor.tensor == "o") return of(&Bounds::o);
  if (tensor.tensor == "dq") return of(&Bounds::dq);
  if (tensor.tensor == "dk") return of(&Bounds::dk);
  if (tensor.tensor == "dv") return of(&Bounds::dv);
  if (tensor.tensor == "lse") {
    const auto place = static_cast<std::size_t>(token * p.heads_q + at.h);
    return [place](const Bounds& bounds) { return bounds.lse[place]; };
  }
  // dbias: one "sequence" of rows.
  return [at, column](const Bounds& bounds) {
    return bounds.d_bias.data[static_cast<std::size_t>(at.i * bounds.d_bias.extent_k + column)];
  };
}

}  // namespace

void explain_bounds(const Inputs& inputs, const NumericsProfile& profile, BoundMode mode, Verdict& verdict) {
  std::vector<BoundElement> elements;
  std::vector<TensorVerdict*> tensors;
  for (TensorVerdict& tensor : verdict.tensors) {
    if (!std::isfinite(tensor.bound) || tensor.bound <= 0 || tensor.worst.i < 0) continue;
    elements.push_back(element_of(verdict.problem, tensor));
    tensors.push_back(&tensor);
  }
  if (tensors.empty()) return;
  const Exact exact = exact_attention(verdict.problem, inputs);
  const auto parts = bound_parts(verdict.problem, inputs, exact, profile, mode, elements);
  for (std::size_t n = 0; n < tensors.size(); ++n) tensors[n]->parts = parts[n];
}

}  // namespace attest
