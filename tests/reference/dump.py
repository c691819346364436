#!/usr/bin/env python3
"""Writes a dump of an engine with mistakes, with the parts that an engine's author might print.

    dump.py MODEL.gguf --tokens 1,2,3,4,5,6 --n-prompt 4 --mistake rope.pairing=halves --mode l_out8 -o THEIRS.json

    whole   every tap as an .npz: one array for each, the first axis is the token; "tokens", "n_prompt"
    l_out8  JSON (docs/trace.md): the first 8 values of every layer's output
    top10   JSON: the ten largest logits at four positions

The tokens in a dump are those the engine was asked to compute.  Rows are numbered as they were fed.
"""
import argparse
import json

import numpy as np

from engine import Engine


def top_positions(n_prompt, n_token):
    """In the prompt, its end, a step and the last one; of the tokens as they were fed."""
    return sorted({max(0, min(p, n_token - 1)) for p in (n_prompt - 3, n_prompt - 1, n_prompt + 1, n_token - 1)})


def f32(rows):
    with np.errstate(over="ignore"):
        return rows.astype(np.float32)


def number(value):
    return float(f"{value:.9g}")   # nine digits identify every f32


def l_out8(run):
    return [{"name": name, "token": token, "shape": list(rows.shape[1:]), "values": [number(v) for v in row[:8]]}
            for name, rows in run.taps.items() if name.startswith("l_out-")
            for token, row in enumerate(f32(rows))]


def top10(run):
    rows = f32(run.taps["result_output"])
    order = np.argsort(-rows, axis=-1, kind="stable")[:, :10]
    return [{"name": "result_output", "token": token, "top": [[int(i), number(rows[token, i])] for i in order[token]]}
            for token in top_positions(run.n_prompt, len(rows))]


def write(path, mode, run, tokens, n_prompt):
    """run: the computed run, tokens: the tokens that were requested."""
    if mode == "whole":
        taps = {name: f32(rows) for name, rows in run.taps.items()}
        np.savez(path, tokens=np.array(tokens), n_prompt=np.array(n_prompt), **taps)
        return
    document = {"program": "tests/reference/engine.py", "tokens": [int(t) for t in tokens], "n_prompt": n_prompt,
                "taps": {"l_out8": l_out8, "top10": top10}[mode](run)}
    with open(path, "w") as f:
        json.dump(document, f)


MODES = {"whole": ".npz", "l_out8": ".json", "top10": ".json"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", required=True, help="ids, separated by commas")
    parser.add_argument("--n-prompt", type=int, help="how many of them are the prompt; default all")
    parser.add_argument("--mistake", action="append", default=[],
                        help="a name from src/truth/mistakes/known_*.c; repeatable")
    parser.add_argument("--mode", choices=MODES, default="whole")
    parser.add_argument("--say", type=int, metavar="N", help="print the text of N tokens more, the likeliest each time")
    parser.add_argument("-o", "--out")
    arguments = parser.parse_args()
    tokens = [int(t) for t in arguments.tokens.split(",")]
    n_prompt = arguments.n_prompt or len(tokens)
    engine = Engine(arguments.model, arguments.mistake)
    if arguments.out:
        write(arguments.out, arguments.mode, engine.run(tokens, n_prompt), tokens, n_prompt)
    said = list(tokens)
    for _ in range(arguments.say or 0):
        said.append(int(engine.run(said, n_prompt).taps["result_output"][-1].argmax()))
    if arguments.say:
        pieces = engine.file.keys["tokenizer.ggml.tokens"]
        text = "".join(pieces[t] for t in said)   # spaces and newlines as byte-level BPE and SentencePiece write them
        print(text.replace("\u0120", " ").replace("\u2581", " ").replace("\u010a", "\n"))


if __name__ == "__main__":
    main()
