// SPDX-License-Identifier: Apache-2.0
// Every buffer that a kernel touches in one case: laid out as the problem says, between guard bands, with NaN
// patterns in outputs, workspace, padding and stride gaps. Afterwards it reads the outputs back and says what was
// touched that should not have been.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "reference/problem/device_memory.h"
#include "reference/problem/inputs.h"
#include "reference/problem/kernel_abi.h"
#include "reference/problem/layout.h"
#include "reference/problem/problem.h"
#include "reference/verify/abi_problem.h"
#include "reference/verify/finding.h"

namespace attest {

/// What a kernel gave, as the values of its output types; NaN where an element was never written.
struct Outputs {
  Values o;                 // [tokens_q, Hq, Dv]
  std::vector<double> lse;  // [tokens_q, Hq]
  Values dq;                // [tokens_q, Hq, D]
  Values dk;                // [tokens_k, Hkv, D]
  Values dv;                // [tokens_k, Hkv, Dv]
  Operand<double> d_bias;   // each of [B or 1, Hq or 1, Sq or 1, Sk or 1]
};

/// Outputs that stand in for a forward pass when only the backward is run.
struct ForwardResult {
  Values o;                 // [tokens_q, Hq, Dv]
  std::vector<double> lse;  // [tokens_q, Hq]; in the unit and layout-free order of Outputs
};

/// What memory that must not matter holds before a call: outputs, workspace, padding, stride gaps, what is past the last
/// offset. With `nan` every byte is 0xFF, by which elements that were never written are told.
enum class Poison : std::uint8_t { nan, zero, infinite, minus_infinite, huge };
std::string_view name_of(Poison poison);

/// Bytes that the tensors of a case take in storage, and as values of the inputs and of the exact answer. Throws
/// InvalidRequest("case", ...) where either is more than `byte_limit`; nothing has been made by then.
void check_size(const Problem& problem, std::size_t byte_limit);

class Placement {
 public:
  Placement(const Problem& problem, const Inputs& inputs, const attest_conventions& conventions, DeviceMemory& memory,
            Poison poison = Poison::nan);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  /// Fills o and lse, for a backward without a forward.
  void give_forward(const ForwardResult& forward);
  /// The call for one direction, with its own freshly poisoned workspace.
  attest_call call(std::int32_t direction, std::size_t workspace_bytes);
  const attest_problem* problem() const { return abi_.get(); }

  /// Reads back what `direction` wrote; elements never written are NaN and reported.
  void read_outputs(std::int32_t direction, Outputs& outputs, std::vector<Finding>& findings);
  /// True where any result of `direction` is not as it was before the call.
  bool wrote_results(std::int32_t direction);
  /// Guard bands, gaps of outputs, and inputs of the call of `direction`.
  void inspect(std::int32_t direction, std::vector<Finding>& findings);

 private:
  struct Buffer;
  Buffer& add(std::string name, std::size_t bytes, bool output, Dtype type = Dtype::f32);
  Buffer& add_tensor(TensorId id, const Values* values, bool output);
  void place_operands(const Inputs& inputs);
  void place_lengths();
  bool is_result(const Buffer& buffer, std::int32_t direction) const;
  void fetch(Buffer& buffer);
  void read_tensor(TensorId id, Values& values, std::vector<Finding>& findings);
  void read_lse(std::vector<double>& lse, std::vector<Finding>& findings);
  void read_d_bias(Operand<double>& d_bias, std::vector<Finding>& findings);
  std::int64_t lse_index(std::int64_t b, std::int64_t i, std::int64_t h) const;
  attest_tensor tensor_view(TensorId id) const;
  attest_tensor lse_view(const Buffer* buffer) const;

  bool is_unwritten(const std::byte* element, std::size_t bytes) const;

  const Problem& problem_;
  Poison poison_;
  AbiProblem abi_;
  attest_conventions conventions_;
  DeviceMemory& memory_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Buffer* tensors_[8] = {};
  Buffer* lse_ = nullptr;
  Buffer* d_lse_ = nullptr;
  Buffer* bias_ = nullptr;
  Buffer* d_bias_ = nullptr;
  Buffer* mask_ = nullptr;
  Buffer* block_mask_ = nullptr;
  Buffer* slopes_ = nullptr;
  Buffer* cu_q_ = nullptr;
  Buffer* cu_k_ = nullptr;
  Buffer* page_table_ = nullptr;
  Buffer* seq_q_ = nullptr;
  Buffer* seq_k_ = nullptr;
  Buffer* workspace_[2] = {};  // forward, backward
  Operand<double> bias_shape_;         // extents only, [B or 1, Hq or 1, Sq or 1, Sk or 1]
  Operand<std::uint8_t> mask_shape_;   // extents only, [B or 1, Hq or 1, Sq or 1, Sk or 1]
  Operand<std::uint8_t> block_shape_;  // extents only, [B or 1, Hq or 1, query tiles, key tiles]
  std::vector<std::int64_t> offsets_q_;  // [B + 1] token offsets
  std::vector<std::int64_t> offsets_k_;  // [B + 1]
  ElementPlaces places_o_;               // lse follows the rows of o
  std::int64_t lse_rows_ = 0;            // of a head of lse
};

}  // namespace attest
