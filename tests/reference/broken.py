#!/usr/bin/env python3
"""Which broken copies of a model `plumb selfcheck` catches: the table of docs/diagnose.md.

    PYTHONPATH=build/setup/py python3 tests/reference/broken.py MODEL.gguf [--only TEXT]

The copies are made with numpy from the bytes of the file, for Llama and Gemma files.  Prints a row of Markdown for
each: the verdict, the checks that gave it, and the perplexity of the known text.
"""
import argparse, json, subprocess, sys, tempfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader

NIBBLES = {"Q4_0": (18, 2), "Q4_1": (20, 4), "Q4_K": (144, 16)}   # bytes of a block, and before the nibbles


class Copy:
    def __init__(self, path):
        self.reader, self.bytes = GGUFReader(path), np.fromfile(path, dtype=np.uint8)
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.arch = self.reader.get_field("general.architecture").contents()
        self.layers = int(self.key("block_count"))

    def key(self, name):
        return self.reader.get_field(f"{self.arch}.{name}").contents()

    def data(self, name):
        t = self.tensors[name]
        return self.bytes[t.data_offset:t.data_offset + t.n_bytes]

    def exchange(self, a, b):
        x, y = self.data(a), self.data(b)
        if len(x) != len(y): raise KeyError(f"{a} and {b} differ in size")
        x[:], y[:] = y.copy(), x.copy()

    def swap_nibbles(self, name):
        kind = self.tensors[name].tensor_type.name
        if kind not in NIBBLES: raise KeyError(kind)
        size, first = NIBBLES[kind]
        codes = self.data(name).reshape(-1, size)[:, first:]
        codes[:] = codes << 4 | codes >> 4

    def rows(self, name, order):
        """order(n) gives for each row of a head the row of the file that it becomes."""
        rows = self.data(name).reshape(int(self.tensors[name].shape[1]), -1)
        n = int(self.tensors[f"blk.0.attn_q.weight"].shape[1]) // int(self.key("attention.head_count"))
        heads = rows.reshape(-1, n, rows.shape[1])
        heads[:] = heads[:, order(n)].copy()

    def scale(self, name, by):
        t = self.tensors[name]
        size, places = {"Q4_1": (20, [0, 2]), "Q4_0": (18, [0]), "Q4_K": (144, [0, 2]), "Q5_0": (22, [0]),
                        "Q8_0": (34, [0]), "Q6_K": (210, [208])}[t.tensor_type.name]
        blocks = self.data(name).reshape(-1, size)
        for at in places:
            d = blocks[:, at:at + 2].copy().view(np.float16) * np.float16(by)
            blocks[:, at:at + 2] = d.view(np.uint8)

    def fill_f32(self, name, value):
        self.data(name)[:] = np.full(len(self.data(name)) // 4, value, dtype=np.float32).view(np.uint8)

    def set_f32_key(self, name, value):
        at = self.bytes[:1 << 24].tobytes().index(f"{self.arch}.{name}".encode())
        at += len(f"{self.arch}.{name}") + 4
        self.bytes[at:at + 4] = np.array([value], dtype=np.float32).view(np.uint8)


def in_layers(c, layers, what):
    for il in layers: what(f"blk.{il}.")


def layers_exchanged(c, a, b):
    for name in [n for n in c.tensors if n.startswith(f"blk.{a}.")]:
        other = name.replace(f"blk.{a}.", f"blk.{b}.")
        if c.tensors[name].n_bytes == c.tensors[other].n_bytes and \
           c.tensors[name].tensor_type == c.tensors[other].tensor_type: c.exchange(name, other)


def unpermuted(n): return np.arange(n).reshape(n // 2, 2).T.ravel()   # GGUF's order to Hugging Face's, as halves


def cases(c):
    one, some, every = [c.layers // 3], [2 * c.layers // 3], range(c.layers)
    pair = lambda a, b: lambda p: c.exchange(p + a, p + b)
    kv, gate_up = pair("attn_k.weight", "attn_v.weight"), pair("ffn_gate.weight", "ffn_up.weight")
    norms = pair("attn_norm.weight", "ffn_norm.weight")
    q = lambda p: c.rows(p + "attn_q.weight", unpermuted)

    def all_nibbles():
        for n, t in c.tensors.items():
            if t.tensor_type.name in NIBBLES: c.swap_nibbles(n)
    yield "nothing", lambda: None
    for name, what in (("K and V exchanged", kv), ("gate and up exchanged", gate_up),
                       ("attn_norm and ffn_norm exchanged", norms), ("rows of Q not permuted", q)):
        for where, layers in ((f"layer {one[0]}", one), (f"layer {some[0]}", some), ("all layers", every)):
            yield f"{name}, {where}", lambda what=what, layers=layers: in_layers(c, layers, what)
    n = c.layers
    for a, b in ((n // 2, n // 2 + 1), (n // 6, n // 2), (n // 3, n - 3)):
        yield f"layers {a} and {b} exchanged", lambda a=a, b=b: layers_exchanged(c, a, b)
    yield "nibbles swapped, one ffn_gate", lambda: c.swap_nibbles(f"blk.{one[0]}.ffn_gate.weight")
    yield "nibbles swapped, all tensors", all_nibbles
    yield "attn_output of zeros, one layer", lambda: c.data(f"blk.{one[0]}.attn_output.weight").fill(0)
    yield "ffn_up times 2, one layer", lambda: c.scale(f"blk.{one[0]}.ffn_up.weight", 2)
    yield "ffn_up times 16, one layer", lambda: c.scale(f"blk.{one[0]}.ffn_up.weight", 16)
    yield "output_norm of ones", lambda: c.fill_f32("output_norm.weight", 1)
    base = c.key("rope.freq_base")
    for by in (0.1, 0.001): yield f"RoPE base times {by:g}", lambda by=by: c.set_f32_key("rope.freq_base", base * by)
    for eps in (1e-6, 1e-3, 0.1):
        yield f"eps {eps:g}", lambda eps=eps: c.set_f32_key("attention.layer_norm_rms_epsilon", eps)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model"); p.add_argument("--only", default="")
    p.add_argument("--plumb", default="build/native/plumb")
    p.add_argument("--part", default="0/1", help="i/n: every n-th copy from the i-th on")
    o = p.parse_args()
    part, of = map(int, o.part.split("/"))
    c = Copy(o.model)
    good = c.bytes.copy()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "broken.gguf")
        for i, (name, make) in enumerate(cases(c)):
            if o.only not in name or i % of != part: continue
            c.bytes[:] = good
            try: make()
            except KeyError as e:
                print(f"| {name} | not made: {e} | | |", flush=True)
                continue
            c.bytes.tofile(path)
            run = subprocess.run([o.plumb, "selfcheck", path, "--json"], capture_output=True, text=True)
            checks = json.loads(run.stdout)["checks"]
            bad = [x for x in checks if x["verdict"] in ("FAIL", "WARN")]
            said = "caught" if any(x["verdict"] == "FAIL" for x in bad) else "warned" if bad else "**not**"
            text = next(x["why"] for x in checks if x["name"] == "text").split()
            print(f"| {name} | {said} | {', '.join(x['name'] for x in bad)} | "
                  f"{text[1] if text[0] == 'perplexity' else '-'} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
