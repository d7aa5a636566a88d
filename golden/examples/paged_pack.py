# SPDX-License-Identifier: Apache-2.0
"""Paged cases of a golden pack through a pool of pages, NaN wherever no key lies: python3 paged_pack.py PACK."""
import json, pathlib, sys
import numpy as np
from check_pack import attention, load, score

def pool_of(values, t, meta):
    """[pages, page_size, Hkv, width] from [T_k, Hkv, width]: token j is row j mod page_size of page table[b, j div page_size]."""
    size = int(meta["page_size"])
    pool = np.full((int(meta["pages"]), size) + values.shape[1:], np.nan, values.dtype)
    for b, (first, end) in enumerate(zip(t["cu_k"], t["cu_k"][1:])):
        j = np.arange(end - first)
        pool[t["page_table"][b, j // size], j % size] = values[first:end]
    return pool

def paged_attention(q, k_pool, v_pool, t, meta):
    """Put your backend's call in its place. This one gathers each sequence's keys from its pages."""
    size, keys = int(meta["page_size"]), np.diff(t["cu_k"])
    gather = lambda pool: np.concatenate([pool[t["page_table"][b, np.arange(n) // size], np.arange(n) % size] for b, n in enumerate(keys)])
    return attention({**t, "q": q, "k": gather(k_pool), "v": gather(v_pool)}, meta)

if __name__ == "__main__":
    np.seterr(all="ignore")
    pack, held, bad = pathlib.Path(sys.argv[1]), 0, 0
    for case in json.loads((pack / "index.json").read_text())["cases"]:
        t, meta = load(pack / case["file"])
        if "page_table" not in t: continue
        got = paged_attention(t["q"], pool_of(t["k"], t, meta), pool_of(t["v"], t, meta), t, meta)
        worst = {n: score(x, t[n], t["bound." + n]).max(initial=0) for n, x in got.items()}
        held += 1
        if all(w <= 1 for w in worst.values()): continue
        bad += 1
        print("FAIL", case["case"], worst)
    print(f"{held} paged cases, {bad} fail")
    sys.exit(bad > 0 or held == 0)
