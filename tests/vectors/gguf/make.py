"""Makes small.gguf with the gguf package and lists it, and real models given as arguments, with the package's reader.

usage: make.py [MODEL.gguf...]    each MODEL gets a listing of its header beside this script

A line of a listing is one of
    gguf VERSION ALIGNMENT DATA_OFFSET
    key NAME TYPE N CRC32             TYPE of the elements, "[]" after it for arrays; CRC-32 of the value as in the file
    tensor NAME TYPE SHAPE OFFSET N_BYTES [CRC32]    shape fastest dimension first, CRC-32 of the data in small.txt
"""
import pathlib
import sys
import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q, GGUFValueType as V

here = pathlib.Path(__file__).parent


def listing(path, data):
    reader = gguf.GGUFReader(path)
    version = int(reader.fields["GGUF.version"].parts[0][0])
    lines = [f"gguf {version} {int(reader.alignment)} {reader.data_offset}"]
    for field in reader.fields.values():
        if field.name.startswith("GGUF."):
            continue
        kind = field.types[-1]
        is_array = field.types[0] == V.ARRAY
        crc = 0
        for i in field.data:
            if kind == V.STRING:
                crc = zlib.crc32(field.parts[i - 1].tobytes(), crc)
            crc = zlib.crc32(field.parts[i].tobytes(), crc)
        lines.append(f"key {field.name} {kind.name.lower()}{'[]' if is_array else ''} "
                     f"{len(field.data) if is_array else 1} {crc:08x}")
    for t in reader.tensors:
        shape = ",".join(str(d) for d in t.shape.tolist())
        line = f"tensor {t.name} {t.tensor_type.name} {shape} {t.data_offset - reader.data_offset} {t.n_bytes}"
        lines.append(line + (f" {zlib.crc32(t.data.tobytes()):08x}" if data else ""))
    return "\n".join(lines) + "\n"


def make_small(path):
    w = gguf.GGUFWriter(path, "none")
    w.add_custom_alignment(64)
    scalars = {V.UINT8: 200, V.INT8: -100, V.UINT16: 60000, V.INT16: -30000, V.UINT32: 4000000000, V.INT32: -2000000000,
               V.FLOAT32: -1.5e-40, V.BOOL: True, V.STRING: "a\0b \u00e9\U0001f600", V.UINT64: 2**64 - 1,
               V.INT64: -2**63, V.FLOAT64: 1e300}
    for kind, value in scalars.items():
        w.add_key_value(f"scalar.{kind.name.lower()}", value, kind)
        values = ["", "x", value, "y" * 70000] if kind == V.STRING else [value, type(value)(0), value]
        w.add_key_value(f"array.{kind.name.lower()}", values, V.ARRAY, kind)
    rng = np.random.default_rng(3)
    w.add_tensor("f32", rng.standard_normal((3, 5)).astype(np.float32))
    w.add_tensor("f16.4d", rng.standard_normal((2, 3, 1, 4)).astype(np.float16))
    for name, kind in (("q8_0.weight", Q.Q8_0), ("q4_1.weight", Q.Q4_1), ("bf16", Q.BF16)):
        w.add_tensor(name, gguf.quantize(rng.standard_normal((3, 64)).astype(np.float32), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


make_small(here / "small.gguf")
(here / "small.txt").write_text(listing(here / "small.gguf", True))
for model in sys.argv[1:]:
    (here / (pathlib.Path(model).stem + ".txt")).write_text(listing(model, False))
