#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's scaled_dot_product_attention backends and Attest's CUDA kernels in one process, and prints ratios.

    tools/bench_pytorch.py build/cuda/cuda/libattest_cuda_kernels.so [--dtype bf16] [--dims 64,128]
                           [--lengths 512,...] [--kernels cuda-flash] [--runs 10] [--json FILE]

16,384 tokens, hidden width 2,048 (or --tokens, --hidden). Medians of CUDA events, the L2 cache overwritten between
runs; PyTorch and Attest in turn on the same inputs, whose outputs are compared. Rates are in TFLOP/s by the papers'
count: 4 S^2 D H B forward, 2.5 times that backward, half under a causal mask. Exit code 1 where outputs differ by more
than rounding explains, 2 without PyTorch or a GPU.
"""
import argparse
import ctypes
import json
import math
import statistics
import sys

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    print(f"bench_pytorch: PyTorch is needed: {error}", file=sys.stderr)
    sys.exit(2)

ABI_VERSION = 1
FORWARD, BACKWARD = 1, 2
DTYPES = {"f16": (torch.float16, 2), "bf16": (torch.bfloat16, 3)}
F32, BSHD, CAUSAL_BOTTOM_RIGHT = 1, 0, 2
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
MOST_DIFFERENCE = 0.02  # relative, in the norm: two 16-bit kernels on the same inputs
I32, I64, SIZE, PTR = ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t, ctypes.c_void_p


class Problem(ctypes.Structure):  # attest_problem
    _fields_ = [
        ("struct_size", SIZE), ("directions", I32), ("dtype", I32), ("out_dtype", I32), ("lse_dtype", I32),
        ("layout", I32), ("pad_side", I32), ("batch", I64), ("seq_q", ctypes.POINTER(I64)),
        ("seq_k", ctypes.POINTER(I64)), ("max_q", I64), ("max_k", I64), ("rows_q", I64), ("rows_k", I64),
        ("heads_q", I64), ("heads_kv", I64), ("dim", I64), ("dim_v", I64), ("scale", ctypes.c_double),
        ("softcap", ctypes.c_double), ("causal", I32), ("has_window", I32), ("window_left", I64),
        ("window_right", I64), ("window_align", I32), ("has_bias", I32), ("bias_dtype", I32), ("has_alibi", I32),
        ("has_mask", I32), ("has_block_mask", I32), ("block_rows", I64), ("block_cols", I64), ("has_dropout", I32),
        ("has_d_lse", I32), ("wants_d_bias", I32), ("deterministic", I32), ("dropout_p", ctypes.c_double),
        ("dropout_seed", ctypes.c_uint64), ("dropout_offset", ctypes.c_uint64), ("page_size", I64), ("pages", I64)]


class Tensor(ctypes.Structure):  # attest_tensor
    _fields_ = [("data", PTR), ("stride_batch", I64), ("stride_seq", I64), ("stride_head", I64)]


class Operand(ctypes.Structure):  # attest_operand
    _fields_ = [("data", PTR)] + [(name, I64) for name in ("batch", "head", "query", "key")]


class Call(ctypes.Structure):  # attest_call
    _fields_ = [
        ("struct_size", SIZE), ("problem", ctypes.POINTER(Problem))] + [
        (name, Tensor) for name in ("q", "k", "v", "o", "lse", "d_o", "d_lse", "dq", "dk", "dv")] + [
        (name, Operand) for name in ("bias", "d_bias", "mask", "block_mask")] + [
        ("alibi_slopes", PTR), ("cu_q", PTR), ("cu_k", PTR), ("seq_q", PTR), ("seq_k", PTR), ("workspace", PTR),
        ("workspace_bytes", SIZE), ("stream", PTR), ("message", ctypes.c_char_p), ("message_bytes", SIZE),
        ("page_table", PTR), ("page_table_stride", I64)]


RUN = ctypes.CFUNCTYPE(I32, ctypes.POINTER(Call))


class Kernel(ctypes.Structure):  # attest_kernel
    _fields_ = [
        ("struct_size", SIZE), ("abi_version", ctypes.c_uint32), ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p), ("device", I32), ("directions", I32), ("conventions", I32 * 7),
        ("supports", ctypes.CFUNCTYPE(I32, ctypes.POINTER(Problem), ctypes.c_char_p, SIZE)), ("numerics", PTR),
        ("workspace_bytes", ctypes.CFUNCTYPE(SIZE, ctypes.POINTER(Problem), I32)), ("forward", RUN),
        ("backward", RUN)]


def load_kernels(path):
    """Name to table of every kernel of the library."""
    library = ctypes.CDLL(path)
    library.attest_kernels.restype = SIZE
    tables = ctypes.POINTER(ctypes.POINTER(Kernel))()
    count = library.attest_kernels(ctypes.c_uint32(ABI_VERSION), ctypes.byref(tables))
    return {tables[i].contents.name.decode(): tables[i].contents for i in range(count)}


class AttestRun:
    """One kernel on tensors [B, S, H, D]; forward() and backward() enqueue on PyTorch's stream."""

    def __init__(self, kernel, dtype, q, k, v, d_o, causal, backward):
        batch, length, heads, dim = q.shape
        self.kernel = kernel
        self.lengths = (I64 * batch)(*[length] * batch)
        self.device_lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
        self.o, self.dq, self.dk, self.dv = (torch.empty_like(q) for _ in range(4))
        self.lse = torch.empty(batch, heads, length, dtype=torch.float32, device="cuda")
        p = Problem(struct_size=ctypes.sizeof(Problem), directions=FORWARD | (BACKWARD if backward else 0), dtype=dtype,
                    out_dtype=dtype, lse_dtype=F32, layout=BSHD, batch=batch, seq_q=self.lengths, seq_k=self.lengths,
                    max_q=length, max_k=length, rows_q=length, rows_k=length, heads_q=heads, heads_kv=heads, dim=dim,
                    dim_v=dim, scale=ctypes.c_float(1 / math.sqrt(dim)).value,
                    causal=CAUSAL_BOTTOM_RIGHT if causal else 0, window_left=-1, window_right=-1)
        reason = ctypes.create_string_buffer(256)
        if kernel.supports(ctypes.byref(p), reason, len(reason)) != 1:
            raise ValueError(reason.value.decode())
        needed = max(kernel.workspace_bytes(ctypes.byref(p), direction) if kernel.workspace_bytes else 0
                     for direction in ([FORWARD, BACKWARD] if backward else [FORWARD]))
        self.workspace = torch.empty(max(needed, 1), dtype=torch.uint8, device="cuda")
        self.message = ctypes.create_string_buffer(256)
        self.problem = p

        def view(x):
            return Tensor(x.data_ptr(), *x.stride()[:3])

        self.call = Call(struct_size=ctypes.sizeof(Call), problem=ctypes.pointer(p), q=view(q), k=view(k), v=view(v),
                         o=view(self.o), lse=Tensor(self.lse.data_ptr(), heads * length, 1, length), d_o=view(d_o),
                         dq=view(self.dq), dk=view(self.dk), dv=view(self.dv), seq_q=self.device_lengths.data_ptr(),
                         seq_k=self.device_lengths.data_ptr(), workspace=self.workspace.data_ptr(),
                         workspace_bytes=needed, stream=torch.cuda.current_stream().cuda_stream,
                         message=ctypes.cast(self.message, ctypes.c_char_p), message_bytes=len(self.message))

    def _run(self, function):
        if function(ctypes.byref(self.call)) != 0:
            raise RuntimeError(self.message.value.decode())

    def forward(self):
        self._run(self.kernel.forward)

    def backward(self):
        self._run(self.kernel.backward)


def median_ms(enqueue, runs, flush):
    times = []
    for i in range(-3, runs):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        enqueue()
        end.record()
        torch.cuda.synchronize()
        if i >= 0:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def difference(got, want):
    return float((got.float() - want.float()).norm() / want.float().norm())


def run_case(kernels, args, dim, length, causal, flush):
    torch_dtype, dtype = DTYPES[args.dtype]
    batch, heads = max(1, args.tokens // length), max(1, args.hidden // dim)
    q, k, v, d_o = (torch.randn(batch, length, heads, dim, device="cuda").to(torch_dtype) for _ in range(4))
    flops = 4.0 * length * length * dim * heads * batch / (2 if causal else 1)
    row = {"dtype": args.dtype, "batch": batch, "heads": heads, "dim": dim, "length": length, "causal": causal}
    leaves = [x.transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]
    want, rates = None, {}
    for name in args.backends:
        with sdpa_kernel(BACKENDS[name]):
            def forward():
                return torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
            try:
                out = forward()
                gradient = d_o.transpose(1, 2)
                grads = torch.autograd.grad(out, leaves, gradient, retain_graph=True)
                rates[name] = (flops / median_ms(forward, args.runs, flush) / 1e9, 2.5 * flops / median_ms(
                    lambda: torch.autograd.grad(out, leaves, gradient, retain_graph=True), args.runs, flush) / 1e9)
                if want is None:
                    want = [out.detach().transpose(1, 2)] + [g.transpose(1, 2) for g in grads]
                del out, grads
            except (RuntimeError, torch.OutOfMemoryError) as error:
                row[f"{name}_error"] = str(error).splitlines()[0]
        torch.cuda.empty_cache()
    worst = 0.0
    for name in args.kernels:
        kernel = kernels[name]
        backward = bool(kernel.directions & BACKWARD)
        try:
            run = AttestRun(kernel, dtype, q, k, v, d_o, causal, backward)
        except ValueError as reason:
            row[f"{name}_error"] = str(reason)
            continue
        run.forward()
        forward_rate = flops / median_ms(run.forward, args.runs, flush) / 1e9
        backward_rate = 2.5 * flops / median_ms(run.backward, args.runs, flush) / 1e9 if backward else None
        rates[name] = (forward_rate, backward_rate)
        if want is not None:
            got = [run.o] + ([run.dq, run.dk, run.dv] if backward else [])
            worst = max([worst] + [difference(g, w) for g, w in zip(got, want)])
        del run
        torch.cuda.empty_cache()
    row["rates"] = rates
    row["largest_difference"] = worst
    return row


def print_row(row, kernels):
    print(f"{row['dtype']} D{row['dim']} S{row['length']} {'causal' if row['causal'] else 'full'}"
          f"  largest difference {row['largest_difference']:.2e}")
    for name, (forward, backward) in row["rates"].items():
        text = f"  {name:18} forward {forward:7.1f}"
        if backward is not None:
            text += f"  backward {backward:7.1f}"
        if name in kernels:
            for other, (their_forward, their_backward) in row["rates"].items():
                if other not in kernels:
                    text += f"  /{other} {forward / their_forward:.2f}"
                    if backward is not None:
                        text += f" {backward / their_backward:.2f}"
        print(text)
    for key, value in row.items():
        if key.endswith("_error"):
            print(f"  {key[:-6]:18} did not run: {value}")
    sys.stdout.flush()


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="libattest_cuda_kernels.so")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--dims", type=numbers, default=[64, 128])
    parser.add_argument("--lengths", type=numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--kernels", type=lambda text: text.split(","), default=["cuda-flash"])
    parser.add_argument("--backends", type=lambda text: text.split(","), default=["flash", "cudnn", "efficient"],
                        help=f"of {','.join(BACKENDS)} (default all but math, whose memory is quadratic)")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench_pytorch: no GPU", file=sys.stderr)
        return 2
    kernels = load_kernels(args.library)
    for name in args.kernels:
        if name not in kernels:
            parser.error(f"--kernels {name}: one of {' '.join(kernels)}")
    for name in args.backends:
        if name not in BACKENDS:
            parser.error(f"--backends {name}: one of {' '.join(BACKENDS)}")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, TFLOP/s")
    torch.manual_seed(1)
    flush = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    rows = []
    for dim in args.dims:
        for length in args.lengths:
            for causal in (False, True):
                rows.append(run_case(kernels, args, dim, length, causal, flush))
                print_row(rows[-1], args.kernels)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    wrong = [row for row in rows if row["largest_difference"] > MOST_DIFFERENCE]
    if wrong:
        print(f"{len(wrong)} cases differ from PyTorch by more than {MOST_DIFFERENCE}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
