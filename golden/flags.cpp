// SPDX-License-Identifier: Apache-2.0
#include "golden/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace attest::golden {
namespace {

constexpr std::array<Flag, 26> kFlags = {{
    {"Bias", "an additive bias is broadcast wrongly, scaled, given the other sign, or its gradient is not summed"},
    {"BlockMask",
     "a block mask is taken at another tile size, ignored on some path, or lost at the ends of the lengths"},
    {"CausalAlignment", "causal is aligned to the other corner where the lengths differ, or lost in one direction"},
    {"Dropout", "dropout is not scaled by 1 / (1 - p), changes lse, or differs between forward and backward"},
    {"EightBit", "8-bit inputs are decoded wrongly, or P of 8 bits saturates"},
    {"EmptyRow",
     "a row that sees no key gives NaN, the mean of v or garbage instead of o = 0, lse = -inf, gradients 0"},
    {"ExactSum", "the answer is exact in any order of summation: a single lost, doubled or stray term changes it"},
    {"ExtremeScore", "the running maximum is lost, started too high or not rescaled; exp overflows"},
    {"ExtremeValue", "values at the ends of the type's range overflow or are flushed on the way"},
    {"GroupedHeads", "a query head reads the wrong key/value head, or dk and dv miss heads of the group"},
    {"HeadDim", "columns past a multiple of 8, 16 or 32 are lost or read from the next head"},
    {"HiddenNonFinite", "NaN or infinity in a hidden key, value or row reaches the result (0 * NaN)"},
    {"Lse", "lse has the wrong sign of infinity, unit or layout, or its gradient is ignored"},
    {"NonFinite", "NaN that must show is hidden, or reaches rows that cannot see it"},
    {"Offset", "offsets of packed sequences are applied to the wrong tensor, or tokens after the last one are read"},
    {"OneQuery", "the path for one or few queries (decoding, keys in parts) differs from the general one"},
    {"Paged",
     "pages are found in the wrong order or at another page size, or what lies past a sequence's last key is read"},
    {"PartialTile", "the last tile of queries or keys, where a length is no multiple of the tile, is wrong"},
    {"Plain", "nothing special: attention without any option"},
    {"PrecisionOfP", "P, the sum of a row or an accumulator has fewer bits than the profile says"},
    {"Scale", "the scale is dropped, squared, or taken for positive"},
    {"Softcap", "softcap is applied at the wrong place, or its derivative is missing"},
    {"Subnormal", "subnormal values are flushed where the profile keeps them"},
    {"ValueWidth", "v is taken to be as wide as k"},
    {"Window", "a window is off by one on one side, or -1 is not taken as no limit"},
    {"ZeroLength", "a sequence without queries or keys is skipped, shifts its neighbours, or crashes"},
}};

}  // namespace

std::span<const Flag> flags() { return kFlags; }

const Flag* find_flag(std::string_view name) {
  const auto found = std::find_if(kFlags.begin(), kFlags.end(), [&](const Flag& flag) { return flag.name == name; });
  return found == kFlags.end() ? nullptr : &*found;
}

std::string known_flags() {
  std::string names = "one of";
  for (const Flag& flag : kFlags) names += fmt::format(" {}", flag.name);
  return names;
}

}  // namespace attest::golden
