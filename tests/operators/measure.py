#!/usr/bin/env python3
"""Measures how many mistakes that operators generate `plumb diagnose` names.

    measure.py                          all mistakes in all forms of the dump; goes on where an earlier run ended
    measure.py --count 40 --form whole --model llama
    measure.py --list                   prints the mistakes
    measure.py --docs README.md         writes the tables there, between its marks
    measure.py --check                  as TAP: a few mistakes, and right engines; exits 1 if a verdict is wrong

An engine (steps.py) runs small synthetic models with mistakes that are drawn with a seed (mistakes.py).  Its dumps go
through `plumb diagnose`, and judge.py compares the verdict with the mistake.  Results are kept in build/operators, in
a file for each build of plumb.
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

import mistakes
from forms import FORMS, count_table, diagnose, essence, failures, numbers, print_tap, replace_between, summary
from judge import Judge, Oracle, difference
from steps import File, Pass, ROUNDING, steps

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
KEPT = os.path.join(ROOT, "build", "operators")

# name: options of models/synth.py, and its share of the mistakes
LARGE = "--layers 12 --embd 128 --heads 8 --kv-heads 2 --ff 192 --vocab 300 --no-tied --tokenizer llama"
SMALL = "--layers 2 --embd 256 --heads 8 --kv-heads 2 --ff 256 --vocab 300 --no-tied --tokenizer llama"
MODELS = {
    "llama": (LARGE + " --rope-base 20000", 8), "qwen2": (LARGE + " --arch qwen2 --rope-base 20000 --eps 1e-6", 3),
    "qwen3": (LARGE + " --arch qwen3 --rope-base 20000 --eps 1e-6", 3),
    **{name: (f"{SMALL} --type {name}", 0.5) for name in ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K")},
}
TOKENS, N_PROMPT = [1, 271, 30, 94, 150, 61, 233, 88, 190, 42], 6
REQUIRED = {"whole": 0.85, "8 values": 0.60, "whole, int8": 0.85, "8 values, int8": 0.60}
MOST_WRONG = 0.01
CHECKED, N_CHECK = ("llama", "qwen2", "Q4_1"), 9


class Case:
    """An engine with one mistake."""

    def __init__(self, model, mistake):
        self.model, self.mistake = model, mistake
        self.runs, self.is_noisy = {}, False
        run = self.run("f32")
        self.taps, self.effect = run.taps, max((max(e) for e in run.effects.values()), default=0.0)
        first = next(iter(run.effects), None)   # the cache is no tap: the first one that reads it is wrong
        self.first = first and first.replace("K_cache", "kq_soft_max").replace("V_cache", "kqv_out")

    def run(self, rounding):
        if rounding not in self.runs:
            program = self.mistake.apply(self.model.program, TOKENS, N_PROMPT)
            with np.errstate(all="ignore"):
                self.runs[rounding] = Pass(self.model.file, program, TOKENS, N_PROMPT, rounding)
        return self.runs[rounding]

    def everywhere(self):
        mistake = mistakes.dataclasses.replace(self.mistake, layers=None, heads=None, tokens="")
        return Case(self.model, mistake).taps

    def wrong_tensor(self):
        """A regular expression: the tensor that the first wrong step reads."""
        program = self.mistake.apply(self.model.program, TOKENS, N_PROMPT)
        wrong = next((step for step in program if step.name == self.first), None)
        if wrong is None or not wrong.tensors:
            return "$^"
        name = wrong.tensors[0]
        # It may be named by the step that reads it: "is ffn_gate-0".
        same = [step.name for step in self.model.program if name in step.tensors and step.inputs == wrong.inputs]
        return "|".join(map(re.escape, [name, *same]))

    def is_visible(self, form):
        """Whether the mistake changes more of what the dump has than rounding does."""
        what, rounding = FORMS[form]
        right, noisy = self.model.run("f32").taps, self.model.run(rounding).taps
        pairs = [(numbers(what, taps), numbers(what, right)) for taps in (self.taps, noisy)]
        change, noise = ([difference(a[name], b[name]) for name in b if name in a] for a, b in pairs)
        if what == "whole":   # each step is compared with what it makes of its own inputs
            return self.effect > (3e-2 if rounding != "f32" and self.first_is_product() else 2e-5)
        return np.median(change) > max(1e-4, np.median(noise)) or max(change) > max(1e-4, 3 * max(noise))

    def first_is_product(self):
        return not self.first or self.first.split("-")[0] in ("Qcur", "Kcur", "Vcur", "attn_out", "ffn_gate", "ffn_up",
                                                              "ffn_out", "result_output")


class Model:
    def __init__(self, name, folder, seed):
        self.name, self.path = name, os.path.join(folder, f"{name}.gguf")
        subprocess.run([sys.executable, os.path.join(ROOT, "models", "synth.py"), self.path,
                        *MODELS[name][0].split(), "--seed", str(seed)], check=True)
        self.file = File(self.path)
        self.program = steps(self.file)
        self.judge = Judge(Oracle(self.path, TOKENS, N_PROMPT))
        self.runs = {}

    def run(self, rounding):
        if rounding not in self.runs:
            self.runs[rounding] = Pass(self.file, self.program, TOKENS, N_PROMPT, rounding)
        return self.runs[rounding]


def draw(models, seed, count):
    """Mistakes that change something, each once; a model's share is that of MODELS."""
    share, cases, known = sum(MODELS[name][1] for name in models), [], set()
    for i, (name, (_, weight)) in enumerate(MODELS.items()):
        if name not in models:
            continue
        rng = np.random.default_rng([seed, i])
        wanted = len(cases) + max(1, round(count * weight / share))
        sampler = mistakes.Sampler(models[name].file, models[name].program, rng)
        while len(cases) < wanted:
            mistake = sampler.sample()
            if mistake is None or (name, mistake.text) in known:
                continue
            case = Case(models[name], mistake)
            if case.first is not None and case.effect > 2e-5:
                known.add((name, mistake.text))
                cases.append(case)
    return cases


class Measure:
    def __init__(self, plumb, folder):
        self.plumb, self.folder = plumb, folder

    def diagnose(self, model, what, taps):
        return diagnose(self.plumb, model.path, self.folder, what, TOKENS, N_PROMPT, taps)

    def measure(self, case, form):
        what, rounding = FORMS[form]
        if not case.is_visible(form):
            return {"verdict": "hidden", "said": "", "seconds": 0}
        said, seconds = self.diagnose(case.model, what, case.run(rounding).taps)
        verdict, short = case.model.judge.verdict(said, case, what == "whole")
        return {"verdict": verdict, "said": short, "seconds": seconds, "json": essence(said)}


def key(case, form):
    return f"{case.model.name} | {form} | {case.mistake.text}"


def right_engines(measure, models):
    """(model, rounding, what, whether it agrees) of engines without a mistake."""
    for model in models:
        for rounding in ROUNDING:
            for what in ("whole", "l_out8", "top10"):
                said, _ = measure.diagnose(model, what, model.run(rounding).taps)
                yield model, rounding, what, said["agree"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plumb", default=os.path.join(ROOT, "build", "native", "plumb"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=260)
    parser.add_argument("--form", action="append", choices=FORMS)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--failures", help="writes there what was not named")
    parser.add_argument("--docs", help="writes the tables there, between its marks")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    forms = arguments.form or list(FORMS)
    with tempfile.TemporaryDirectory(prefix="plumb-operators-") as folder:
        models = {name: Model(name, folder, arguments.seed) for name in (CHECKED if arguments.check else MODELS)}
        measure = Measure(json.loads(arguments.plumb) if arguments.plumb.startswith("[") else [arguments.plumb], folder)
        cases = draw(models, arguments.seed, N_CHECK if arguments.check else arguments.count)
        cases = [case for case in cases if not arguments.model or case.model.name in arguments.model]
        if arguments.check:
            return check(measure, models, cases)
        if arguments.list:
            for case in cases:
                print(json.dumps({"model": case.model.name, "first": case.first, "effect": case.effect,
                                  **case.mistake.truth()}))
            return 0
        results = run(measure, cases, forms, measure.plumb[-1])
        lines = document(results, forms, right_engines(measure, models.values()))
        print("\n".join(lines))
        if arguments.failures:
            with open(arguments.failures, "w") as f:
                f.write("\n".join([*lines, "", "## What is not named", *failures(results)]) + "\n")
        if arguments.docs:
            replace_between(arguments.docs, "counts", lines)
    return 0


def document(results, forms, right):
    """The lines of the README's tables."""
    agree = collections.defaultdict(list)
    for _, rounding, what, agrees in right:
        agree[rounding, what].append(agrees)
    whats = list(dict.fromkeys(what for what, _ in FORMS.values()))
    names = {"whole": "whole", "l_out8": "8 values of l_out", "top10": "10 largest logits"}
    return [
        *summary(results, forms), "", "By operator: right/all, in each form.", "",
        *count_table(results, forms, lambda r: r["operator"]), "", "By kind.", "",
        *count_table(results, forms, lambda r: r["kind"]), "", "Right engines that agree.", "",
        "| rounding | " + " | ".join(names[what] for what in whats) + " |", "|---|" + "---|" * len(whats),
        *(f"| {rounding} | " + " | ".join(f"{sum(agree[rounding, what])}/{len(agree[rounding, what])}"
                                          for what in whats) + " |" for rounding in ROUNDING)]


def check(measure, models, cases):
    """A few mistakes and the right engines, as TAP."""
    right = [f"{model.name}, {rounding}, {what}" for model, rounding, what, agrees in
             right_engines(measure, models.values()) if not agrees]
    results = [(form, case, measure.measure(case, form)) for case in cases for form in ("whole", "8 values")]
    said = [f"{form}: {case.mistake.text}: {r['verdict']}: {r['said']}" for form, case, r in results]
    wrong = [line for line, (_, _, r) in zip(said, results) if r["verdict"] == "wrong"]
    whole = [(line, r["verdict"]) for line, (form, _, r) in zip(said, results) if form == "whole"]
    unnamed = [line for line, verdict in whole if verdict not in ("right", "tied")]
    silent = [line for line, verdict in whole if verdict not in ("right", "tied", "step")]
    few = unnamed if len(unnamed) > (1 - REQUIRED["whole"]) * len(whole) else []
    tests = [(f"engines that round in {len(ROUNDING)} ways and make no mistake agree", right),
             ("no verdict names another mistake", wrong),
             ("in whole dumps the first wrong step is found", silent),
             (f"at least {REQUIRED['whole']:.0%} of {len(whole)} mistakes are named in whole dumps", few)]
    return print_tap("operators", tests)


def run(measure, cases, forms, plumb):
    """The results of all cases; those that an earlier run of the same program kept are not measured again."""
    with open(plumb, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()[:12]
    os.makedirs(KEPT, exist_ok=True)
    path, known, results = os.path.join(KEPT, f"{digest}.jsonl"), {}, []
    if os.path.exists(path):
        with open(path) as f:
            known = {row["key"]: row for row in map(json.loads, f)}
    with open(path, "a") as f:
        for i, case in enumerate(cases):
            for form in forms:
                name = key(case, form)
                case.is_noisy = FORMS[form][1] != "f32"
                if name not in known:
                    known[name] = {"key": name, "model": case.model.name, "form": form, "first": case.first,
                                   "operator": case.mistake.operator, "kind": case.mistake.kind,
                                   "text": case.mistake.text, **measure.measure(case, form)}
                    f.write(json.dumps(known[name]) + "\n")
                    f.flush()
                if "json" in known[name]:   # judged again, as judge.py may have changed
                    known[name]["verdict"], known[name]["said"] = case.model.judge.verdict(
                        known[name]["json"], case, FORMS[form][0] == "whole")
                results.append(known[name])
            case.runs = {}
            if sys.stderr.isatty() or i % 20 == 19:
                print(f"{i + 1} of {len(cases)} mistakes", file=sys.stderr)
    return results


if __name__ == "__main__":
    sys.exit(main())
