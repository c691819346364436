#!/usr/bin/env python3
"""Writes the samples of the page web/examples/diagnose: a small model with random weights, and dumps of the second
engine (engine.py) with a mistake, and without one.

    PYTHONPATH=build/setup/py python3 tests/reference/samples.py
"""
import json
import os
import subprocess
import sys

import dump
from engine import Engine

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
OUT = os.path.join(ROOT, "web", "examples", "diagnose", "samples")
SHAPE = "--layers 4 --embd 32 --heads 4 --kv-heads 2 --ff 64 --vocab 320 --type Q4_0 --context 256 --seed 7"
TOKENS = [1, 300, 111, 122]
VALUES = 2   # of each row


class InOneLayer(Engine):
    """An engine whose mistakes are in one layer only."""
    def __init__(self, path, mistakes, layer):
        super().__init__(path, mistakes)
        self.only, self.all = layer, self.switch

    def layer(self, il, *rest):
        self.switch = self.all if il == self.only else {}
        return super().layer(il, *rest)


def first_values(run):
    return [{"name": name, "token": token, "shape": list(rows.shape[1:]),
             "values": [float(f"{v:.6g}") for v in row.ravel()[:VALUES]]}
            for name, rows in run.taps.items() for token, row in enumerate(dump.f32(rows))]


def main():
    os.makedirs(OUT, exist_ok=True)
    model = os.path.join(OUT, "model.gguf")
    subprocess.run([sys.executable, os.path.join(ROOT, "models", "synth.py"), model, *SHAPE.split()], check=True)
    engines = {"nibbles": Engine(model, ["Q4_0.nibbles=swapped"]), "rope": Engine(model, ["rope.pairing=halves"]),
               "mask": InOneLayer(model, ["attn.mask=none"], 2), "right": Engine(model)}
    for name, engine in engines.items():
        document = {"program": "tests/reference/samples.py", "tokens": TOKENS, "n_prompt": len(TOKENS),
                    "taps": first_values(engine.run(TOKENS, len(TOKENS)))}
        with open(os.path.join(OUT, f"{name}.json"), "w") as file:
            json.dump(document, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
