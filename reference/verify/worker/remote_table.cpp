// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/worker/remote_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace attest {
namespace {

std::mutex places_mutex;
std::array<std::atomic<RemoteTable*>, RemoteTable::kPlaces> places;

template <std::size_t N>
void fill_functions(attest_kernel& table) {
  table.supports = [](const attest_problem* problem, char* reason, std::size_t bytes) { return places[N].load()->supports(problem, reason, bytes); };
  table.numerics = [](const attest_problem* problem, attest_numerics* numerics) { places[N].load()->numerics(problem, numerics); };
  table.workspace_bytes = [](const attest_problem* problem, std::int32_t direction) { return places[N].load()->workspace_bytes(problem, direction); };
  table.forward = [](const attest_call* call) { return places[N].load()->run(call, ATTEST_FORWARD); };
  table.backward = [](const attest_call* call) { return places[N].load()->run(call, ATTEST_BACKWARD); };
}

template <std::size_t... N>
void fill_functions(attest_kernel& table, std::size_t place, std::index_sequence<N...>) {
  using Fill = void (*)(attest_kernel&);
  constexpr std::array<Fill, sizeof...(N)> fills = {fill_functions<N>...};
  fills[place](table);
}

/// A block of the arena for the length of a call.
class Block {
 public:
  Block(Arena& arena, std::size_t bytes) : arena_(arena), data_(static_cast<std::byte*>(arena.allocate(bytes))) {}
  ~Block() { arena_.release(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// The next `bytes`, 16-byte aligned.
  void* take(std::size_t bytes) { return data_ + std::exchange(used_, used_ + (bytes + 15) / 16 * 16); }
  template <typename T>
  T* copy(const T* values, std::size_t count) {
    return static_cast<T*>(std::memcpy(take(count * sizeof(T)), values, count * sizeof(T)));
  }

 private:
  Arena& arena_;
  std::byte* data_;
  std::size_t used_ = 0;
};

constexpr std::size_t kAlignment = 16;

std::size_t problem_bytes(const attest_problem& problem) {
  return sizeof(attest_problem) + 2 * (static_cast<std::size_t>(problem.batch) * sizeof(std::int64_t) + kAlignment) + kAlignment;
}

/// The problem with the arrays that it points at.
attest_problem* copy_problem(Block& block, const attest_problem& problem) {
  attest_problem* copy = block.copy(&problem, 1);
  copy->seq_q = block.copy(problem.seq_q, static_cast<std::size_t>(problem.batch));
  copy->seq_k = block.copy(problem.seq_k, static_cast<std::size_t>(problem.batch));
  return copy;
}

}  // namespace

RemoteTable::RemoteTable(std::shared_ptr<WorkerProcess> process, const KernelFacts& facts)
    : process_(std::move(process)), facts_(facts) {
  const std::lock_guard lock(places_mutex);
  const auto free = std::find(places.begin(), places.end(), nullptr);
  if (free == places.end()) throw std::length_error("more kernels in workers than there is room for");
  place_ = static_cast<std::size_t>(free - places.begin());
  table_.struct_size = sizeof(table_);
  table_.abi_version = ATTEST_ABI_VERSION;
  table_.name = facts_.name;
  table_.description = facts_.description;
  table_.device = facts_.device;
  table_.directions = facts_.directions;
  table_.conventions = facts_.conventions;
  fill_functions(table_, place_, std::make_index_sequence<kPlaces>());
  if (facts_.has_workspace == 0) table_.workspace_bytes = nullptr;
  *free = this;
}

RemoteTable::~RemoteTable() {
  const std::lock_guard lock(places_mutex);
  places[place_] = nullptr;
}

std::int32_t RemoteTable::supports(const attest_problem* problem, char* reason, std::size_t reason_bytes) {
  Block block(process_->arena(), problem_bytes(*problem));
  Request request;
  request.order = Order::supports;
  request.at = copy_problem(block, *problem);
  const Reply reply = process_->call(request, "supports");
  const std::size_t length = std::min(strnlen(reply.text[0], sizeof(reply.text[0]) - 1), reason_bytes == 0 ? 0 : reason_bytes - 1);
  if (reason_bytes != 0) {
    std::memcpy(reason, reply.text[0], length);
    reason[length] = '\0';
  }
  return static_cast<std::int32_t>(reply.value);
}

void RemoteTable::numerics(const attest_problem* problem, attest_numerics* numerics) {
  Block block(process_->arena(), problem_bytes(*problem) + sizeof(*numerics) + kAlignment);
  Request request;
  request.order = Order::numerics;
  request.at = copy_problem(block, *problem);
  request.to = block.copy(numerics, 1);
  process_->call(request, "numerics");
  *numerics = *static_cast<const attest_numerics*>(request.to);
}

std::size_t RemoteTable::workspace_bytes(const attest_problem* problem, std::int32_t direction) {
  Block block(process_->arena(), problem_bytes(*problem));
  Request request;
  request.order = Order::workspace;
  request.number = direction;
  request.at = copy_problem(block, *problem);
  return static_cast<std::size_t>(process_->call(request, "workspace_bytes").value);
}

std::int32_t RemoteTable::run(const attest_call* call, std::int32_t direction) {
  Block block(process_->arena(), problem_bytes(*call->problem) + sizeof(*call) + call->message_bytes + 2 * kAlignment);
  attest_call* copy = block.copy(call, 1);
  copy->problem = copy_problem(block, *call->problem);
  copy->message = call->message_bytes == 0 ? nullptr : block.copy(call->message, call->message_bytes);
  char* const message = copy->message;
  Request request;
  request.order = direction == ATTEST_FORWARD ? Order::forward : Order::backward;
  request.at = copy;
  const Reply reply = process_->call(request, direction == ATTEST_FORWARD ? "forward" : "backward");
  if (message != nullptr) std::memcpy(call->message, message, call->message_bytes);
  return static_cast<std::int32_t>(reply.value);
}

}  // namespace attest
