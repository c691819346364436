#!/usr/bin/env python3
"""The parts of make.sh that are easier said in Python.

    vectors.py render MODEL.gguf            the chat question through the file's own template
    vectors.py prompts NAME MODEL.gguf F32.gguf  prompts.json of a model, made in the folder of its vectors: texts, ids
                                            and greedy answers of its prompts
    vectors.py divergence TRUE.bin OTHER.bin  mean Kullback-Leibler divergence of two full sets of logits
"""
import glob
import hashlib
import json
import os
import sys
from importlib.metadata import version

import numpy as np

from numpy_pass import Model, read_vectors

MESSAGES = [{"role": "user", "content": "What is gravity? Answer in two sentences."}]
PREBUILT = "npm node-llama-cpp 3.22.1, @node-llama-cpp/linux-x64, libggml-cpu-haswell.so"
EXACT = "npm node-llama-cpp 3.22.1, with a libggml-cpu.so of its source for AVX2 that computes GELU without a table"
# For each model: llama.cpp's CPU backend, the token that ends an answer, the types that its vectors were made of, and
# its prompts with the files of their texts.
MODELS = {
    "smollm2": (PREBUILT, 2, ("f32", "q4_1"), {"capital": "capital.txt", "chat": "chat.txt", "long": "text.txt"}),
    "gemma3": (EXACT, 1, ("f32",), {name: f"{name}.txt" for name in ("colours", "code", "japanese", "dialog", "long")}),
}


def render(path):
    import jinja2.sandbox
    keys = Model(path).keys
    tokens = keys["tokenizer.ggml.tokens"]
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(keys["tokenizer.chat_template"]).render(
        messages=MESSAGES, add_generation_prompt=True,
        bos_token=tokens[keys["tokenizer.ggml.bos_token_id"]], eos_token=tokens[keys["tokenizer.ggml.eos_token_id"]])


def greedy(name, type_name, end):
    vectors = read_vectors(f"{name}.{type_name}.bin")
    n = len(vectors["top_id"])
    choices = vectors["top_id"][:, 0].tolist()
    margins = vectors["top"][:, 0] - vectors["top"][:, 1]
    prompt = vectors["tokens"][:len(vectors["tokens"]) - n + 1].tolist()
    return prompt, {"ids": choices, "first_end": choices.index(end) if end in choices else None,
                    "smallest_margin": round(float(margins.min()), 4), "margins": [round(float(m), 4) for m in margins]}


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def prompts(name, model, f32):
    program, end, types, texts = MODELS[name]
    result = {
        "about": "Greedy answers of llama.cpp, 64 tokens, end-of-text ignored.  margins: largest less second logit.",
        "program": f"llama.cpp v0.5.0 ({program})",
        "command": "make.sh (logits.c: CPU, 1 thread, f32 KV cache, no flash attention)",
        "python": f"gguf {version('gguf')}, numpy {np.__version__}, jinja2 {version('jinja2')}",
        "model": {"file": os.path.basename(model), "sha256": digest(model)},
        "f32": {"command": "llama-quantize --allow-requantize MODEL F32.gguf F32", "sha256": digest(f32)},
        "texts": {text: digest(text) for text in sorted(glob.glob("*.txt"))},
        "prompts": [],
    }
    for prompt, text in texts.items():
        row = {"name": prompt, "text_file": text, "parse_special": prompt == "chat"}
        for type_name in types:
            ids, answer = greedy(prompt, type_name, end)
            assert row.setdefault("ids", ids) == ids
            if prompt == "chat":
                row["messages"] = MESSAGES
            row[type_name] = answer
        result["prompts"].append(row)
    return json.dumps(result, indent=1, ensure_ascii=False)


def log_softmax(vectors):
    return vectors["sample"] - vectors["logsumexp"][:, None]


def divergence(truth, other):
    p, q = read_vectors(truth), read_vectors(other)
    assert p["stride"] == q["stride"] == 1 and np.array_equal(p["tokens"], q["tokens"])
    log_p, log_q = log_softmax(p), log_softmax(q)
    kl = (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)
    same = (log_p.argmax(axis=-1) == log_q.argmax(axis=-1)).mean()
    rms = np.sqrt(((p["sample"] - q["sample"]) ** 2).sum() / (p["sample"] ** 2).sum())
    return f"{len(kl)} positions: mean KL {kl.mean():.3g}, largest {kl.max():.3g}, top-1 equal at {same:.2%}, " \
           f"relative RMS of logits {rms:.3g}"


def main():
    command, *paths = sys.argv[1:]
    text = {"render": render, "prompts": prompts, "divergence": divergence}[command](*paths)
    sys.stdout.write(text if command == "render" else text + "\n")


if __name__ == "__main__":
    main()
