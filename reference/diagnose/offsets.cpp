// SPDX-License-Identifier: Apache-2.0
// The runbook's second question: do offsets and lengths say what they should?
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "reference/diagnose/capture.h"

namespace attest::diagnose {
namespace {

std::vector<std::int64_t> differences(const std::vector<std::int64_t>& offsets) {
  std::vector<std::int64_t> lengths;
  for (std::size_t b = 1; b < offsets.size(); ++b) lengths.push_back(offsets[b] - offsets[b - 1]);
  return lengths;
}

}  // namespace

Lengths check_offsets(const char* name, const std::vector<std::int64_t>& given, std::int64_t rows, Lines& lines) {
  Lengths result;
  const auto fault = [&](std::string what, std::string fix) {
    lines.push_back({"offsets", Level::fault, std::move(what), std::move(fix)});
    result.usable = false;
  };
  if (given.empty()) {
    fault(fmt::format("{} is empty", name), "give B + 1 offsets, the first 0");
    return result;
  }
  const bool starts = given.front() == 0;
  const auto fall = std::is_sorted_until(given.begin(), given.end());
  const bool rises = fall == given.end();
  const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
  const bool none_negative = std::all_of(given.begin(), given.end(), [](std::int64_t x) { return x >= 0; });
  if ((!starts || !rises || given.back() < rows) && none_negative && sum == rows) {
    lines.push_back({"offsets", Level::fault, fmt::format("{} holds lengths, not offsets: {} values that add up to the {} tokens", name, given.size(), rows),
                     "give cumulative sums with a leading 0; the stages below take them as lengths"});
    result.lengths = given;
    return result;
  }
  if (!starts) fault(fmt::format("{}[0] is {}", name, given.front()), given.front() == 1 && given.back() == rows + 1 ? "all offsets are one too large: count from 0" : "the first offset is 0");
  for (std::size_t b = 0; b < given.size(); ++b) {
    if (given[b] >= 0) continue;
    fault(fmt::format("{}[{}] is {}, below 0", name, b, given[b]), "offsets are token counts; did a 32-bit sum overflow?");
    break;
  }
  if (!rises) {
    const auto b = fall - given.begin();
    fault(fmt::format("{} falls at {}: {} after {}", name, b, *fall, *(fall - 1)), "offsets never fall; are these lengths, or unsorted sequences?");
  }
  if (given.back() > rows) {
    fault(fmt::format("{} ends at {}, past the {} tokens of the tensor", name, given.back(), rows), given.back() == rows + 1 ? "the last offset is one too large" : "the last offset is the number of tokens");
  }
  if (given.size() < 2) fault(fmt::format("{} has {} value", name, given.size()), "give B + 1 offsets");
  if (!result.usable) return result;
  if (given.back() < rows) {
    lines.push_back({"offsets", given.back() + 1 == rows ? Level::warning : Level::note, fmt::format("{} ends at {} of {} tokens: the rest is never read", name, given.back(), rows),
                     given.back() + 1 == rows ? "is the last offset one too small?" : ""});
  }
  result.lengths = differences(given);
  return result;
}

Lengths check_lengths(const char* name, const std::vector<std::int64_t>& given, std::int64_t batch, std::int64_t rows, Lines& lines) {
  Lengths result;
  const bool offsets = static_cast<std::int64_t>(given.size()) == batch + 1 && given.front() == 0 && std::is_sorted(given.begin(), given.end());
  if (offsets) {
    lines.push_back({"offsets", Level::fault, fmt::format("{} holds offsets, not lengths: {} rising values from 0 for {} sequences", name, given.size(), batch),
                     "give one length a sequence; the stages below take the differences"});
    result.lengths = differences(given);
  } else if (static_cast<std::int64_t>(given.size()) != batch) {
    lines.push_back({"offsets", Level::fault, fmt::format("{} has {} values for {} sequences", name, given.size(), batch), "give one length a sequence"});
    result.usable = false;
    return result;
  } else {
    result.lengths = given;
  }
  for (std::size_t b = 0; b < result.lengths.size(); ++b) {
    if (result.lengths[b] >= 0 && result.lengths[b] <= rows) continue;
    lines.push_back({"offsets", Level::fault, fmt::format("{}[{}] is {}, the tensor has {} rows", name, b, result.lengths[b], rows), "lengths are 0 to the rows of the tensor"});
    result.usable = false;
    break;
  }
  return result;
}

}  // namespace attest::diagnose
