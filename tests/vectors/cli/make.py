#!/usr/bin/env python3
"""Writes facts.json: what the gguf package reads in the real models, and which tokens seeds draw.

    make.py MODELS_DIRECTORY CAPITAL.bin

CAPITAL.bin: all logits of llama.cpp after each token of ../llama/capital.txt, on the weights dequantized to F32:
    ../llama/logits -f ../llama/capital.txt -n 5 -s 1 F32.gguf CPU_BACKEND.so CAPITAL.bin
The draws come from ../sampler/make.py.  Only seeds are taken whose random number is 0.01 or more away from another
choice, and of those the first for each token: arithmetic that differs in the last bits has to agree on them.
"""
import importlib.util
import json
import os
import sys
from importlib.metadata import version

import gguf
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))


def module(path):
    spec = importlib.util.spec_from_file_location("made", os.path.join(here, path))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def key(field):
    names = [t.name.lower() for t in field.types]
    is_array = names[0] == "array"
    contents = field.contents()
    return {"type": f"array of {names[1]}" if is_array else names[0], "count": len(contents) if is_array else 1,
            "value": contents[:8] if is_array else contents}


def inspect(path):
    reader = gguf.GGUFReader(path)
    tensors = [{"name": t.name, "type": t.tensor_type.name, "shape": [int(n) for n in t.shape],
                "offset": int(t.data_offset), "bytes": int(t.n_bytes)} for t in reader.tensors]
    totals = {}
    for t in reader.tensors:
        total = totals.setdefault(t.tensor_type.name, {"tensors": 0, "elements": 0, "bytes": 0})
        for name, n in (("tensors", 1), ("elements", t.n_elements), ("bytes", t.n_bytes)):
            total[name] += int(n)
    return {"keys": {name: key(f) for name, f in reader.fields.items() if not name.startswith("GGUF.")},
            "tensors": tensors, "totals": totals}


def draws(path):
    sys.path.insert(0, os.path.join(here, "../llama"))
    from numpy_pass import read_vectors
    logits = read_vectors(path)["sample"][-1].astype(np.float32)
    sampler = module("../sampler/make.py")
    rows = []
    for options in ({}, {"temperature": 3, "top_k": 8, "top_p": 1, "min_p": 1e-6},
                    {"temperature": 4, "top_k": 1000, "top_p": 0.999, "min_p": 1e-4}):
        seen = set()
        for seed in (2**64 - 1, 2**32 + 1, *range(100)):
            token, margin = sampler.draw(logits, sampler.Xoshiro256starstar(seed), **options)
            if margin >= 0.01 and token not in seen and len(seen) < 5:
                rows.append({"options": options, "seed": str(seed), "id": token})
                seen.add(token)
    return rows


def main():
    models, capital = sys.argv[1:]
    facts = {"about": f"make.py, gguf {version('gguf')}",
             "inspect": {}, "draws": draws(capital)}
    for name in ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m.Q4_K_M.gguf", "ggml-vocab-llama-spm.gguf"):
        facts["inspect"][name] = inspect(os.path.join(models, name))
        if name.startswith("gemma"):
            del facts["inspect"][name]["tensors"]   # the totals say enough
    with open(os.path.join(here, "facts.json"), "w") as f:
        json.dump(facts, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


main()
