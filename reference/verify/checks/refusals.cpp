// SPDX-License-Identifier: Apache-2.0
// A call that breaks the contract (its last section) is declined in advance or refused with a reason, and nothing is
// written. Every fault is such that a kernel that overlooks it still stays inside the buffers: counts only become smaller.
#include <exception>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

namespace attest {
namespace {

/// What is wrong with a call: a changed problem, and, in host memory, changed offsets.
struct BadCall {
  const char* what;
  bool (*applies)(const Problem&, bool host);
  void (*spoil)(attest_problem&);
  void (*spoil_offsets)(std::int32_t* cu_q, std::int32_t* cu_k, const Problem&);
};

bool always(const Problem&, bool) { return true; }
bool has_groups(const Problem& p, bool) { return p.heads_kv > 1; }
bool has_queries(const Problem& p, bool) { return p.max_q() > 0; }
bool has_keys(const Problem& p, bool) { return p.max_k() > 0; }
bool has_key_rows(const Problem& p, bool) { return p.max_k() > 0 && p.page_size == 0; }
bool is_packed(const Problem& p, bool host) { return host && p.layout == Layout::thd; }
bool has_packed_keys(const Problem& p, bool host) { return is_packed(p, host) && p.page_size == 0; }
bool is_packed_batch(const Problem& p, bool host) { return is_packed(p, host) && p.batch() > 1 && p.total_q() > 0; }
void no_change(attest_problem&) {}

void one_key_row_short(attest_problem& p) {
  p.rows_k = (p.layout == ATTEST_THD ? std::accumulate(p.seq_k, p.seq_k + p.batch, std::int64_t{0}) : p.max_k) - 1;
}

constexpr BadCall kBadCalls[] = {
    {"query heads that are no multiple of key/value heads", has_groups, [](attest_problem& p) { p.heads_q -= 1; }, nullptr},
    {"max_q below a real length", has_queries, [](attest_problem& p) { p.max_q -= 1; }, nullptr},
    {"max_k below a real length", has_keys, [](attest_problem& p) { p.max_k -= 1; }, nullptr},
    {"fewer key rows than keys", has_key_rows, one_key_row_short, nullptr},
    {"dropout of p = 1", always, [](attest_problem& p) { p.has_dropout = 1, p.dropout_p = 1; }, nullptr},
    {"dropout of p = -0.5", always, [](attest_problem& p) { p.has_dropout = 1, p.dropout_p = -0.5; }, nullptr},
    {"dropout of p = NaN", always, [](attest_problem& p) { p.has_dropout = 1, p.dropout_p = std::numeric_limits<double>::quiet_NaN(); }, nullptr},
    {"a type that does not exist", always, [](attest_problem& p) { p.dtype = 77; }, nullptr},
    {"a layout that does not exist", always, [](attest_problem& p) { p.layout = 77; }, nullptr},
    {"a width of 0", always, [](attest_problem& p) { p.dim = 0; }, nullptr},
    {"cu_q that does not start at 0", is_packed, no_change, [](std::int32_t* cu_q, std::int32_t*, const Problem&) { cu_q[0] = -1; }},
    {"cu_q that falls", is_packed_batch, no_change, [](std::int32_t* cu_q, std::int32_t*, const Problem& p) { cu_q[1] = static_cast<std::int32_t>(p.total_q()) + (p.seq_q[0] == p.total_q() ? 1 : 0); }},
    {"cu_k that passes the end of the tensor", has_packed_keys, no_change, [](std::int32_t*, std::int32_t* cu_k, const Problem& p) { cu_k[p.batch()] = static_cast<std::int32_t>(p.rows_k()) + 1; }},
};

CheckResult run_bad(const CheckContext& context, const BadCall& bad) {
  Problem p = context.problem();
  p.direction = Direction::forward;
  p.d_lse = p.d_bias = false;
  const attest_kernel& table = context.kernel().table();
  Placement placement(p, context.inputs(), context.conventions(), context.memory());
  attest_problem problem = *placement.problem();
  bad.spoil(problem);
  std::string message(256, '\0');
  CheckResult result;
  try {
    if (table.supports(&problem, message.data(), message.size()) == 0) return result;
    const std::size_t workspace = table.workspace_bytes == nullptr ? 0 : table.workspace_bytes(placement.problem(), ATTEST_FORWARD);
    attest_call call = placement.call(ATTEST_FORWARD, workspace);
    if (bad.spoil_offsets != nullptr) {
      bad.spoil_offsets(const_cast<std::int32_t*>(call.cu_q), const_cast<std::int32_t*>(call.cu_k), p);
    }
    call.problem = &problem;
    call.message = message.data();
    call.message_bytes = message.size();
    message[0] = '\0';
    const std::int32_t status = table.forward(&call);
    context.memory().synchronize("a bad call");
    if (status != ATTEST_REFUSED) {
      result.findings.push_back({"", "", fmt::format("a call with {} was not refused (status {})", bad.what, status)});
    } else if (message[0] == '\0') {
      result.findings.push_back({"", "", fmt::format("a call with {} was refused without a reason", bad.what)});
    }
    if (status != ATTEST_OK && placement.wrote_results(ATTEST_FORWARD)) {
      result.findings.push_back({"", "", fmt::format("a call with {} was refused after results had been written", bad.what)});
    }
  } catch (const std::exception& error) {
    result.findings.push_back({"", "", fmt::format("a call with {}: {}", bad.what, error.what())});
  }
  return result;
}

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (!context.kernel().has(Direction::forward)) return CheckResult::not_applicable("the kernel has no forward");
  Problem forward = p;
  forward.direction = Direction::forward;
  forward.d_lse = forward.d_bias = false;
  if (!context.kernel().why_unsupported(forward).empty()) return CheckResult::not_applicable("forward alone is not supported");
  std::vector<const BadCall*> candidates;
  for (const BadCall& bad : kBadCalls) {
    if (bad.applies(p, !context.kernel().on_cuda())) candidates.push_back(&bad);
  }
  return run_bad(context, *candidates[static_cast<std::size_t>(context.below(static_cast<std::int64_t>(candidates.size()), "refusals"))]);
}

}  // namespace

const CheckUnit kRefusals = {"refusals", "calls that break the contract are refused with a reason, and nothing is written", "K03 K09 K10", 0.3, run};

}  // namespace attest
