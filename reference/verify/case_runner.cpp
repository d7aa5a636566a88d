// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/case_runner.h"

#include <utility>

namespace attest {
namespace {

constexpr std::int64_t kAheadPerThread = 2;

}  // namespace

CaseRunner::CaseRunner(std::size_t threads, std::int64_t end, Evaluate evaluate)
    : evaluate_(std::move(evaluate)), end_(end), ahead_(kAheadPerThread * static_cast<std::int64_t>(threads)) {
  for (std::size_t n = 0; n < threads; ++n) threads_.emplace_back([this, n] { work(n); });
}

CaseRunner::~CaseRunner() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CaseRunner::work(std::size_t thread) {
  for (;;) {
    std::int64_t position = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || taken_ >= end_ || taken_ < given_ + ahead_; });
      if (stop_ || taken_ >= end_) return;
      position = taken_++;
    }
    Result result;
    try {
      result.verdict = evaluate_(thread, position);
    } catch (...) {
      result.error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      results_[position] = std::move(result);
    }
    changed_.notify_all();
  }
}

Verdict CaseRunner::next() {
  Result result;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return results_.contains(given_); });
    const auto found = results_.find(given_);
    result = std::move(found->second);
    results_.erase(found);
    ++given_;
  }
  changed_.notify_all();
  if (result.error) std::rethrow_exception(result.error);
  return std::move(*result.verdict);
}

}  // namespace attest
