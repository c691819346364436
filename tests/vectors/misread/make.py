#!/usr/bin/env python3
"""Makes misread.bin: blocks, and the values that an engine with one known mistake reads in them.

    for each mistake: char name[32] (padded with zeros), u32 n_bytes, u32 n, blocks (n_bytes), values (n f32)

Little-endian.  Every value comes from gguf.quants.dequantize of the PyPI package gguf, which makes no mistakes: it is
given blocks with their bits moved to where the mistaken engine sees them, and where that engine's arithmetic differs
(an offset, a sign, a scale of another format), the codes and scales of a block are read one by one as values of blocks
whose other fields are 0 or 1, and multiplied here in float32.

Usage: python3 make.py [directory]   (default: beside this script).  Same versions, same bytes.
"""
import struct
import sys
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# Where the fields of a block are: name -> (first byte, bytes).
FIELDS = {
    "Q4_0": {"d": (0, 2), "qs": (2, 16)},
    "Q4_1": {"d": (0, 2), "m": (2, 2), "qs": (4, 16)},
    "Q5_0": {"d": (0, 2), "qh": (2, 4), "qs": (6, 16)},
    "Q5_1": {"d": (0, 2), "m": (2, 2), "qh": (4, 4), "qs": (8, 16)},
    "Q8_0": {"d": (0, 2), "qs": (2, 32)},
    "Q4_K": {"d": (0, 2), "m": (2, 2), "scales": (4, 12), "qs": (16, 128)},
    "Q5_K": {"d": (0, 2), "m": (2, 2), "scales": (4, 12), "qh": (16, 32), "qs": (48, 128)},
    "Q6_K": {"qs": (0, 128), "qh": (128, 64), "scales": (192, 16), "d": (208, 2)},
    "Q2_K": {"scales": (0, 16), "qs": (16, 64), "d": (80, 2), "m": (82, 2)},
    "Q3_K": {"qh": (0, 32), "qs": (32, 64), "scales": (96, 12), "d": (108, 2)},
    "IQ4_NL": {"d": (0, 2), "qs": (2, 16)},
    "IQ4_XS": {"d": (0, 2), "scales_h": (2, 2), "scales": (4, 4), "qs": (8, 128)},
    "MXFP4": {"scales": (0, 1), "qs": (1, 16)},
    "NVFP4": {"scales": (0, 4), "qs": (4, 32)},
    "TQ1_0": {"bytes": (0, 52), "d": (52, 2)},
    "TQ2_0": {"qs": (0, 64), "d": (64, 2)},
    "IQ2_XXS": {"d": (0, 2), "qs": (2, 64)},
    "IQ2_XS": {"d": (0, 2), "qs": (2, 64), "scales": (66, 8)},
    "IQ2_S": {"d": (0, 2), "qs": (2, 32), "signs": (34, 32), "qh": (66, 8), "scales": (74, 8)},
    "IQ3_XXS": {"d": (0, 2), "qs": (2, 64), "scales": (66, 32)},
    "IQ3_S": {"d": (0, 2), "qs": (2, 64), "qh": (66, 8), "signs": (74, 32), "scales": (106, 4)},
    "IQ1_S": {"d": (0, 2), "qs": (2, 32), "qh": (34, 16)},
    "IQ1_M": {"qs": (0, 32), "qh": (32, 16), "scales": (48, 8)},
}
ONE = np.frombuffer(struct.pack("<e", 1), np.uint8)
ZERO = np.zeros(2, np.uint8)
rng = np.random.Generator(np.random.PCG64(4))


def read(blocks, type_name):
    return dequantize(blocks, Type[type_name]).reshape(len(blocks), -1)


class Blocks:
    """(n, bytes) blocks of a type with named fields."""
    def __init__(self, type_name, data):
        self.type, self.data = type_name, data

    def __getitem__(self, field):
        at, n = FIELDS[self.type][field]
        return self.data[:, at:at + n]

    def having(self, **fields):
        """A copy with these fields replaced."""
        copy = Blocks(self.type, self.data.copy())
        for name, value in fields.items():
            copy[name][:] = value
        return copy

    def values(self):
        return read(self.data, self.type)


def f16(field):
    return np.ascontiguousarray(field).view("<f2").astype(np.float32)


def bf16(field):
    return (np.ascontiguousarray(field).view("<u2").astype(np.uint32) << 16).view(np.float32)


def nibbles(qs):
    """(n, bytes, 2): low, high."""
    return np.stack([qs & 15, qs >> 4], axis=-1)


def interleaved(qs, group):
    """Bytes that the right reader reads as if each byte held two neighbours; group: bytes that belong together."""
    codes = nibbles(qs).reshape(len(qs), -1, 2, group)       # in the order of the mistaken elements
    return (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(qs.shape)


def bits(field):
    return np.unpackbits(field, axis=1, bitorder="little")


def packed(some):
    return np.packbits(some.astype(np.uint8), axis=1, bitorder="little")


def k_pack(sc, mn):
    """12 bytes from the 8 scales and 8 minima, of 6 bits, of Q4_K and Q5_K."""
    low = [sc[:, :4] & 63 | sc[:, 4:] >> 4 << 6, mn[:, :4] & 63 | mn[:, 4:] >> 4 << 6]
    return np.concatenate(low + [sc[:, 4:] & 15 | (mn[:, 4:] & 15) << 4], axis=1).astype(np.uint8)


def pairs(field):
    """(n, bytes, 4): the two bits of each, the lowest first."""
    return np.stack([field >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1)


def sequential_pairs(qs):
    """64 bytes in which the right reader reads element i where byte i / 4 of qs has it."""
    codes = pairs(qs).reshape(-1, 2, 4, 32)                  # byte l of 32 is to hold l, l + 32, l + 64, l + 96 of 128
    return (codes << np.array([0, 2, 4, 6], np.uint8)[:, None]).sum(axis=2, dtype=np.uint8).reshape(qs.shape)


def sequential_bits(qh):
    """The same for bit i of 256: the right reader takes bit i / 32 of byte i % 32."""
    return packed(bits(qh).reshape(-1, 8, 32).swapaxes(1, 2).reshape(-1, 256))


def q3_pack(sc):
    """12 bytes from the 16 scales, of 6 bits, of Q3_K."""
    high = (sc >> 4).reshape(-1, 4, 4) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    return np.hstack([sc[:, :8] & 15 | (sc[:, 8:] & 15) << 4, high.sum(axis=1, dtype=np.uint8)])


def signed_fields(b):
    """Codes or what they stand for (n, 256), and scales less 32 (n, 256), of Q3_K and IQ4_XS."""
    if b.type == "Q3_K":
        one = b.having(d=ONE, scales=q3_pack(np.full((1, 16), 33, np.uint8)))
        return one.values(), b.having(d=ONE, qs=0x55, qh=0xFF).values()   # code 5: 5 - 4 = 1
    one = b.having(d=ONE, scales=0x11, scales_h=0xAA)                     # 33 - 32 = 1
    return one.values(), b.having(d=ONE, qs=0x88).values()                # code 8 stands for 1


def k_fields(b):
    """Codes (n, 256), scales and minima (n, 8) of Q4_K and Q5_K, each as what gguf reads with the rest 0 or 1."""
    ones, zeros = np.ones((len(b.data), 8), np.uint8), np.zeros((len(b.data), 8), np.uint8)
    q = b.having(d=ONE, m=ZERO, scales=k_pack(ones, zeros)).values()
    no_high = {"qh": 0} if b.type == "Q5_K" else {}
    sc = b.having(d=ONE, m=ZERO, qs=0x11, **no_high).values()[:, ::32]
    mn = -b.having(d=ZERO, m=ONE, qs=0, **no_high).values()[:, ::32]
    return q, sc.astype(np.uint8), mn.astype(np.uint8)


def q6_fields(b):
    """Codes less 32 (n, 256), and scales (n, 16)."""
    q = b.having(d=ONE, scales=1).values()
    sc = b.having(d=ONE, qs=0x11, qh=0xAA).values()[:, ::16]   # code 0x21 = 33: 33 - 32 = 1
    return q, sc


def tq1_digits(b):
    """(n, 52, 5) digits of the bytes, which are elements of a block; the last four bytes have four."""
    e = b.having(d=ONE).values() + np.float32(1)
    digits = np.zeros((len(e), 52, 5), np.float32)
    for first, n, at in ((0, 32, 0), (32, 16, 160), (48, 4, 240)):
        some = e[:, at:at + 5 * n].reshape(len(e), -1, n)   # digit k of n bytes, then digit k + 1
        digits[:, first:first + n, :some.shape[1]] = some.swapaxes(1, 2)
    return digits


def masked(field, mask):
    """The field with only the bits of mask of each little-endian integer of mask's type."""
    return (np.ascontiguousarray(field).view(mask.dtype) & mask).view(np.uint8)


def grid_mistakes(b):
    """Mistakes in reading a type with a grid."""
    def without(field, mask):
        return b.having(**{field: masked(b[field], mask)}).values()

    name, out, right = b.type, {}, b.values()
    no_signs = {"IQ2_XXS": ("qs", np.uint64(0xF0000000FFFFFFFF)), "IQ2_XS": ("qs", np.uint16(0x01FF)),
                "IQ2_S": ("signs", np.uint8(0)), "IQ3_XXS": ("scales", np.uint32(0xF0000000)),
                "IQ3_S": ("signs", np.uint8(0))}
    no_high = {"IQ2_S": ("qh", np.uint8(0)), "IQ3_S": ("qh", np.uint8(0)), "IQ1_S": ("qh", np.uint16(0xF000)),
               "IQ1_M": ("qh", np.uint8(0x88))}
    # Scales of 0 count as 1/2: what is left of the right values is the part of 1/2.
    no_scale = {"IQ2_XXS": ("qs", np.uint64(0x0FFFFFFFFFFFFFFF)), "IQ2_XS": ("scales", np.uint8(0)),
                "IQ2_S": ("scales", np.uint8(0)), "IQ3_XXS": ("scales", np.uint32(0x0FFFFFFF)),
                "IQ3_S": ("scales", np.uint8(0)), "IQ1_S": ("qh", np.uint16(0x8FFF)),
                "IQ1_M": ("scales", np.uint16(0xF000))}
    shift = {"IQ1_S": np.uint16(0x8000), "IQ1_M": np.uint8(0x88)}
    if name in no_signs:
        positive = without(*no_signs[name])
        out["signs=missing"] = positive
        if name in ("IQ2_XXS", "IQ2_XS", "IQ3_XXS"):
            out["signs=seven"] = np.where(np.arange(256) % 8 == 7, positive, right)
    if name in no_high:
        out["high=missing"] = without(*no_high[name])
    if name in shift:   # half of the sum of values shifted up and of values shifted down
        up, bit = without("qh", ~shift[name]), shift[name]
        down = b.having(qh=(np.ascontiguousarray(b["qh"]).view(bit.dtype) | bit).view(np.uint8)).values()
        out["shift=missing"] = (up + down) / np.float32(2)
    out["scales=no_half"] = right - without(*no_scale[name])
    if "d" in FIELDS[name]:
        out["d=bf16"] = bf16(b["d"]) * b.having(d=ONE).values()
    return out


def mistakes(b):
    """name -> values of all blocks."""
    if b.type.startswith(("IQ1", "IQ2", "IQ3")):
        return grid_mistakes(b)
    name, out = b.type, {}
    if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"):
        out["nibbles=swapped"] = b.having(qs=b["qs"] >> 4 | b["qs"] << 4).values()
        group = 32 if name.endswith("_K") else 8 if name == "NVFP4" else 16
        out["layout=interleaved"] = b.having(qs=interleaved(b["qs"], group)).values()
    if name in ("Q4_1", "Q5_1"):
        out["min=subtracted"] = b.having(m=b["m"] ^ np.array([0, 0x80], np.uint8)).values()
    if name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K", "Q2_K"):
        out["d=swapped"] = b.having(d=b["m"], m=b["d"]).values()
    if name in ("Q5_0", "Q5_1"):
        out["high=missing"] = b.having(qh=0).values()
        high = bits(b["qh"])
        out["high=interleaved"] = b.having(qh=packed(np.concatenate([high[:, ::2], high[:, 1::2]], axis=1))).values()
    if name == "Q4_0":   # Q4_1 is the same without the offset
        out["offset=missing"] = read(np.hstack([b["d"], np.zeros_like(b["d"]), b["qs"]]), "Q4_1")
        out["d=bf16"] = bf16(b["d"]) * b.having(d=ONE).values()
    if name == "Q5_0":
        out["offset=missing"] = read(np.hstack([b["d"], np.zeros_like(b["d"]), b["qh"], b["qs"]]), "Q5_1")
        out["d=bf16"] = bf16(b["d"]) * b.having(d=ONE).values()
    if name in ("Q4_1", "Q5_1"):
        out["d=bf16"] = bf16(b["d"]) * b.having(d=ONE, m=ZERO).values() + bf16(b["m"])
    if name == "Q8_0":
        out["codes=unsigned"] = f16(b["d"]) * b["qs"].astype(np.float32)
        out["d=bf16"] = bf16(b["d"]) * b.having(d=ONE).values()
    if name in ("Q4_K", "Q5_K"):
        q, sc, mn = k_fields(b)
        out["min=added"] = b.having(m=b["m"] ^ np.array([0, 0x80], np.uint8)).values()
        out["scales=swapped"] = b.having(scales=k_pack(mn, sc)).values()
        low = np.where(np.arange(8) < 4, 63, 15).astype(np.uint8)
        out["scales=low_bits"] = b.having(scales=k_pack(sc & low, mn & low)).values()
        scale, least = (np.repeat(bf16(d) * s.astype(np.float32), 32, axis=1) for d, s in ((b["d"], sc), (b["m"], mn)))
        out["d=bf16"] = scale * q - least
    if name == "Q5_K":
        out["high=missing"] = b.having(qh=0).values()
        out["high=sequential"] = b.having(qh=sequential_bits(b["qh"])).values()
    if name == "Q6_K":
        q, sc = q6_fields(b)
        d, signed, unsigned = f16(b["d"]), sc, b["scales"].astype(np.float32)
        wide = lambda x: np.repeat(x, 16, axis=1)
        out["offset=missing"] = wide(d * signed) * (q + np.float32(32))
        out["scales=unsigned"] = wide(d * unsigned) * q
        out["d=bf16"] = wide(bf16(b["d"]) * signed) * q
        out["high=missing"] = b.having(qh=0).values()
        low = nibbles(b["qs"]).reshape(-1, 256)
        high = pairs(b["qh"]).reshape(-1, 256)
        out["order=sequential"] = wide(d * signed) * ((low | high << 4).astype(np.float32) - np.float32(32))
    if name == "Q2_K":
        out["order=sequential"] = b.having(qs=sequential_pairs(b["qs"])).values()
        out["min=added"] = b.having(m=b["m"] ^ np.array([0, 0x80], np.uint8)).values()
        out["scales=swapped"] = b.having(scales=b["scales"] >> 4 | b["scales"] << 4).values()
        q = b.having(d=ONE, m=ZERO, scales=1).values()
        sc = b.having(d=ONE, m=ZERO, qs=0x55).values()
        least = -b.having(d=ZERO, m=ONE).values()
        out["d=bf16"] = bf16(b["d"]) * sc * q - bf16(b["m"]) * least
    if name in ("Q3_K", "IQ4_XS"):
        q, sc = signed_fields(b)
        out["scales=unsigned"] = f16(b["d"]) * (sc + np.float32(32)) * q
        out["d=bf16"] = bf16(b["d"]) * sc * q
    if name == "Q3_K":
        out["order=sequential"] = b.having(qs=sequential_pairs(b["qs"]), qh=sequential_bits(b["qh"])).values()
        out["offset=missing"] = f16(b["d"]) * sc * (q + np.float32(4))
        out["high=missing"] = b.having(qh=0).values()
        out["high=inverted"] = b.having(qh=~b["qh"]).values()
        out["high=sequential"] = b.having(qh=sequential_bits(b["qh"])).values()
        low, high = nibbles(b["scales"][:, :8]).reshape(-1, 16), pairs(b["scales"][:, 8:]).reshape(-1, 16)
        out["scales=low_bits"] = b.having(scales=b["scales"] * (np.arange(12) < 8)).values()
        out["scales=sequential"] = b.having(scales=q3_pack(low | high << 4)).values()
    if name == "IQ4_NL":   # Q4_0 is the same without the table
        out["codes=linear"] = read(b.data, "Q4_0")
        out["d=bf16"] = bf16(b["d"]) * b.having(d=ONE).values()
    if name == "IQ4_XS":
        ones = np.broadcast_to(ONE, (8 * len(b.data), 2))
        linear = read(np.hstack([ones, b["qs"].reshape(-1, 16)]), "Q4_0").reshape(-1, 256)
        out["codes=linear"] = f16(b["d"]) * sc * linear
        out["scales=low_bits"] = b.having(scales_h=0).values()
    if name in ("MXFP4", "NVFP4"):
        n = FIELDS[name]["qs"][1] // (16 if name == "MXFP4" else 8)
        codes = nibbles(b["qs"].reshape(len(b.data), n, -1)).swapaxes(2, 3).reshape(len(b.data), -1)
        scale = b.having(qs=0x11).values()                                    # code 1 stands for 1
        out["codes=linear"] = scale * (codes.astype(np.float32) - np.float32(8))
        out["scale=doubled"] = np.float32(2) * b.values()
    if name == "NVFP4":
        codes = nibbles(b["qs"].reshape(-1, 2, 16)).swapaxes(2, 3).reshape(-1, 4, 2, 8)   # of two times 32 elements
        out["order=mxfp4"] = b.having(qs=(codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 32)).values()
    if name == "TQ1_0":
        digits = tq1_digits(b)
        integers = b["bytes"][:, :, None] // np.array([1, 3, 9, 27, 81], np.uint8) % 3
        d, one, bf = f16(b["d"]), np.float32(1), bf16(b["d"])
        in_order = lambda t: np.concatenate([t[:, at:at + n, :k].swapaxes(1, 2).reshape(len(t), -1) for at, n, k in (
            (0, 32, 5), (32, 16, 5), (48, 4, 4))], axis=1).astype(np.float32)
        out["order=sequential"] = d * (np.concatenate([digits[:, :48].reshape(-1, 240),
                                                       digits[:, 48:, :4].reshape(-1, 16)], axis=1) - one)
        out["digits=integer"] = d * (in_order(integers) - one)
        out["offset=missing"] = d * in_order(digits)
        out["d=bf16"] = bf * (in_order(digits) - one)
    if name == "TQ2_0":
        q = b.having(d=ONE).values()
        out["order=sequential"] = b.having(qs=sequential_pairs(b["qs"])).values()
        out["offset=missing"] = f16(b["d"]) * (q + np.float32(1))
        out["d=bf16"] = bf16(b["d"]) * q
    return out


def random_blocks(type_name, n):
    block = Blocks(type_name, np.frombuffer(rng.bytes(n * GGML_QUANT_SIZES[Type[type_name]][1]), np.uint8
                                            ).reshape(n, -1).copy())
    for field in ("d", "m"):
        if field in FIELDS[type_name]:   # of both signs, and finite in either format: f16 exponents 8 to 19
            scale = rng.integers(0, 2, n) << 15 | rng.integers(8, 20, n) << 10 | rng.integers(0, 1 << 10, n)
            block[field][:] = scale.astype("<u2")[:, None].view(np.uint8)
    if type_name == "MXFP4":
        block["scales"][:] = rng.integers(120, 132, (n, 1))
    if type_name == "NVFP4":
        block["scales"][:] = rng.integers(0, 120, (n, 4))   # all but the largest
    if type_name == "IQ1_M":   # the exponent's upper four bits are at the end; it is below 24
        block["scales"][:, 7] = block["scales"][:, 7] & 0x8F | 0x20
    return block


def main():
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    with open(directory / "misread.bin", "wb") as file:
        def record(name, data, values):
            values = np.ascontiguousarray(values, "<f4")
            assert np.isfinite(values).all(), name
            file.write(struct.pack("<32sII", name.encode(), data.nbytes, values.size) + data.tobytes()
                       + values.tobytes())

        for type_name in FIELDS:
            b = random_blocks(type_name, 2 if GGML_QUANT_SIZES[Type[type_name]][0] == 256 else 4)
            for mistake, values in mistakes(b).items():
                record(f"{type_name}.{mistake}", b.data, values)
        halves = (rng.integers(0, 2, 64) << 15 | rng.integers(8, 20, 64) << 10 | rng.integers(0, 1 << 10, 64)
                  ).astype("<u2")
        record("F16.type=bf16", halves, dequantize(halves.view(np.uint8), Type.BF16))
        record("BF16.type=f16", halves, dequantize(halves.view(np.uint8), Type.F16))


if __name__ == "__main__":
    main()
