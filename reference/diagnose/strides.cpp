// SPDX-License-Identifier: Apache-2.0
// Strides that the tensors of a capture had before they were made contiguous for the file.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/diagnose/capture.h"
#include "reference/problem/invalid_request.h"

namespace attest::diagnose {
namespace {

constexpr std::int64_t kVectorBytes = 16;

std::vector<std::int64_t> numbers(const std::string& field, const std::string& text) {
  std::vector<std::int64_t> list;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at != end) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || (next != end && *next != ',')) throw InvalidRequest(field, "'" + text + "'", "whole numbers with commas, as q.stride() gives them");
    list.push_back(value);
    at = next == end ? end : next + 1;
  }
  return list;
}

std::vector<std::int64_t> contiguous(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t n = shape.size(); n-- > 1;) strides[n - 1] = strides[n] * shape[n];
  return strides;
}

/// The same where it matters: a dimension of one element has no stride.
bool same(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b, const std::vector<std::int64_t>& shape) {
  for (std::size_t n = 0; n < shape.size(); ++n) {
    if (shape[n] > 1 && a[n] != b[n]) return false;
  }
  return true;
}

bool overlaps(const std::vector<std::int64_t>& strides, const std::vector<std::int64_t>& shape) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, extent
  for (std::size_t n = 0; n < shape.size(); ++n) {
    if (shape[n] > 1 && strides[n] != 0) dims.emplace_back(strides[n], shape[n]);
  }
  std::sort(dims.begin(), dims.end());
  for (std::size_t n = 1; n < dims.size(); ++n) {
    if (dims[n].first < dims[n - 1].first * (dims[n - 1].second - 1) + 1) return true;
  }
  return false;
}

}  // namespace

void check_strides(const StoredTensor& tensor, const std::string& text, Layout layout, Lines& lines) {
  const std::string field = "strides." + tensor.name;
  const std::vector<std::int64_t> strides = numbers(field, text);
  if (strides.size() != tensor.shape.size()) throw InvalidRequest(field, "'" + text + "'", fmt::format("{} numbers, one for each dimension of {}", tensor.shape.size(), describe(tensor)));
  const auto say = [&](Level level, const std::string& what, const char* fix) { lines.push_back({"contract", level, fmt::format("{} had the strides {}: {}", tensor.name, fmt::join(strides, ", "), what), fix}); };
  const std::vector<std::int64_t>& shape = tensor.shape;
  if (std::any_of(strides.begin(), strides.end(), [](std::int64_t s) { return s < 0; })) return say(Level::fault, "below 0", "kernels count from the start of a tensor");
  if (strides.back() != 1 && shape.back() > 1) return say(Level::fault, "the innermost is not 1", "the width of a row must be contiguous: call contiguous()");
  if (overlaps(strides, shape)) return say(Level::fault, "rows overlap", "a stride is smaller than what it steps over");
  if (same(strides, contiguous(shape), shape)) return;
  if (layout != Layout::thd) {
    std::vector<std::int64_t> turned = {shape[0], shape[2], shape[1], shape[3]};
    turned = contiguous(turned);
    if (same(strides, {turned[0], turned[2], turned[1], turned[3]}, shape)) {
      return say(Level::note, fmt::format("in memory it was {}", layout == Layout::bshd ? "bhsd" : "bshd"), "a kernel that takes no strides reads the other layout: call contiguous()");
    }
  }
  for (std::size_t n = 0; n + 1 < shape.size(); ++n) {
    if (strides[n] == 0 && shape[n] > 1) return say(Level::note, fmt::format("dimension {} is broadcast", n), "a kernel that takes no strides reads past it: call contiguous()");
  }
  const auto bytes = static_cast<std::int64_t>(bytes_of(tensor.type));
  for (std::size_t n = 0; n + 1 < shape.size(); ++n) {
    if (shape[n] > 1 && strides[n] * bytes % kVectorBytes != 0) return say(Level::note, fmt::format("rows start at no multiple of {} bytes", kVectorBytes), "vector loads need that");
  }
  say(Level::note, "not contiguous", "a kernel that takes no strides reads other rows");
}

}  // namespace attest::diagnose
