# SPDX-License-Identifier: Apache-2.0
"""Leaves a backend's outputs as files for `attest golden check PACK --outputs DIR`: python3 write_outputs.py PACK DIR."""
import json, pathlib, sys
import numpy as np
from check_pack import attention, load

def save(path, tensors):
    """A safetensors file of float32 tensors."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)

if __name__ == "__main__":
    np.seterr(all="ignore")
    pack, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    for case in json.loads((pack / "index.json").read_text())["cases"]:
        save(folder / case["file"], attention(*load(pack / case["file"])))
