"""Forms of a dump, how `plumb diagnose` gets one, and the tables of what it says.  For measure.py, also that of
tests/reports.
"""
import collections
import json
import os
import subprocess
import time

import numpy as np

# form of the dump: what is dumped, and how the engine rounds
FORMS = {"whole": ("whole", "f32"), "8 values": ("l_out8", "f32"), "top 10": ("top10", "f32"),
         "whole, int8": ("whole", "int8 per block"), "8 values, int8": ("l_out8", "int8 per block")}
VERDICTS = ("right", "tied", "step", "none", "silent", "wrong")


def number(value):
    return float(f"{value:.9g}")   # nine digits identify every f32


def top(row):
    return [[int(i), number(row[i])] for i in np.argsort(-row, kind="stable")[:10]]


def shown(what, taps):
    """What a dump of this form has: an .npz of all taps, or JSON (docs/trace.md)."""
    if what == "whole":
        return taps
    if what == "l_out8":
        return [{"name": name, "token": token, "shape": list(row.shape), "values": [number(v) for v in row[:8]]}
                for name, rows in taps.items() if name.startswith("l_out-") for token, row in enumerate(rows)]
    return [{"name": "result_output", "token": token, "top": top(row)}
            for token, row in enumerate(taps["result_output"])]


def write(path, what, tokens, n_prompt, taps):
    if what == "whole":
        np.savez(path, tokens=np.array(tokens), n_prompt=np.array(n_prompt), **taps)
        return
    with open(path, "w") as f:
        json.dump({"program": "an engine in numpy", "tokens": tokens, "n_prompt": n_prompt,
                   "taps": shown(what, taps)}, f)


def diagnose(plumb, model, folder, what, tokens, n_prompt, taps):
    """The JSON of `plumb diagnose`, and the seconds it took.  plumb: the command."""
    path = os.path.join(folder, f"theirs.{'npz' if what == 'whole' else 'json'}")
    write(path, what, tokens, n_prompt, taps)
    start = time.monotonic()
    ran = subprocess.run([*plumb, "diagnose", model, "--against", path, "--json"], capture_output=True, text=True)
    seconds = time.monotonic() - start
    if ran.returncode not in (0, 1, 4):   # 4: it agrees but for noise of an unknown kind
        raise RuntimeError(f"diagnose ended with {ran.returncode}: {ran.stderr.strip()}")
    return json.loads(ran.stdout), seconds


def numbers(what, taps):
    """The numbers of a dump of this form, for a comparison."""
    if what == "l_out8":
        return {name: rows[:, :8] for name, rows in taps.items() if name.startswith("l_out-")}
    if what == "top10":
        return {"result_output": taps["result_output"]}
    return taps


def essence(said):
    """The parts of a verdict that judge.py reads."""
    first = [row for i, row in enumerate(said["ranking"]) if i == 0 or row["tied_with_first"]]
    return {"agree": said["agree"], "truth": said["truth"], "local": said["local"],
            "ranking": [{name: row[name] for name in ("mistakes", "explains", "tied_with_first")}
                        for row in first[:20]],
            "measured": [{**step, "findings": step["findings"][:max(1, step["explained_by"])]}
                         for step in said.get("measured", [])[:1]]}


# ---- tables ----------------------------------------------------------------------------------------------------------

def count_table(results, forms, of):
    """One row for each value of `of` (a function of a result), one column for each form: right / shown."""
    rows = collections.defaultdict(lambda: {form: collections.Counter() for form in forms})
    for result in results:
        rows[of(result)][result["form"]][result["verdict"]] += 1
    lines = ["| | " + " | ".join(forms) + " |", "|---|" + "---|" * len(forms)]
    for name, counts in sorted(rows.items()):
        cells = []
        for form in forms:
            c = counts[form]
            n = sum(c[v] for v in VERDICTS)
            cells.append(f"{c['right'] + c['tied']}/{n}" + (f", {c['wrong']} wrong" if c["wrong"] else "") if n
                         else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def summary(results, forms):
    lines = ["| form of the dump | mistakes | right | of these tied | first wrong step only | later step | silent "
             "| wrong | hidden | slowest |", "|---|---|---|---|---|---|---|---|---|---|"]
    for form in forms:
        c = collections.Counter(r["verdict"] for r in results if r["form"] == form)
        n = sum(c[v] for v in VERDICTS)
        if not n:
            continue
        right = c["right"] + c["tied"]
        slowest = max(r["seconds"] for r in results if r["form"] == form)
        lines.append(f"| {form} | {n} | {right} ({right / n:.0%}) | {c['tied']} | {c['step']} | {c['none']} | "
                     f"{c['silent']} | {c['wrong']} ({c['wrong'] / n:.1%}) | {c['hidden']} | {slowest:.1f} s |")
    return lines


def failures(results):
    """One line for each mistake that is not named, by form and verdict."""
    lines = []
    for form in FORMS:
        for verdict in ("wrong", "silent", "none", "step"):
            some = [r for r in results if r["form"] == form and r["verdict"] == verdict]
            lines += [f"\n### {form}: {verdict} ({len(some)})"] if some else []
            lines += [f"- {r['model']}, kind {r['kind']}, first {r['first']}: {r['text']} -> {r['said']}" for r in some]
    return lines


def replace_between(path, name, lines):
    """Replaces what is between two marks in a document."""
    with open(path) as f:
        text = f.read()
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    with open(path, "w") as f:
        f.write(before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def print_tap(suite, tests):
    """Prints tests as TAP: each has a name and the lines that speak against it.  Returns the exit status."""
    print("TAP version 13")
    for i, (name, lines) in enumerate(tests):
        print(f"{'not ok' if lines else 'ok'} {i + 1} - {suite}: {name}")
        for line in lines:
            print(f"# {line}")
    print(f"1..{len(tests)}")
    return int(any(lines for _, lines in tests))
