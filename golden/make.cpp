// SPDX-License-Identifier: Apache-2.0
#include "golden/make.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "golden/case_tensors.h"
#include "golden/exact_bits.h"
#include "golden/profile.h"
#include "reference/problem/invalid_request.h"

namespace attest::golden {
namespace {

constexpr std::int64_t kMostPairs = std::int64_t{1} << 22;  // the slow oracle takes seconds for so many

void check_fit(const Problem& p) {
  if (!p.fill.path.empty())
    throw InvalidRequest("fill", "file:" + p.fill.path, "a family: a pack holds its own inputs");
  std::int64_t pairs = 0;
  for (std::size_t b = 0; b < p.seq_q.size(); ++b) {
    if (p.seq_q[b] > kMostPairs || p.seq_k[b] > kMostPairs) pairs = kMostPairs;
    pairs += p.seq_q[b] * p.seq_k[b] * p.heads_q;
    if (pairs > kMostPairs)
      throw InvalidRequest("case", fmt::format("{} or more pairs", pairs),
                           fmt::format("at most {} in a pack", kMostPairs));
  }
}

template <typename Decide>
void fill(Operand<std::uint8_t>& operand, const std::vector<std::int64_t>& shape, Decide decide) {
  operand = {shape[0], shape[1], shape[2], shape[3], {}};
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t i = 0; i < shape[2]; ++i) {
        for (std::int64_t j = 0; j < shape[3]; ++j) operand.data.push_back(decide(b, h, i, j) ? 1 : 0);
      }
    }
  }
}

std::vector<std::int64_t> shape_of(const std::vector<CaseTensor>& tensors, const std::string& name) {
  return std::find_if(tensors.begin(), tensors.end(), [&](const CaseTensor& t) { return t.name == name; })->shape;
}

GoldenCase make_unplaced(const GoldenRequest& request, const TruthSource& truth) {
  GoldenCase golden;
  golden.problem = request.problem;
  golden.flags = request.flags;
  golden.set = request.set;
  golden.exact_tensors = request.exact_tensors;
  const Problem& p = golden.problem;
  golden.profile = profile_of(p).name;
  check_fit(p);
  golden.inputs = make_golden_inputs(p, request.set);
  golden.exact = truth.exact(p, golden.inputs);
  golden.bounds = profile_bounds(p, golden.inputs, golden.exact);
  mark_exact_bits(golden);
  const std::vector<CaseTensor> tensors = case_tensors(p);
  fill(golden.visible, shape_of(tensors, "visible"),
       [&](auto b, auto h, auto i, auto j) { return truth.visible(p, golden.inputs, b, h, i, j); });
  if (p.dropout) {
    fill(golden.keep, shape_of(tensors, "keep"),
         [&](auto b, auto h, auto i, auto j) { return truth.kept(p, b, h, i, j); });
  }
  return golden;
}

}  // namespace

GoldenCase make_golden_case(const GoldenRequest& request, const TruthSource& truth) {
  try {
    return make_unplaced(request, truth);
  } catch (const InvalidRequest& error) {
    throw InvalidRequest(fmt::format("{}: {}", request.where, error.field()), error.value(), error.allowed());
  }
}

std::vector<GoldenCase> make_golden_cases(const std::vector<GoldenRequest>& requests, const TruthSource& truth,
                                          int threads) {
  std::vector<GoldenCase> cases(requests.size());
  std::vector<std::exception_ptr> errors(requests.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t n = next++; n < requests.size(); n = next++) {
      try {
        cases[n] = make_golden_case(requests[n], truth);
      } catch (...) {
        errors[n] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    for (int t = 1; t < threads; ++t) pool.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& error : errors) {  // the first by position, whoever met it
    if (error) std::rethrow_exception(error);
  }
  return cases;
}

}  // namespace attest::golden
