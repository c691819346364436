#!/usr/bin/env python3
"""Runs llama.cpp's llama-eval-callback with wrong keys, wrong tensors and other rounding, and diagnoses its output.

    llama.py [TEXT...]          only runs whose name contains a TEXT
    llama.py --model FILE       another file than the small synthetic one; of architecture llama, with matrices in Q4_1
    llama.py --right FILE...    instead: these files as they are, each type of the cache, flash attention on and off
    llama.py --docs README.md   writes the table there, between its marks

llama.cpp computes with a file that is wrong in one way, or with a key that --override-kv replaces; `plumb diagnose`
gets the right file.  A run of llama-eval-callback prints the first and last three values of each row, with four
decimals.  It needs build/conformance/llama.cpp, which tests/conformance/build.sh makes.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import gguf
import numpy as np

from forms import replace_between
from measure import KEPT, ROOT

LLAMA = os.path.join(ROOT, "build", "conformance", "llama.cpp")
PROGRAM = os.path.join(KEPT, "llama-eval-callback")
LIBRARIES = ("common/libllama-common.a", "common/libllama-common-base.a", "vendor/cpp-httplib/libcpp-httplib.a",
             "src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a")
TEXT = "the text has nine"
SYNTHETIC = "--type Q4_1 --layers 8 --embd 128 --heads 8 --kv-heads 2 --ff 192 --vocab 300 --no-tied --tokenizer llama"


# The program ends without waiting for the thread that prints.  This main waits.
MAIN = """#include "log.h"
int eval_callback(int, char **);
int main(int argc, char **argv) {
    int status = eval_callback(argc, argv);
    common_log_pause(common_log_main());
    return status;
}
"""


def build():
    if os.path.exists(PROGRAM):
        return
    os.makedirs(KEPT, exist_ok=True)
    folders = [f"-I{os.path.join(LLAMA, name)}" for name in ("include", "ggml/include", "common", "vendor", "src")]
    libraries = [os.path.join(LLAMA, "build", name) for name in LIBRARIES]
    compiler = ["g++", "-O1", "-std=c++17", "-w", *folders]
    with tempfile.TemporaryDirectory(prefix="plumb-llama-") as folder:
        source, part = os.path.join(folder, "main.cpp"), os.path.join(folder, "eval-callback.o")
        with open(source, "w") as f:
            f.write(MAIN)
        subprocess.run([*compiler, "-Dmain=eval_callback", "-c", "-o", part,
                        os.path.join(LLAMA, "examples/eval-callback/eval-callback.cpp")], check=True)
        subprocess.run([*compiler, source, part, *libraries, "-lpthread", "-ldl", "-fopenmp", "-o", PROGRAM],
                       check=True)


class Copy:
    """A copy of a GGUF file whose tensors can be changed: name -> (rows, bytes of a row)."""

    def __init__(self, model, path):
        shutil.copyfile(model, path)
        reader = gguf.GGUFReader(path, "r+")
        head = reader.fields.get("llama.attention.key_length")
        self.head_dim = head.contents() if head else (reader.fields["llama.embedding_length"].contents()
                                                      // reader.fields["llama.attention.head_count"].contents())
        self.tensors = {t.name: t for t in reader.tensors}

    def rows(self, name):
        tensor = self.tensors[name]
        return tensor.data.reshape(tensor.data.shape[0], -1).view(np.uint8)

    def exchange(self, a, b):
        a, b = self.rows(a), self.rows(b)
        assert a.shape == b.shape
        a[:], b[:] = b.copy(), a.copy()

    def blocks(self, name):
        tensor = self.tensors[name]
        return self.rows(name).reshape(-1, gguf.GGML_QUANT_SIZES[tensor.tensor_type][1])

    def of_type(self, name):
        return [n for n, t in self.tensors.items() if t.tensor_type.name == name]

    def layers(self):
        return 1 + max(int(n.split(".")[1]) for n in self.tensors if n.startswith("blk."))


def exchanged(a, b):
    def change(f):
        for il in range(f.layers()):
            f.exchange(f"blk.{il}.{a}.weight", f"blk.{il}.{b}.weight")
    return change


def layers_exchanged(f):
    for name in [n.split(".", 2)[2] for n in f.tensors if n.startswith("blk.3.")]:
        f.exchange(f"blk.3.{name}", f"blk.5.{name}")


def not_permuted(f):
    """Rows of Q and K in transformers' order, as if the conversion had not permuted them."""
    for name in f.tensors:
        if re.search(r"attn_[qk]\.weight", name):
            rows = f.rows(name)
            pairs = rows.copy().reshape(-1, f.head_dim // 2, 2, rows.shape[1])
            rows[:] = pairs.swapaxes(1, 2).reshape(rows.shape)


def rows_shifted(f):
    for il in range(f.layers()):
        rows = f.rows(f"blk.{il}.ffn_up.weight")
        rows[:] = np.roll(rows, 1, axis=0)


def nibbles_exchanged(f):
    for name in f.of_type("Q4_1"):
        codes = f.blocks(name)[:, 4:]
        codes[:] = codes >> 4 | codes << 4


def offsets_dropped(f):
    for name in f.of_type("Q4_1"):
        f.blocks(name)[:, 2:4] = 0


def scales_of_one_layer(f):
    """The scales of one matrix are twice what they should be."""
    scales = f.blocks("blk.4.ffn_gate.weight")[:, :4].view(np.float16)
    scales *= 2


def norm_of_ones(f):
    f.rows("output_norm.weight").view(np.float32)[:] = 1


def matrix_of_another_layer(f):
    f.rows("blk.5.attn_output.weight")[:] = f.rows("blk.4.attn_output.weight")


def key(name, value):
    return ["--override-kv", f"llama.{name}={value}"]


# name: (options of llama-eval-callback, change of the file, what names it in a verdict)
WRONG = {
    "rope.freq_base is 10000": (key("rope.freq_base", "float:10000"), None, r"rope\.theta=10000\b|base 10000\b"),
    "rope.freq_base is 1000000": (key("rope.freq_base", "float:1000000"), None,
                                  r"rope\.theta=1000000\b|base 1000000\b"),
    "the epsilon of norms is 0.01": (key("attention.layer_norm_rms_epsilon", "float:0.01"), None, r"eps"),
    "attention is not causal": (key("attention.causal", "bool:false"), None, r"mask"),
    "positions are halved": (["--rope-freq-scale", "0.5"], None, r"rope\.(scal|pos)|by 0\.5\d* times the right angles"),
    "K and V exchanged": ([], exchanged("attn_k", "attn_v"), r"attn_v|kv|swapped|V for K"),
    "gate and up exchanged": ([], exchanged("ffn_gate", "ffn_up"), r"ffn\.order|ffn_up|ffn_gate"),
    "norms exchanged": ([], exchanged("attn_norm", "ffn_norm"), r"norm"),
    "layers 3 and 5 exchanged": ([], layers_exchanged, r"blk\.5\.|order"),
    "rows of Q and K not permuted": ([], not_permuted, r"rope\.pair|permut|order|transposed"),
    "rows of ffn_up shifted": ([], rows_shifted, r"shift"),
    "nibbles of Q4_1 exchanged": ([], nibbles_exchanged, r"Q4_1.*nibbles|nibble"),
    "offsets of Q4_1 left out": ([], offsets_dropped, r"Q4_1|min|offset"),
    "scales of one matrix doubled": ([], scales_of_one_layer, r"ffn_gate-4 .*(2 times|scale)"),
    "output_norm is 1": ([], norm_of_ones, r"output_norm|norm.*weight|weight"),
    # A row of K has 16 elements for each head, less than a block of Q8_0: llama.cpp takes their products with Q as 0.
    "K in Q8_0, whose blocks are larger than a head": (["-ctk", "q8_0"], None, r"softmax of 0 times the right scores"),
    "attn_output of another layer": ([], matrix_of_another_layer, r"blk\.4\.attn_output"),
}
RIGHT = {
    "as it is": [],
    "K and V in 32 bits": ["-ctk", "f32", "-ctv", "f32"],
    "K and V in bf16": ["-ctk", "bf16", "-ctv", "bf16"],
    "weights not repacked": ["--no-repack"],
    "one thread": ["-t", "1"],
}
# Without flash attention llama.cpp keeps V in 16 or 32 bits.
CACHES = {
    **{f"{cache}, flash attention {fa}": ["-ctk", cache, "-ctv", cache, "-fa", fa]
       for cache in ("f32", "f16") for fa in ("on", "off")},
    "q8_0, flash attention on": ["-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"],
    "q8_0 for K, flash attention off": ["-ctk", "q8_0", "-fa", "off"],
}
CACHE_TEXT = "The capital of France is"


def callback(model, options, folder, text=TEXT):
    """The output of llama-eval-callback."""
    path = os.path.join(folder, "theirs.txt")
    with open(path, "w") as f:
        ran = subprocess.run([PROGRAM, "-m", model, "-p", text, "-fa", "off", "-c", "64", "-n", "1", *options],
                             stdout=f, stderr=subprocess.STDOUT)
    with open(path) as f:
        text = f.read()
    if ran.returncode != 0 or not re.search("result_output.*\n(.*\n){3,9}.*sum", text):
        raise RuntimeError(f"llama-eval-callback {options} ended with {ran.returncode}: {text[-300:]}")
    return path


def sums(path):
    """The sums of all tensors that a run printed."""
    with open(path) as f:
        return [line for line in f if line.lstrip().startswith("sum =")]


def verdict(plumb, model, path):
    start = time.monotonic()
    ran = subprocess.run([plumb, "diagnose", model, "--against", path, "--json"], capture_output=True, text=True)
    if ran.returncode not in (0, 1, 4):
        raise RuntimeError(f"diagnose ended with {ran.returncode}: {ran.stderr}")
    return json.loads(ran.stdout), time.monotonic() - start


def claim(said):
    """What a verdict claims; "": nothing."""
    if said["agree"]:
        return "agrees but for noise" if said["needs_noise"] else "agrees"
    first = next(iter(said["ranking"]), None)
    if first and first["explains"]:
        tied = [row for row in said["ranking"] if row["explains"] and row["tied_with_first"]]
        return " = ".join("+".join(row["mistakes"]) for row in [first, *tied])
    if said["local"] and said["local"]["explains"]:
        return f"{'+'.join(said['local']['mistakes'])} in {said['local']['layers']}"
    step = next(iter(said.get("measured") or []), None)
    if step and step["explained_by"]:
        named = step["findings"][:step["explained_by"]]
        return " = ".join(f"{step['tap']} {finding['text']} {finding['where']}".strip() for finding in named)
    return ""


def right_runs(plumb, models, folder, keep):
    """The table of right runs: the largest relative error of each file, by the cache and flash attention, and the
    verdict if it is not that they agree.  Returns whether all agree."""
    lines = [f"| cache | {' | '.join(map(os.path.basename, models))} |", "|---|" + "---|" * len(models)]
    all_agree = True
    for name, options in CACHES.items():
        cells = []
        for model in models:
            dump = callback(model, options, folder, CACHE_TEXT)
            if keep:
                shutil.copyfile(dump, os.path.join(keep, re.sub(r"\W+", "-", f"{model} {name}") + ".txt"))
            said, seconds = verdict(plumb, model, dump)
            says = claim(said) or f"nothing fits, first {said['truth']['first_parted']}"
            all_agree = all_agree and said["agree"]
            cells.append(f"{'' if says == 'agrees' else says + ', '}{said['truth']['largest_error']:.2g}")
            print(f"{model}, {name}: {says}, {cells[-1]} ({seconds:.1f} s)", flush=True)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines, all_agree


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--right", nargs="+", metavar="FILE")
    parser.add_argument("--plumb", default=os.path.join(ROOT, "build", "native", "plumb"))
    parser.add_argument("--model")
    parser.add_argument("--docs")
    parser.add_argument("--keep", help="writes dumps there")
    arguments = parser.parse_args()
    build()
    lines = ["| llama.cpp's run | verdict of `plumb diagnose` | |", "|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="plumb-llama-") as folder:
        if arguments.right:
            lines, all_agree = right_runs(arguments.plumb, arguments.right, folder, arguments.keep)
            if arguments.docs:
                replace_between(arguments.docs, "right llama", lines)
            return 0 if all_agree else 1
        model = arguments.model or os.path.join(folder, "right.gguf")
        if not arguments.model:
            subprocess.run([sys.executable, os.path.join(ROOT, "models", "synth.py"), model, *SYNTHETIC.split(),
                            "--rope-base", "20000"], check=True)
        right = sums(callback(model, [], folder))
        for name in [*WRONG, *RIGHT]:
            if arguments.texts and not any(text in name for text in arguments.texts):
                continue
            options, change, pattern = WRONG.get(name, (RIGHT.get(name), None, None))
            path = model
            if change:
                path = os.path.join(folder, "wrong.gguf")
                copy = Copy(model, path)
                change(copy)
                del copy
            dump = callback(path, options, folder)
            if pattern and sums(dump) == right:
                raise RuntimeError(f"{name}: llama.cpp computes the same as without it")
            if arguments.keep:
                shutil.copyfile(dump, os.path.join(arguments.keep, re.sub(r"\W+", "-", name) + ".txt"))
            said, seconds = verdict(arguments.plumb, model, dump)
            says = claim(said)
            if pattern is None:
                word = "right" if says.startswith("agrees") else "wrong"
            elif says == "" or says.startswith("agrees"):
                word = "silent" if says else "not named"
            else:
                word = "right" if re.search(pattern, says) else "wrong"
            says = says or f"nothing fits, first {said['truth']['first_parted']}"
            lines.append(f"| {name} | {says} | {word} |")
            print(f"{name}: {word}: {says} ({seconds:.1f} s)", flush=True)
    if arguments.docs:
        replace_between(arguments.docs, "llama", lines)


if __name__ == "__main__":
    sys.exit(main())
