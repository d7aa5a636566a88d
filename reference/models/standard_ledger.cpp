// SPDX-License-Identifier: Apache-2.0
#include "reference/models/standard_ledger.h"

#include <initializer_list>

namespace attest {
namespace {

struct Step {
  const char* name;
  std::initializer_list<std::pair<Moved, std::int64_t>> reads;
  std::initializer_list<std::pair<Moved, std::int64_t>> writes;
};

void move(Ledger& ledger, const Step& step) {
  ledger.phase(step.name);
  for (const auto& [tensor, elements] : step.reads) ledger.read(tensor, elements);
  for (const auto& [tensor, elements] : step.writes) ledger.write(tensor, elements);
}

bool masked(const attest_problem& p) {
  return p.causal != ATTEST_CAUSAL_NONE || p.has_window || p.has_mask || p.has_block_mask;
}

}  // namespace

void count_standard_forward(const attest_problem& problem, std::int64_t queries, std::int64_t keys, Ledger& ledger) {
  const std::int64_t nn = queries * keys;
  const std::int64_t q = queries * problem.dim, k = keys * problem.dim, v = keys * problem.dim_v;
  const std::int64_t o = queries * problem.dim_v;
  move(ledger, {"S = Q K^T", {{Moved::q, q}, {Moved::k, k}}, {{Moved::s, nn}}});
  ledger.matmul(queries, keys, problem.dim);
  if (masked(problem)) {
    move(ledger, {"mask", {{Moved::s, nn}}, {{Moved::s, nn}}});
    ledger.elementwise(nn, nn);
  }
  move(ledger, {"P = softmax(S)", {{Moved::s, nn}}, {{Moved::p, nn}}});
  ledger.elementwise(nn, 5 * nn);  // max, subtract, exp, sum, divide
  if (problem.has_dropout) {
    move(ledger, {"dropout", {{Moved::p, nn}}, {{Moved::p, nn}, {Moved::kept, nn}}});
    ledger.elementwise(nn, nn);
  }
  move(ledger, {"O = P V", {{Moved::p, nn}, {Moved::v, v}}, {{Moved::o, o}}});
  ledger.matmul(queries, problem.dim_v, keys);
  ledger.keep(2 * nn);  // S and P
}

void count_standard_backward(const attest_problem& problem, std::int64_t queries, std::int64_t keys, Ledger& ledger) {
  const std::int64_t nn = queries * keys;
  const std::int64_t q = queries * problem.dim, k = keys * problem.dim, v = keys * problem.dim_v;
  const std::int64_t o = queries * problem.dim_v;
  move(ledger, {"dV = P^T dO", {{Moved::p, nn}, {Moved::d_o, o}}, {{Moved::dv, v}}});
  ledger.matmul(keys, problem.dim_v, queries);
  move(ledger, {"dP = dO V^T", {{Moved::d_o, o}, {Moved::v, v}}, {{Moved::dp, nn}}});
  ledger.matmul(queries, keys, problem.dim_v);
  if (problem.has_dropout) {
    move(ledger, {"dropout backward", {{Moved::dp, nn}, {Moved::kept, nn}}, {{Moved::dp, nn}}});
    ledger.elementwise(nn, nn);
  }
  move(ledger, {"dS = P o (dP - rowsum(P o dP))", {{Moved::p, nn}, {Moved::dp, nn}}, {{Moved::ds, nn}}});
  ledger.elementwise(nn, 4 * nn);
  move(ledger, {"dQ = dS K", {{Moved::ds, nn}, {Moved::k, k}}, {{Moved::dq, q}}});
  ledger.matmul(queries, problem.dim, keys);
  move(ledger, {"dK = dS^T Q", {{Moved::ds, nn}, {Moved::q, q}}, {{Moved::dk, k}}});
  ledger.matmul(keys, problem.dim, queries);
  ledger.keep(4 * nn);  // S, P, dP, dS
}

}  // namespace attest
