# SPDX-License-Identifier: Apache-2.0
"""Reference bounds of the prototype on small problems, as text: usage make_reference.py DIRECTORY.

One file per case. First line: the fields the test needs; then tensors, one per line, as "name values...". Inputs come
from a linear congruential generator that the test repeats, so that they need not be stored."""
import os
import sys

import numpy as np

from fmt import BF16, E4M3, FP16, FP32, FP64, TF32, round_fmt
from oracle import SIMT, TC_ANY, TC_FP8_HOPPER, TC_HOPPER, Profile, oracle

SIZES = dict(Sq=20, Sk=45, d=8, dv=6, G=2)


class Lcg:
    """Numbers in [-1, 1) from a 64-bit linear congruential generator."""

    def __init__(self, seed):
        self.state = seed

    def fill(self, *shape):
        out = np.empty(int(np.prod(shape)))
        for n in range(out.size):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
            out[n] = (self.state >> 40) / 2.0**23 - 1
        return out.reshape(shape)


def philox(counter, key):
    """Philox4x32-10: four words for the counter's four."""
    x, k = list(counter), [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ x[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


def keep_mask(head, rows, keys, p, seed=7):
    limit = round((1 - p) * 2**32)
    return np.array([[philox((j // 4, i, head, 0), seed)[j % 4] < limit for j in range(keys)] for i in range(rows)])


def case(name, t_in, t_p, t_out, acc, mode, gain=1.0, causal=False, softcap=0.0, bias=False, dropout=0.0, bwd=True, **profile):
    c = dict(SIZES, name=name, mode=mode, t_in=t_in, t_p=t_p, t_out=t_out, acc=acc, gain=gain, causal=causal,
             softcap=softcap, bias=bias, dropout=dropout, bwd=bwd, profile=profile)
    return c


ACC = dict(simt=SIMT, any=TC_ANY, hopper=TC_HOPPER, fp8=TC_FP8_HOPPER)
CASES = []
for mode in ("gen", "det"):
    CASES += [
        case("f16", FP16, FP16, FP16, "hopper", mode),
        case("bf16", BF16, BF16, BF16, "any", mode, causal=True),
        case("f32", FP32, FP32, FP32, "simt", mode, gain=3.0),
        case("f16_peaked", FP16, FP16, FP16, "hopper", mode, gain=40.0),
        case("f16_softcap", FP16, FP16, FP16, "hopper", mode, gain=6.0, softcap=4.0),
        case("bf16_bias", BF16, BF16, BF16, "hopper", mode, bias=True),
        case("f16_dropout", FP16, FP16, FP16, "hopper", mode, dropout=0.25),
        case("f16_rounded_sum", FP16, FP16, FP16, "simt", mode, l_from_rounded=True, lanes=4, BN=16),
        case("fp8_p", BF16, E4M3, BF16, "hopper", mode, bwd=False, max_offset=8),
        case("f64", FP64, FP64, FP64, "simt", mode),
    ]


def write(c, folder):
    rng = Lcg(12345)
    r = lambda x: round_fmt(x, c["t_in"])
    qs = [r(c["gain"] * rng.fill(c["Sq"], c["d"])) for _ in range(c["G"])]
    k, v = r(2 * rng.fill(c["Sk"], c["d"])), r(rng.fill(c["Sk"], c["dv"]))
    gs = [r(rng.fill(c["Sq"], c["dv"])) for _ in range(c["G"])]
    kw = {}
    if c["bias"]:
        kw["bias"] = round_fmt(2 * rng.fill(c["Sq"], c["Sk"]), FP32)
    if c["causal"]:
        i, j = np.arange(c["Sq"])[:, None], np.arange(c["Sk"])[None]
        kw["mask"] = j - i <= 0  # top-left
    if c["dropout"]:
        kw["Z"] = [keep_mask(h, c["Sq"], c["Sk"], c["dropout"]) for h in range(c["G"])]
        kw["pdrop"] = c["dropout"]
    tau = float(np.float32(c["d"] ** -0.5)) if c["t_in"] is not FP64 else c["d"] ** -0.5
    acc = ACC[c["acc"]]
    pf = Profile(t_in=c["t_in"], t_p=c["t_p"], t_out=c["t_out"], qk=acc, pv=acc, bwd=acc, **c["profile"])
    heads, kv = oracle(pf, list(zip(qs, gs if c["bwd"] else [None] * c["G"])), k, v, tau, c["mode"],
                       softcap=c["softcap"], bwd=c["bwd"], chunk=1, **kw)
    p = dict(dict(max_offset=0, l_from_rounded=False, lanes=1, BN=64), **c["profile"])
    fields = dict(t_in=c["t_in"].name, t_p=c["t_p"].name, t_out=c["t_out"].name, acc=c["acc"], mode=c["mode"],
                  gain=c["gain"], causal=int(c["causal"]), softcap=c["softcap"], bias=int(c["bias"]),
                  dropout=c["dropout"], bwd=int(c["bwd"]), offset=p["max_offset"], rounded=int(p["l_from_rounded"]),
                  lanes=p["lanes"], tile=p["BN"])
    with open(os.path.join(folder, f"{c['name']}_{c['mode']}.txt"), "w") as f:
        f.write(" ".join(f"{a} {b}" for a, b in fields.items()) + "\n")
        for h in range(c["G"]):
            for key in ("BO", "BLSE") + (("BdQ",) if c["bwd"] else ()) + ("trust",):
                f.write(key + " " + " ".join(f"{x:.4g}" for x in np.ravel(heads[h][key])) + "\n")
        if c["bwd"]:
            for key in ("BdK", "BdV", "trust"):
                f.write(key + " " + " ".join(f"{x:.4g}" for x in np.ravel(kv[key])) + "\n")


if __name__ == "__main__":
    for one in CASES:
        write(one, sys.argv[1])
