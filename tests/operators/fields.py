"""Quantized blocks as fields, and mistakes in reading a field.  Layouts: the GGUF specification and ggml's block types.

A block of a type is read as {field: (n_block, elements)}: d, dmin (one each), scales and mins of its parts, low and
high bits of the codes, and zero, the code that stands for 0.  value = d * scales * (low + high - zero) - dmin * mins.
"""
import gguf
import numpy as np

F32 = np.float32
OPERATORS = ("drop", "exchange", "shift", "repeat", "wrong order", "another constant")


def half(raw, at):
    return raw[:, at:at + 2].copy().view(np.float16).astype(F32)


def nibbles(codes):
    return np.concatenate([codes & 15, codes >> 4], axis=1)


def q4_0(raw):
    return {"d": half(raw, 0), "low": nibbles(raw[:, 2:]), "zero": 8}


def q4_1(raw):
    return {"d": half(raw, 0), "dmin": -half(raw, 2), "low": nibbles(raw[:, 4:]), "zero": 0}


def q5_0(raw):
    bits = raw[:, 2:6].copy().view(np.uint32) >> np.arange(32, dtype=np.uint32) & 1
    return {"d": half(raw, 0), "low": nibbles(raw[:, 6:]), "high": bits << 4, "zero": 16}


def q8_0(raw):
    return {"d": half(raw, 0), "low": raw[:, 2:].view(np.int8), "zero": 0}


def q4_k(raw):
    packed = raw[:, 4:16].astype(np.int32)
    first = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first[0] & 63, first[2] & 15 | first[0] >> 6 << 4], axis=1)
    mins = np.concatenate([first[1] & 63, first[2] >> 4 | first[1] >> 6 << 4], axis=1)
    codes = raw[:, 16:].reshape(-1, 4, 32)
    low = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(raw), 256)
    return {"d": half(raw, 0), "dmin": half(raw, 2), "scales": scales, "mins": mins, "low": low, "zero": 0}


def q6_k(raw):
    ql, qh = raw[:, :128].reshape(-1, 2, 2, 32), raw[:, 128:192].reshape(-1, 2, 1, 32)
    low = np.concatenate([ql & 15, ql >> 4], axis=2).reshape(len(raw), 256)
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    high = ((qh >> shifts & 3).astype(np.int32) << 4).reshape(len(raw), 256)
    return {"d": half(raw, 208), "scales": raw[:, 192:208].view(np.int8), "low": low, "high": high, "zero": 32}


TYPES = {"Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q8_0": q8_0, "Q4_K": q4_k, "Q6_K": q6_k}


def values(f):
    """(n_block, n) f32 of the fields of n_block blocks."""
    codes = f["low"].astype(np.int32) + f.get("high", 0) - f["zero"]
    n = codes.shape[1]

    def each(name, missing):
        x = np.asarray(f.get(name, missing), F32)
        return np.repeat(x, n // x.shape[1], axis=1) if x.ndim == 2 else x
    return each("d", 1) * each("scales", 1) * codes.astype(F32) - each("dmin", 0) * each("mins", 1)


def reader(file, change):
    """A function of a tensor's name: the tensor with fields that `change` misreads."""
    def read(name):
        tensor = file.tensors[name]
        block, size = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
        raw = np.asarray(tensor.data).reshape(-1, size)
        f = change(TYPES[tensor.tensor_type.name](raw))
        return values(f).reshape(tuple(int(n) for n in reversed(tensor.shape)))
    return read


def has(file):
    """The quantized type whose fields a mistake misreads, that of attn_q; None if it has no fields here."""
    tensor = file.tensors.get("blk.0.attn_q.weight")
    name = tensor.tensor_type.name if tensor else ""
    return name if name in TYPES else None


def to(field, function):
    return lambda f: {**f, field: function(f[field])}


def misreadings(operator, type_name):
    """(words, kind, function of the fields) of an operator on the fields of a type."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]][1]
    there = TYPES[type_name](np.zeros((1, size), np.uint8))
    swap_halves = lambda x: np.roll(x, x.shape[1] // 2, axis=1)   # noqa: E731
    apart = lambda x: x.reshape(len(x), 2, -1).swapaxes(1, 2).reshape(x.shape)   # noqa: E731
    together = lambda x: x.reshape(len(x), -1, 2).swapaxes(1, 2).reshape(x.shape)   # noqa: E731
    choices = {
        "drop": [("dmin", "the offset is left out", to("dmin", np.zeros_like)),
                 ("high", "the high bits are left out", to("high", np.zeros_like)),
                 ("scales", "the scales of the parts are left out", to("scales", np.ones_like)),
                 ("zero", "the code of zero is not subtracted", to("zero", lambda zero: 0))],
        "exchange": [("low", "the halves of the codes are exchanged", to("low", swap_halves)),
                     ("dmin", "scale and offset are exchanged", lambda f: {**f, "d": f["dmin"], "dmin": f["d"]}),
                     ("mins", "scales and offsets of the parts are exchanged",
                      lambda f: {**f, "scales": f["mins"], "mins": f["scales"]}),
                     ("high", "the halves of the high bits are exchanged", to("high", swap_halves)),
                     ("scales", "the halves of the scales are exchanged", to("scales", swap_halves))],
        "shift": [("d", "the scale is that of the block before", to("d", lambda d: np.roll(d, 1, axis=0))),
                  ("scales", "each part has the scale of the one before",
                   to("scales", lambda s: np.roll(s, 1, axis=1))),
                  ("low", "each code is the one before", to("low", lambda x: np.roll(x, 1, axis=1))),
                  ("high", "each high bit is the one before", to("high", lambda x: np.roll(x, 1, axis=1))),
                  ("mins", "each part has the offset of the one before", to("mins", lambda s: np.roll(s, 1, axis=1)))],
        "repeat": [("scales", "the first scale is used for all parts", to("scales", lambda s: s[:, :1] + 0 * s)),
                   ("low", "the first half of the codes is used twice",
                    to("low", lambda x: np.tile(x[:, :x.shape[1] // 2], 2))),
                   ("mins", "the first offset is used for all parts", to("mins", lambda s: s[:, :1] + 0 * s))],
        "wrong order": [("low", "the halves of the codes are interleaved", to("low", apart)),
                        ("low", "even codes come before odd ones", to("low", together)),
                        ("high", "even high bits come before odd ones", to("high", together)),
                        ("low", "the codes are reversed", to("low", lambda x: x[:, ::-1]))],
        "another constant": [("zero", "the code of zero is one less", to("zero", lambda zero: zero - 1)),
                             ("d", "the scale is twice as large", to("d", lambda d: 2 * d)),
                             ("dmin", "the offset has the other sign", to("dmin", np.negative)),
                             ("low", "the codes have no sign", to("low", lambda x: x.astype(np.int32) & 255))],
    }[operator]
    return [(words, f"block.{field}", function) for field, words, function in choices if field in there
            and not (words == "the codes have no sign" and type_name != "Q8_0")
            and not (words == "the code of zero is not subtracted" and there["zero"] == 0)]
