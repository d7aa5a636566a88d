// SPDX-License-Identifier: Apache-2.0
// Holds `attention` below against golden packs, with the reader of attest::golden: golden_example PACK... Put your
// backend's call in its place.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "golden/pack.h"
#include "reference/problem/case_text.h"

namespace {

using attest::golden::GoldenCase;

/// O of a case in float32 [tokens, Hq, Dv]: one pass over the keys of a row, with a running maximum.
std::vector<float> attention(const GoldenCase& c) {
  const attest::Problem& p = c.problem;
  const auto cu_q = attest::token_offsets(p.seq_q), cu_k = attest::token_offsets(p.seq_k);
  std::vector<float> o(static_cast<std::size_t>(p.total_q() * p.heads_q * p.width_v()));
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t i = 0; i < p.seq_q[b]; ++i) {
      for (std::int64_t h = 0; h < p.heads_q; ++h) {
        float* row = o.data() + ((cu_q[b] + i) * p.heads_q + h) * p.width_v();  // [Dv]
        float top = -std::numeric_limits<float>::infinity(), sum = 0;
        for (std::int64_t j = 0; j < p.seq_k[b]; ++j) {
          if (c.visible.at(b, h, i, j) == 0) continue;
          const auto q = c.inputs.q.row(cu_q[b] + i, h), k = c.inputs.k.row(cu_k[b] + j, h / p.group());
          const auto v = c.inputs.v.row(cu_k[b] + j, h / p.group());
          float score = 0;
          for (std::int64_t d = 0; d < p.dim; ++d) score += static_cast<float>(q[d]) * static_cast<float>(k[d]);
          score *= static_cast<float>(p.effective_scale());
          const float next = std::max(top, score), old = std::exp(top - next), weight = std::exp(score - next);
          sum = sum * old + weight;
          for (std::int64_t d = 0; d < p.width_v(); ++d) row[d] = row[d] * old + weight * static_cast<float>(v[d]);
          top = next;
        }
        for (std::int64_t d = 0; d < p.width_v() && sum > 0; ++d) row[d] /= sum;
      }
    }
  }
  return o;
}

/// Whether the function above can say the case.
bool supports(const attest::Problem& p) {
  return p.dtype == attest::Dtype::f32 && p.softcap == 0 && !p.bias && !p.alibi && !p.dropout;
}

/// NaN passes only where NaN is wanted; a bound of 0 asks for the same bits.
bool right(double want, double got, double bound) {
  return want == got || (std::isnan(want) && std::isnan(got)) || std::abs(got - want) <= bound;
}

}  // namespace

int main(int count, char** arguments) {
  int held = 0, skipped = 0, bad = 0;
  for (int n = 1; n < count; ++n) {
    const attest::golden::Pack pack = attest::golden::read_pack(arguments[n]);
    for (const attest::golden::PackEntry& entry : pack.entries) {
      const GoldenCase golden = attest::golden::load_case(pack, entry);
      if (!supports(golden.problem)) {
        ++skipped;
        continue;
      }
      ++held;
      const std::vector<float> o = attention(golden);
      for (std::size_t e = 0; e < o.size(); ++e) {
        if (right(golden.exact.o.data[e], o[e], golden.bounds.o.data[e])) continue;
        std::printf("FAIL %s: o[%zu] want %.9g got %.9g bound %.3g\n", entry.text.c_str(), e, golden.exact.o.data[e],
                    static_cast<double>(o[e]), golden.bounds.o.data[e]);
        ++bad;
        break;
      }
    }
  }
  std::printf("%d cases held, %d skipped, %d fail\n", held, skipped, bad);
  return bad > 0 || held == 0;
}
