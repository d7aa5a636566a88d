// SPDX-License-Identifier: Apache-2.0
#include "reference/diagnose/reading.h"

#include <cmath>

#include "reference/oracle/visibility.h"

namespace attest::diagnose {
namespace {

std::uint32_t word(std::int64_t x) { return static_cast<std::uint32_t>(x); }

}  // namespace

Reading contract_reading(const Problem& problem) {
  Reading reading;
  reading.problem = problem;
  return reading;
}

std::int64_t key_head(const Reading& reading, std::int64_t h) {
  const Problem& p = reading.problem;
  const std::int64_t own = reading.heads_modulo ? h % p.heads_kv : h / p.group();
  return (own + reading.k_head) % p.heads_kv;
}

std::int64_t value_head(const Reading& reading, std::int64_t h) {
  const Problem& p = reading.problem;
  const std::int64_t own = reading.heads_modulo ? h % p.heads_kv : h / p.group();
  return (own + reading.v_head) % p.heads_kv;
}

double keeps(const Reading& reading, const RowAt& at, std::int64_t j) {
  const Problem& p = reading.problem;
  const Dropout& dropout = *p.dropout;
  const double share = reading.keep_p ? p.effective_dropout() : 1 - p.effective_dropout();
  const std::int64_t h = (at.h + reading.keep_head) % p.heads_q;
  const std::int64_t head = reading.counter == KeepCounter::head_major ? h * p.batch() + at.b : at.b * p.heads_q + h;
  PhiloxBlock counter = {{word(j / 4), word(at.i), word(head), word(static_cast<std::int64_t>(dropout.offset))}};
  std::int64_t lane = j % 4;
  if (reading.counter == KeepCounter::rows_and_columns_swapped) {
    counter.word[0] = word(at.i / 4);
    counter.word[1] = word(j);
    lane = at.i % 4;
  } else if (reading.counter == KeepCounter::linear) {
    const std::int64_t linear = (head * p.max_q() + at.i) * p.max_k() + j;
    counter.word[0] = word(linear / 4);
    counter.word[1] = word((linear / 4) >> 32);
    counter.word[2] = 0;
    lane = linear % 4;
  }
  const PhiloxBlock words = philox4x32_10(counter, dropout.seed);
  return static_cast<double>(words.word[lane]) < share * 0x1p32 ? 1 : 0;
}

double keep_scale(const Reading& reading) {
  const double p = reading.problem.effective_dropout();
  return std::pow(reading.keep_scale_of_p ? 1 / p : 1 / (1 - p), reading.keep_scale_power);
}

}  // namespace attest::diagnose
