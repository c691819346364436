#!/usr/bin/env python3
"""Makes the dequantization vectors: <TYPE>.bin (raw blocks), <TYPE>.f32.bin (expected f32), types.txt.  GGML_TYPES have
<TYPE>.fnv.bin instead of expected f32: the hash of each block's, so that every entry of a grid fits into small files.

Expected values come from gguf.quants.dequantize of the PyPI package gguf, except Q8_K, whose dequantization the package
lacks: there it is d * q in float32, written in numpy from the definition of block_q8_K and dequantize_row_q8_K in ggml
(float d; int8 qs[256]; int16 bsums[16]; y = d * qs).

The expected values of GGML_TYPES come from ggml's own dequantizers, by the program of ggml_dequantize.c; those that the
package dequantizes too are compared with it; all are equal.

Usage: python3 make.py GGML_DEQUANTIZE [directory]   (default: beside this script).  Same versions, same bytes.
"""
import subprocess
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

# The types of GGML_TYPES: number, weights in a block, and fields as above.  "index" and "high" are the low and the high
# bits of indices into a grid, "group": the 32-bit fields of IQ2_XXS and IQ3_XXS with signs and a scale, "every": bytes
# that take all 256 values, "scale_quarters": the 16-bit fields of IQ1_M, which share the f16 scale of the block.
GGML_TYPES = {
    "IQ2_XXS": (16, 256, [("scale", 2)] + [("index", 4), ("group", 4)] * 8),
    "IQ2_XS": (17, 256, [("scale", 2), ("index_signs", 64), ("byte", 8)]),
    "IQ3_XXS": (18, 256, [("scale", 2), ("index", 64)] + [("group", 4)] * 8),
    "IQ1_S": (19, 256, [("scale", 2), ("index", 32), ("high3", 16)]),
    "IQ3_S": (21, 256, [("scale", 2), ("index", 64), ("high1", 8), ("byte", 32), ("byte", 4)]),
    "IQ2_S": (22, 256, [("scale", 2), ("index", 32), ("byte", 32), ("high2", 8), ("byte", 8)]),
    "IQ1_M": (29, 256, [("index", 32), ("high3_shift", 16), ("scale_quarters", 8)]),
    "TQ1_0": (34, 256, [("every", 48), ("every", 4), ("scale", 2)]),
    "TQ2_0": (35, 256, [("every", 64), ("scale", 2)]),
    "MXFP4": (39, 32, [("every", 1), ("every", 16)]),
    "NVFP4": (40, 64, [("every", 4), ("every", 32)]),
    "Q1_0": (41, 128, [("scale", 2), ("every", 16)]),
    "Q2_0": (42, 64, [("scale", 2), ("every", 16)]),
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


def field(kind, n, step, at):
    """n bytes of the field at byte `at` of block `step` of a type of GGML_TYPES.  Over 256 steps every entry of a grid
    occurs, and every index takes every value of its low byte.  High bits change every 32 steps, signs and scales more
    often."""
    p = np.arange(n)
    high = step // 32 % 8
    if kind in ("index", "every"):
        return ((at + p) * 37 + step).astype(np.uint8).tobytes()
    if kind == "index_signs":
        p = np.arange(n // 2)
        return ((at + 37 * p + 2 * step + step // 256) % 512 | (11 * p + step) % 128 << 9).astype("<u2").tobytes()
    if kind == "group":
        signs = [(at + 5 * i + step) % 128 << 7 * i for i in range(4)]
        return (sum(signs) | (at // 4 + step) % 16 << 28).to_bytes(4, "little")
    if kind == "high1":
        return (np.full(n, 255 * (high & 1)) ^ (p + step) % 2 * 0x5a).astype(np.uint8).tobytes()
    if kind == "high2":
        return (np.full(n, 0x55 * (high & 3)) ^ (p + step) % 2 * 0xc6).astype(np.uint8).tobytes()
    if kind == "high3":
        return (0o1111 * high ^ ((np.arange(n // 2) * 5 + step) % 16 << 12)).astype("<u2").tobytes()
    if kind == "high3_shift":
        return (0x11 * high | 8 * ((p + step) & 1) | 128 * ((p + step // 2) & 1)).astype(np.uint8).tobytes()
    if kind == "scale_quarters":
        return scale_quarters(int.from_bytes(ordinary_scale("scale"), "little"), (np.arange(4) * 1171 + step * 293))
    return ordinary_scale(kind) if kind == "scale" else ((at + p) * 29 + step * 7).astype(np.uint8).tobytes()


def scale_quarters(scale, codes):
    return (codes % 4096 | np.array([scale >> 4 * i & 15 for i in range(4)]) << 12).astype("<u2").tobytes()


def ggml_blocks(layout):
    out = []
    for step in range(256):
        at = 0
        for kind, n in layout:
            out.append(field(kind, n, step, at))
            at += n
    starts, n_bit = np.cumsum([0] + [n for _, n in layout]).tolist(), 8 * sum(n for _, n in layout)
    extremes = F16 + [int.from_bytes(ordinary_scale("scale"), "little") for _ in range(16)]
    for scale in extremes:                          # f16 scales of every kind over random bits
        for kind, n in layout:
            out.append(scale.to_bytes(2, "little") if kind == "scale" else
                       scale_quarters(scale, rng.integers(4096, size=4)) if kind == "scale_quarters" else rng.bytes(n))
    base = [ordinary_scale("scale") if kind == "scale" else
            scale_quarters(0x2c01, rng.integers(4096, size=4)) if kind == "scale_quarters" else rng.bytes(n)
            for kind, n in layout]
    base = int.from_bytes(b"".join(base), "little")
    for bit in range(n_bit):                        # a block, and with each of its bits changed
        out.append((base ^ 1 << bit).to_bytes(starts[-1], "little"))
    return np.frombuffer(b"".join(out) + base.to_bytes(starts[-1], "little"), np.uint8)


def hashes(values, block_size):
    """64-bit FNV-1a of the f32 of each block; every NaN counts as 0x7fc00000."""
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view("<u4")).reshape(-1, block_size)
    h = np.full(len(bits), 0xCBF29CE484222325, np.uint64)
    for byte in bits.astype("<u4").view(np.uint8).reshape(len(bits), -1).T:
        h = (h ^ byte) * np.uint64(0x100000001B3)
    return h


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
    ggml, where = sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent
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
    for name, (number, block_size, layout) in GGML_TYPES.items():
        raw = ggml_blocks(layout)
        n_block = raw.size // sum(n for _, n in layout)
        floats_of = subprocess.run([ggml, str(number)], input=raw.tobytes(), stdout=subprocess.PIPE, check=True)
        want = np.frombuffer(floats_of.stdout, "<f4")
        assert want.size == n_block * block_size, name
        try:
            with np.errstate(all="ignore"):
                package = dequantize(raw, Type(number)).reshape(-1)
            differ = (package.view("<u4") != want.view("<u4")) & ~(np.isnan(package) & np.isnan(want))
            assert not differ.any(), f"{name}: {differ.sum()} weights differ from the package's"
        except (NotImplementedError, ValueError):
            print(name, "is not dequantized by the package")
        (where / f"{name}.bin").write_bytes(raw.tobytes())
        (where / f"{name}.fnv.bin").write_bytes(hashes(want, block_size).astype("<u8").tobytes())
    # The package's numbers, names, block sizes and block bytes, of all types, and of Q2_0, which it lacks.
    lines = [f"{t.value} {t.name} {GGML_QUANT_SIZES[t][0]} {GGML_QUANT_SIZES[t][1]}\n" for t in Type]
    lines.append(f"42 Q2_0 64 {sum(n for _, n in GGML_TYPES['Q2_0'][2])}\n")
    (where / "types.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
