# SPDX-License-Identifier: Apache-2.0
"""Holds ONNX's reference implementation and onnxruntime's CPU kernels against the onnx pack.

usage: python3 tools/check_onnx.py [PACK]      needs numpy, onnx and onnxruntime (PyPI); no part of the default tests

For each case: the model is checked, the .pb files are those of the case, and each implementation's output lies within
the bound of each element. Prints one line for each difference, and exits with 1 if one is not in KNOWN below.
"""
import json
import pathlib
import sys

import numpy as np
import onnx
import onnx.reference

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden" / "examples"))
from check_pack import load, score  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Differences that docs/golden.md explains: implementation, what it does, part of the case text.
KNOWN = [
    ("runtime", "declined", "dtype=bf16", "onnxruntime's CPU provider has no Attention in bfloat16"),
    ("reference", "off", "dtype=f16 q=4 k=33", "scores are kept in float16, coarser than the profile f16"),
    ("runtime", "off", "dtype=f16 q=4 k=33", "scores are kept in float16, coarser than the profile f16"),
]


def read(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return tensor


def by_tokens(values):
    """[B, H, S, D] -> [tokens, heads, width]"""
    return np.asarray(values, float).transpose(0, 2, 1, 3).reshape(-1, values.shape[1], values.shape[3])


def reference(model, inputs):
    feed = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in inputs}
    return onnx.reference.ReferenceEvaluator(model).run(None, feed)[0]


def runtime(model, inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {}
    for tensor in inputs:
        if tensor.data_type == onnx.TensorProto.BFLOAT16:
            raw = np.frombuffer(tensor.raw_data, "<u2").reshape(tuple(tensor.dims))
            feed[tensor.name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, tensor.data_type)
        else:
            feed[tensor.name] = onnxruntime.OrtValue.ortvalue_from_numpy(onnx.numpy_helper.to_array(tensor))
    return session.run_with_ort_values(None, feed)[0].numpy()


def main():
    pack = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "golden" / "packs" / "onnx"
    counts, unknown = {}, 0
    for case in json.loads((pack / "index.json").read_text())["cases"]:
        tensors, _ = load(pack / case["file"])
        folder = pack / case["file"].removesuffix(".safetensors")
        model = onnx.load(folder / "model.onnx")
        onnx.checker.check_model(model, full_check=True)
        inputs = [read(folder / "test_data_set_0" / f"input_{n}.pb") for n in range(len(model.graph.input))]
        stored = by_tokens(onnx.numpy_helper.to_array(read(folder / "test_data_set_0" / "output_0.pb")))
        for tensor, name in zip(inputs, "qkv"):
            assert np.array_equal(by_tokens(onnx.numpy_helper.to_array(tensor)), tensors[name]), (case["case"], name)
        assert (score(stored, tensors["o"], tensors["bound.o"]) <= 1).all(), case["case"]
        for run in (reference, runtime):
            try:
                worst = score(by_tokens(run(model, inputs)), tensors["o"], tensors["bound.o"]).max(initial=0)
                what = "pass" if worst <= 1 else f"off, score {worst:.3g}"
            except Exception as error:  # an implementation that lacks the type says so in its own way
                what = f"declined: {str(error).splitlines()[0][:160]}"
            kind = what.split(":")[0].split(",")[0]
            counts[run.__name__, kind] = counts.get((run.__name__, kind), 0) + 1
            if kind != "pass":
                why = [w for name, k, text, w in KNOWN if (name, k) == (run.__name__, kind) and text in case["case"]]
                unknown += not why
                print(f"{run.__name__}: {case['case']}: {what}" + (f"\n  known: {why[0]}" if why else ""))
    for (name, what), count in sorted(counts.items()):
        print(f"{name:<10} {what:<9} {count:>4}")
    return int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
