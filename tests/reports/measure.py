#!/usr/bin/env python3
"""Measures how many mistakes from people's bug reports `plumb diagnose` names.

    measure.py                          all mistakes in all forms of the dump; goes on where an earlier run ended
    measure.py --sample 30              in other forms than whole dumps only so many of each half, drawn with a seed
    measure.py --half development       those that src/truth/diagnose was improved with; "held out": the others
    measure.py --form whole --bug aprender
    measure.py --list                   prints the mistakes
    measure.py --docs README.md         writes the tables there, between its marks
    measure.py --check                  as TAP: a few mistakes, and right engines; exits 1 if a verdict is wrong

An engine (engine.py) runs small models with the mistakes of bugs.py.  Its dumps go through `plumb diagnose`, and the
judge of tests/operators compares the verdict with the mistake.  Results are kept in build/reports, in a file for each
build of plumb and version of these scripts.
"""
import argparse
import collections
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.append(os.path.join(HERE, "..", "operators"))

from bugs import BUGS                                                                       # noqa: E402
from engine import CACHES, Engine, File, Forced, ROUNDING                                   # noqa: E402
from forms import FORMS, count_table, diagnose, essence, failures, numbers, print_tap, replace_between, \
    summary  # noqa: E402
from judge import VAGUE, Judge, difference                                                  # noqa: E402

# name: options of models/synth.py, or a file
SHAPE = "--embd 128 --heads 8 --kv-heads 2 --ff 192 --vocab 300 --no-tied --tokenizer llama"
SMALL = "--layers 2 --embd 256 --heads 8 --kv-heads 2 --ff 256 --vocab 300 --no-tied --tokenizer llama"
MODELS = {
    "llama": f"--layers 5 {SHAPE} --rope-base 20000", "qwen2": f"--layers 4 --arch qwen2 {SHAPE} --rope-base 20000",
    "qwen3": f"--layers 4 --arch qwen3 {SHAPE} --rope-base 20000", "llama3": f"--layers 3 {SHAPE} --rope-freqs",
    "gemma3": f"--layers 6 --arch gemma3 {SHAPE} --rope-base 20000 --window 5 --window-period 3 --softcap 30",
    "olmoe": f"--layers 3 --arch olmoe {SHAPE} --ff 64 --experts 8",
    "gpt-oss": os.path.join(ROOT, "tests", "vectors", "archs", "gpt-oss.gguf"),
    **{name: f"{SMALL} --type {name}" for name in ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K")},
}
TOKENS, N_PROMPT = [1, 57, 30, 14, 50, 61, 33, 8, 19, 42, 27, 5, 60, 3], 8
LARGE_IDS = [1, 271, 30, 294, 50, 261, 133, 8, 190, 42, 227, 5, 280, 3]   # for vocabularies of 300
ROUNDS = {"f32": "f32", "int8 per block": "int8"}
REQUIRED = {"whole": 0.75, "8 values": 0.50, "whole, int8": 0.75, "8 values, int8": 0.50}
MOST_WRONG, VISIBLE, SEED = 0.01, 2e-5, 7
N_CHECK, CHECKED_RIGHT, RIGHT = 8, ("llama", "gpt-oss"), ("llama", "qwen3", "gemma3", "gpt-oss")
PRODUCTS = ("Qcur", "Kcur", "Vcur", "attn_out", "ffn_gate", "ffn_up", "ffn_out", "result_output", "ffn_moe_gate",
            "ffn_moe_up", "ffn_moe_down", "ffn_moe_logits")


class Oracle:
    """The second engine with known mistakes, for a model's tokens (tests/reference)."""

    def __init__(self, path, tokens):
        import importlib.util
        sys.path.append(os.path.join(ROOT, "tests", "reference"))
        spec = importlib.util.spec_from_file_location("reference_engine", os.path.join(
            ROOT, "tests", "reference", "engine.py"))
        reference = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(reference)
        self.engine, self.file, self.tokens, self.runs = reference.Engine, reference.File(path), tokens, {}

    def taps(self, known):
        if known not in self.runs:
            with np.errstate(all="ignore"):
                run = self.engine(self.file, list(known)).run(self.tokens, N_PROMPT)
            self.runs[known] = {name: rows.astype(np.float32) for name, rows in run.taps.items()}
        return self.runs[known]

    def is_same(self, taps, known):
        """Whether these known mistakes give an engine's residual streams, and so all that matters."""
        theirs = self.taps(known)
        for name in (name for name in taps if name.startswith("l_out") or name in ("embd", "result_output")):
            n = min(len(taps[name]), len(theirs[name]))
            if difference(taps[name][:n], theirs[name][:n]) > 1e-3:
                return False
        return True


class ReportJudge(Judge):
    @staticmethod
    def is_step(case, finding):
        """Also a step that gives the same numbers: Q or K times a number for the scores, and the attention weights for
        their sums in an engine that has no attention weights."""
        tap, first = finding["tap"].split("-")[0], case.first.split("-")[0]
        is_number = "times what it should be" in finding["text"] and tap[:4] in ("Qcur", "Kcur")
        is_factor = first == "kq_soft_max" and is_number
        is_inside = first == "kqv_out" and tap == "kq_soft_max" and case.bug.flash
        return is_factor or is_inside or Judge.is_step(case, finding)

    def names(self, case, step, finding):
        text = f"{finding['text']} {finding['where']}"
        return (self.is_step(case, finding) and re.search(case.mistake.names, text) is not None
                and re.search(VAGUE, text) is None and (not case.mistake.tokens or re.search("token|batch", text)))


class Model:
    def __init__(self, name, folder):
        self.name, self.path, options = name, os.path.join(folder, f"{name}.gguf"), MODELS[name]
        if options.endswith(".gguf"):
            self.path = options
        else:
            subprocess.run([sys.executable, os.path.join(ROOT, "models", "synth.py"), self.path, *options.split(),
                            "--seed", "3"], check=True)
        self.file, self.runs = File(self.path), {}
        self.tokens = TOKENS if name == "gpt-oss" else LARGE_IDS
        self.judge = ReportJudge(Oracle(self.path, self.tokens))

    def run(self, **options):
        key = tuple(sorted(options.items()))
        if key not in self.runs:
            with np.errstate(all="ignore"):
                self.runs[key] = Engine(self.file, **options).run(self.tokens, N_PROMPT)
        return self.runs[key]


class Scope:
    """What tests/operators asks of a mistake, besides what a bug has."""
    layers = heads = value = None

    def __init__(self, bug):
        self.names, self.tokens, self.text = bug.names, bug.tokens, bug.text
        self.kind, self.operator = bug.model, bug.source


class Case:
    """An engine with a bug."""

    def __init__(self, model, bug):
        self.model, self.bug, self.mistake, self.is_noisy, self.runs = model, bug, Scope(bug), False, {}
        self.taps = self.run("f32")
        right = Forced(model.file, self.taps, flash=bug.flash)
        with np.errstate(all="ignore"):
            right.run(model.tokens, N_PROMPT)
        effects = {name: difference(self.taps[name], right.taps[name]) for name in right.taps if name in self.taps}
        self.first = next((name for name, effect in effects.items() if not effect <= VISIBLE), None)
        self.effect = effects.get(self.first, 0.0)

    def run(self, rounding):
        if rounding not in self.runs:
            engine = Engine(self.model.file, ROUNDS[rounding], flash=self.bug.flash)
            self.bug.make(engine)
            with np.errstate(all="ignore"):
                self.runs[rounding] = engine.run(self.model.tokens, N_PROMPT)
        return self.runs[rounding]

    def everywhere(self):
        return self.taps

    def is_visible(self, form):
        """Whether the bug changes more of what the dump has than rounding does."""
        what, rounding = FORMS[form]
        right = self.model.run(flash=self.bug.flash)
        noisy = self.model.run(rounding=ROUNDS[rounding], flash=self.bug.flash)
        if what == "whole":
            is_product = (self.first or "").split("-")[0] in PRODUCTS
            return self.first is not None and self.effect > (3e-2 if rounding != "f32" and is_product else VISIBLE)
        change, noise = ([difference(a[name], b[name]) for name in b if name in a] for a, b in (
            (numbers(what, taps), numbers(what, right)) for taps in (self.taps, noisy)))
        return np.median(change) > max(1e-4, np.median(noise)) or max(change) > max(1e-4, 3 * max(noise))


def half_of(bug):
    digest = hashlib.sha256(f"{SEED} {bug.source} {bug.text}".encode()).digest()
    return "development" if digest[0] % 2 else "held out"


class Measure:
    def __init__(self, plumb, folder):
        self.plumb, self.folder = plumb, folder

    def diagnose(self, model, what, taps):
        return diagnose(self.plumb, model.path, self.folder, what, model.tokens, N_PROMPT, taps)

    def measure(self, case, form):
        what, rounding = FORMS[form]
        case.is_noisy = rounding != "f32"
        if not case.is_visible(form):
            return {"verdict": "hidden", "said": "", "seconds": 0}
        said, seconds = self.diagnose(case.model, what, case.run(rounding))
        verdict, short = case.model.judge.verdict(said, case, what == "whole")
        return {"verdict": verdict, "said": short, "seconds": seconds, "json": essence(said)}


def right_engines(measure, models, forms=("whole", "l_out8", "top10"), kept=None):
    """(how it computes, form, model, whether it agrees) of engines without a bug."""
    def agrees(model, what, options):
        return {"agree": measure.diagnose(model, what, model.run(**options))[0]["agree"]}

    ways = {**{f"{name} activations": {"rounding": name} for name in ROUNDING},
            **{f"{name} cache": {"cache": name} for name in CACHES if name != "f32"},
            "online softmax": {"flash": True}, "chunks of 3": {"chunk": 3}, "one chunk": {"chunk": N_PROMPT},
            "int8 activations, f16 cache, online softmax": {"rounding": "int8", "cache": "f16", "flash": True},
            "int8 activations, q8_0 cache": {"rounding": "int8", "cache": "q8_0"}}
    for way, options in ways.items():
        for model in models:
            for what in forms:
                said = (kept.get(f"right | {way} | {what} | {model.name}", lambda: agrees(model, what, options))
                        if kept else agrees(model, what, options))
                yield way, what, model.name, said["agree"]


def drawn(cases, n):
    """n cases of each half, or all if n is 0."""
    halves = [[case for case in cases if half_of(case.bug) == half] for half in ("development", "held out")]
    rng = np.random.default_rng(SEED)
    return [case for some in halves for case in (some if not n else [some[i] for i in sorted(
        rng.choice(len(some), min(n, len(some)), replace=False))])]


class Kept:
    """The results of earlier runs of the same programs, by key, in a file of build/reports."""

    def __init__(self, program):
        folder, digest = os.path.join(ROOT, "build", "reports"), hashlib.sha256()
        os.makedirs(folder, exist_ok=True)
        scripts = (os.path.join(HERE, name) for name in ("engine.py", "bugs.py", "measure.py", "../operators/forms.py",
                                                         "../operators/judge.py", "../reference/stored.py"))
        for name in (program, *scripts):
            with open(name, "rb") as f:
                digest.update(f.read())
        self.path, self.known = os.path.join(folder, f"{digest.hexdigest()[:12]}.jsonl"), {}
        if os.path.exists(self.path):
            with open(self.path) as f:
                self.known = {row["key"]: row for row in map(json.loads, f)}

    def get(self, key, make):
        if key not in self.known:
            self.known[key] = {"key": key, **make()}
            with open(self.path, "a") as f:
                f.write(json.dumps(self.known[key]) + "\n")
        return self.known[key]


def run(measure, cases, forms, n_sample, kept):
    """The results of all cases; those that were kept are not measured again."""
    sample, results = drawn(cases, n_sample), []
    for form in forms:
        for case in cases if FORMS[form][0] == "whole" else sample:
            case.is_noisy = FORMS[form][1] != "f32"
            row = {**kept.get(f"{form} | {case.bug.source} | {case.bug.text}", lambda: measure.measure(case, form)),
                   "model": case.model.name, "form": form, "first": case.first, "kind": case.bug.model,
                   "half": half_of(case.bug), "text": f"{case.bug.source}: {case.bug.text}"}
            if "json" in row:   # judged again, as the judge may have changed
                row["verdict"], row["said"] = case.model.judge.verdict(row["json"], case, FORMS[form][0] == "whole")
            results.append(row)
    return results


def document(results, forms, right):
    agree = collections.defaultdict(list)
    for way, what, _, agrees in right:
        agree[way, what].append(agrees)
    lines = []
    for half in ("development", "held out"):
        some = [r for r in results if r["half"] == half]
        lines += [f"{half.capitalize()}:", "", *summary(some, forms), ""] if some else []
    whats = {"whole": "whole", "l_out8": "8 values of l_out", "top10": "10 largest logits"}
    return [*lines, "All, by model: named/all, in each form.", "", *count_table(results, forms, lambda r:
        r["kind"]), "",
            "Right engines that agree.", "", "| computes with | " + " | ".join(whats.values()) + " |",
                "|---|---|---|---|",
            *(f"| {way} | " + " | ".join(f"{sum(agree[way, what])}/{len(agree[way, what])}" for what in whats) + " |"
              for way in dict.fromkeys(way for way, _ in agree))]


def check(measure, models, cases):
    """A few bugs and right engines, as TAP."""
    some = [models[name] for name in CHECKED_RIGHT]
    other = [f"{model.name}, {options}" for model in some for options in ({}, {"flash": True})
             if not model.judge.oracle.is_same(model.run(**options), ())]
    right = [f"{model}, {way}, {what}" for way, what, model, agrees in right_engines(measure, some, ("whole", "l_out8"))
             if not agrees]
    forms = ("whole", "8 values")
    results = [(form, case, measure.measure(case, form)) for case in cases for form in forms]
    said = [(form, r["verdict"], f"{form}: {case.bug.text}: {r['verdict']}: {r['said']}") for form, case, r in results
            if r["verdict"] != "hidden"]
    tests = [("the engine has the numbers of the second engine", other), ("engines that make no mistake agree", right),
             ("no verdict names another mistake", [line for _, verdict, line in said if verdict == "wrong"])]
    for form in forms:
        rows = [(verdict, line) for f, verdict, line in said if f == form]
        unnamed = [line for verdict, line in rows if verdict not in ("right", "tied")]
        few = len(unnamed) > (1 - REQUIRED[form]) * len(rows)
        tests.append((f"at least {REQUIRED[form]:.0%} of {len(rows)} are named, {form}", unnamed if few else []))
    return print_tap("reports", tests)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plumb", default=os.path.join(ROOT, "build", "native", "plumb"))
    parser.add_argument("--half", choices=("development", "held out"))
    parser.add_argument("--form", action="append", choices=FORMS)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--bug", help="a part of its source or text")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--right", action="store_true", help="measures right engines alone")
    parser.add_argument("--failures", help="writes there what was not named")
    parser.add_argument("--docs", help="writes the tables there, between its marks")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    forms = arguments.form or list(REQUIRED)
    bugs = [bug for bug in BUGS if (not arguments.model or bug.model in arguments.model)
            and (not arguments.half or half_of(bug) == arguments.half)
            and (not arguments.bug or arguments.bug in f"{bug.source}: {bug.text}")]
    if arguments.check:
        bugs = [bugs[i] for i in sorted(np.random.default_rng(SEED).choice(len(bugs), N_CHECK, replace=False))]
    with tempfile.TemporaryDirectory(prefix="plumb-reports-") as folder:
        also = CHECKED_RIGHT if arguments.check else RIGHT if arguments.right or arguments.docs else ()
        names = {bug.model for bug in bugs} | set(also)
        models = {name: Model(name, folder) for name in MODELS if name in names}
        measure = Measure(json.loads(arguments.plumb) if arguments.plumb.startswith("[") else [arguments.plumb], folder)
        kept = Kept(measure.plumb[-1])
        if arguments.right:
            for row in right_engines(measure, models.values(), kept=kept):
                print(*row)
            return 0
        cases = [Case(models[bug.model], bug) for bug in bugs]
        if arguments.check:
            return check(measure, models, cases)
        if arguments.list:
            for case in cases:
                print(json.dumps({"model": case.model.name, "first": case.first, "effect": case.effect,
                                  "half": half_of(case.bug), "source": case.bug.source, "text": case.bug.text}))
            return 0
        results = run(measure, cases, forms, arguments.sample, kept)
        right = right_engines(measure, [models[name] for name in RIGHT], kept=kept) if arguments.docs else []
        lines = document(results, forms, right)
        print("\n".join(lines))
        if arguments.failures:
            with open(arguments.failures, "w") as f:
                f.write("\n".join([*lines, "", "## What is not named", *failures(results)]) + "\n")
        if arguments.docs:
            replace_between(arguments.docs, "counts", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
