"""Quantized blocks read without a library, and misread in the ways known from engines.  Only the grids of IQ1, IQ2 and
IQ3 are those of the package gguf.

A reader takes (n_block, bytes) u8 and the part of a mistake's name after the type, "nibbles=swapped" or None, and gives
(n_block, elements) f64.  Without a mistake it must equal gguf.quants.dequantize: `engine.py --selftest` compares.
Layouts: ggml-common.h and the GGUF specification.  In comments b is a byte, j its place in the row of bytes.
"""
import gguf
import numpy as np


def f16(blocks, at, mistake):
    """(n_block, 1): two bytes as f16, or as the upper half of an f32."""
    bits = blocks[:, at:at + 2].copy().view("<u2")
    if mistake == "d=bf16":
        return (bits.astype("<u4") << 16).view("<f4").astype(np.float64)
    return bits.view("<f2").astype(np.float64)


def nibbles(packed, mistake):
    """(..., n) bytes to (..., 2n) codes: the low nibbles of all bytes, then the high ones."""
    low, high = packed & 15, packed >> 4
    if mistake == "nibbles=swapped":
        low, high = high, low
    if mistake == "layout=interleaved":
        return np.stack([low, high], axis=-1).reshape(*packed.shape[:-1], -1).astype(np.float64)
    return np.concatenate([low, high], axis=-1).astype(np.float64)


def pairs(packed):
    """(..., n) bytes to (..., n, 4) codes of two bits, the lowest of a byte first."""
    return np.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1).astype(np.float64)


def pairs_256(packed, mistake):
    """(n_block, 64) bytes to (n_block, 256): of each 32 bytes the lowest pairs are elements 0..31 of 128, and so on."""
    codes = pairs(packed)
    if mistake != "order=sequential":
        codes = codes.reshape(-1, 2, 32, 4).swapaxes(2, 3)
    return codes.reshape(-1, 256)


def bits(packed):
    """(..., n) bytes to (..., 8n) bits, the lowest of a byte first."""
    return np.unpackbits(packed, axis=-1, bitorder="little").astype(np.float64)


def high_bits_32(packed, mistake):
    """(n_block, 32): bit i belongs to element i."""
    high = bits(packed)
    if mistake == "high=missing":
        return 0 * high
    if mistake == "high=interleaved":  # element j takes bit 2j, element j + 16 takes 2j + 1
        return np.concatenate([high[:, 0::2], high[:, 1::2]], axis=1)
    return high


def high_bits_256(packed, mistake):
    """(n_block, 32) bytes to (n_block, 256): bit 8j + k belongs to element 32k + j."""
    high = bits(packed)
    if mistake == "high=missing":
        return 0 * high
    if mistake in ("high=sequential", "order=sequential"):
        return high
    high = high.reshape(-1, 32, 8).swapaxes(1, 2).reshape(-1, 256)
    return 1 - high if mistake == "high=inverted" else high


def signed_scales(low, high, mistake):
    """Scales of 6 bits, less 32, from the lower four and the upper two."""
    codes = low + (0 if mistake == "scales=low_bits" else 16 * high)
    return codes if mistake == "scales=unsigned" else codes - 32


def scale_and_min(blocks, mistake, at=0):
    """(n_block, 1) each, of a block that has both there."""
    d, m = f16(blocks, at, mistake), f16(blocks, at + 2, mistake)
    return (m, d) if mistake == "d=swapped" else (d, m)


def q4_0(blocks, mistake):  # f16 d; 16 bytes
    offset = 0 if mistake == "offset=missing" else 8
    return f16(blocks, 0, mistake) * (nibbles(blocks[:, 2:], mistake) - offset)


def q4_1(blocks, mistake):  # f16 d, m; 16 bytes
    d, m = scale_and_min(blocks, mistake)
    return d * nibbles(blocks[:, 4:], mistake) + (-m if mistake == "min=subtracted" else m)


def q5_0(blocks, mistake):  # f16 d; 4 bytes of high bits; 16 bytes
    offset = 0 if mistake == "offset=missing" else 16
    codes = nibbles(blocks[:, 6:], mistake) + 16 * high_bits_32(blocks[:, 2:6], mistake)
    return f16(blocks, 0, mistake) * (codes - offset)


def q5_1(blocks, mistake):  # f16 d, m; 4 bytes of high bits; 16 bytes
    d, m = scale_and_min(blocks, mistake)
    codes = nibbles(blocks[:, 8:], mistake) + 16 * high_bits_32(blocks[:, 4:8], mistake)
    return d * codes + (-m if mistake == "min=subtracted" else m)


def q8_0(blocks, mistake):  # f16 d; 32 signed bytes
    codes = blocks[:, 2:] if mistake == "codes=unsigned" else blocks[:, 2:].view(np.int8)
    return f16(blocks, 0, mistake) * codes


def iq4_values(codes, mistake):
    """The values of 4-bit codes: kvalues_iq4nl of ggml-common.h."""
    if mistake == "codes=linear":
        return codes - 8
    table = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
    return np.array(table, np.float64)[codes.astype(int)]


def iq4_nl(blocks, mistake):  # f16 d; 16 bytes
    return f16(blocks, 0, mistake) * iq4_values(nibbles(blocks[:, 2:], mistake), mistake)


def fp4_values(codes, mistake):
    """Twice the values of 4-bit floats: a sign, two bits of exponent and one of mantissa."""
    if mistake == "codes=linear":
        return codes - 8
    codes = codes.astype(int)
    exponent, mantissa = codes >> 1 & 3, codes & 1
    return np.where(codes & 8, -1, 1) * np.where(exponent, (2 + mantissa) * 2.0 ** (exponent - 1), mantissa)


def mxfp4(blocks, mistake):  # a byte of exponent; 16 bytes
    scale = 2.0 ** (blocks[:, :1].astype(float) - (127 if mistake == "scale=doubled" else 128))
    return scale * fp4_values(nibbles(blocks[:, 1:], mistake), mistake)


def nvfp4(blocks, mistake):  # 4 scales, floats with 4 bits of exponent and 3 of mantissa; 4 times 8 bytes, each for 16
    exponent, mantissa = blocks[:, :4].astype(int) >> 3 & 15, blocks[:, :4] & 7
    scales = np.where(exponent, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0 ** -9)
    scales[blocks[:, :4] == 127] = 0
    if mistake != "scale=doubled":
        scales = scales / 2
    codes = nibbles(blocks[:, 4:].reshape(len(blocks), -1, 16 if mistake == "order=mxfp4" else 8), mistake)
    return np.repeat(scales, 16, axis=1) * fp4_values(codes.reshape(-1, 64), mistake)


def tq1_0(blocks, mistake):  # 52 bytes of digits of base 3, f16 d
    powers = 3 ** np.arange(5)
    digits = blocks[:, :52, None].astype(int) * powers % 256 * 3 // 256   # of a fraction of 256, the highest first
    if mistake == "digits=integer":
        digits = blocks[:, :52, None] // powers % 3
    if mistake == "order=sequential":
        codes = [digits[:, :48], digits[:, 48:, :4]]
    else:  # first digits of 32 bytes, then second ones, ...; so for 16 and for 4 bytes, of which the last have 4 digits
        codes = [digits[:, :32].swapaxes(1, 2), digits[:, 32:48].swapaxes(1, 2), digits[:, 48:, :4].swapaxes(1, 2)]
    codes = np.concatenate([some.reshape(len(blocks), -1) for some in codes], axis=1)
    return f16(blocks, 52, mistake) * (codes - (0 if mistake == "offset=missing" else 1.0))


def tq2_0(blocks, mistake):  # 64 bytes of two bits, f16 d
    return f16(blocks, 64, mistake) * (pairs_256(blocks[:, :64], mistake) - (0 if mistake == "offset=missing" else 1))


def q2_k(blocks, mistake):  # 16 bytes of scale (low nibble) and minimum; 64 bytes of two bits; f16 d, dmin
    d, dmin = scale_and_min(blocks, mistake, 80)
    scales, mins = blocks[:, :16] & 15, blocks[:, :16] >> 4
    if mistake == "scales=swapped":
        scales, mins = mins, scales
    lows = np.repeat(dmin * mins, 16, axis=1)
    high = np.repeat(d * scales, 16, axis=1) * pairs_256(blocks[:, 16:80], mistake)
    return high + (lows if mistake == "min=added" else -lows)


def q3_k(blocks, mistake):  # 32 bytes of high bits; 64 bytes of two bits; 12 bytes of scales; f16 d
    codes = pairs_256(blocks[:, 32:96], mistake) + 4 * high_bits_256(blocks[:, :32], mistake)
    low, high = blocks[:, 96:104], pairs(blocks[:, 104:108])
    if mistake == "scales=sequential":
        low, high = nibbles(low, "layout=interleaved"), high.reshape(-1, 16)
    else:  # low nibbles of scales 0..7, then 8..15; byte i of four has bits of i, i + 4, i + 8, i + 12
        low, high = nibbles(low, None), high.swapaxes(1, 2).reshape(-1, 16)
    scales = f16(blocks, 108, mistake) * signed_scales(low, high, mistake)
    return np.repeat(scales, 16, axis=1) * (codes - (0 if mistake == "offset=missing" else 4))


def iq4_xs(blocks, mistake):  # f16 d; 2 bytes of upper, 4 of lower bits of scales; 8 times 16 bytes, each for 32
    low, high = nibbles(blocks[:, 4:8], "layout=interleaved"), pairs(blocks[:, 2:4]).reshape(-1, 8)
    scales = f16(blocks, 0, mistake) * signed_scales(low, high, mistake)
    codes = nibbles(blocks[:, 8:].reshape(-1, 8, 16), mistake).reshape(-1, 256)
    return np.repeat(scales, 32, axis=1) * iq4_values(codes, mistake)


def scales_and_mins_k(packed, mistake):
    """(n_block, 12) bytes to the 6-bit scales and minima of 8 sub-blocks, (n_block, 8) each."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    keep = 0 if mistake == "scales=low_bits" else 3   # of sub-blocks 4..7: where the upper two bits are
    scales = np.hstack([first & 63, third & 15 | (first >> 6 & keep) << 4])
    mins = np.hstack([second & 63, third >> 4 | (second >> 6 & keep) << 4])
    return (mins, scales) if mistake == "scales=swapped" else (scales, mins)


def q45_k(blocks, codes, mistake):
    """Codes (n_block, 256) of a block that begins with f16 d, dmin and 12 bytes of scales."""
    d, dmin = scale_and_min(blocks, mistake)
    scales, mins = scales_and_mins_k(blocks[:, 4:16], mistake)
    lows = np.repeat(dmin * mins, 32, axis=1)
    return np.repeat(d * scales, 32, axis=1) * codes + (lows if mistake == "min=added" else -lows)


def q4_k(blocks, mistake):  # ...; 4 times 32 bytes, each for 64 elements
    return q45_k(blocks, nibbles(blocks[:, 16:].reshape(-1, 4, 32), mistake).reshape(-1, 256), mistake)


def q5_k(blocks, mistake):  # ...; 32 bytes of high bits; 4 times 32 bytes, each for 64 elements
    codes = nibbles(blocks[:, 48:].reshape(-1, 4, 32), mistake).reshape(-1, 256)
    return q45_k(blocks, codes + 16 * high_bits_256(blocks[:, 16:48], mistake), mistake)


def q6_k(blocks, mistake):  # 128 bytes of low nibbles, 64 of two high bits, 16 signed scales, f16 d
    low, high = blocks[:, :128], pairs_256(blocks[:, 128:192], mistake)
    if mistake == "order=sequential":
        codes = nibbles(low, "layout=interleaved")
    else:  # of each 64 bytes the low nibbles are elements 0..63 of 128, the high ones 64..127
        codes = nibbles(low.reshape(-1, 2, 64), None).reshape(-1, 256)
    if mistake == "high=missing":
        high = 0 * high
    scales = blocks[:, 192:208] if mistake == "scales=unsigned" else blocks[:, 192:208].view(np.int8)
    offset = 0 if mistake == "offset=missing" else 32
    return f16(blocks, 208, mistake) * np.repeat(scales.astype(np.float64), 16, axis=1) * (codes + 16 * high - offset)


def integers(blocks, at, end, kind):
    """(n_block, n): the little-endian integers in these bytes."""
    return np.ascontiguousarray(blocks[:, at:end]).view(kind).astype(int)


def with_grid(name, index, scales, signs, mistake):
    """Elements of a type with a grid, whose entries have 4 or 8 of them.  signs: (n_block, 256), or None.  The
    package gguf has the grids."""
    kind = getattr(gguf.quants, name)
    kind.init_grid()
    values = kind.grid.reshape(kind.grid_shape).astype(np.float64)[index].reshape(len(index), 256)
    if signs is not None and mistake != "signs=missing":
        values = values * signs
    return np.repeat(scales, 256 // scales.shape[1], axis=1) * values


def half_scales(d, codes, mistake):
    return d * (codes + (0 if mistake == "scales=no_half" else 0.5))


def signs_of(some, mistake):
    """(n_block, 256) signs from 7 bits for each vector, (n_block, 32); the eighth is the parity of these."""
    signs = some[:, :, None] >> np.arange(8) & 1
    signs[:, :, 7] = 0 if mistake == "signs=seven" else signs.sum(axis=2) % 2
    return 1 - 2 * signs.reshape(-1, 256)


def sevens(packed, mistake):
    """Signs and scales from 8 integers of 32 bits, which have 4 times 7 bits of signs and then 4 bits of scale."""
    return signs_of((packed[:, :, None] >> 7 * np.arange(4) & 127).reshape(-1, 32), mistake), packed >> 28


def nibbles_in_order(packed):
    return nibbles(packed, "layout=interleaved")


def iq2_xxs(blocks, mistake):  # f16 d; 8 times 4 bytes of indexes and a word of signs and scale
    index, words = blocks[:, 2:].reshape(-1, 8, 8)[:, :, :4].reshape(-1, 32), integers(blocks, 2, 66, "<u4")[:, 1::2]
    signs, codes = sevens(words, mistake)
    return with_grid("IQ2_XXS", index, half_scales(f16(blocks, 0, mistake) / 4, codes, mistake), signs, mistake)


def iq2_xs(blocks, mistake):  # f16 d; 32 times 9 bits of index and 7 of signs; 8 bytes of scales
    words, signs = integers(blocks, 2, 66, "<u2"), integers(blocks, 2, 66, "<u2") >> 9
    scales = half_scales(f16(blocks, 0, mistake) / 4, nibbles_in_order(blocks[:, 66:]), mistake)
    return with_grid("IQ2_XS", words & 511, scales, signs_of(signs, mistake), mistake)


def high_indexes(low, high, mistake):
    return low.astype(int) + (0 if mistake == "high=missing" else 256 * high.astype(int))


def iq2_s(blocks, mistake):  # f16 d; 32 bytes of indexes; 32 of signs; 8 of upper bits of indexes; 8 of scales
    index = high_indexes(blocks[:, 2:34], pairs(blocks[:, 66:74]).reshape(-1, 32), mistake)
    scales = half_scales(f16(blocks, 0, mistake) / 4, nibbles_in_order(blocks[:, 74:]), mistake)
    return with_grid("IQ2_S", index, scales, 1 - 2 * bits(blocks[:, 34:66]), mistake)


def iq3_xxs(blocks, mistake):  # f16 d; 64 bytes of indexes; 8 words of signs and scale
    signs, codes = sevens(integers(blocks, 66, 98, "<u4"), mistake)
    scales = half_scales(f16(blocks, 0, mistake) / 2, codes, mistake)
    return with_grid("IQ3_XXS", blocks[:, 2:66], scales, signs, mistake)


def iq3_s(blocks, mistake):  # f16 d; 64 bytes of indexes; 8 of upper bits; 32 of signs; 4 of scales
    index = high_indexes(blocks[:, 2:66], bits(blocks[:, 66:74]), mistake)
    scales = half_scales(f16(blocks, 0, mistake) * 2, nibbles_in_order(blocks[:, 106:]), mistake)
    return with_grid("IQ3_S", index, scales, 1 - 2 * bits(blocks[:, 74:106]), mistake)


def shifted_grid(index, down, scales, mistake):
    """Elements of IQ1, whose values are those of a grid plus or, where down (n_block, 32) is set, minus 1/8."""
    values = with_grid("IQ1_S", index, np.ones((len(index), 8)), None, mistake)
    shift = np.repeat(1 - 2 * down, 8, axis=1) / (np.inf if mistake == "shift=missing" else 8)
    return np.repeat(scales, 256 // scales.shape[1], axis=1) * (values + shift)


def iq1_s(blocks, mistake):  # f16 d; 32 bytes of indexes; 8 times 4 times 3 upper bits of them, 3 of scale, a shift
    words = integers(blocks, 34, 50, "<u2")
    index = high_indexes(blocks[:, 2:34], (words[:, :, None] >> 3 * np.arange(4) & 7).reshape(-1, 32), mistake)
    scales = half_scales(f16(blocks, 0, mistake) * 2, words >> 12 & 7, mistake)
    return shifted_grid(index, np.repeat(words >> 15, 4, axis=1), scales, mistake)


def iq1_m(blocks, mistake):  # 32 bytes of indexes; 32 nibbles, 3 upper bits and a shift; 4 times 4 scales of 3 bits and
    high, words = nibbles_in_order(blocks[:, 32:48]).astype(int), integers(blocks, 48, 56, "<u2")   # a quarter of f16 d
    d = (words >> 12 << 4 * np.arange(4)).sum(axis=1, keepdims=True).astype("<u2").view("<f2").astype(np.float64)
    scales = half_scales(d * 2, (words[:, :, None] >> 3 * np.arange(4) & 7).reshape(-1, 16), mistake)
    return shifted_grid(high_indexes(blocks[:, :32], high & 7, mistake), high >> 3, scales, mistake)


def half(blocks, mistake):
    return f16(blocks, 0, "d=bf16" if mistake == "type=bf16" else None)


def brain(blocks, mistake):
    return f16(blocks, 0, None if mistake == "type=f16" else "d=bf16")


READERS = {"Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0, "Q2_K": q2_k, "Q3_K": q3_k,
           "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k, "IQ4_NL": iq4_nl, "IQ4_XS": iq4_xs, "MXFP4": mxfp4, "NVFP4": nvfp4,
           "TQ1_0": tq1_0, "TQ2_0": tq2_0, "IQ2_XXS": iq2_xxs, "IQ2_XS": iq2_xs, "IQ2_S": iq2_s, "IQ3_XXS": iq3_xxs,
           "IQ3_S": iq3_s, "IQ1_S": iq1_s, "IQ1_M": iq1_m, "F16": half, "BF16": brain}


def read(type_name, block_bytes, raw, mistake):
    """raw: (n_row, row bytes) u8.  (n_row, n) f64."""
    return READERS[type_name](raw.reshape(-1, block_bytes), mistake).reshape(len(raw), -1)
