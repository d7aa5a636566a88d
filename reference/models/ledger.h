// SPDX-License-Identifier: Apache-2.0
// The ledger of a model: every element that it moves between slow memory (HBM) and fast memory (SRAM), by tensor and
// by phase, the most fast memory it held, and its floating-point operations. The machine is that of Dao et al. 2022,
// section 2: two levels, explicit loads and stores, sizes counted in elements.
//
//   Ledger ledger;  options.ledger = &ledger;  flash_forward(call, options);  ledger.total().reads
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

/// What moves: the tensors of the papers. `l` and `m` are FA1's row statistics, `partial` the states of split keys,
/// `kept` a dropout mask stored by the standard algorithm (one byte an element).
enum class Moved : std::uint8_t {
  q,
  k,
  v,
  o,
  d_o,
  dq,
  dk,
  dv,
  l,
  m,
  lse,
  delta,
  s,
  p,
  dp,
  ds,
  bias,
  mask,
  kept,
  partial
};
inline constexpr std::size_t kMovedCount = 20;
std::string_view name_of(Moved tensor);

struct Traffic {
  std::int64_t reads = 0;   // elements from slow memory
  std::int64_t writes = 0;  // elements to slow memory
};

struct PhaseCounts {
  std::string name;
  std::array<Traffic, kMovedCount> slow{};
  Traffic fast;                   // elements that tile operations read and wrote in fast memory
  std::int64_t matmul_flops = 0;  // 2 m n k each
  std::int64_t other_flops = 0;   // scale, max, exp, sums, rescales, divisions: one each
  Traffic total() const;
};

class Ledger {
 public:
  /// Tiles held in fast memory until this goes out of scope.
  class Held {
   public:
    Held(Ledger& ledger, std::int64_t elements) : ledger_(ledger), elements_(elements) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { ledger_.held_ -= elements_; }

   private:
    Ledger& ledger_;
    std::int64_t elements_;
  };

  /// `capacity` elements of fast memory, 0 for no limit; `counts_only` makes models walk their loops without data.
  explicit Ledger(std::int64_t capacity = 0, bool counts_only = false)
      : capacity_(capacity), counts_only_(counts_only) {}

  bool counts_only() const { return counts_only_; }
  void phase(std::string_view name);
  void read(Moved tensor, std::int64_t elements) {
    phases_[current_].slow[static_cast<std::size_t>(tensor)].reads += elements;
  }
  void write(Moved tensor, std::int64_t elements) {
    phases_[current_].slow[static_cast<std::size_t>(tensor)].writes += elements;
  }
  /// C [m, n] += A [m, k] B [k, n], all three in fast memory.
  void matmul(std::int64_t m, std::int64_t n, std::int64_t k);
  /// `flops` on tiles of `elements`, read and written in place.
  void elementwise(std::int64_t elements, std::int64_t flops);
  /// Throws InvalidRequest when the tiles held exceed the capacity.
  [[nodiscard]] Held hold(std::int64_t elements);
  /// Slow memory taken beyond inputs and outputs.
  void keep(std::int64_t elements) { kept_ = kept_ > elements ? kept_ : elements; }

  const std::vector<PhaseCounts>& phases() const { return phases_; }
  Traffic total() const;
  std::int64_t elements() const { return total().reads + total().writes; }
  std::int64_t bytes(int element_bytes) const;  // a stored dropout mask takes one byte an element
  std::int64_t matmul_flops() const;
  std::int64_t other_flops() const;
  std::int64_t peak_fast() const { return peak_; }
  std::int64_t extra_slow() const { return kept_; }

  /// Counts of `other`, `times` over, added phase by phase; peaks are the larger of both.
  void add(const Ledger& other, std::int64_t times);

 private:
  std::vector<PhaseCounts> phases_{PhaseCounts{"", {}, {}, 0, 0}};
  std::size_t current_ = 0;
  std::int64_t capacity_;
  bool counts_only_;
  std::int64_t held_ = 0, peak_ = 0, kept_ = 0;
};

}  // namespace attest
