"""Writes calibration.json: examples of scores with their right labels, and the calibration that minimizes
  sum over examples of -ln softmax(scores / temperature + bias)[right] + ((1/temperature - 1)^2 + sum of bias^2) / 2
as scipy finds it.

    venv/bin/pip install scipy==1.15.3 numpy==2.4.6 && venv/bin/python decisions/make.py"""
import json
import pathlib

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

LABELS = ["a", "b", "c", "d"]


def examples_of(rng, n, k, scale, bias):
    """Labels drawn from softmax(scores * scale + bias)."""
    scores = np.round(rng.normal(0, 3, (n, k)), 3)
    p = np.exp(log_softmax(scores * scale + bias, axis=1))
    return scores, np.array([rng.choice(k, p=row) for row in p])


def fit(scores, right, with_bias):
    n, k = scores.shape

    def loss(x):
        z = scores * x[0] + (x[1:] if with_bias else 0)
        return -log_softmax(z, axis=1)[np.arange(n), right].sum() + ((x[0] - 1) ** 2 + (x[1:] ** 2).sum()) / 2

    x = np.array([1.0] + [0.0] * (k if with_bias else 0))
    for _ in range(3):
        x = minimize(loss, x, method="BFGS", options={"gtol": 1e-9}).x
    return x


def main():
    rng = np.random.default_rng(7)
    cases = []
    for n, k, scale, bias in [(200, 2, 0.4, [0.8, -0.8]), (300, 4, 2.5, [0, 0, 0, 0]), (60, 3, 0.7, [1.5, 0, -1]),
                              (5, 2, 1, [0, 0])]:
        scores, right = examples_of(rng, n, k, scale, np.array(bias))
        case = {"labels": LABELS[:k], "scores": scores.tolist(), "right": right.tolist()}
        for name, with_bias in [("temperature", False), ("both", True)]:
            x = fit(scores, right, with_bias)
            case[name] = {"temperature": 1 / x[0], "bias": x[1:].tolist()}
        cases.append(case)
    path = pathlib.Path(__file__).parent / "calibration.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n", encoding="utf-8")


main()
