# SPDX-License-Identifier: Apache-2.0
"""Holds `attention` below against a golden pack: python3 check_pack.py PACK. Put your backend's call in its place."""
import json, pathlib, sys
import numpy as np

def decode(data, kind, plain={"F64": "<f8", "F32": "<f4", "F16": "<f2", "I32": "<i4", "BOOL": "?"}):
    if kind in plain: return np.frombuffer(data, plain[kind])
    if kind == "BF16": return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    bits = np.frombuffer(data, "u1").astype("<u2")  # an 8-bit type is a cut or shifted float16
    if kind == "F8_E5M2": return (bits << 8).view("<f2")
    return np.where(bits & 127 == 127, np.nan, ((bits & 127) << 7 | (bits & 128) << 8).view("<f2").astype("<f4") * 256)

def load(path):  # ({tensor: array}, metadata): 8 bytes of length, a JSON header, the data
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8:start]), raw[start:]
    meta = header.pop("__metadata__")
    return {n: decode(data[slice(*t["data_offsets"])], t["dtype"]).reshape(t["shape"]) for n, t in header.items()}, meta

def rounded(x, kind):  # to the type of the outputs, as a backend leaves them: `exact` is compared bit for bit
    if kind != "bf16": return x.astype({"f32": "<f4", "f16": "<f2"}[kind])
    bits = x.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).view("<f4")

def attention(t, meta):  # o [tokens, Hq, Dv] and lse [tokens, Hq] from the tensors of a case
    q, k, v = (t[n].astype(float) for n in "qkv")
    o, lse = np.zeros(q.shape[:2] + v.shape[2:]), np.full(q.shape[:2], -np.inf)
    group, scale, cap = q.shape[1] // k.shape[1], float(meta["scale"]), float(meta["softcap"])
    at = lambda name, b, h, i, j: t[name][b % len(t[name]), h % t[name].shape[1], i % t[name].shape[2], j % t[name].shape[3]]
    for b, (first, end) in enumerate(zip(t["cu_q"], t["cu_q"][1:])):
        keys = t["cu_k"][b + 1] - t["cu_k"][b]
        for i, h in np.ndindex(end - first, q.shape[1]):
            j = np.flatnonzero(t["visible"][b, h % t["visible"].shape[1], i, :keys])  # what is hidden is not touched
            s = k[t["cu_k"][b] + j, h // group] @ q[first + i, h] * scale
            if cap: s = cap * np.tanh(s / cap)
            if "bias" in t: s = s + at("bias", b, h, i, j)
            if "alibi_slopes" in t: s = s - t["alibi_slopes"][h] * abs(i + keys - (end - first) - j)
            if not s.size or s.max() == -np.inf: continue  # an empty row: 0 and -inf
            p = np.exp(s - s.max())
            lse[first + i, h] = s.max() + np.log(p.sum())
            kept = at("keep", b, h, i, j) / (1 - float(meta["dropout_p"])) if "keep" in t else 1
            o[first + i, h] = p / p.sum() * kept @ v[t["cu_k"][b] + j, h // group]
    return {"o": rounded(o, meta["out_dtype"]), "lse": lse}

def score(got, want, bound):
    """|got - want| / bound, at most 1 where right; infinite where only one of them is finite, or is NaN."""
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0, np.where(np.isfinite(got) & np.isfinite(want), np.abs(got - want) / bound, np.inf))

if __name__ == "__main__":
    np.seterr(all="ignore")
    pack, bad = pathlib.Path(sys.argv[1]), 0
    for case in json.loads((pack / "index.json").read_text())["cases"]:
        t, meta = load(pack / case["file"])
        worst = {n: score(x, t[n], t["bound." + n]).max(initial=0) for n, x in attention(t, meta).items()}
        if all(w <= 1 for w in worst.values()): continue
        bad += 1
        print("FAIL", case["case"], worst, "aimed at", *case["flags"])
    sys.exit(f"{bad} cases fail" if bad else 0)
