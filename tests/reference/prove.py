#!/usr/bin/env python3
"""The proof of `plumb diagnose`: every mistake, made by the second engine, must be found by name in its dump.

    prove.py [--plumb PATH] [--docs docs/mistakes.md]     everything; writes the table
    prove.py --check [TEXT...]                          as TAP; a test fails where too few are found; a sample, drawn
                                                        by the seed, or all known mistakes that contain a TEXT

Each mistake is made in the first of the models below in which it changes anything, dumped in three ways (dump.py)
and handed to `plumb diagnose`.  Found means: the first of the ranking is the mistake and nothing else.  Then pairs of
mistakes, drawn by a seed, from whole dumps: found if both are in the first of the ranking.  Then the same mistakes
in an engine that rounds activations to 8 bits, as most do; without a mistake it must agree.
"""
import argparse
import collections
import glob
import json
import multiprocessing
import os
import resource
import re
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")   # its matrices are small, and there are several processes

import numpy as np  # noqa: E402

import blocks  # noqa: E402
import dump
from engine import Engine, File

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ARCHS = os.path.join(ROOT, "tests", "vectors", "archs")
sys.path.insert(0, os.path.join(ROOT, "models"))
from synth import Synth, parse  # noqa: E402

# Trained models have embeddings of RMS 0.01 to 0.1; at 1, as synth.py has them, no epsilon would show.
SMALL = {"token_embd": 0.01}
NARROW = "--layers 3 --embd 64 --heads 4 --kv-heads 2 --ff 96 --vocab 288 --no-tied --tokenizer llama"
# Rows of 256 for superblocks; attn_output and ffn_down, whose rows are shorter, are Q8_0.
WIDE = NARROW + " --embd 256 --head-dim 16 --ff 128"
# name: options of synth.py, gains of matrices relative to its own; or a file of tests/vectors/archs
MODELS = {
    "llama": (NARROW + " --rope-base 20000", SMALL),
    "scaled": (NARROW + " --rope-base 20000 --rope-scaling 4 --rope-freqs", SMALL),
    "qwen2": (NARROW + " --rope-base 20000 --arch qwen2 --rope-dim 8 --eps 1e-6", SMALL),
    "tied": (NARROW + " --rope-base 20000 --tied", {}),
    "hot": (NARROW + " --rope-base 20000", {"attn_q": 5, "attn_k": 5}),   # scores past the 88 of softmax=no_max
    "granite": (NARROW + " --rope-base 20000 --arch granite --tied", {}),
    "windows": (NARROW + " --rope-base 20000 --arch gemma3 --rope-base-swa 5000 --window 4 --window-period 3", {}),
    **{name: ((WIDE if name.endswith("_K") or name.startswith(("IQ1", "IQ2", "IQ3", "IQ4_XS", "TQ")) else NARROW)
              + f" --type {name}", SMALL) for name in blocks.READERS},
    **{name: (None, {}) for name in (
        "gemma2", "gemma3", "qwen3", "olmo2", "gpt-oss", "qwen2moe", "qwen3moe", "olmoe", "dots1", "glm4moe",
        "bailingmoe2", "command-r", "phi2", "gpt2", "bloom", "cohere2", "glm4", "smollm3", "hunyuan-dense",
        "mistral3-moe", "llama4", "gptneox", "afmoe", "qwen2vl", "bert", "nomic-bert", "mamba", "lfm2", "mamba2",
        "qwen35", "qwen3next", "minicpm3", "kimi-linear", "minimax-01", "t5", "t5-gated", "rwkv6", "rwkv7", "gemma4",
        "bailingmoe3", "deepseek2-ocr")},
}
N_TOKEN, N_PROMPT = 12, 8
N_PAIR = 20
# Dumps of the engine that rounds, by the way they are dumped.
ROUNDING = {"whole_8bit": "whole", "l_out8_8bit": "l_out8"}
# What --check draws: one of so many mistakes, mistakes of the engine that rounds, models without a mistake, and so many
# pairs.  `make prove` tries them all.
SAMPLE = {"singles": 27, "rounding": 81, "right": 16}
N_PAIR_CHECKED = 4
# It shows only in longer texts, as Llama 4's chunks have 8,192 tokens; tests/known_test.c makes it in shorter ones.
LONG = "window.kind=sliding"
THRESHOLDS = {"whole": 0.95, "l_out8": 0.85, "top10": 0.70, "pairs": 0.70, "whole_8bit": 0.95, "l_out8_8bit": 0.80,
              "right_8bit": 0.95}

Known = collections.namedtuple("Known", "name tap models text")


class Generator(Synth):
    def __init__(self, options, gains):
        super().__init__(options)
        self.gains = gains

    def matrix(self, name, rows, columns, gain, *others):
        super().matrix(name, rows, columns, gain * self.gains.get(name.split(".")[-2], 1), *others)


def texts_of_source():
    """All texts of the table in C, "in several" "parts" joined."""
    paths = glob.glob(os.path.join(ROOT, "src", "truth", "mistakes", "known_*.c"))
    return {"".join(re.findall('"([^"]*)"', texts)) for path in paths
            for texts in re.findall(r'(?:"[^"\n]*"\s*)+', open(path).read())}


def rows_of_source():
    """Name and tap of the entries that are written out, in the order of the lists: { "name", "tap", ..."""
    folder = os.path.join(ROOT, "src", "truth", "mistakes")
    paths = [os.path.join(folder, f"known_{part}.c") for part in ("norms", "attention", "recurrent", "ffn")]
    return [row for path in paths for row in re.findall(r'\{ "([\w.]+=[\w-]+)", "(\w+)", ', open(path).read())]


def switch(name):
    """Mistakes of one switch exclude each other."""
    switch, first = name.split("=")[0], name.split(".")[0]
    is_wide = first in blocks.READERS or first == "residual" and switch != "residual.scale"
    return first if is_wide else switch


def applying(plumb, path):
    """The names of the known mistakes that the program says could change anything in a model."""
    ran = subprocess.run([*plumb, "diagnose", "--list", path, "--json"], capture_output=True, text=True, check=True)
    return {mistake["name"] for mistake in json.loads(ran.stdout)}


class Model:
    def __init__(self, plumb, name, folder, seed):
        options, gains = MODELS[name]
        self.name, self.has_bos = name, options is not None
        self.path = os.path.join(folder if options else ARCHS, f"{name}.gguf")
        if options:
            Generator(parse([self.path, *options.split(), "--seed", str(seed)]), gains).write()
        self.file = File(self.path)
        self.applying = applying(plumb, self.path)
        rng = np.random.default_rng(seed)
        n_vocab = 288 if options else 64
        self.tokens = [1, *(int(t) for t in rng.choice(np.arange(3, n_vocab), N_TOKEN - 1, replace=False))]
        self.truth = self.run([])
        self.runs = {}

    def with_known(self, mistake):
        if mistake not in self.applying:   # check_applying checks this
            return self.truth
        if mistake not in self.runs:
            self.runs[mistake] = self.run([mistake])
        return self.runs[mistake]

    def run(self, mistakes, rounds=False):
        return Engine(self.file, mistakes, rounds).run(self.tokens, N_PROMPT)

    def shown(self, mode, run):
        """The values of a run that a dump contains: name -> values."""
        if mode == "whole":
            return {name: dump.f32(rows) for name, rows in run.taps.items()}
        rows = {"l_out8": dump.l_out8, "top10": dump.top10}[mode](run)
        return {(row["name"], row["token"]): np.array(row.get("values") or row["top"]) for row in rows}


def error(a, b):
    """Largest relative RMS difference of a row; infinite where shapes, NaN or infinities differ."""
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    a, b = (np.where(np.isfinite(x), x, 0.0).reshape(len(x), -1).astype(np.float64) for x in (a, b))
    size = np.sqrt((b * b).sum(axis=1))
    return (np.sqrt(((a - b) ** 2).sum(axis=1)) / np.where(size == 0, 1e-30, size)).max()


def differ(a, b, most=1e-6):
    """Do two dumps differ by more than the rounding of f32?"""
    return a.keys() != b.keys() or any(error(a[name], b[name]) > most for name in a)


def changes(run, truth):
    """Does a run differ in a tap that both have?  A mistake may leave out a tap or add one."""
    return any(error(run.taps[name], truth.taps[name]) > 1e-6 for name in run.taps.keys() & truth.taps.keys())


# ---- one dump, one diagnosis ---------------------------------------------------------------------------------------

AGREES = "agrees with the truth"
# rank: from 1; 0 where the ranking does not hold the injected mistakes.  ties: others with the same score.  explains:
# nothing is left but noise.
Finding = collections.namedtuple("Finding", "rank first ties said seconds explains", defaults=[False])


def diagnose(plumb, model, path, injected):
    """The result of `plumb diagnose` for a dump."""
    start = time.monotonic()
    # A limit of the processor's time, so that a busy machine ends nothing.
    ran = subprocess.run([*plumb, "diagnose", model, "--against", path, "--json"], capture_output=True, text=True,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (300, 300)))
    seconds = time.monotonic() - start
    try:
        said = json.loads(ran.stdout)
    except ValueError:
        return Finding(0, (), [], f"exit {ran.returncode} {(ran.stderr or ran.stdout).strip()[:200]}".strip(), seconds)
    ranking = said.get("ranking") or []
    sets = [tuple(sorted(entry["mistakes"])) for entry in ranking]
    injected = tuple(sorted(injected))
    first = sets[0] if sets else ()
    if said["agree"]:
        return Finding(0, (), [], AGREES, seconds)
    if injected not in sets:
        return Finding(0, first, [], " + ".join(first) or "nothing fits", seconds)
    at = sets.index(injected)
    ties = [other for other, entry in zip(sets, ranking)
            if other != injected and (entry["score"] == ranking[at]["score"]
                                      or at == 0 and entry.get("tied_with_first"))]
    return Finding(at + 1, first, ties, " + ".join(first), seconds, ranking[at]["explains"])


PROOF = None   # of the processes of Proof.each, which are forks


def one_of_each(task):
    method, argument = task
    return getattr(PROOF, method)(argument)


class Proof:
    def __init__(self, plumb, folder, seed, jobs):
        self.plumb, self.folder, self.seed, self.jobs = plumb, folder, seed, jobs
        self.known = self.list_known()
        self.models = {name: Model(plumb, name, folder, seed) for name in MODELS}
        self.seconds = 0.0
        self.slowest = (0.0, "")

    def each(self, method, arguments):
        """The results of a method for each argument, in several processes."""
        global PROOF
        PROOF, tasks = self, [(method.__name__, argument) for argument in arguments]
        if self.jobs == 1:
            yield from map(one_of_each, tasks)
            return
        with multiprocessing.get_context("fork").Pool(self.jobs) as pool:
            yield from pool.imap(one_of_each, tasks)

    def list_known(self):
        ran = subprocess.run([*self.plumb, "diagnose", "--list", "--json"], capture_output=True, text=True)
        theirs = [Known(q["name"], q["tap"], q["models"], q["text"]) for q in json.loads(ran.stdout)]
        others = {mistake.text for mistake in theirs} - texts_of_source()
        assert not others, f"the program has texts that are not in src/truth/mistakes: {others}"
        rows = rows_of_source()
        assert [(mistake.name, mistake.tap) for mistake in theirs[:len(rows)]] == rows, "the program lists others"
        return theirs

    def check_applying(self):
        """A known mistake that does not apply to a model changes nothing there, or is the same as one that does."""
        wrong = [pair for pairs in self.each(self.changing, self.models) for pair in pairs]
        assert not wrong, f"these change numbers, but the program does not try them: {wrong}"

    def changing(self, model_name):
        """[(mistake, model)] that change numbers in a model, though they do not apply to it"""
        model, found = self.models[model_name], []
        types = {tensor.tensor_type.name for tensor in model.file.tensors.values()}
        for name in (q.name for q in self.known if q.name not in model.applying):
            first = name.split(".")[0]
            if first in blocks.READERS and first not in types or first == "tokens" and not model.has_bos:
                continue
            run = model.run([name])
            if changes(run, model.truth) and all(changes(run, model.with_known(other))
                                                 for other in sorted(model.applying)):
                found.append((name, model_name))
        return found

    def architectures(self):
        """name -> the architectures in whose files of tests/vectors/archs it applies, and how many there are"""
        found, every = collections.defaultdict(set), set()
        for path in sorted(glob.glob(os.path.join(ARCHS, "*.gguf"))):
            arch = File(path).arch
            every.add(arch)
            for name in applying(self.plumb, path):
                found[name].add(arch)
        return found, len(every)

    def home(self, mistake):
        """The first model in which the known mistake changes anything."""
        for model in self.models.values():
            if changes(model.with_known(mistake.name), model.truth):
                return model
        raise AssertionError(f"{mistake.name} changes nothing in any model")

    def diagnose(self, model, run, mode, injected):
        path = os.path.join(self.folder, f"theirs-{os.getpid()}{dump.MODES[mode]}")
        dump.write(path, mode, run, model.tokens, N_PROMPT)
        return diagnose(self.plumb, model.path, path, injected)

    def count(self, finding, what):
        self.seconds += finding.seconds
        self.slowest = max(self.slowest, (finding.seconds, what))

    def twins(self, model, mode, name):
        """What the dump cannot distinguish from this known mistake: other known mistakes, or "the truth"."""
        shown = model.shown(mode, model.with_known(name))
        runs = {q.name: model.with_known(q.name) for q in self.known}
        runs = {"the truth": model.truth, **{q: run for q, run in runs.items() if run is not model.truth}}
        same = [other for other, run in runs.items() if other != name and not differ(shown, model.shown(mode, run))]
        # A known mistake without effect here cannot be distinguished from the truth.
        return [other for other in same if other == "the truth" or changes(runs[other], model.truth)]

    def check_taps(self, wanted):
        """The table names the first tap that a mistake changes.  A mistake may leave out a tap."""
        wrong = []
        for mistake in wanted:
            model = self.homes[mistake.name]
            run = model.with_known(mistake.name)
            first = next(name for name in model.truth.taps if name in run.taps
                         and differ({name: run.taps[name]}, {name: model.truth.taps[name]}))
            if first.split("-")[0] != mistake.tap:
                wrong.append(f"{mistake.name} first changes {first}, the table says {mistake.tap}")
        assert not wrong, "; ".join(wrong)

    def single(self, name):
        """{mode: (finding, twins)}"""
        model = self.homes[name]
        run = model.with_known(name)
        return {mode: (self.diagnose(model, run, mode, (name,)), self.twins(model, mode, name))
                for mode in dump.MODES if mode != "top10" or "result_output" in run.taps}   # encoders have no logits

    def say(self, name, modes):
        model = self.homes[name]
        for mode, finding in modes.items():
            self.count(finding, f"{name} in {model.name}, {mode}")
        print(f"# {name:28} {model.name:8}", *(f"{mode} {finding.said if finding.rank != 1 else 'found'};"
                                               for mode, finding in modes.items()), flush=True)

    def find_homes(self, wanted):
        self.homes = {mistake.name: self.home(mistake) for mistake in wanted}

    def singles(self, wanted):
        """name -> (model, {mode: (finding, twins)})"""
        found, names = {}, [mistake.name for mistake in wanted]
        for model in {self.homes[name].name: self.homes[name] for name in names}.values():
            for mistake in self.known:   # the runs that twins needs, once for all processes
                model.with_known(mistake.name)
        for name, modes in zip(names, self.each(self.single, names)):
            found[name] = self.homes[name], modes
            self.say(name, {mode: finding for mode, (finding, _) in modes.items()})
        return found

    def rounded(self, name):
        model = self.homes[name]
        run = model.run([name], rounds=True)
        return {mode: self.diagnose(model, run, shown, (name,)) for mode, shown in ROUNDING.items()}

    def rounding(self, wanted):
        """name -> {mode: finding}"""
        found, names = {}, [mistake.name for mistake in wanted]
        for name, modes in zip(names, self.each(self.rounded, names)):
            found[name] = modes
            self.say(name, modes)
        return found

    def without(self, model_name):
        model = self.models[model_name]
        run = model.run([], rounds=True)
        return [(mode, self.diagnose(model, run, shown, ())) for mode, shown in ROUNDING.items()]

    def right(self, models):
        """Without a mistake, with rounded activations: [(model, mode, finding)]"""
        found = [(model, mode, finding) for model, modes in zip(models, self.each(self.without, [
            model.name for model in models])) for mode, finding in modes]
        for model, mode, finding in found:
            self.count(finding, f"{model.name}, {mode}")
        return found

    def draw_pairs(self, n):
        """[(model, a, b, run)] of pairs that both change something in the dump while the other is there"""
        rng = np.random.default_rng(self.seed)
        models = [model for name, model in self.models.items() if name not in ("tied", "hot")]
        drawn = []
        while len(drawn) < n:
            model = models[rng.integers(len(models))]
            a, b = (self.known[i] for i in rng.choice(len(self.known), 2, replace=False))
            if switch(a.name) == switch(b.name):
                continue
            both = model.run([a.name, b.name])
            one, two, shown, truth = (model.shown("whole", run) for run in (
                model.with_known(a.name), model.with_known(b.name), both, model.truth))
            if differ(shown, one) and differ(shown, two) and differ(one, truth) and differ(two, truth):
                drawn.append((model, a.name, b.name, both))
        return drawn

    def pair(self, i):
        model, a, b, run = self.drawn[i]
        return self.diagnose(model, run, "whole", (a, b))

    def pairs(self, n):
        self.drawn, found = self.draw_pairs(n), []
        for (model, a, b, _), finding in zip(self.drawn, self.each(self.pair, range(n))):
            found.append((model, a, b, finding))
            self.count(finding, f"{a} + {b} in {model.name}")
            print(f"# {a} + {b}, {model.name}: {'found' if is_pair_found(found[-1]) else finding.said}", flush=True)
        return found


def is_pair_found(pair):
    _, a, b, finding = pair
    return a in finding.first and b in finding.first


def is_right(right):
    return right[2].said == AGREES


def rates(singles, pairs, rounding, right, missed=collections.defaultdict(set)):
    """mode -> (found, of how many).  missed: title of a mode -> mistakes that are not counted"""
    counts, rounded = {}, {}
    for mode in dump.MODES:
        ranks = [modes[mode][0].rank for name, (_, modes) in singles.items()
                 if mode in modes and name not in missed[TITLES[mode]]]
        counts[mode] = ranks.count(1), len(ranks)
    for mode in ROUNDING:
        findings = [modes[mode] for name, modes in rounding.items() if name not in missed[TITLES[mode]]]
        rounded[mode] = sum(one.rank == 1 and one.explains for one in findings), len(findings)
    return {**counts, "pairs": (sum(map(is_pair_found, pairs)), len(pairs)), **rounded,
            "right_8bit": (sum(map(is_right, right)), len(right))}


def missed_before():
    """title of a mode -> the mistakes that docs/mistakes.md lists as missed, which would decide about a small sample"""
    page = open(os.path.join(ROOT, "docs", "mistakes.md")).read()
    page = page.split("## Missed or not alone")[1].split("## Pairs")[0]
    found = collections.defaultdict(set)
    for title, lines in re.findall(r"\*\*(.+)\*\*\n\n((?:- .*\n)+)", page):
        found[title] = {name for line in lines.splitlines()
                        for name in re.findall("`([^`]*)`", line.rsplit(": ", 1)[1])}
    return found


# ---- docs/mistakes.md ------------------------------------------------------------------------------------------------

WHY = {
    "rope.position=plus_one": "RoPE is relative: scores depend on the distance of two positions alone",
    "rope.cache=unrotated": "a query and a key rotated by the same angle keep their scalar product",
    "rope.applied=none": "as `rope.cache=unrotated`: scores are those of vectors that are not rotated",
    "norm.output=missing": "comes after the last layer",
    "output.head=tied": "comes after the last layer",
    "output.head=zero": "comes after the last layer",
    "logits.scale=missing": "comes after the last layer",
    "logits.scale=multiplied": "comes after the last layer",
    "output.bias=missing": "comes after the last layer",
    "softcap.logits=missing": "comes after the last layer",
    "pooling.kind=mean": "pooling comes after the last layer, and logits are not pooled",
    "pooling.kind=cls": "as `pooling.kind=mean`",
    "pooling.kind=last": "as `pooling.kind=mean`",
    "router.gating=softmax_used": "a softmax over all experts, divided by the sum of those used, is one over those",
    "router.norm=added": "as `router.gating=softmax_used`",
}
TITLES = {"whole": "whole dumps", "l_out8": "the first 8 values of l_out", "top10": "the top 10 logits of 4 positions",
          "pairs": "pairs, whole dumps",
          "whole_8bit": "activations rounded to 8 bits: whole dumps",
          "l_out8_8bit": "activations rounded to 8 bits: the first 8 values of l_out",
          "right_8bit": "activations rounded to 8 bits, no mistake: dumps that agree"}


def where(mistake, archs, n_arch):
    """The models that a known mistake concerns, and how many architectures of tests/vectors/archs have such a model."""
    names = archs[mistake.name]
    if mistake.name.split(".")[0] in blocks.READERS:
        return "with weights of the type that the name begins with"
    if mistake.name.startswith("tokens.") or len(names) == n_arch:   # these files have no BOS
        return mistake.models
    few = "" if len(names) > 3 else ": " + ", ".join(sorted(names))
    return f"{mistake.models} ({len(names)}{few})"


def coded(names):
    return ", ".join(f"`{name}`" for name in names)


def grouped(pairs):
    """[(key, value)] -> {key: [values]}, in the order of the keys' first appearance"""
    groups = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def mistakes(proof):
    """Under each kind of models the mistakes that concern them; those with the same text share an item."""
    archs, n_arch = proof.architectures()
    lines = []
    for models, known in grouped((where(mistake, archs, n_arch), mistake) for mistake in proof.known).items():
        lines += ["", f"**{models}**", ""]
        lines += [f"- {coded(names)}: {text}"
                  for text, names in grouped((mistake.text, mistake.name) for mistake in known).items()]
    return lines


def twins(singles, mode):
    """The mistakes that a dump cannot show, and those that it cannot tell from each other."""
    same = []
    for name, (_, found) in singles.items():
        others = found[mode][1] if mode in found else []
        if others:
            why = WHY.get(name, "").split(": ")[-1]
            same.append(("agree with the truth" if "the truth" in others else f"same as {coded(others)}", (name, why)))
    return [f"- {kind}: " + "; ".join(coded(names) + (f" ({why})" if why else "")
                                      for why, names in grouped((why, name) for name, why in those).items())
            for kind, those in grouped(same).items()]


def missed(findings):
    """What diagnose says instead of a mistake, or beside it; findings: [(name, finding)]"""
    said = []
    for name, finding in findings:
        ties = ", ".join(coded([" + ".join(tie)]) for tie in finding.ties)
        if finding.rank == 1:
            said.append((f"named, tied with {ties}" if ties else "comes nearest, but does not explain all", name))
        else:
            said.append((f"`{finding.said}`" if finding.first else finding.said, name))
    return [f"- {text}: {coded(names)}" for text, names in grouped(said).items()]


def document(proof, singles, pairs, rounding, right):
    lines = [
        "# Known mistakes, and how surely `plumb diagnose` names them", "",
        "Written by `tests/reference/prove.py`.  A second engine (`tests/reference/engine.py`: Python, numpy, the "
        "`gguf` package), independent of plumb's code but for the sentences below, makes each mistake in a small "
        "synthetic model.  Its dumps go through `plumb diagnose`; found means that the first of the ranking is that "
        f"mistake and nothing else.  {N_TOKEN} tokens, the first a BOS, {N_PROMPT} of them a prompt, the others "
        f"decoded one by one; seed {proof.seed}.  `{LONG}` is not made: Llama 4's chunks have 8,192 tokens, and "
        "tests/known_test.c makes it in shorter ones.  An engine that rounds activations does so in blocks of 32 "
        "before every product with a matrix.",
        "",
        "| what diagnose is given | found | of | | required |", "|---|---|---|---|---|"]
    for mode, (found, n) in rates(singles, pairs, rounding, right).items():
        lines.append(f"| {TITLES[mode]} | {found} | {n} | {found / max(n, 1):.1%} | {THRESHOLDS[mode]:.0%} |")
    lines += ["", "## The mistakes", "",
              "`plumb diagnose MODEL --list` prints those of a model.  Each stands under the models that it concerns, "
              "with, in parentheses, how many of the architectures of `tests/vectors/archs` have such a model.",
              *mistakes(proof)]
    lines += ["", "## What a dump does not show", "",
              "These mistakes give the same numbers within the rounding of f32 (relative RMS of every row at most "
              "1e-6), by the dumps of the second engine."]
    for mode in dump.MODES:
        if same := twins(singles, mode):
            lines += ["", f"**{TITLES[mode]}**", "", *same]
    lines += ["", "## Missed or not alone", "", "What `plumb diagnose` says of which mistakes."]
    by_mode = {mode: [(name, found[mode][0]) for name, (_, found) in singles.items() if mode in found
                      and (found[mode][0].rank != 1 or found[mode][0].ties)] for mode in dump.MODES}
    for mode in ROUNDING:
        by_mode[mode] = [(name, modes[mode]) for name, modes in rounding.items()
                         if modes[mode].rank != 1 or modes[mode].ties or not modes[mode].explains]
        by_mode[mode] += [(f"no mistake, {model.name}", finding) for model, shown, finding in right
                          if shown == mode and finding.said != AGREES]
    for mode, findings in by_mode.items():
        if findings:
            lines += ["", f"**{TITLES[mode]}**", "", *missed(findings)]
    lines += ["", "## Pairs", "",
              "Drawn at random from all mistakes of different switches, where each changes numbers in spite of the "
              "other.  Both are named, unless a line says what is.", ""]
    for pair in pairs:
        model, a, b, finding = pair
        lines.append(f"- {model.name}: `{a}` + `{b}`" + ("" if is_pair_found(pair) else f"; named: {finding.said}"))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plumb", default=os.path.join(ROOT, "build", "native", "plumb"),
                        help="the program, or a JSON array of it and its first arguments")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--docs", help="writes the table there")
    parser.add_argument("--jobs", type=int, help="processes; default: as many as there are processors, 1 with --check")
    parser.add_argument("--check", nargs="*", metavar="TEXT",
                        help="exits 1 below the thresholds; only known mistakes that contain a TEXT")
    arguments = parser.parse_args()
    plumb = json.loads(arguments.plumb) if arguments.plumb.startswith("[") else [arguments.plumb]
    with tempfile.TemporaryDirectory(prefix="plumb-prove-") as folder:
        jobs = arguments.jobs or (1 if arguments.check is not None else os.cpu_count())
        proof = Proof(plumb, folder, arguments.seed, jobs)
        texts = arguments.check or [""]
        wanted = [q for q in proof.known if any(text in q.name for text in texts) and q.name != LONG]
        samples = arguments.check == []
        rng = np.random.default_rng(arguments.seed)

        def sample(kind, things):
            if not samples:
                return things
            return [things[i] for i in sorted(rng.choice(len(things), len(things) // SAMPLE[kind], replace=False))]

        if arguments.docs:
            proof.check_applying()
        proof.find_homes(wanted)
        proof.check_taps(wanted)
        singles = proof.singles(sample("singles", wanted))
        pairs = proof.pairs(N_PAIR_CHECKED if samples else N_PAIR) if texts == [""] else []
        rounding = proof.rounding(sample("rounding", wanted))
        right = proof.right(sample("right", list(proof.models.values())))
        if arguments.docs:
            with open(arguments.docs, "w") as f:
                f.write(document(proof, singles, pairs, rounding, right))
    low = 0
    print("TAP version 13")
    found = rates(singles, pairs, rounding, right, *([missed_before()] if samples else []))
    for i, (mode, (found, n)) in enumerate(found.items()):
        enough = found >= THRESHOLDS[mode] * n
        low += not enough
        print(f"{'ok' if enough else 'not ok'} {i + 1} - diagnose, {TITLES[mode]}: {found} of {n} found, at least "
              f"{THRESHOLDS[mode]:.0%} required" + ("" if n else " # SKIP none wanted"))
    print(f"1..{len(THRESHOLDS)}")
    print(f"# diagnose ran {proof.seconds:.0f} s; the slowest: {proof.slowest[0]:.2f} s, {proof.slowest[1]}")
    if low and arguments.check is not None:
        sys.exit(1)


if __name__ == "__main__":
    main()
