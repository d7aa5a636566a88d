// SPDX-License-Identifier: Apache-2.0
// The parts of a kernel, each of which a mistake can change. Internal to faulty_attention.cpp.
#pragma once

#include <functional>

#include "tests/support/faulty_attention.h"

namespace attest::testing_support {

/// One understanding of the call: what a kernel's parts would do.
struct World {
  Problem p;
  std::int64_t tile = 32;
  std::function<std::int64_t(std::int64_t b)> keys;
  std::function<std::int64_t(std::int64_t b, std::int64_t i)> token;  // index that the kernel gives to token i; -1: none
  std::function<const double*(std::int64_t b, std::int64_t h, std::int64_t i)> q, d_o;
  std::function<const double*(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)> k, v;
  std::function<double(const double* q, const double* k)> dot;
  std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)> see;
  std::function<double(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double product)> score;
  std::function<double(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)> keep;
  std::function<double(double raw)> slope;
  std::string fault;
  std::int64_t number = 0;
};

World right_world(const Problem& problem, const Inputs& in, const StoredInputs& stored);
World wrong_world(const Problem& problem, const Inputs& in, const StoredInputs& stored, const Fault& fault);

/// What rows outside of a tensor point to.
const double* nan_row();

}  // namespace attest::testing_support
