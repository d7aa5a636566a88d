#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds our safetensors reader and writer against Python's safetensors package and numpy, both ways.

    python3 tools/check_safetensors.py build/cpu/tools/attest [PACK...]      # default: every pack of golden/packs

Needs the packages safetensors and numpy (PyPI). Every file of a pack is read by the package, and its tensors compared
byte for byte with what the header says by a reading of the format's page. Then the exact answers are written by the
package as a backend's outputs and held against the pack by `attest golden check`, which must pass; with one element
moved it must fail. Exit code: 0 all agree, 1 a difference, 2 a missing package.
"""
import json, pathlib, subprocess, sys, tempfile

try:
    import numpy as np
    from safetensors import deserialize
    from safetensors.numpy import save_file
except ImportError as error:
    print(f"check_safetensors: {error}; pip install numpy safetensors", file=sys.stderr)
    sys.exit(2)

OUTPUTS = ("o", "lse", "dq", "dk", "dv", "dbias")


def by_the_page(raw):
    """{tensor: (dtype, shape, bytes)}: 8 bytes of length, a JSON header, the data."""
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[start:][slice(*t["data_offsets"])]) for name, t in header.items()}


def differences(raw):
    """What the package reads otherwise than the page says."""
    ours = by_the_page(raw)
    theirs = {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in deserialize(raw)}
    return [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]


def exact_outputs(raw):
    """{tensor: float64 array} of the exact answer."""
    tensors = by_the_page(raw)
    return {name: np.frombuffer(tensors[name][2], "<f8").reshape(tensors[name][1])
            for name in OUTPUTS if name in tensors}


def judged(attest, pack, folder):
    return subprocess.run([attest, "golden", "check", str(pack), "--outputs", folder], capture_output=True, text=True)


def main():
    attest, root = sys.argv[1], pathlib.Path(__file__).resolve().parent.parent
    packs = [pathlib.Path(p) for p in sys.argv[2:]] or sorted(p.parent for p in root.glob("golden/packs/*/index.json"))
    bad = 0
    for pack in packs:
        cases = json.loads((pack / "index.json").read_text())["cases"]
        with tempfile.TemporaryDirectory() as folder:
            tensors, moved = 0, None
            for case in cases:
                raw = (pack / case["file"]).read_bytes()
                wrong = differences(raw)
                tensors += len(by_the_page(raw))
                if wrong:
                    bad += 1
                    print(f"{pack.name}/{case['file']}: read otherwise by safetensors: {', '.join(wrong)}")
                outputs = exact_outputs(raw)
                save_file(outputs, f"{folder}/{case['file']}", metadata={"written_by": "safetensors for Python"})
                if moved is None and outputs["o"].size and np.isfinite(outputs["o"]).all():
                    moved = (case["file"], outputs)
            right = judged(attest, pack, folder)
            name, outputs = moved
            outputs["o"] = outputs["o"].copy()  # what was read is not to be written to
            outputs["o"].flat[0] += 1
            save_file(outputs, f"{folder}/{name}")
            wrong = judged(attest, pack, folder)
        if right.returncode != 0 or wrong.returncode != 1:
            bad += 1
            print(f"{pack.name}: exact outputs: exit {right.returncode}, one element moved: exit {wrong.returncode}\n{right.stdout[-2000:]}{right.stderr}")
        print(f"{pack.name}: {len(cases)} files, {tensors} tensors read alike; outputs written by safetensors judged")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
