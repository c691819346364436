#!/usr/bin/env python3
"""Compares both passes with llama.cpp on the toy models of its conformance program (build.sh makes them).

    conformance.py FOLDER [--plumb PATH] [--docs docs/architectures.md] [--real MODEL.gguf] [TEXT...]

Prints a line for each file of FOLDER/toys, and of FOLDER/shapes, which has other shapes, whose name contains a TEXT:
the relative RMS of the logits of every token to llama.cpp's, in the reference pass and in the fast pass (exact16, K and
V as 16-bit codes), and for each pass the tap with the largest error or, if the file differs, the first one that parts;
or the sentence that refuses the file.  Exits with 1 if a file that runs differs, or if a process crashes.  With --docs
the table is written there.

--real also compares a real model with Qwen's chat tokens, at every token of a chat and of llama.cpp's 32 greedy choices
after it.  Truth is llama.cpp on the same weights as F32, which FOLDER keeps (7 GB for 1.5 billion weights and an output
matrix).
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys

import numpy as np

IDS = [(37 * i + 11) % 64 for i in range(40)]
REFERENCE, FAST = 1e-5, 5e-3   # the largest errors of files that count as equal


def run(command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read_logits(path):
    """The records of logits.c as (n_token, n_vocab)."""
    with open(path, "rb") as f:
        data = f.read()
    n_vocab, n_token, n_record, stride, n_sample, n_top = struct.unpack_from("<6I", data, 8)
    assert data[:8] == b"PLMBLOGT" and (stride, n_sample, n_top) == (1, n_vocab, 0)
    records = np.frombuffer(data, "<f4", offset=32 + 4 * n_token).reshape(n_record, 1 + n_vocab)
    return records[:, 1:].astype(float)


def read_dump(path):
    """The taps of logits.c by name; of two with one name the later one is the step."""
    taps = {}
    with open(path, "rb") as f:
        while name := f.read(24):
            shape = struct.unpack("<4I", f.read(16))
            n = int(np.prod(shape))
            taps[name.rstrip(b"\0").decode().split("\0")[0]] = np.frombuffer(f.read(4 * n), "<f4").astype(float)
    return taps


def difference(x, truth):
    """The relative RMS error; infinities, as the logits of tokens that the model never answers, must be the same."""
    if not np.array_equal(np.isfinite(x), np.isfinite(truth)):
        return np.inf
    x, truth = x[np.isfinite(x)], truth[np.isfinite(truth)]
    return float(np.sqrt(np.sum((x - truth) ** 2) / max(np.sum(truth ** 2), 1e-300)))


def trace(plumb, model, *options, ids=IDS):
    """The taps of a run by name, each with the values of all tokens, or the sentence of an error."""
    out = run([plumb, "trace", model, "--tokens", ",".join(map(str, ids)), "--values", "all", "--threads", "1",
               "--json", *options])
    if out.returncode < 0 or out.returncode > 128:
        return f"CRASH: signal {-out.returncode}"
    if out.returncode != 0:
        return out.stderr.strip().removeprefix(f"plumb: {model}: ").removeprefix("PLUMB_ERROR_UNSUPPORTED: ")
    taps = {}
    for tap in json.loads(out.stdout)["taps"]:
        name = tap["name"] if tap.get("layer", -1) < 0 else f"{tap['name']}-{tap['layer']}"
        taps.setdefault(name, []).append(np.array(tap["values"], float).ravel())
    return {name: np.concatenate(values) for name, values in taps.items()}


def tap_errors(taps, theirs):
    """The error of each tap that llama.cpp names too, in the order of the computation."""
    errors = {}
    for name, values in taps.items():
        truth = theirs.get(name[-24:])   # a dump has the last 24 characters of a name
        if truth is None or truth.size != values.size:   # llama.cpp's ffn_up may have the gate inside
            continue
        if name.startswith("kq_soft_max"):   # (n_head, n_token, n_key) there
            n = len(IDS)
            truth = truth.reshape(-1, n, n).transpose(1, 0, 2).ravel()
        errors[name] = difference(values, truth)
    return errors


def parting(errors, limit):
    """The first tap whose error exceeds the limit or, if none does, the one with the largest error; with the error."""
    name = next((name for name, error in errors.items() if error > limit), max(errors, key=errors.get))
    return f"{name} {errors[name]:.1e}"


def judge(plumb, folder, name, work):
    """(verdict, reference, fast, remark) of one file, such as toys/llama-dense."""
    model = f"{folder}/{name}.gguf"
    reference = trace(plumb, model, "--reference")
    if isinstance(reference, str):
        return "crash" if reference.startswith("CRASH") else "refused", None, None, reference
    out = run([f"{folder}/logits", "-i", f"{work}/ids.txt", "-s", "1", "-d", f"{work}/dump", model, "-",
               f"{work}/logits.bin"])
    if out.returncode != 0:
        return "no truth", None, None, f"llama.cpp: {out.stderr.strip().splitlines()[-1:]}"
    truth, theirs = read_logits(f"{work}/logits.bin").ravel(), read_dump(f"{work}/dump")
    fast = trace(plumb, model)
    if isinstance(fast, str):
        return "crash", None, None, fast
    errors = [difference(x["result_output"], truth) for x in (reference, fast)]
    is_equal = errors[0] <= REFERENCE and errors[1] <= FAST
    taps = [parting(tap_errors(x, theirs), np.inf if is_equal else limit)
            for x, limit in ((reference, REFERENCE), (fast, FAST))]
    return "equal" if is_equal else "differs", *errors, ", ".join(taps)


CHAT = ("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nWrite a JavaScript function that reverses a string, and say in one sentence why strings "
        "of emoji need more care.<|im_end|>\n<|im_start|>assistant\n")
N_GREEDY = 32


def judge_real(plumb, folder, model, work):
    """(verdict, reference, fast, remark) of a real model."""
    f32 = f"{folder}/{os.path.basename(model)}.f32"
    if not os.path.exists(f32):
        subprocess.run([f"{folder}/quantize", "--allow-requantize", model, f32 + ".new", "F32"], check=True,
                       capture_output=True)
        os.rename(f32 + ".new", f32)
    with open(f"{work}/chat.txt", "w", encoding="utf-8") as f:
        f.write(CHAT)
    subprocess.run([f"{folder}/logits", "-p", "-f", f"{work}/chat.txt", "-g", str(N_GREEDY), "-t", "2", f32, "-",
                    f"{work}/greedy.bin"], check=True)
    with open(f"{work}/greedy.bin", "rb") as f:
        data = f.read()
    ids = np.frombuffer(data, "<u4", struct.unpack_from("<I", data, 12)[0], 32).tolist()   # all but the last choice
    with open(f"{work}/chat-ids.txt", "w", encoding="utf-8") as f:
        f.write(" ".join(map(str, ids)))
    subprocess.run([f"{folder}/logits", "-i", f"{work}/chat-ids.txt", "-s", "1", f32, "-", f"{work}/chat.bin"],
                   check=True)
    truth = read_logits(f"{work}/chat.bin")
    choices = truth[-N_GREEDY:].argmax(axis=1)
    assert choices[:-1].tolist() == ids[1 - N_GREEDY:]
    errors, n_same = [], []
    for options in (["--reference"], []):
        found = trace(plumb, model, *options, "--taps", "result_output", ids=ids)
        if isinstance(found, str):
            return "crash", None, None, found
        logits = found["result_output"].reshape(truth.shape)
        errors.append(difference(logits, truth))
        n_same.append(int((logits[-N_GREEDY:].argmax(axis=1) == choices).sum()))
    verdict = "equal" if errors[0] <= REFERENCE and errors[1] <= FAST and min(n_same) == N_GREEDY else "differs"
    return verdict, *errors, f"greedy choices {n_same[0]} and {n_same[1]} of {N_GREEDY}, {len(ids)} positions"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--plumb", default="build/native/plumb")
    parser.add_argument("--docs")
    parser.add_argument("--real")
    parser.add_argument("text", nargs="*")
    args = parser.parse_args()
    work = os.path.join(args.folder, "work")
    os.makedirs(work, exist_ok=True)
    with open(f"{work}/ids.txt", "w", encoding="utf-8") as f:
        f.write(" ".join(map(str, IDS)))
    names = [f"{kind}/{name.removesuffix('.gguf')}" for kind in ("toys", "shapes")
             for name in sorted(os.listdir(f"{args.folder}/{kind}"))]
    rows = []
    for name in names + ([args.real] if args.real else []):
        if args.text and name != args.real and not any(text in name.split("/")[1] for text in args.text):
            continue
        compare = judge_real if name == args.real else judge
        verdict, reference, fast, remark = compare(args.plumb, args.folder, name, work)
        kind = "shapes" if name.startswith("shapes/") else "toys"
        name = os.path.basename(name).removesuffix(".gguf")
        rows.append((kind, name, verdict, reference, fast, remark))
        numbers = "" if reference is None else f"{reference:.1e} {fast:.1e}"
        print(f"{kind:6} {name:22} {verdict:8} {numbers:16} {remark[:200]}", flush=True)
    counts = {kind: {verdict: sum(row[0] == kind and row[2] == verdict for row in rows) for verdict in
                     ("equal", "differs", "refused", "no truth", "crash")} for kind in ("toys", "shapes")}
    for kind, some in counts.items():
        print(f"{kind}: " + ", ".join(f"{n} {verdict}" for verdict, n in some.items()))
    if args.docs:
        write_docs(args.docs, rows, counts)
    return 1 if any(some["differs"] or some["crash"] for some in counts.values()) else 0


def sentence(counts):
    return (f"{counts['equal']} files are equal, {counts['differs']} differ, {counts['refused']} are refused, "
            f"{counts['crash']} crash")


def write_docs(path, rows, counts):
    with open(path, encoding="utf-8") as f:
        head = f.read().split("<!-- table -->")[0]
    lines = [f"{sentence(counts['toys'])}. With other shapes {sentence(counts['shapes'])}.", "",
             "| file | reference | fast | other shape: reference | fast | taps of both passes, or what is wrong |",
             "|---|---|---|---|---|---|"]
    refused = {}
    for name in sorted({row[1] for row in rows}):
        numbers, remarks = [], []
        for kind in ("toys", "shapes"):
            _, _, verdict, reference, fast, remark = next(
                (row for row in rows if row[:2] == (kind, name)), (kind, name, "", None, None, ""))
            if verdict == "refused":
                reason = re.sub(r'^general.architecture: "[^"]*" is (.*); plumb does not .*', r"\1", remark)
                refused.setdefault(reason, {})[name] = True
                remark = ""
            numbers += [f"{x:.1e}" if x is not None else "" for x in (reference, fast)]
            if remark and (kind == "toys" or verdict != "equal" or not remarks):
                remarks.append(("" if verdict == "equal" else f"**{verdict}** ") + remark.replace("|", "\\|"))
        if any(numbers) or remarks:
            lines.append(f"| {name} | {' | '.join(numbers)} | {'; '.join(remarks)} |")
    lines += ["", "The error message says why a file is refused:", ""]
    lines += [f"- {reason}: {', '.join(names)}" for reason, names in refused.items()]
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + "<!-- table -->\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
