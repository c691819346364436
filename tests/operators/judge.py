"""Decides whether a verdict of `plumb diagnose --json` names the mistake that an engine makes.

    right    the first of the ranking is the mistake, or one that gives the same numbers
    tied     the verdict names it among others, and says that the dump cannot tell them apart
    step     nothing is claimed, and the first wrong step is the one that is wrong
    none     nothing is claimed, and the first wrong step of a dump that lacks steps is a later one
    silent   it says that the numbers agree
    wrong    it claims another mistake, or another first wrong step in a dump that has all steps

A verdict claims a known mistake of the table in src/truth/mistakes, or what was measured in a step (a
finding).  Whether it is the mistake is not looked up but computed: the second engine in tests/reference makes
it, and all its taps must equal those of the engine with the mistake.
"""
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "reference"))

SAME = 1e-3   # the relative difference up to which two engines have the same taps: they round differently

# The kind of a mistake (mistakes.py) -> what a finding that names it says: a regular expression of its sentence.  A
# sentence is a finding only if its formula gives their numbers, so the words tell which of the equal formulas count.
NAMES = {
    "tensor": r"\bblk\.\d+\.|output\.weight|token_embd|instead of",
    "layers": r"\bblk\.\d+\.",
    "layer left out": r"instead of its input|left out|skipp|l_out|embd",
    "input": r"instead of|\b{value}\b",
    "residual": r"\*|\+|-|missing|instead|left out|twice|not added|{value}",
    "skipped": r"^is \w+(-\d+)? |skipped|left out|not (applied|rotated)|is its input|is x\b(?! /)",
    "twice": r"twice|silu\(silu|w\^2|w \* w|norm\(norm",
    "rows": r"order|shifted|reversed|exchanged|of (other|another) |row|first|repeat|swapped|permut|head",
    "columns": r"column|order|shifted|input|element|permut",
    "tokens": r"tokens?",
    "tail": r"zero|left out|drop|missing|tail|last|first|element",
    "merge": r"transposed|order",
    "transposed": r"transpos|column by column|dimensions",
    "one row": r"row|block|weights",
    "scale": r"times|sign|\*|factor|scale",
    "bias": r"bias",
    "norm.eps": r"eps", "norm.root": r"root|mean\(x\^2\)|\^", "norm.mean": r"sum", "norm.size": r"x \* w|not divided",
    "norm.center": r"mean|variance", "norm.axis": r"over|axis|groups?|parts|quarter|pieces",
    "norm.weight": r"weight|\bw\b|elements",
    "norm.gain+1": r"1 \+|\+ 1|one|plus",
    "rope.base": r"base", "rope.exponent": r"exponent|frequenc|base", "rope.scale": r"scal|position|frequenc|times",
    "rope.part": r"part|elements|pairs|rotat", "rope.trig": r"sine|cosine|degree|angle",
    "rope.inplace": r"place|already", "rope.pairs": r"pair|half|halves|neighbour",
    "rope.direction": r"direction|backward|negative|other way|sign|-1",
    "rope.position": r"position|offset|shift|later|earlier",
    "scores.scale": r"scale|times|temperature|sqrt|slope", "scores.softcap": r"cap|tanh",
    "scores.base": r"base|2\^|times|scale|slope|temperature",
    "mask": r"mask|sees?|seen|key|hid", "window": r"window|key|seen?|last", "keys": r"key|slot|K|V",
    "axis": r"over|axis", "sum": r"sum|zeros|mask|padd|sink",
    "heads": r"head|group", "values": r"\bK|key|layer|V", "slot": r"slot|cache|token|stale|key|stor",
    "exchange": r"silu\(up\)|exchanged|up\b.*gate", "act": r"\(|gate|up|times",
    "block": r"in each group of|of each 32|block|code|nibble|scale|bit|offset|min|zero|field|d\b",
}
# A finding that only says how large the difference is names nothing.
VAGUE = r"what each (token|head) is multiplied by"


def difference(a, b):
    """The relative RMS difference of two arrays; infinite where one is not finite and the other is."""
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    a, b = (np.where(np.isfinite(x), x, 0).astype(np.float64) for x in (a, b))
    with np.errstate(over="ignore"):
        size = np.sqrt(np.mean(b * b))
        return float(np.sqrt(np.mean((a - b) ** 2)) / (size if size > 0 else 1e-30))


class Oracle:
    """The taps of the second engine with known mistakes, for the tokens of one model."""

    def __init__(self, path, tokens, n_prompt):
        from engine import Engine, File   # tests/reference
        self.engine, self.file = Engine, File(path)
        self.tokens, self.n_prompt, self.runs = tokens, n_prompt, {}

    def taps(self, known):
        if known not in self.runs:
            with np.errstate(all="ignore"):
                run = self.engine(self.file, list(known)).run(self.tokens, self.n_prompt)
            self.runs[known] = {name: rows.astype(np.float32) for name, rows in run.taps.items()}
        return self.runs[known]

    def is_same(self, taps, known):
        """Whether an engine that makes these mistakes has these taps.  It may have fed another number of tokens."""
        theirs = self.taps(known)
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
        known = [tuple(row["mistakes"]) for i, row in enumerate(said["ranking"])
                  if row["explains"] and (i == 0 or row["tied_with_first"])]
        local = said["local"] if said["local"] and said["local"]["explains"] else None
        if known and said["ranking"][0]["explains"]:
            right = [self.oracle.is_same(case.taps, names) for names in known]
            short = " = ".join("+".join(names) for names in known[:4])
            return ("right" if right[0] and len(right) == 1 else "tied" if any(right) else "wrong"), short
        if local:
            short = f"{'+'.join(local['mistakes'])} in {local['layers']}"
            mistake = case.mistake
            is_right = (len(local["mistakes"]) == 1 and mistake.layers == tuple(local["layers"])
                        and not mistake.heads and not mistake.tokens
                        and self.oracle.is_same(case.everywhere(), tuple(local["mistakes"])))
            return ("right" if is_right else "wrong"), short
        first = said["truth"]["first_parted"]
        step = next(iter(said.get("measured") or []), None)
        if step and step["explained_by"] > 0:
            named = step["findings"][:step["explained_by"]]
            right = [self.names(case, step, finding) for finding in named]
            short = f"{step['tap']} " + " = ".join(f"{f['text']} {f['where']}".strip() for f in named[:3])
            if re.search(VAGUE, named[0]["text"]):
                return ("step" if first == case.first else "wrong"), short
            is_step = any(self.is_step(case, finding) for finding in named)
            if not is_step and first == case.first:   # what it says is of a later step
                return "step", short
            return ("right" if right[0] and len(right) == 1 else "tied" if any(right) else "wrong"), short
        short = f"nothing fits, first {first}"
        if step and step["findings"]:
            short += f"; nearest: {step['findings'][0]['text']} ({step['findings'][0]['error']:.2g})"
        if first == case.first:
            return "step", short
        return ("wrong" if is_whole else "none"), short

    @staticmethod
    def is_step(case, finding):
        """Whether the measured step is the first wrong one.  Under noise, it may show in a later layer first."""
        tap, first = finding["tap"].rsplit("-", 1), case.first.rsplit("-", 1)
        layers = case.mistake.layers
        return tap == first or (len(tap) == 2 and tap[0] == first[0] and case.is_noisy
                                and (layers is None or int(tap[1]) in layers))

    def names(self, case, step, finding):
        """Whether a finding names the mistake: the step, the layers, heads and tokens if only some, and the kind."""
        mistake, text = case.mistake, f"{finding['text']} {finding['where']}"
        pattern = NAMES[mistake.kind.split(".")[0] if mistake.kind.startswith("block.") else mistake.kind]
        pattern = pattern.replace("{value}", re.escape(str(mistake.value)))
        layers = [layer for layer in step["layers"]]
        if mistake.kind == "tensor" or mistake.kind == "layers" and "blk." in text:   # the tensor must be that one
            pattern = case.wrong_tensor()
        return (self.is_step(case, finding) and re.search(pattern, text) is not None
                and (mistake.layers is None or not layers or layers == list(mistake.layers))
                and (not mistake.heads or "head" in text) and (not mistake.tokens or "token" in text))
