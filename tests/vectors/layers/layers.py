#!/usr/bin/env python3
"""Turns dumps of llama.cpp's activations (../llama/logits.c -d) into what is committed here.

    layers.py truth DUMP RECORDS.bin N  a trace as JSON (docs/trace.md): of every tap and token the statistics and N
                                        values at evenly spaced places; all attention weights
    layers.py own NAME DUMP OWN         one line a tap: how far the activations in OWN are from those in DUMP

RECORDS.bin is the same run's other output, which has the tokens.  Statistics are sums in f64; values keep 7 digits.
"""
import json
import struct
import sys

import numpy as np


def read_tokens(path):
    data = open(path, "rb").read()
    assert data[:8] == b"PLMBLOGT", path
    return np.frombuffer(data, "<i4", struct.unpack_from("<I", data, 12)[0], 32)


def read_dump(path, n_token=None):
    """Name: (n_token, n_head, n) f64, in the order of the computation."""
    data, at, taps = open(path, "rb").read(), 0, {}
    while at < len(data):
        name = data[at:at + 24].split(b"\0")[0].decode()
        ne = struct.unpack_from("<4I", data, at + 24)
        n = int(np.prod(ne))
        values = np.frombuffer(data, "<f4", n, at + 40).reshape(ne[::-1]).astype(np.float64)
        at += 40 + 4 * n
        n_token = n_token or ne[1]   # embd comes first: (n_embd, n_token)
        assert values.shape[0] == 1
        if name.startswith("kq_soft_max"):
            values = values[0].swapaxes(0, 1)   # ggml has heads outermost
        elif values.shape[1] == 1:
            values = values[0].swapaxes(0, 1)   # (1, n_token, n), no heads
        else:
            values = values[0]
        assert values.shape[0] == n_token, (name, values.shape)
        taps[name] = values
    return taps


def short(value, digits):
    number = float(f"{value:.{digits}g}")
    return int(number) if number == int(number) else number


def truth(dump, records, n_place):
    tokens = read_tokens(records)
    taps = []
    for name, values in read_dump(dump).items():
        n_token, n_head, n = values.shape
        assert n_token == len(tokens)
        for token, row in enumerate(values.reshape(n_token, -1)):
            tap = {"name": name, "token": token, "shape": [n_head, n] if n_head > 1 else [n],
                   "mean": short(row.mean(), 6), "rms": short(np.sqrt((row**2).mean()), 6),
                   "min": short(row.min(), 7), "max": short(row.max(), 7)}
            if not name.startswith("kq_soft_max"):
                i = np.arange(int(n_place))
                places = (2 * i + 1) * len(row) // (2 * len(i)) + i % 2   # odd ones too: both halves of a RoPE pair
                tap["places"], row = places.tolist(), row[places]
            taps.append(tap | {"values": [short(value, 7) for value in row]})
    return {"plumb_trace": 1, "program": "llama.cpp v0.5.0, CPU, weights as F32", "tokens": tokens.tolist(),
            "taps": taps}


def errors(dump, own):
    """Of each tap, the root mean square over tokens of |own - truth| / |truth|."""
    mine = read_dump(own)
    for name, values in read_dump(dump).items():
        rows = values.reshape(len(values), -1)
        d = np.linalg.norm(mine[name].reshape(rows.shape) - rows, axis=1) / np.linalg.norm(rows, axis=1)
        yield name, np.sqrt((d**2).mean())


if sys.argv[1] == "truth":
    document = truth(*sys.argv[2:])
    lines = [json.dumps(tap, separators=(",", ":")) for tap in document.pop("taps")]
    print(json.dumps(document)[:-1] + ', "taps": [\n' + ",\n".join(lines) + "\n]}")
else:
    for name, error in errors(*sys.argv[3:]):
        print(sys.argv[2], name, f"{error:.3g}")
