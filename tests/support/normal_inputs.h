// SPDX-License-Identifier: Apache-2.0
// Plain problems in f64 and normal inputs that no input family of the library has made, for tests of the oracle.
#pragma once

#include <random>

#include "reference/oracle/exact.h"

namespace attest {

inline Problem make_problem(std::int64_t seq_q, std::int64_t seq_k, std::int64_t dim, std::int64_t dim_v,
                            std::int64_t heads_q = 1, std::int64_t heads_kv = 1) {
  Problem problem;
  problem.dtype = Dtype::f64;
  problem.seq_q = {seq_q};
  problem.seq_k = {seq_k};
  problem.dim = dim;
  problem.dim_v = dim_v;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  return problem;
}

inline void fill_normal(Values& values, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  for (double& x : values.data) x = normal(random);
}

inline Inputs normal_inputs(const Problem& problem, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Inputs inputs;
  inputs.q = Values(problem.total_q(), problem.heads_q, problem.dim);
  inputs.k = Values(problem.total_k(), problem.heads_kv, problem.dim);
  inputs.v = Values(problem.total_k(), problem.heads_kv, problem.width_v());
  inputs.d_o = Values(problem.total_q(), problem.heads_q, problem.width_v());
  for (Values* values : {&inputs.q, &inputs.k, &inputs.v, &inputs.d_o}) fill_normal(*values, random);
  return inputs;
}

}  // namespace attest
