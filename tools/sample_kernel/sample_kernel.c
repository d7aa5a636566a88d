/* SPDX-License-Identifier: Apache-2.0
 *
 * How to have a kernel verified: this file wraps `their_attention`, which knows nothing of Attest, for the ABI.
 * Build both as a shared library, then: attest verify --kernel PATH/attest_sample_kernel.so */
#include <math.h>
#include <stdio.h>

#include "kernel_abi.h"

void their_attention(const float* q, const float* k, const float* v, float* o, float* lse, long sq, long sk, long d,
                     long dv, float scale, int causal);

static int32_t supports(const attest_problem* p, char* reason, size_t bytes) {
  const char* why = NULL;
  if (p->directions != ATTEST_FORWARD)
    why = "forward only";
  else if (p->dtype != ATTEST_F32 || p->out_dtype != ATTEST_F32)
    why = "f32 only";
  else if (p->layout != ATTEST_BHSD)
    why = "layout bhsd only";
  else if (p->causal == ATTEST_CAUSAL_TOP_LEFT || p->has_window)
    why = "causal bottom-right or no mask";
  else if (p->has_mask || p->has_block_mask || p->has_bias || p->has_alibi || p->softcap != 0 || p->has_dropout)
    why = "no explicit masks, biases, softcap or dropout";
  else if (p->page_size > 0)
    why = "no pages";
  else if (p->dim < 1 || p->dim_v < 1 || p->heads_kv < 1 || p->heads_q % p->heads_kv != 0)
    why = "widths of at least 1, query heads a multiple of key/value heads"; /* invalid calls are refused by contract */
  for (int64_t b = 0; !why && b < p->batch; ++b)
    if (p->seq_q[b] != p->rows_q || p->seq_k[b] != p->rows_k || p->max_q != p->rows_q || p->max_k != p->rows_k)
      why = "no padding";
  if (why && bytes) snprintf(reason, bytes, "%s", why);
  return why == NULL;
}

static void numerics(const attest_problem* p, attest_numerics* n) {
  const attest_accumulation chain = {1, 0, ldexp(1, -23), 0, 0}; /* product and sum rounded: two times 2^-24 */
  n->p_dtype = ATTEST_F32, n->reduce_dtype = ATTEST_F32;
  n->qk = n->pv = n->bwd = chain;
  n->exp_error = n->log_error = ldexp(1, -23);
  n->key_tile = n->query_tile = n->lanes = 1; /* every key may rescale */
  (void)p;
}

static int32_t forward(const attest_call* c) {
  const attest_problem* p = c->problem;
  if (c->q.stride_seq != p->dim || c->k.stride_seq != p->dim || c->v.stride_seq != p->dim_v ||
      c->o.stride_seq != p->dim_v)
    return snprintf(c->message, c->message_bytes, "rows are not contiguous"), ATTEST_REFUSED;
  for (int64_t b = 0; b < p->batch; ++b)
    for (int64_t h = 0; h < p->heads_q; ++h) {
      const int64_t g = h / (p->heads_q / p->heads_kv);
#define HEAD(t, head) ((float*)c->t.data + b * c->t.stride_batch + (head)*c->t.stride_head)
      their_attention(HEAD(q, h), HEAD(k, g), HEAD(v, g), HEAD(o, h), HEAD(lse, h), p->rows_q, p->rows_k, p->dim,
                      p->dim_v, (float)p->scale, p->causal != ATTEST_CAUSAL_NONE);
    }
  return ATTEST_OK;
}

size_t attest_kernels(uint32_t abi_version, const attest_kernel* const** kernels) {
  static const attest_kernel sample = {sizeof(attest_kernel),
                                       ATTEST_ABI_VERSION,
                                       "sample",
                                       "naive C attention, f32",
                                       ATTEST_CPU,
                                       ATTEST_FORWARD,
                                       {0, 0, 0, 0, 0, 1, 0},
                                       supports,
                                       numerics,
                                       NULL,
                                       forward,
                                       NULL};
  static const attest_kernel* const list[] = {&sample};
  return *kernels = list, abi_version == ATTEST_ABI_VERSION ? 1 : 0;
}
