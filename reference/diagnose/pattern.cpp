// SPDX-License-Identifier: Apache-2.0
// Which step of the backward a pattern of right and wrong gradients points to. With P from Q, K and LSE:
//   dV = P^T dO     dP = dO V^T     dS = P (dP - delta)     dQ = scale dS K     dK = scale dS^T Q     dBias = dS
#include <fmt/format.h>

#include "reference/diagnose/stages.h"

namespace attest::diagnose {
namespace {

enum class State : char { absent = '-', right = 'r', wrong = 'w' };

State state_of(const Fit& fit, const char* tensor) {
  const TensorFit* one = fit.find(tensor);
  if (one == nullptr || one->total == 0) return State::absent;
  return one->explained < one->total ? State::wrong : State::right;
}

struct Pattern {
  const char* states;  // of dq, dk, dv; '?' any
  const char* points_to;
  const char* look_at;
};

// The first that fits.
constexpr Pattern kPatterns[] = {
    {"www", "P of the backward is wrong, or dO: all three are made of them", "scale, mask, dropout and the unit of LSE when P is recomputed; how dO is read"},
    {"wwr", "dV is right, so P, its dropout and dO are: dS is wrong", "dP = dO V^T, delta = <dO, O> - dLSE and its row, the derivative of the softcap, the scale of dS"},
    {"rww", "dQ is right, so P and dS are: the sums over queries go wrong", "the sum over the query heads of a group, the loop over query tiles, where rows of keys are written"},
    {"wrr", "dK and dV are right, so P and dS are: dQ is lost after dS", "the product dS K, its scale, and how dQ is summed over key tiles (zeroed first, atomics, split)"},
    {"rwr", "dQ and dV are right, so P and dS are: dK is lost after dS", "the product dS^T Q, its scale, and how dK is summed and written"},
    {"rrw", "dQ and dK are right, so P and dS are: dV is lost after P", "the product P^T dO, the dropout factor in it, and how dV is summed and written"},
    {"wrw", "dK is right, so dS is: dQ and dV go wrong each for itself", "two mistakes, or the strides with which dq and dv are written"},
};

}  // namespace

void point_to_cause(const Fit& contract, Lines& lines) {
  std::string states;
  for (const char* tensor : {"dq", "dk", "dv"}) states += static_cast<char>(state_of(contract, tensor));
  const bool bias_alone = state_of(contract, "dbias") == State::wrong && states.find('w') == std::string::npos;
  const auto say = [&](const std::string& what, const char* fix) { lines.push_back({"where", Level::note, what, fix}); };
  const bool forward = state_of(contract, "o") == State::wrong || state_of(contract, "lse") == State::wrong;
  if (states.find('w') == std::string::npos && !bias_alone) return;
  if (forward) {
    say("the gradients follow from an o or lse that is wrong already", "mend the forward first, then capture again");
    return;
  }
  if (bias_alone) {
    if (states.find('r') != std::string::npos) say("dbias alone is wrong: dS is right, its sum is not", "the sum over what the bias broadcasts, its strides, and no scale");
    return;
  }
  for (const Pattern& pattern : kPatterns) {
    if (states != pattern.states) continue;
    say(pattern.points_to, pattern.look_at);
    return;
  }
  if (states.find('-') != std::string::npos) say("with all of dq, dk and dv in the capture, which of them are wrong would point to the step", "capture the others too");
}

}  // namespace attest::diagnose
