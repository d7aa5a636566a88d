/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel ABI of Attest, version 1: what a shared library exports to have its attention kernels verified.
 * C99, no other dependency; any language that can fill a C struct can implement it.
 *
 *   #include "kernel_abi.h"
 *   static const attest_kernel my_kernel = { sizeof(attest_kernel), ATTEST_ABI_VERSION, "my-kernel", ... };
 *   size_t attest_kernels(uint32_t abi_version, const attest_kernel* const** kernels) {
 *     static const attest_kernel* const list[] = { &my_kernel };
 *     *kernels = list;
 *     return abi_version == ATTEST_ABI_VERSION ? 1 : 0;
 *   }
 *
 * What a kernel must compute is written in docs/contract.md. Shapes: B sequences, Hq query heads, Hkv key/value
 * heads, Sq[b] and Sk[b] lengths, D width of q and k, Dv width of v and o. Everything a kernel is pointed at is
 * owned by Attest; nothing may be kept after a call returns. Device kernels enqueue their work on `stream` and
 * may return before it ends.
 */
#ifndef ATTEST_KERNEL_ABI_H
#define ATTEST_KERNEL_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTEST_ABI_VERSION 1u

/* Enumerations are int32_t fields that hold these values, so that their size is the same in every language. */

enum { /* attest_dtype */
  ATTEST_F64 = 0, ATTEST_F32 = 1, ATTEST_F16 = 2, ATTEST_BF16 = 3,
  ATTEST_F8E4M3 = 4, ATTEST_F8E5M2 = 5, ATTEST_TF32 = 6 /* in numerics only */
};
enum { /* attest_layout */ ATTEST_BSHD = 0, ATTEST_BHSD = 1, ATTEST_THD = 2 };
enum { /* attest_pad: the side of a padded tensor that holds no tokens */ ATTEST_PAD_RIGHT = 0, ATTEST_PAD_LEFT = 1 };
enum { /* attest_causal */ ATTEST_CAUSAL_NONE = 0, ATTEST_CAUSAL_TOP_LEFT = 1, ATTEST_CAUSAL_BOTTOM_RIGHT = 2 };
enum { /* attest_device */ ATTEST_CPU = 0, ATTEST_CUDA = 1 };
enum { /* attest_direction, as bits */ ATTEST_FORWARD = 1, ATTEST_BACKWARD = 2 };
enum { /* attest_status, returned by forward and backward */
  ATTEST_OK = 0,
  ATTEST_REFUSED = 1, /* the call is invalid or not supported: nothing was written, `message` says why */
  ATTEST_FAILED = 2   /* a run-time failure, for example of a launch; `message` says which */
};

/* One call in sizes and switches; no data of tensors. Kernels are asked about it (supports, numerics,
 * workspace_bytes) before any buffer exists. The arrays are in host memory and live as long as the call. */
typedef struct attest_problem {
  size_t struct_size;   /* sizeof(attest_problem) of the caller; fields past it do not exist */
  int32_t directions;   /* ATTEST_FORWARD | ATTEST_BACKWARD: what will be called */
  int32_t dtype;        /* attest_dtype of q k v do */
  int32_t out_dtype;    /* attest_dtype of o dq dk dv */
  int32_t lse_dtype;    /* ATTEST_F32; ATTEST_F64 where dtype is ATTEST_F64 */
  int32_t layout;       /* attest_layout */
  int32_t pad_side;     /* attest_pad; padded layouts only */
  int64_t batch;        /* B, at least 1 */
  const int64_t* seq_q; /* [B] lengths of the sequences, each may be 0 */
  const int64_t* seq_k; /* [B] */
  int64_t max_q;        /* the largest of seq_q */
  int64_t max_k;
  int64_t rows_q;       /* padded: rows per sequence of the q-side tensors; packed: their tokens, >= sum of seq_q */
  int64_t rows_k;
  int64_t heads_q;      /* Hq, a multiple of Hkv; query head h reads key/value head h / (Hq / Hkv) */
  int64_t heads_kv;     /* Hkv */
  int64_t dim;          /* D */
  int64_t dim_v;        /* Dv */
  double scale;         /* multiplies <q, k>; a float32 value unless dtype is ATTEST_F64 */
  double softcap;       /* 0: off; else s = softcap * tanh(s / softcap) */
  int32_t causal;       /* attest_causal */
  int32_t has_window;
  int64_t window_left;  /* -1: no limit */
  int64_t window_right;
  int32_t window_align; /* ATTEST_CAUSAL_TOP_LEFT or ATTEST_CAUSAL_BOTTOM_RIGHT, where has_window */
  int32_t has_bias;
  int32_t bias_dtype;
  int32_t has_alibi;
  int32_t has_mask;
  int32_t has_block_mask;
  int64_t block_rows;   /* query rows and keys of one tile of the block mask */
  int64_t block_cols;
  int32_t has_dropout;
  int32_t has_d_lse;    /* backward gets a gradient of LSE */
  int32_t wants_d_bias; /* backward returns the gradient of the bias */
  int32_t deterministic; /* 1: two calls must give the same bits */
  double dropout_p;     /* in [0, 1) */
  uint64_t dropout_seed;
  uint64_t dropout_offset;
  int64_t page_size;    /* tokens of a page; 0: k and v are not paged. Forward only */
  int64_t pages;        /* pages in k and in v */
} attest_problem;

/* A tensor of rows (tokens), heads and width; innermost stride 1, strides in elements, `data` null where the call
 * has no such tensor. Row r of sequence b, head h, column c is at
 *   padded: data[b * stride_batch + r * stride_seq + h * stride_head + c]
 *           token i of a sequence of length S is row i (pad_side right) or rows - S + i (left)
 *   packed: data[(cu[b] + i) * stride_seq + h * stride_head + c]
 * and in k and v where page_size is not 0, token j of sequence b, whatever layout and pad_side are:
 *   paged:  data[page * stride_batch + (j % page_size) * stride_seq + h * stride_head + c]
 *           page = page_table[b * page_table_stride + j / page_size]
 * Offsets may pass 2^31. Strides of inputs may be 0. */
typedef struct attest_tensor {
  void* data;
  int64_t stride_batch;
  int64_t stride_seq;
  int64_t stride_head;
} attest_tensor;

/* An operand over [B, Hq, Sq, Sk], indexed by sequence, query head and the *token* indices i and j (not padded rows):
 *   data[b * stride_batch + h * stride_head + i * stride_query + j * stride_key], stride 0 where it is broadcast. */
typedef struct attest_operand {
  void* data;
  int64_t stride_batch;
  int64_t stride_head;
  int64_t stride_query;
  int64_t stride_key;
} attest_operand;

/* One call. Pointers are in the memory of the kernel's device. */
typedef struct attest_call {
  size_t struct_size;
  const attest_problem* problem;
  attest_tensor q;           /* [B, Sq, Hq, D]   in */
  attest_tensor k;           /* [B, Sk, Hkv, D]  in */
  attest_tensor v;           /* [B, Sk, Hkv, Dv] in */
  attest_tensor o;           /* [B, Sq, Hq, Dv]  out in forward, in in backward */
  attest_tensor lse;         /* [B, Hq, Sq] with "columns" absent; out in forward, in in backward; see lse_layout */
  attest_tensor d_o;         /* [B, Sq, Hq, Dv]  in */
  attest_tensor d_lse;       /* as lse; in, may be null */
  attest_tensor dq;          /* [B, Sq, Hq, D]   out */
  attest_tensor dk;          /* [B, Sk, Hkv, D]  out */
  attest_tensor dv;          /* [B, Sk, Hkv, Dv] out */
  attest_operand bias;       /* of bias_dtype */
  attest_operand d_bias;     /* out, float32 (float64 where dtype is); summed over what the bias broadcasts; contents undefined on entry */
  attest_operand mask;       /* uint8_t, 1 shows */
  attest_operand block_mask; /* uint8_t, one per tile, 1 shows; indices are i / block_rows and j / block_cols */
  const float* alibi_slopes; /* [Hq] */
  const int32_t* cu_q;       /* [B + 1] token offsets; packed layout only, else null */
  const int32_t* cu_k;
  const int32_t* seq_q;      /* [B] lengths, both layouts */
  const int32_t* seq_k;
  void* workspace;           /* workspace_bytes() bytes, 256-byte aligned, contents undefined */
  size_t workspace_bytes;
  void* stream;              /* cudaStream_t for device kernels, else null */
  char* message;             /* room for a zero-terminated text, filled unless the status is ATTEST_OK */
  size_t message_bytes;
  const int32_t* page_table; /* [B, page_table_stride], at least ceil(max_k / page_size) numbers a row; null where not paged.
                              * Numbers past the last page of a sequence are to be left alone */
  int64_t page_table_stride;
} attest_call;

/* LSE element (b, h, i): with ATTEST_LSE_ROWS it follows the rows of o:
 *   padded [B, Hq, rows_q], at lse.data[b * stride_batch + h * stride_head + r]
 *   packed [Hq, rows_q],    at lse.data[h * stride_head + cu_q[b] + i]
 * with ATTEST_LSE_PADDED it is [B, Hq, max_q] at lse.data[b * stride_batch + h * stride_head + i], packed layouts too. */
enum { /* attest_lse_layout */ ATTEST_LSE_ROWS = 0, ATTEST_LSE_PADDED = 1 };
enum { /* attest_empty_rows: o of a row that sees no key */ ATTEST_EMPTY_ZERO = 0, ATTEST_EMPTY_NAN = 1, ATTEST_EMPTY_MEAN = 2 };
enum { /* attest_empty_lse */ ATTEST_EMPTY_LSE_NEG_INF = 0, ATTEST_EMPTY_LSE_POS_INF = 1 };
enum { /* attest_lse_unit */ ATTEST_LSE_NATURAL = 0, ATTEST_LSE_BASE2 = 1 };
enum { /* attest_dropout_map */
  ATTEST_DROPOUT_ATTEST = 0,   /* the mapping of docs/contract.md: Philox4x32-10, counter (j/4, i, b*Hq+h, offset) */
  ATTEST_DROPOUT_UNKNOWN = 1,  /* its own: the mask is read out of the kernel */
  ATTEST_DROPOUT_FA2 = 2,      /* FlashAttention-2's 7-round byte mapping */
  ATTEST_DROPOUT_CURAND = 3    /* PyTorch memory-efficient: offset + linear index, 10 rounds */
};

/* What a kernel does where the field has more than one convention. All zero is the contract of Attest. */
typedef struct attest_conventions {
  int32_t empty_rows;
  int32_t empty_lse;
  int32_t lse_layout;
  int32_t lse_unit;
  int32_t dropout_map;
  int32_t bitwise_forward;  /* 1: promises the same bits for the same call */
  int32_t bitwise_backward; /* 1: promises them even where `deterministic` is 0 */
} attest_conventions;

/* How one matrix product accumulates (docs/numerics.md): blocks of `block` exact products; addends aligned to the
 * largest exponent and truncated to `aligner_bits` fraction bits (0: exact block sum); then one rounding of relative
 * size `u_norm`, to nearest or, with `truncates`, toward zero. The sum is moved to float32 every `promote` products
 * (0: never). A float32 FMA chain is {1, 0, 2^-24, 0, 0}. */
typedef struct attest_accumulation {
  int32_t block;
  int32_t aligner_bits;
  double u_norm;
  int32_t truncates;
  int32_t promote;
} attest_accumulation;

enum { /* attest_delta_source: what delta = rowsum(do * o) is computed from */
  ATTEST_DELTA_FROM_O = 0,      /* the stored o */
  ATTEST_DELTA_FROM_F32_O = 1,  /* o before it was rounded to out_dtype, or sum of P dP */
};

/* The arithmetic of a kernel for one problem; the error bound is computed from it. */
typedef struct attest_numerics {
  size_t struct_size;
  int32_t p_dtype;        /* attest_dtype that P and dS are rounded to before their products; 
                             ATTEST_F32/F64 where they are not rounded further */
  int32_t p_normalised;   /* 1: P is divided by its row sum before it is rounded (materialised softmax) */
  int32_t p_offset;       /* forward P is stored as P * 2^p_offset */
  int32_t l_from_rounded; /* 1: the row sum adds P after rounding */
  attest_accumulation qk; /* S = Q K^T */
  attest_accumulation pv; /* O = P V */
  attest_accumulation bwd; /* dP, dV, dQ, dK */
  double exp_error;       /* relative error of exp or exp2 as used: 2^-22 for ex2.approx; exp(0) must be exactly 1 */
  double log_error;       /* absolute error of log: 2^-21.4 for __logf, 2^-23 for logf */
  double tanh_error;      /* relative error of tanh: 2^-10.9 for tanh.approx, 2^-22 for tanhf */
  double input_error;     /* relative error of converting operands inside the kernel (2^-11: tf32), else 0 */
  int64_t key_tile;       /* fewest keys between two rescales of the accumulator; tile sizes also steer the cases */
  int64_t query_tile;
  int32_t lanes;          /* parallel partial sums of a row sum; 1 if unknown */
  int32_t delta_source;   /* attest_delta_source */
  int32_t reduce_dtype;   /* attest_dtype in which dk and dv of a group, split parts and atomics are summed */
  int32_t has_p_dtype_backward; /* 1: the backward rounds P and dS to p_dtype_backward instead of p_dtype */
  int32_t p_dtype_backward;
} attest_numerics;

typedef struct attest_kernel {
  size_t struct_size;
  uint32_t abi_version;    /* ATTEST_ABI_VERSION */
  const char* name;        /* lower case letters, digits and dashes */
  const char* description; /* one line */
  int32_t device;          /* attest_device */
  int32_t directions;      /* ATTEST_FORWARD | ATTEST_BACKWARD */
  attest_conventions conventions;
  /* 1: will run it. 0: will not, and `reason` says why in a few words. Called before anything else of the problem. */
  int32_t (*supports)(const attest_problem* problem, char* reason, size_t reason_bytes);
  /* Fills `numerics` (struct_size is set by the caller) for a supported problem. */
  void (*numerics)(const attest_problem* problem, attest_numerics* numerics);
  /* Workspace for one direction of a supported problem; may be null for none. */
  size_t (*workspace_bytes)(const attest_problem* problem, int32_t direction);
  /* attest_status. Null where `directions` lacks it. */
  int32_t (*forward)(const attest_call* call);
  int32_t (*backward)(const attest_call* call);
} attest_kernel;

/* The one exported symbol: points *kernels at an array that lives as long as the library and returns its length;
 * 0 when it does not speak `abi_version`. */
size_t attest_kernels(uint32_t abi_version, const attest_kernel* const** kernels);

#ifdef __cplusplus
}
#endif

#endif /* ATTEST_KERNEL_ABI_H */
