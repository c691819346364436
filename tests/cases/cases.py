#!/usr/bin/env python3
"""The case book: engines with the mistakes of real authors, each found by one command.

    cases.py --check                  every case in a small model, as TAP; part of `make test`
    cases.py --docs docs/cases.md     writes what the commands print into the page (`make cases`), and keeps models,
                                      dumps and reports of `plumb diff --html` in build/cases for pictures.mjs
    cases.py --check --full NAME...   with TinyLlama's widths and vocabulary; 2 layers, as numpy needs 8 bytes a weight;
                                      no suite does this, as each case takes many minutes

A case is a GGUF file with TinyLlama's proportions in one type (models/synth.py), an engine with one mistake
(engines.py), the dump that its author has, and the command that finds the mistake.  The first verdict must name it.
The same dump of the right engine must agree.
"""
import argparse
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap

import numpy as np

import engines
from engines import Engine

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(ROOT, "models"))
from synth import Synth, parse  # noqa: E402

# TinyLlama has 22 layers, 2048 elements, 32 heads, 4 heads of K and V, 5632 elements in feed forward, 32000 tokens.
SMALL = "--layers 3 --embd 256 --heads 32 --kv-heads 4 --ff 768 --vocab 1024 --no-tied --tokenizer llama --context 2048"
FULL = "--shape tinyllama --layers 2"
TOKENS, N_PROMPT = [1, 300, 411, 522, 633, 744, 855, 966, 377, 488, 599, 610], 8
TEXT = "the tea is hot"
TEMPLATE = ("{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token "
            "+ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}")
WIDTH = 100   # columns of what the page shows


class ChatModel(Synth):
    def keys(self):
        super().keys()
        self.writer.add_chat_template(TEMPLATE)


def write_model(path, kind, is_full):
    """kind: a type, or Q4_K_M or Q5_K_M, in which llama-quantize gives some matrices Q6_K."""
    options = parse([path, *(FULL if is_full else SMALL).split(), "--type", kind.removesuffix("_M"), *(
        [] if kind in ("F16", "Q8_0") else ["--head-type", "Q6_K"])])
    options.mixed = kind.endswith("_M")
    ChatModel(options).write()


# ---- the dumps that authors have: out is name -> array of f32, as the engine computed it ---------------------------


def first_values(out, tokens, n_prompt, path):
    taps = [{"name": name, "values": x[:, :8].tolist()} for name, x in out.items() if name.startswith("l_out")]
    json.dump({"tokens": tokens, "n_prompt": n_prompt, "taps": taps}, open(path, "w"))


def first_layer(out, tokens, n_prompt, path):
    kept = {name: x for name, x in out.items() if name == "embd" or name.endswith("-0")}
    np.savez(path, tokens=tokens, n_prompt=n_prompt, **kept)


def all_arrays(out, tokens, n_prompt, path):
    np.savez(path, tokens=tokens, n_prompt=n_prompt, **out)


def ten_logits(out, tokens, n_prompt, path):
    best = [[[int(i), float(x[i])] for i in np.argsort(-x)[:10]] for x in out["result_output"][n_prompt - 1:]]
    taps = [{"name": "logits", "token": n_prompt - 1 + i, "top": top} for i, top in enumerate(best)]
    json.dump({"tokens": tokens, "n_prompt": n_prompt, "taps": taps}, open(path, "w"))


def end_of_prompt(out, tokens, n_prompt, path):
    logits = out["result_output"][n_prompt - 1:n_prompt]
    np.savez(path, tokens=tokens[:n_prompt], result_norm=out["result_norm"][:n_prompt], result_output=logits)


# ---- the cases -----------------------------------------------------------------------------------------------------


class Case:
    def __init__(self, name, kind, engine, dump, right, *options):
        """right: a regular expression of the first verdict.  options: more words of the command, and what is fed."""
        self.name, self.kind, self.engine, self.dump, self.right = name, kind, engine, dump, right
        self.options = options
        self.model = f"tinyllama.{kind}.gguf"
        self.file = "theirs" + (".npz" if "savez" in inspect.getsource(dump) else ".json")

    def command(self):
        return ["diagnose", self.model, "--against", self.file, *self.options]


CASES = [
    Case("q4_0", "Q4_0", engines.PairsHalvesInQ4_0, first_values, r"verdict: rope\.pairing=halves reproduces"),
    Case("q4_k_m", "Q4_K_M", engines.UnpacksScalesByTwo, first_layer,
         r"verdict: their embd is of a misread token_embd\.weight: Q4_K: the scales and minima of the parts of a block "
         r"are read from byte j / 2, "),
    Case("q5_k_m", "Q5_K_M", engines.StridesByQueryHeads, first_layer,
         r"verdict: their kq_soft_max-0 has K of each token read n_head heads after that of the token before, but "
         r"stored n_head_kv heads after it"),
    Case("q6_k", "Q6_K", engines.WeighsNormsTwice, all_arrays,
         r"verdict: their attn_norm-0 is x / sqrt\(mean\(x\^2\) \+ eps\) \* w\^2: the weight is applied twice"),
    Case("q8_0", "Q8_0", engines.ReturnsFirstLogits, end_of_prompt,
         r"verdict: their result_output is that of token 0 "),
    Case("f16", "F16", Engine, first_values, r"The tokens differ: the chat templates differ: B uses Zephyr",
         "--chat", "-p", TEXT),
    Case("positions", "Q4_K_M", engines.RotatesPromptAlike, ten_logits, r"verdict: rope\.position=same reproduces"),
    Case("transposed", "Q8_0", engines.ReadsMatricesAcross, first_layer,
         r"verdict: their Qcur-0 is the product with the transposed matrix "),
    Case("converter", "F16", engines.PermutedForOtherHeads, first_layer,
         r"verdict: their Kcur-0 has \d+ of \d+ elements in another order: at [\d, ]+ are those that belong at "),
    Case("sequence", "Q5_K", engines.ReadsQ5KInSequence, first_layer,
         r"verdict: their embd is of a misread token_embd\.weight: Q5_K: element i has the low bits of byte i / 2 "),
    Case("header", "Q4_1", engines.SkipsTwoBytesOfQ4_1, first_layer,
         r"verdict: their embd is of a misread token_embd\.weight: Q4_1: the codes of a block begin two bytes "),
]


class Book:
    def __init__(self, plumb, folder, is_full):
        self.plumb, self.folder, self.is_full = plumb, folder, is_full

    def run_plumb(self, *words):
        return subprocess.run([*self.plumb, *words], cwd=self.folder, capture_output=True, text=True, timeout=7200)

    def dump(self, case, engine):
        """Runs an engine, and writes what its author keeps."""
        path = os.path.join(self.folder, case.model)
        if not os.path.exists(path):
            write_model(path, case.kind, self.is_full)
        tokens, n_prompt = TOKENS, N_PROMPT
        if "-p" in case.options:   # their engine feeds the text as it is
            ids = self.run_plumb("tokenize", case.model, TEXT, "--ids").stdout.split()
            tokens, n_prompt = [int(i) for i in ids], len(ids)
        run = engine(path).run(tokens, n_prompt)
        out = {name: x.astype(np.float32) for name, x in run.taps.items()}
        case.dump(out, tokens, n_prompt, os.path.join(self.folder, case.file))

    def ask(self, case, engine):
        """What the command of a case prints, for the dump of an engine, and its exit code."""
        self.dump(case, engine)
        ran = self.run_plumb(*case.command())
        return ran.stdout + ran.stderr, ran.returncode


def verdict(said):
    """The first verdict, as one line."""
    lines = said.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(("verdict: ", "The tokens differ: "))]
    return " ".join(lines[starts[0]:]) if starts else ""


def is_named(case, said, code):
    return code == 1 and bool(re.match(case.right, verdict(said)))


def results(book, names):
    """(name of a test, whether it passes, what the command printed) of each case."""
    for case in CASES:
        if names and case.name not in names:
            continue
        said, code = book.ask(case, case.engine)
        yield f"{case.name}: {case.engine.__name__} is named", is_named(case, said, code), said
        if case.engine is Engine:   # the mistake is in the tokens; with the right ones it agrees
            ran = book.run_plumb("diagnose", case.model, "--against", case.file)
            said, code = ran.stdout + ran.stderr, ran.returncode
        else:
            said, code = book.ask(case, Engine)
        yield f"{case.name}: the right engine agrees", code == 0, said
    if not names or "q4_0" in names:
        said, code = book.ask(Case("q8_0", "Q8_0", None, first_values, ""), engines.PairsHalvesInQ4_0)
        yield "q4_0: the same engine agrees in a file of Q8_0", code == 0, said


def check(book, names):
    """The cases as TAP."""
    print("TAP version 13")
    n = n_failed = 0
    for name, is_right, said in results(book, names):
        n, n_failed = n + 1, n_failed + (not is_right)
        print(f"{'ok' if is_right else 'not ok'} {n} - cases: {name}", flush=True)
        for line in [] if is_right else said.splitlines():
            print(f"# {line}")
    print(f"1..{n}")
    return int(n_failed > 0)


# ---- the page ------------------------------------------------------------------------------------------------------


def shown(said):
    """What the page shows of a report: without the line on the dump, up to the verdict and what was measured in one
    more step, wrapped."""
    kept, n_measured = [], 0
    for line in said.rstrip().splitlines():
        if line.startswith("theirs: "):
            continue
        n_measured += line.startswith("   measured: ")
        if n_measured > 1 or line.startswith("   to narrow it down"):
            kept.append("   ...")
            break
        indent = re.match(" *", line).group()
        kept += textwrap.wrap(line, WIDTH, subsequent_indent=indent + "  ", break_on_hyphens=False) or [""]
    return kept


def section(case, said):
    """The generated part of a case: the dump's code if no case before it has it, the command, and what it printed."""
    source = textwrap.dedent("".join(inspect.getsource(case.dump).splitlines(True)[1:])).rstrip()
    first = next(i for i, one in enumerate(CASES) if one.dump is case.dump)
    words = " ".join(f'"{word}"' if " " in word else word for word in case.command())
    code = ["```python", source, "```"] if CASES[first] is case else [f"(The code is that of case {first + 1}.)"]
    return [*code, "", "```", f"$ plumb {words}", *shown(said), "```"]


def replace_between(text, name, lines):
    """The text with other lines between the two marks of a name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1]


def document(book, path):
    """Writes what the commands print into the page, and a report for each picture."""
    with open(path) as f:
        text = f.read()
    for case in CASES:
        said, code = book.ask(case, case.engine)
        assert is_named(case, said, code), f"{case.name}: {said}"
        text = replace_between(text, case.name, section(case, said))
        tokens = ["--chat", "-p", TEXT] if "-p" in case.options else [
            "--tokens", ",".join(map(str, TOKENS if case.dump is not end_of_prompt else TOKENS[:N_PROMPT]))]
        book.run_plumb("trace", case.model, *tokens, "-o", "ours.json")
        book.run_plumb("diff", case.file, "ours.json", "--model", case.model, "--html", f"{case.name}.html")
    with open(path, "w") as f:
        f.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plumb", default=os.path.join(ROOT, "build", "native", "plumb"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--docs", metavar="PAGE")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which cases to check, such as q4_k_m; default all")
    arguments = parser.parse_args()
    plumb = json.loads(arguments.plumb) if arguments.plumb.startswith("[") else [os.path.abspath(arguments.plumb)]
    if arguments.docs:
        folder = os.path.join(ROOT, "build", "cases")
        os.makedirs(folder, exist_ok=True)
        document(Book(plumb, folder, arguments.full), arguments.docs)
        return 0
    with tempfile.TemporaryDirectory(prefix="plumb-cases-") as folder:
        return check(Book(plumb, folder, arguments.full), arguments.names)


if __name__ == "__main__":
    sys.exit(main())
