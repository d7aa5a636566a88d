/* SPDX-License-Identifier: Apache-2.0
 *
 * The foreign kernel of the sample: code that knows nothing of Attest. */
#include <math.h>

/* One head, rows contiguous: o [sq, dv] from q [sq, d], k [sk, d], v [sk, dv]; causal hides keys j > i + sk - sq. */
void their_attention(const float* q, const float* k, const float* v, float* o, float* lse, long sq, long sk, long d,
                     long dv, float scale, int causal) {
  for (long i = 0; i < sq; ++i) {
    const long seen = causal && i + sk - sq + 1 < sk ? i + sk - sq + 1 : sk;
    float m = -INFINITY, l = 0;
    for (long c = 0; c < dv; ++c) o[i * dv + c] = 0;
    for (long j = 0; j < seen; ++j) {
      float s = 0;
      for (long c = 0; c < d; ++c) s += q[i * d + c] * k[j * d + c];
      s *= scale;
      const float larger = s > m ? s : m, old = expf(m - larger), p = expf(s - larger);
      l = l * old + p;
      for (long c = 0; c < dv; ++c) o[i * dv + c] = o[i * dv + c] * old + p * v[j * dv + c];
      m = larger;
    }
    for (long c = 0; c < dv && seen > 0; ++c) o[i * dv + c] /= l;
    lse[i] = seen > 0 ? m + logf(l) : -INFINITY;
  }
}
