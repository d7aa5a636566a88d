// SPDX-License-Identifier: Apache-2.0
#include "tools/file_hash.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <vector>

#include <fmt/format.h>

namespace attest::tools {
namespace {

using State = std::array<std::uint32_t, 8>;

/// The first 32 bits of the fraction of a root of the n-th prime: what FIPS 180-4 takes its constants from.
std::uint32_t root_bits(long double root) { return static_cast<std::uint32_t>((root - std::floor(root)) * 4294967296.0L); }

std::array<std::uint32_t, 64> round_constants(State& start) {
  std::array<std::uint32_t, 64> constants{};
  std::size_t found = 0;
  for (int number = 2; found < constants.size(); ++number) {
    bool prime = true;
    for (int divisor = 2; divisor * divisor <= number; ++divisor) prime &= number % divisor != 0;
    if (!prime) continue;
    if (found < start.size()) start[found] = root_bits(std::sqrt(static_cast<long double>(number)));
    constants[found++] = root_bits(std::cbrt(static_cast<long double>(number)));
  }
  return constants;
}

void add_block(const unsigned char* block, const std::array<std::uint32_t, 64>& constants, State& state) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t t = 0; t < 16; ++t) {
    for (std::size_t byte = 0; byte < 4; ++byte) w[t] = w[t] << 8 | block[4 * t + byte];
  }
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants[t] + w[t];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const State mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t n = 0; n < 8; ++n) state[n] += mixed[n];
}

}  // namespace

std::string file_sha256(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::vector<unsigned char> bytes{std::istreambuf_iterator<char>(file), {}};
  const std::uint64_t bits = bytes.size() * 8;
  bytes.push_back(0x80);
  while (bytes.size() % 64 != 56) bytes.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<unsigned char>(bits >> shift));
  State state{};
  const auto constants = round_constants(state);
  for (std::size_t at = 0; at < bytes.size(); at += 64) add_block(bytes.data() + at, constants, state);
  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace attest::tools
