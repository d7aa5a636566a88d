#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the two snippets of docs/diagnosis.md that write a capture and hands the files to `attest diagnose`.

    python3 tools/check_captures.py build/cpu/tools/attest            # with PyTorch and safetensors
    python3 tools/check_captures.py build/cpu/tools/attest --numpy    # with numpy alone, which stands in for both

Each snippet runs on a right attention, of which nothing may be said to be wrong, and on one whose causal mask is aligned
the other way, which must be named.
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import types

import numpy as np

LENGTHS_Q, LENGTHS_K = [20, 33, 7], [41, 49, 30]
HEADS, HEADS_KV, WIDTH = 4, 2, 16
WINDOW = 12  # keys to the left, in the packed snippet


def snippets():
    """The Python blocks of the docs: the padded one, the packed one."""
    docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "diagnosis.md")
    blocks = re.findall(r"(?:^    .*\n|^\n)+", open(docs).read(), re.M)
    code = next(block for block in blocks if "save_file" in block)
    code = "\n".join(line[4:] for line in code.splitlines())
    imports, padded, packed = re.split(r"^# (?=padded|packed)", code, flags=re.M)
    return imports, "# " + padded, "# " + packed


class Array(np.ndarray):
    """A numpy array with the few words of a tensor that the snippets use."""
    grad = None

    def contiguous(self):
        return np.ascontiguousarray(self)


def save_numpy(tensors, path, metadata=None):
    """What safetensors.torch.save_file writes: wide types first, then by name; the header padded to 8 bytes."""
    names = {"float16": "F16", "float32": "F32", "int32": "I32", "int64": "I64"}
    header, data = {"__metadata__": metadata}, b""
    for name, x in sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        raw = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": names[str(x.dtype)], "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def mask_of(sq, sk, top_left, window):
    """[Sq, Sk]; True shows."""
    i, j = np.arange(sq)[:, None], np.arange(sk)[None, :]
    at = i + (0 if top_left else sk - sq)
    return (j <= at) & ((j >= at - window) if window is not None else True)


def by_numpy(q, k, v, d_o, mask):
    """One sequence and head: q [Sq, D], k [Sk, D], v [Sk, D] in float32."""
    scale = q.shape[-1] ** -0.5
    with np.errstate(all="ignore"):
        s = np.where(mask, q @ k.T * scale, -np.inf)
        top = s.max(-1, keepdims=True)
        p = np.where(np.isfinite(top), np.exp(s - top), 0)
        total = p.sum(-1, keepdims=True)
        p = np.where(total > 0, p / total, 0)
        lse = np.where(total > 0, top + np.log(total), -np.inf)[:, 0]
    o = p @ v
    ds = p * (d_o @ v.T - (d_o * o).sum(-1, keepdims=True)) * scale
    return o, lse, ds @ k, ds.T @ q, p.T @ d_o


def by_torch(q, k, v, d_o, mask):
    import torch
    q, k, v = (torch.from_numpy(x).requires_grad_() for x in (q, k, v))
    seen, shown = torch.from_numpy(mask), torch.from_numpy(mask.any(-1))
    o = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=(seen | ~shown[:, None])[None])[0]
    o = o * shown[:, None]  # PyTorch leaves a row that sees nothing to its caller
    o.backward(torch.from_numpy(d_o))
    s = (q @ k.T * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf)
    return tuple(x.detach().numpy() for x in (o, torch.logsumexp(s, -1), q.grad, k.grad, v.grad))


def call(attention, top_left, window, seed=3):
    """Inputs and outputs of all sequences, packed: [tokens, heads, D]; lse [heads, tokens]."""
    random = np.random.default_rng(seed)
    tokens_q, tokens_k = sum(LENGTHS_Q), sum(LENGTHS_K)
    t = {"q": (tokens_q, HEADS), "k": (tokens_k, HEADS_KV), "v": (tokens_k, HEADS_KV), "d_o": (tokens_q, HEADS)}
    t = {name: random.standard_normal((*shape, WIDTH)).astype(np.float32) for name, shape in t.items()}
    for name in ("o", "dq"):
        t[name] = np.zeros_like(t["q"])
    for name in ("dk", "dv"):
        t[name] = np.zeros_like(t["k"])
    t["lse"] = np.zeros((HEADS, tokens_q), np.float32)
    first_q = first_k = 0
    for sq, sk in zip(LENGTHS_Q, LENGTHS_K):
        a, c = slice(first_q, first_q + sq), slice(first_k, first_k + sk)
        for h in range(HEADS):
            n = h // (HEADS // HEADS_KV)
            args = [np.ascontiguousarray(x) for x in (t["q"][a, h], t["k"][c, n], t["v"][c, n], t["d_o"][a, h])]
            o, lse, dq, dk, dv = attention(*args, mask_of(sq, sk, top_left, window))
            t["o"][a, h], t["lse"][h, a], t["dq"][a, h] = o, lse, dq
            t["dk"][c, n] += dk
            t["dv"][c, n] += dv
        first_q, first_k = first_q + sq, first_k + sk
    return t


def padded(x, lengths, axis, extra):
    """Sequences along their own axis, padded with what must not matter."""
    parts = np.split(x, np.cumsum(lengths)[:-1], axis=axis)
    rows = max(lengths) + extra
    widths = [[(0, rows - n if a == axis else 0) for a in range(x.ndim)] for n in lengths]
    return np.stack([np.pad(part, width, constant_values=7) for part, width in zip(parts, widths)])


def names_for(kind, t, tensor):
    """The variables that a snippet uses."""
    if kind == "padded":
        names = {name: padded(t[name], LENGTHS_Q if name in ("q", "o") else LENGTHS_K, 0, 2) for name in ("q", "k", "v", "o")}
        names["lse"] = padded(t["lse"], LENGTHS_Q, 1, 2)
        names["lengths_q"], names["lengths_k"] = np.array(LENGTHS_Q, np.int32), np.array(LENGTHS_K, np.int64)
        return {name: tensor(x) for name, x in names.items()}
    names = {name: tensor(t[name]) for name in ("q", "k", "v", "o", "lse")}
    for name in "qkv":
        names[name].grad = tensor(t["d" + name])
    names["grad_o"] = tensor(t["d_o"])
    for side, lengths in (("q", LENGTHS_Q), ("k", LENGTHS_K)):
        names["cu_seqlens_" + side] = tensor(np.cumsum([0] + lengths).astype(np.int32))
    return {**names, "max_q": max(LENGTHS_Q), "window": WINDOW}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attest")
    parser.add_argument("--numpy", action="store_true", help="no PyTorch, no safetensors")
    options = parser.parse_args()
    if options.numpy:
        module = types.ModuleType("safetensors.torch")
        module.save_file = save_numpy
        sys.modules["safetensors"], sys.modules["safetensors.torch"] = types.ModuleType("safetensors"), module
        attention, tensor = by_numpy, lambda x: x.view(Array)
    else:
        import torch
        attention, tensor = by_torch, torch.from_numpy
        print(f"PyTorch {torch.__version__}")
    imports, *kinds = snippets()
    failed = False
    for kind, code in zip(("padded", "packed"), kinds):
        for top_left in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                names = names_for(kind, call(attention, top_left, WINDOW if kind == "packed" else None), tensor)
                # The snippet writes into the working folder.
                before = os.getcwd()
                os.chdir(folder)
                exec(imports + code, names)
                os.chdir(before)
                file = os.path.join(folder, "capture.safetensors")
                run = subprocess.run([options.attest, "diagnose", file], capture_output=True, text=True)
            # With a window, the mistake of both alignments is one of the window's too.
            good = (run.returncode == 1 and "causal top-left" in run.stdout) if top_left else (run.returncode == 0 and "as the contract has them" in run.stdout)
            print(f"{kind}, {'causal top-left' if top_left else 'right'}: {'ok' if good else 'NOT AS IT SHOULD BE'}")
            if not good:
                failed = True
                print(run.returncode, run.stdout, run.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
