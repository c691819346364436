#!/usr/bin/env python3
"""Makes the dequantization vectors: <TYPE>.bin (raw blocks), <TYPE>.f32.bin (expected f32), types.txt.

Expected values come from gguf.quants.dequantize of the PyPI package gguf, except Q8_K, whose dequantization the package
lacks: there it is d * q in float32, written in numpy from the definition of block_q8_K and dequantize_row_q8_K in ggml
(float d; int8 qs[256]; int16 bsums[16]; y = d * qs).

Usage: python3 make.py [directory]   (default: beside this script).  Same versions, same bytes.
"""
import sys
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# A block as a list of fields: (kind, bytes).  "scale": f16, "scale32": f32; the packed kinds are explained at walk().
LAYOUT = {
    Type.Q4_0: [("scale", 2), ("code", 16)],
    Type.Q4_1: [("scale", 2), ("scale", 2), ("code", 16)],
    Type.Q5_0: [("scale", 2), ("bits", 4), ("code", 16)],
    Type.Q5_1: [("scale", 2), ("scale", 2), ("bits", 4), ("code", 16)],
    Type.Q8_0: [("scale", 2), ("byte", 32)],
    Type.Q2_K: [("scales", 16), ("code", 64), ("scale", 2), ("scale", 2)],
    Type.Q3_K: [("bits", 32), ("code", 64), ("scales", 12), ("scale", 2)],
    Type.Q4_K: [("scale", 2), ("scale", 2), ("scales", 12), ("code", 128)],
    Type.Q5_K: [("scale", 2), ("scale", 2), ("scales", 12), ("bits", 32), ("code", 128)],
    Type.Q6_K: [("code", 128), ("code", 64), ("byte", 16), ("scale", 2)],
    Type.Q8_K: [("scale32", 4), ("byte", 256), ("code", 32)],
    Type.IQ4_NL: [("scale", 2), ("code", 16)],
    Type.IQ4_XS: [("scale", 2), ("scales", 2), ("scales", 4), ("code", 128)],
}

# f16: zeros, smallest and largest subnormals, smallest normals, largest, one, infinities, quiet and signalling NaN
F16 = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00, 0x7C00, 0xFC00,
       0x7E00, 0x7D01]
# f32: the same places
F32 = [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x7F7FFFFF,
       0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001]

rng = np.random.Generator(np.random.PCG64(3))


def ordinary_scale(kind):
    """An f16 (or f32) of random sign and mantissa and a middling exponent, so that results neither overflow nor round
    to nothing."""
    if kind == "scale32":
        bits = rng.integers(2) << 31 | rng.integers(120, 134) << 23 | rng.integers(1 << 23)
        return bits.item().to_bytes(4, "little")
    bits = rng.integers(2) << 15 | rng.integers(8, 20) << 10 | rng.integers(1 << 10)
    return bits.item().to_bytes(2, "little")


def walk(kind, n, step):
    """n packed bytes of block `step`.  Over step 0..15 both nibbles of each byte take every value ("code"), or every
    odd one ("scales": a scale of 0 would hide the codes of its group), or each bit of each byte, a sign included, is
    once the only one set and once the only one clear ("bits", "byte")."""
    p = np.arange(n)
    if kind in ("code", "scales"):
        odd = 0x11 if kind == "scales" else 0
        return ((p + step) % 16 | (7 * p + 3 * step + 5) % 16 << 4 | odd).astype(np.uint8).tobytes()
    one = np.uint8(1) << ((p + step) % 8).astype(np.uint8)
    return (one if step < 8 else ~one).tobytes()


def blocks(layout):
    out = []
    for step in range(16):
        out += [ordinary_scale(kind) if kind in ("scale", "scale32") else walk(kind, n, step) for kind, n in layout]
    if n_weights(layout) == 32:
        for bit in range(32):                       # Q5_*: each high bit alone, each absent, over random low bits
            for invert in (0, 0xFFFFFFFF):
                if any(kind == "bits" for kind, _ in layout):
                    out += [ordinary_scale(kind) if kind == "scale" else
                            ((1 << bit) ^ invert).to_bytes(4, "little") if kind == "bits" else rng.bytes(n)
                            for kind, n in layout]
        if layout[-1][0] == "byte":                 # Q8_0: every byte value at every position
            for v in range(256):
                out += [ordinary_scale("scale"), ((np.arange(32) * 37 + v) % 256).astype(np.uint8).tobytes()]
    for i in range(16):                             # extremes, of the second scale with another step
        k = 0
        for kind, n in layout:
            if kind == "scale":
                out.append(F16[(i * (1 + 2 * k) + k) % 16].to_bytes(2, "little"))
                k += 1
            elif kind == "scale32":
                out.append(F32[i].to_bytes(4, "little"))
            else:
                out.append(rng.bytes(n))
    for _ in range(5):                              # an odd total, so that loops over pairs of blocks are caught
        out += [ordinary_scale(kind) if kind in ("scale", "scale32") else rng.bytes(n) for kind, n in layout]
    return np.frombuffer(b"".join(out), np.uint8)


def n_weights(layout):
    return 256 if sum(n for _, n in layout) > 64 else 32


def q8_K(raw):
    b = raw.reshape(-1, 292)
    d = b[:, :4].copy().view("<f4")
    return (d * b[:, 4:260].view(np.int8).astype(np.float32)).reshape(-1)


def floats(exponent_bits, mantissa_bits):
    """Both signs, every exponent (of f16; every 4th and the ends otherwise), mantissas of every single bit, all ones,
    and random ones."""
    out = []
    for sign in range(2):
        for e in range(1 << exponent_bits):
            if exponent_bits == 8 and e % 4 and e not in (1, 254, 255):
                continue
            mantissas = [0, (1 << mantissa_bits) - 1] + [1 << b for b in range(mantissa_bits)]
            mantissas += rng.integers(1 << mantissa_bits, size=4).tolist()
            out += [sign << (exponent_bits + mantissa_bits) | e << mantissa_bits | m for m in mantissas]
    return out


def main():
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    inputs = {
        Type.F32: np.array(floats(8, 23), "<u4").view(np.uint8),
        Type.F16: np.array(floats(5, 10), "<u2").view(np.uint8),
        Type.BF16: np.array(floats(8, 7), "<u2").view(np.uint8),
    } | {t: blocks(layout) for t, layout in LAYOUT.items()}
    for t, raw in inputs.items():
        assert raw.size % GGML_QUANT_SIZES[t][1] == 0
        with np.errstate(all="ignore"):
            want = q8_K(raw) if t == Type.Q8_K else dequantize(raw, t)
        assert want.dtype == np.float32
        (where / f"{t.name}.bin").write_bytes(raw.tobytes())
        (where / f"{t.name}.f32.bin").write_bytes(want.astype("<f4").tobytes())
    # The package's numbers, names, block sizes and block bytes, of all types.
    lines = [f"{t.value} {t.name} {GGML_QUANT_SIZES[t][0]} {GGML_QUANT_SIZES[t][1]}\n" for t in Type]
    (where / "types.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
