#!/usr/bin/env python3
"""Dumps of tensors that an engine read from a wrong place, and whether `plumb weights` names that place.

    PYTHONPATH=build/setup/py python3 tests/reference/moved.py MODEL.gguf [--n 60] [--seed 1]

Each dump is a GGUF file with one tensor of the model.  Its values are those that the gguf package dequantizes from the
bytes at the wrong place, written as F32, F16 or as the raw bytes, with numpy.  Prints a row for each kind of mistake,
with the slowest run, and the runs that were not named; exits with 1 if there are any.
"""
import argparse, json, random, subprocess, sys, tempfile, time
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter, quants

KINDS = ["another tensor", "header", "alignment", "block", "half a block", "row", "three rows", "odd bytes", "anywhere",
         "byte-swapped", "other type", "reversed rows", "transposed"]
SAME_SIZE = {"Q4_0": "IQ4_NL", "F16": "BF16", "Q4_K": "Q4_0", "Q5_K": "Q5_0", "BF16": "F16", "IQ4_NL": "Q4_0"}


def read(data, at, tensor, kind):
    """The values of a type in the bytes at a place of the file; rows of the tensor's own length."""
    raw = data[at:at + tensor.n_bytes]
    shape = [int(n) for n in reversed(tensor.shape)]
    raw = np.array(raw).reshape(shape[:-1] + [-1]) if len(shape) > 1 else np.array(raw).reshape(1, -1)
    return quants.dequantize(raw, kind).astype(np.float32).reshape(shape)


def make(kind, reader, data, rng):
    """A tensor, its wrong values or bytes, and what the report must say: a byte of the file, or a phrase."""
    while True:
        t = rng.choice(reader.tensors)
        own, name = t.data_offset, t.tensor_type.name
        elements, size = GGML_QUANT_SIZES[t.tensor_type]
        row = int(t.shape[0]) // elements * size
        first = min(x.data_offset for x in reader.tensors)
        end = max(x.data_offset + x.n_bytes for x in reader.tensors)
        if kind in ("byte-swapped", "other type", "reversed rows", "transposed"):
            values = read(data, own, t, t.tensor_type)
            if kind == "byte-swapped":
                if name != "F32": continue
                return t, values.byteswap(), None, "with the bytes of each F32 reversed"
            if kind == "other type":
                if name not in SAME_SIZE: continue
                other = SAME_SIZE[name]
                with np.errstate(all="ignore"):
                    values = read(data, own, t, GGMLQuantizationType[other])
                return t, values, None, f"read as {other} instead of {name}"
            if len(t.shape) != 2 or int(t.shape[1]) < 16: continue
            if kind == "reversed rows": return t, values[::-1], None, "in reverse order"
            return t, np.ascontiguousarray(values.T).reshape(values.shape), None, "transposed"
        if kind == "another tensor":
            at = rng.choice([x for x in reader.tensors if x.name != t.name]).data_offset
        else:
            if kind == "half a block" and elements == 1: continue
            unit = {"header": first, "alignment": reader.alignment, "block": size, "half a block": size // 2,
                    "row": row, "three rows": 3 * row, "odd bytes": rng.randrange(1, 200) * 2 - 1,
                    "anywhere": rng.randrange(1, end)}[kind]
            at = own - unit if kind == "header" else own + rng.choice([-1, 1]) * unit
        if at < first or at + t.n_bytes > end or at == own: continue
        with np.errstate(all="ignore"):
            values = read(data, at, t, t.tensor_type)
        return t, values, at, None


def write(path, reader, t, values, raw):
    arch = reader.get_field("general.architecture").contents()
    w = GGUFWriter(path, arch)
    if raw is not None:
        w.add_tensor(t.name, np.array(raw).reshape([int(n) for n in reversed(t.shape)][:-1] + [-1]),
                     raw_dtype=t.tensor_type)
    else:
        w.add_tensor(t.name, values)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model"); p.add_argument("--n", type=int, default=60); p.add_argument("--seed", type=int, default=1)
    p.add_argument("--plumb", default="build/native/plumb"); p.add_argument("--kinds", default=",".join(KINDS))
    o = p.parse_args()
    rng, reader = random.Random(o.seed), GGUFReader(o.model)
    data = np.memmap(o.model, dtype=np.uint8, mode="r")
    types = {t.tensor_type.name for t in reader.tensors}
    kinds = [k for k in o.kinds.split(",") if k != "other type" or types & set(SAME_SIZE)]
    named, seconds, failures = {k: [0, 0] for k in kinds}, {k: 0.0 for k in kinds}, []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "dump.gguf")
        for i in range(o.n):
            kind = kinds[i % len(kinds)]
            t, values, at, phrase = make(kind, reader, data, rng)
            form = rng.choice(["f32", "f32", "raw", "f16"]) if at is not None else "f32"
            if form == "f16" and not np.all(np.abs(values) < 6e4): form = "f32"   # an f16 would overflow
            raw = data[at:at + t.n_bytes] if form == "raw" and t.tensor_type.name != "F32" else None
            write(path, reader, t, values.astype(np.float16) if form == "f16" else values, raw)
            begin = time.time()
            out = json.loads(subprocess.run([o.plumb, "weights", path, o.model, "--json"], capture_output=True,
                                            text=True).stdout)
            seconds[kind] = max(seconds[kind], time.time() - begin)
            told = next(x for x in out["tensors"] if x["name"] == t.name)
            moved, said = told.get("moved") or {}, told["suspicions"]
            ok = moved.get("byte") == at if at is not None else any(phrase in s for s in said)
            # A tensor of the same shape is named by its name instead.
            if not ok and kind == "another tensor":
                other = next(x.name for x in reader.tensors if x.data_offset == at)
                ok = any(s == f"it is B's {other}" for s in said)
            named[kind][0] += ok; named[kind][1] += 1
            if not ok: failures.append(f"{kind}, {t.name} ({t.tensor_type.name}) as {form} at {at}: {moved} {said}")
    for k, (n, total) in named.items(): print(f"{k:16} {n:3} of {total:3} named, at most {seconds[k]:.2f} s")
    for f in failures: print("not named:", f)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
