"""Decides whether a verdict of `plumb diagnose --json` names the mistake that an engine makes.

    right    the first of the ranking is the mistake, or one that gives the same numbers
    tied     the verdict names it among others, and says that the dump cannot tell them apart
    step     nothing is claimed, and the first wrong step is the one that is wrong
    none     nothing is claimed, and the first wrong step of a dump that lacks steps is a later one
    silent   it says that the numbers agree
    wrong    it claims another mistake, or another first wrong step in a dump that has all steps

A verdict claims a known mistake of the table in src/diagnose (a quirk), or what was measured in a step (a finding).
Whether a quirk is the mistake is not looked up but computed: the second engine in tests/reference makes the quirk, and
all its taps must equal those of the engine with the mistake.
"""
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "reference"))

SAME = 1e-3   # the relative difference up to which two engines have the same taps: they round differently

# The kind of a mistake (mistakes.py) -> the kinds of findings that name it.
NAMES = {}


def difference(a, b):
    """The relative RMS difference of two arrays; infinite where one is not finite and the other is."""
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    a, b = (np.where(np.isfinite(x), x, 0).astype(np.float64) for x in (a, b))
    with np.errstate(over="ignore"):
        size = np.sqrt(np.mean(b * b))
        return float(np.sqrt(np.mean((a - b) ** 2)) / (size if size > 0 else 1e-30))


class Oracle:
    """The taps of the second engine with quirks, for the tokens of one model."""

    def __init__(self, path, tokens, n_prompt):
        from engine import Engine, File   # tests/reference
        self.engine, self.file = Engine, File(path)
        self.tokens, self.n_prompt, self.runs = tokens, n_prompt, {}

    def taps(self, quirks):
        if quirks not in self.runs:
            with np.errstate(all="ignore"):
                run = self.engine(self.file, list(quirks)).run(self.tokens, self.n_prompt)
            self.runs[quirks] = {name: rows.astype(np.float32) for name, rows in run.taps.items()}
        return self.runs[quirks]

    def is_same(self, taps, quirks):
        """Whether an engine that makes these quirks has these taps.  It may have fed another number of tokens."""
        theirs = self.taps(quirks)
        for name, rows in taps.items():
            if name not in theirs:
                return False
            n, other = min(len(rows), len(theirs[name])), theirs[name]
            if name.startswith("kq_soft_max"):
                rows, other = rows[..., :n], other[..., :n]
            if rows[0].size != other[0].size or difference(rows[:n], other[:n].reshape(rows[:n].shape)) > SAME:
                return False
        return True


class Judge:
    """case: what measure.py knows of one engine: mistake, the taps of its run without rounding, first (its first wrong
    tap), everywhere (taps of the same mistake made in all layers, heads and tokens; None: it is made there)."""

    def __init__(self, oracle):
        self.oracle = oracle

    def verdict(self, said, case, is_whole):
        """said: the JSON of `plumb diagnose`.  Returns one of the words above, and what it said in short."""
        if said["agree"]:
            return "silent", "agrees"
        quirks = [tuple(row["quirks"]) for i, row in enumerate(said["ranking"])
                  if row["explains"] and (i == 0 or row["tied_with_first"])]
        local = said["local"] if said["local"] and said["local"]["explains"] else None
        if quirks and said["ranking"][0]["explains"]:
            right = [self.oracle.is_same(case.taps, names) for names in quirks]
            short = " = ".join("+".join(names) for names in quirks[:4])
            return ("right" if right[0] and len(right) == 1 else "tied" if any(right) else "wrong"), short
        if local:
            short = f"{'+'.join(local['quirks'])} in {local['layers']}"
            mistake = case.mistake
            is_right = (len(local["quirks"]) == 1 and mistake.layers == tuple(local["layers"])
                        and not mistake.heads and not mistake.tokens
                        and self.oracle.is_same(case.everywhere(), tuple(local["quirks"])))
            return ("right" if is_right else "wrong"), short
        first = said["truth"]["first_parted"]
        short = f"nothing fits, first {first}"
        if first == case.first:
            return "step", short
        return ("wrong" if is_whole else "none"), short
