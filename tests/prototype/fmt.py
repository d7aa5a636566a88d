# SPDX-License-Identifier: Apache-2.0
"""Explicit rounding to small floating-point formats (numpy, values carried in float64/float32).

round_fmt(x, F, mode) rounds every element of x to format F once.  Works on float32 or float64
input; float64 input that is the exact value gives a single, correct rounding.
"""
import numpy as np


class Fmt:
    def __init__(self, name, p, emin, maxval, has_inf=True):
        self.name, self.p, self.emin, self.max, self.has_inf = name, p, emin, maxval, has_inf
        self.u = 2.0 ** (-p)                       # unit roundoff, round to nearest
        self.xmin = 2.0 ** emin                    # smallest normal
        self.sub = 2.0 ** (emin - p + 1)           # smallest subnormal (= spacing near 0)

    def __repr__(self):
        return self.name


FP64 = Fmt("fp64", 53, -1022, np.finfo(np.float64).max)
FP32 = Fmt("fp32", 24, -126, float(np.finfo(np.float32).max))
TF32 = Fmt("tf32", 11, -126, float(np.finfo(np.float32).max))
FP16 = Fmt("fp16", 11, -14, 65504.0)
BF16 = Fmt("bf16", 8, -126, 3.3895313892515355e38)
E4M3 = Fmt("e4m3", 4, -6, 448.0, has_inf=False)
E5M2 = Fmt("e5m2", 3, -14, 57344.0)
BY_NAME = {f.name: f for f in (FP64, FP32, TF32, FP16, BF16, E4M3, E5M2)}


def round_fmt(x, F, mode="rn", saturate=None, ftz=False):
    """-> float64 array holding values of F.  mode: 'rn' (ties to even) or 'rz' (truncate)."""
    if F is FP64:
        return np.asarray(x, np.float64)
    x = np.asarray(x, np.float64)
    if F is FP32 and mode == "rn" and not ftz:
        with np.errstate(over="ignore"):
            return x.astype(np.float32).astype(np.float64)
    if F is FP16 and mode == "rn" and not ftz and not saturate:
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float64)
    fin = np.isfinite(x)
    xs = np.where(fin, x, 0.0)
    _, e = np.frexp(xs)                            # |x| in [2^(e-1), 2^e)
    e = np.maximum(e - 1, F.emin)
    q = np.ldexp(1.0, e - (F.p - 1))
    r = (np.rint(xs / q) if mode == "rn" else np.trunc(xs / q)) * q
    if ftz:
        r = np.where(np.abs(r) < F.xmin, 0.0, r)
    if saturate is None:
        saturate = not F.has_inf
    big = np.abs(r) > F.max
    if big.any():
        r = np.where(big, np.sign(r) * (F.max if (saturate or mode == "rz") else np.inf), r)
    return np.where(fin, r, x)


def f32(x):
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float32)
