"""Writes what tests/trace_test.c holds plumb's traces against; see tests/vectors/README.md.

    venv/bin/python tests/vectors/trace/make.py

stats.bin      arrays and their statistics by numpy, in doubles:
               u32 n; f32 values[n]; f64 mean, rms, min, max, n_nan, n_inf   (of the finite values; NaN without any)
numbers.txt    "TEXT BITS" a line: a JSON number, and the bits of the double that Python reads it as
trace.gguf     a trace of whole tensors by gguf.GGUFWriter, trace.json the same by json.dumps
f32-taps.json  statistics and entropies by numpy of llama.cpp's activations in ../synth/f32.taps
"""
import json
import pathlib
import random
import struct

import gguf
import numpy as np

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(4)


def stats_of(x):
    x = np.asarray(x, np.float32).reshape(-1).astype(np.float64)
    finite = x[np.isfinite(x)]
    known = finite if finite.size else np.array([np.nan])
    return {"mean": known.mean(), "rms": np.sqrt(np.mean(known * known)), "min": known.min(), "max": known.max(),
            "nan": float(np.isnan(x).sum()), "inf": float(np.isinf(x).sum())}


def write_stats():
    arrays = [rng.normal(0.01, s, n) for s, n in [(1, 1), (1, 7), (1, 8), (0.1, 9), (3, 64), (1e-3, 577), (1, 1531)]]
    arrays.append(np.full(33, 3.4028234e38))                     # squares of which no single can hold
    arrays.append(np.array([1e-45, -1e-45, 1e-38, 0, -0.0]))     # subnormal
    arrays.append(np.concatenate([rng.normal(0, 1, 20), [np.nan, np.inf, -np.inf, np.nan], rng.normal(5, 1, 20)]))
    arrays.append(np.array([np.nan, np.inf, -np.inf]))
    arrays.append(np.array([]))
    with open(here / "stats.bin", "wb") as f:
        for a in arrays:
            a = a.astype("<f4")
            f.write(struct.pack("<I", a.size) + a.tobytes() + struct.pack("<6d", *stats_of(a).values()))


def write_numbers():
    texts = ["0", "-0", "0.0", "-0.0", "0e99", "1", "-1", "10", "1e22", "1e23", "123456789012345", "1234567890123456",
             "0.1", "1e-22", "1e-23", "9007199254740993", "9007199254740992.99999999999999", "9007199254740993.00001",
             "1.7976931348623157e308", "1.7976931348623159e308", "1e309", "-1e400", "1e-400", "4.9406564584124654e-324",
             "2.4703282292062327e-324", "2.4703282292062328e-324", "2.2250738585072011e-308", "1e99999999999999999999",
             "1e-99999999999999999999", "0." + "0" * 400 + "1e400", "1" + "0" * 400 + "e-400",
             "1.00000000000000011102230246251565404236316680908203125",        # half way between two doubles
             "1.00000000000000011102230246251565404236316680908203125" + "0" * 900 + "1",
             "1.00000000000000011102230246251565404236316680908203124" + "9" * 900, "5e-324", "1E+2", "1e+02", "1.5E-3"]
    draw = random.Random(4)
    for _ in range(500):
        value = struct.unpack("<d", struct.pack("<Q", draw.getrandbits(64)))[0]
        if value == value and abs(value) != float("inf"):
            texts += [repr(value), "%.9g" % value, "%.20e" % value]
    for _ in range(300):
        texts.append("%.9g" % np.float32(draw.gauss(0, 1)))
        texts.append(repr(float(np.float32(draw.gauss(0, 1e3)))))
    with open(here / "numbers.txt", "w") as f:
        for text in texts:
            f.write("%s %016x\n" % (text, struct.unpack("<Q", struct.pack("<d", float(text)))[0]))


def write_trace():
    """Three tokens of a net with 2 heads; the last two have logits, result_norm is of tokens 0 and 2."""
    tokens, pieces = [1, 5, 2], ["<s>", "\u00e9t\u00e9 \"q\"", "\\n"]
    scores = rng.normal(0, 1, (3, 2, 3))
    scores = np.exp(scores) * np.tri(3)[:, None, :]
    taps = {"embd": rng.normal(0, 1, (3, 8)), "Qcur-0": rng.normal(0, 1, (3, 2, 4)), "Kcur-0": rng.normal(0, 1, (3, 5)),
            "kq_soft_max-0": scores / scores.sum(-1, keepdims=True), "l_out-0": rng.normal(0, 1e4, (3, 8)),
            "l_out-11": rng.normal(0, 1e-4, (3, 8)), "result_norm": rng.normal(0, 1, (2, 8)),
            "result_output": rng.normal(0, 9, (2, 10))}
    taps = {name: x.astype("<f4") for name, x in taps.items()}
    taps["l_out-0"][1, 2:6] = [np.nan, np.inf, -np.inf, -0.0]
    rows = {name: [0, 2] if name == "result_norm" else list(range(3 - len(x), 3)) for name, x in taps.items()}
    w = gguf.GGUFWriter(here / "trace.gguf", "plumb-trace")
    w.add_string("plumb.trace.program", "numpy")
    w.add_array("plumb.trace.tokens", tokens)
    w.add_uint32("plumb.trace.n_prompt", 2)
    w.add_array("plumb.trace.pieces", pieces)
    w.add_int32("plumb.trace.bos", 1)
    w.add_array("plumb.trace.rows.result_norm", rows["result_norm"])
    for name, x in taps.items():
        w.add_tensor(name, x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    records = [{"name": name, "token": pos, "shape": list(row.shape), "values": row.reshape(-1).tolist()}
               for name, x in taps.items() for pos, row in zip(rows[name], x)]
    with open(here / "trace.json", "w") as f:
        json.dump({"program": "numpy", "taps": records, "pieces": pieces, "bos": 1, "n_prompt": 2, "tokens": tokens}, f,
                  indent=1)


def write_taps():
    """Of tokens 0, 7 and 23.  A record of f32.taps is a name, four sizes and the values (see ../llama/logits.c)."""
    data, at, records = (here.parent / "synth" / "f32.taps").read_bytes(), 0, []
    while at < len(data):
        name = data[at:at + 24].split(b"\0")[0].decode()
        ne = struct.unpack_from("<4I", data, at + 24)
        n = int(np.prod(ne))
        x = np.frombuffer(data, "<f4", n, at + 40)
        at += 40 + 4 * n
        weights = name.startswith("kq_soft_max")   # (n_head, n_token, n_key)
        x = x.reshape(ne[2], ne[1], ne[0]).transpose(1, 0, 2) if weights else x.reshape(24, -1)
        for pos in [0, 7, 23]:
            record = {"name": name, "token": pos, **stats_of(x[pos])}
            if weights:
                p = x[pos].astype(np.float64)
                record["entropy"] = [float(-np.sum(h[h > 0] * np.log(h[h > 0]))) for h in p]
            records.append(record)
    with open(here / "f32-taps.json", "w") as f:
        json.dump({"program": "llama.cpp", "tokens": np.frombuffer((here.parent / "synth" / "f32.bin").read_bytes(),
                   "<i4", 24, 32).tolist(), "taps": records}, f, indent=None, separators=(",", ":"))


write_stats()
write_numbers()
write_trace()
write_taps()
