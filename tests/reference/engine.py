#!/usr/bin/env python3
"""The second engine: a forward pass in numpy, f64, with a KV cache, that can make every mistake that plumb knows.

    engine.py --selftest        holds it against llama.cpp's vectors in tests/vectors/synth; prints TAP

It shares nothing with plumb's C code but the sentences of the table in src/diagnose/quirk_table.c, so that a mistake
which `plumb diagnose` names in a dump made here was understood twice.  Weights are what the gguf package dequantizes
them to, unless a mistake says otherwise (blocks.py).  Sources: LLaMA (arXiv 2302.13971), RMSNorm (1910.07467), SwiGLU
(2002.05202), RoPE (2104.09864), position interpolation (2306.15595), GQA (2305.13245), the GGUF specification, for
Granite's four multipliers its configuration in transformers, and for Qwen 3 (2505.09388) and Gemma 3 (2503.19786) their
reports and configurations.

Shapes: n tokens of a batch, S slots of the cache that are in use, H query heads, G key and value heads.
"""
import argparse
import collections
import math
import os
import sys

import gguf
import numpy as np

import blocks

HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.path.join(HERE, "..", "vectors")
SQUARE = ("attn_q", "attn_k", "attn_v", "attn_output")

# tokens: (n_token) those that were really fed; taps: name -> (n_token, ...) f64
Run = collections.namedtuple("Run", "tokens n_prompt taps")


class File:
    """Keys and tensors of a GGUF file.  Tensors are dequantized once."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in self.reader.fields.items() if field.data}
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.arch = self.keys["general.architecture"]
        self.known = {}

    def key(self, name, default=None):
        return self.keys.get(f"{self.arch}.{name}", default)

    def raw(self, tensor, shift):
        """(n_row, row bytes) u8 from shift bytes after the tensor's place, zeros past the end of the file."""
        start, n = tensor.data_offset + shift, int(tensor.n_bytes)
        data = np.zeros(n, np.uint8)
        there = self.reader.data[start:start + n]
        data[:len(there)] = there
        return data.reshape(int(np.prod(tensor.shape[1:])), -1)

    def tensor(self, name, misreads, shift):
        """(n_out, n_in) of a matrix, (n) of a vector, f64; None if there is no such tensor.  misreads: by type."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        kind = tensor.tensor_type
        mistake = misreads.get(kind.name)
        if (name, mistake, shift) not in self.known:
            raw = self.raw(tensor, shift)
            values = (blocks.read(kind.name, gguf.GGML_QUANT_SIZES[kind][1], raw, mistake) if mistake
                      else gguf.quants.dequantize(raw, kind).astype(np.float64))
            self.known[name, mistake, shift] = values.reshape([int(n) for n in tensor.shape[::-1]])
        return self.known[name, mistake, shift]


def rounded(x):
    """Activations in blocks of 32 8-bit codes and a scale, as in llama.cpp's Q8_0 except that the scale is f64."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    return (np.round(blocks / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)


class Engine:
    """mistakes: names of the table, "rope.pairing=halves", at most one value of each switch.  rounds: activations are
    rounded to 8 bits before every product with a matrix, which is no mistake."""

    def __init__(self, file, mistakes=(), rounds=False):
        self.file = file if isinstance(file, File) else File(file)
        self.rounds = rounds
        pairs = [mistake.split("=", 1) for mistake in mistakes]
        self.switch = dict(pairs)
        assert len(self.switch) == len(pairs), f"a switch has one value: {mistakes}"
        self.misreads = {}
        for name, value in pairs:
            first, last = name.split(".", 1)
            if first in blocks.READERS:
                assert first not in self.misreads, f"one mistake for each type: {mistakes}"
                self.misreads[first] = f"{last}={value}"
        key = self.file.key
        self.n_layer, self.n_embd = key("block_count"), key("embedding_length")
        self.n_head = key("attention.head_count")
        self.n_head_kv = key("attention.head_count_kv", self.n_head)
        self.head_dim = key("attention.key_length", self.n_embd // self.n_head)
        self.eps = float(key("attention.layer_norm_rms_epsilon"))
        self.n_rot = key("rope.dimension_count", self.head_dim)
        self.base = float(key("rope.freq_base", 10000.0))
        self.base_swa, self.window = float(key("rope.freq_base_swa", 10000.0)), key("attention.sliding_window", 0)
        self.period, self.softcap = key("attention.sliding_window_pattern", 6), key("final_logit_softcapping", 0)
        self.embedding_scale, self.residual_scale = float(key("embedding_scale", 1)), float(key("residual_scale", 1))
        if self.file.arch == "gemma3":
            self.embedding_scale = math.sqrt(self.n_embd)
        self.attention_scale, self.logit_scale = key("attention.scale"), float(key("logit_scale", 1))
        if self.wrong("model.scales", "ignored"):
            self.embedding_scale, self.residual_scale, self.attention_scale, self.logit_scale = 1.0, 1.0, None, 1.0
        if self.wrong("residual.scale", "missing"):
            self.residual_scale = 1.0
        self.factor = float(key("rope.scaling.factor", 1.0)) if key("rope.scaling.type") == "linear" else 1.0

    def wrong(self, switch, value):
        return self.switch.get(switch) == value

    # ---- bytes ----

    def weight(self, name):
        shift = self.file.reader.alignment if self.wrong("tensor.offset", "shifted") else 0
        return self.file.tensor(name, self.misreads, shift)

    def product(self, x, w):
        return (rounded(x) if self.rounds else x) @ w.T

    def project(self, block, name, x):
        """x W^T + bias"""
        w = self.weight(f"{block}.{name}.weight")
        if name in SQUARE and w.shape[0] == w.shape[1] and self.wrong("weights.square", "transposed"):
            w = w.T
        bias = None if self.wrong("attn.bias", "missing") else self.weight(f"{block}.{name}.bias")
        return self.product(x, w) if bias is None else self.product(x, w) + bias

    # ---- steps ----

    def fed(self, tokens, n_prompt):
        """The tokens that this engine feeds if these are requested."""
        tokens = list(tokens)
        if self.wrong("tokens.last", "twice"):
            tokens.insert(n_prompt, tokens[n_prompt - 1])
        if self.wrong("tokens.bos", "missing") and len(tokens) > 1:
            tokens, n_prompt = tokens[1:], n_prompt - 1
        elif self.wrong("tokens.bos", "doubled"):
            tokens, n_prompt = tokens[:1] + tokens, n_prompt + 1
        return np.array(tokens), n_prompt

    def norm(self, name, x):
        weight, mean = self.weight(name), self.switch.get("norm.mean")
        eps = {"0": 0.0, "1e-6": 1e-6, "1e-5": 1e-5}.get(self.switch.get("norm.eps"), self.eps)
        if mean == "subtracted":
            x = x - x.mean(axis=-1, keepdims=True)
        square = (x * x).sum(axis=-1, keepdims=True) / (1 if mean == "sum" else x.shape[-1])
        root = np.sqrt(square) + eps if self.wrong("norm.eps", "outside") else np.sqrt(square + eps)
        if self.wrong("norm.weight", "missing"):
            return x / root
        return x / root * (weight + 1 if self.wrong("norm.weight", "plus_one") else weight)

    def local(self, il):
        """Has the layer a sliding window, and the frequencies that belong to it?"""
        return bool(self.window) and (il + 1) % self.period != 0

    def rope(self, il, x, position):
        """x: (n, heads, head_dim), position: (n).  Rotates pair i of the first n_rot by position * angle[i]."""
        n_rot = {"half": self.n_rot // 4 * 2, "full": self.head_dim}.get(self.switch.get("rope.dim"), self.n_rot)
        base = float(self.switch.get("rope.theta", self.base_swa if self.local(il) else self.base))
        angle = base ** (-np.arange(0, n_rot, 2) / (self.n_embd if self.wrong("rope.dim", "n_embd") else n_rot))
        if not self.wrong("rope.scaling", "ignored") and not self.local(il):
            angle = angle / self.factor
            factors = self.weight("rope_freqs.weight")
            if factors is not None:
                n = min(len(factors), len(angle))
                angle[:n] /= factors[:n]
        if self.wrong("rope.direction", "reversed"):
            angle = -angle
        angle = position[:, None, None] * angle
        # As in the paper, or as in GPT-NeoX.
        truth = "neighbours" if self.file.arch in ("llama", "granite") else "halves"
        if self.switch.get("rope.pairing", truth) == "neighbours":
            first, second = np.arange(0, n_rot, 2), np.arange(1, n_rot, 2)
        else:
            first, second = np.arange(n_rot // 2), np.arange(n_rot // 2, n_rot)
        a, b, x = x[..., first], x[..., second], x.copy()
        x[..., first] = a * np.cos(angle) - b * np.sin(angle)
        x[..., second] = a * np.sin(angle) + b * np.cos(angle)
        return x

    def positions(self, start, n, n_prompt):
        """(n) positions by which Q, and K, of a batch are rotated."""
        position = start + np.arange(n)
        wrong = self.switch.get("rope.position")
        if wrong == "frozen" and start >= n_prompt:
            position[:] = n_prompt
        elif wrong == "restarted":
            position -= start
        elif wrong == "same":
            position[:] = start
        return position + (wrong in ("plus_one", "q_plus_one")), position + (wrong == "plus_one")

    def seen(self, il, slot, n_slot):
        """(n, S) whether a token sees a slot.  slot: (n) their own."""
        slots, own = np.arange(n_slot), slot[:, None]
        near = own - slots < self.window if self.local(il) else np.full((len(slot), n_slot), True)
        wrong = self.switch.get("attn.mask")
        if wrong == "none":
            return near
        if wrong == "strict":
            return near & ((slots < own) | (own == 0) & (slots == 0))
        return near & (slots <= own + (wrong == "late"))

    def softmax(self, scores, seen):
        """scores: (H, n, S), seen: (n, S)."""
        wrong = self.switch.get("attn.softmax")
        axis = {"over_heads": 0, "over_queries": 1}.get(wrong, 2)
        scores = np.where(seen, scores, -np.inf)
        if wrong == "no_max":
            e = np.where(scores > 88.7228, np.inf, np.exp(np.minimum(scores, 89)))
        else:
            largest = scores.max(axis=axis, keepdims=True)
            e = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
        total = e.sum(axis=axis, keepdims=True)
        return np.where(seen, e / total, 0)   # also if a total is NaN, or covers no token

    def attention(self, il, q, k, v, slot, position):
        """q: (n, H, head_dim); k, v: (S, G, head_dim).  Weights (n, H, S) and outputs (n, H, head_dim)."""
        n_slot = len(k)
        seen = self.seen(il, slot, n_slot)
        if self.wrong("attn.v", "unpermuted"):   # rows in memory as (token, g), read as (g, token)
            v = v.reshape(self.n_head_kv, n_slot, -1).swapaxes(0, 1)
        if self.wrong("kv.slot", "extra"):
            k, v = (np.concatenate([a, np.zeros_like(a[:1])]) for a in (k, v))
            seen = np.hstack([seen, np.full((len(slot), 1), True)])
        wrong = self.switch.get("attn.heads")
        head = np.arange(self.n_head)
        group = head // (self.n_head // self.n_head_kv)
        if wrong == "interleaved":
            group = head % self.n_head_kv
        elif wrong == "first":
            group = 0 * head
        elif wrong == "not_repeated":
            zeros = np.zeros((len(k), self.n_head - self.n_head_kv, k.shape[2]))
            k, v, group = np.hstack([k, zeros]), np.hstack([v, zeros]), head
        k, v = k[:, group], v[:, group]                                 # (S, H, head_dim)
        if self.wrong("rope.cache", "unrotated") and self.switch.get("rope.applied") not in ("none", "q_only"):
            scores = np.stack([np.einsum("hd,shd->hs", one, self.rope(il, k, np.full(len(k), at)))
                               for one, at in zip(q, position)], axis=1)
        else:
            scores = np.einsum("nhd,shd->hns", q, k)
        factors = {"missing": 1, "head_dim": 1 / self.head_dim, "n_embd": 1 / math.sqrt(self.n_embd),
                   "ignored": 1 / math.sqrt(self.head_dim)}
        right = self.attention_scale or factors["ignored"]
        scores = scores * factors.get(self.switch.get("attn.scale"), right)
        weights = self.softmax(scores, seen)
        out = np.stack([np.einsum("hs,shd->hd", row[:, there], v[there])    # 0 times a NaN that is not seen is not NaN
                        for row, there in zip(weights.swapaxes(0, 1), seen)])
        return weights[..., :n_slot].swapaxes(0, 1), out   # without that of kv.slot=extra

    def activation(self, gate):
        act = self.switch.get("ffn.act", "gelu" if self.file.arch == "gemma3" else "silu")
        if act == "gelu":
            return 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3)))
        if act == "gelu_erf":
            return 0.5 * gate * (1 + np.vectorize(math.erf)(gate / math.sqrt(2)))
        if act == "relu":
            return np.maximum(gate, 0)
        return gate if act == "none" else gate / (1 + np.exp(-gate))

    # ---- the pass ----

    def layer(self, il, x, start, n_prompt, cache, tap):
        """x: (n, n_embd), the batch's stream.  cache: [K, V], each (S, G, head_dim), of the batches before."""
        block, n = f"blk.{il}", len(x)

        def show(name, value):
            tap(f"{name}-{il}", value)
            return value

        def optional_norm(name, weight, value):
            if self.weight(f"{block}.{weight}.weight") is None:
                return value
            return show(name, self.norm(f"{block}.{weight}.weight", value))

        normed = show("attn_norm", self.norm(f"{block}.attn_norm.weight", x))
        q = show("Qcur", self.project(block, "attn_q", normed).reshape(n, self.n_head, -1))
        k = show("Kcur", self.project(block, "attn_k", normed).reshape(n, self.n_head_kv, -1))
        v = show("Vcur", self.project(block, "attn_v", normed).reshape(n, self.n_head_kv, -1))
        q = optional_norm("Qcur_normed", "attn_q_norm", q)
        k = optional_norm("Kcur_normed", "attn_k_norm", k)
        applied = self.switch.get("rope.applied")
        q_position, k_position = self.positions(start, n, n_prompt)
        q_rotated = show("Qcur_rope", q if applied in ("none", "k_only") else self.rope(il, q, q_position))
        k_rotated = show("Kcur_rope", k if applied in ("none", "q_only") else self.rope(il, k, k_position))
        k = k if self.wrong("rope.cache", "unrotated") else k_rotated

        step = start >= n_prompt
        slot = start + np.arange(n)
        if step and self.wrong("kv.slot", "overwritten"):
            slot[:] = n_prompt
        written = [np.concatenate([old[:slot[0]], new]) for old, new in zip(cache, (k, v))]
        read = written
        if step and self.wrong("kv.slot", "stale"):
            read = [np.concatenate([old[:slot[0]], np.zeros_like(new)]) for old, new in zip(cache, (k, v))]
        cache[:] = written
        weights, out = self.attention(il, q_rotated, *read, slot, q_position)
        show("kq_soft_max", weights)
        if self.wrong("attn.merge", "unpermuted"):   # in memory as (h, token), read as (token, h)
            out = np.ascontiguousarray(out.swapaxes(0, 1))
        out = show("kqv_out", out.reshape(n, -1))
        out = show("attn_out", self.project(block, "attn_output", out))
        from_norm = self.wrong("residual.from", "norm")
        out = optional_norm("attn_post_norm", "post_attention_norm", out) * self.residual_scale
        x = show("ffn_inp", out + (0 if self.wrong("residual.attn", "missing") else normed if from_norm else x))

        normed = show("ffn_norm", self.norm(f"{block}.ffn_norm.weight", x))
        names = ("ffn_up", "ffn_gate") if self.wrong("ffn.order", "swapped") else ("ffn_gate", "ffn_up")
        gate = show("ffn_gate", self.project(block, names[0], normed))
        up = show("ffn_up", self.project(block, names[1], normed))
        out = show("ffn_swiglu", self.activation(gate) * up)
        out = show("ffn_out", self.project(block, "ffn_down", out))
        out = optional_norm("ffn_post_norm", "post_ffw_norm", out) * self.residual_scale
        return show("l_out", out + (0 if self.wrong("residual.ffn", "missing") else normed if from_norm else x))

    def batch(self, tokens, start, n_prompt, caches, tap):
        x = self.weight("token_embd.weight")[tokens]
        if not self.wrong("embd.scale", "missing"):
            x = x * self.embedding_scale
        if self.wrong("embd.scale", "added"):
            x = x * math.sqrt(self.n_embd)
        tap("embd", x)
        for il in range(self.n_layer):
            x = self.layer(il, x, start, n_prompt, caches[il], tap)
        if not self.wrong("norm.output", "missing"):
            x = self.norm("output_norm.weight", x)
        tap("result_norm", x)
        head = self.weight("output.weight")
        if head is None:
            head = self.weight("token_embd.weight") * (0 if self.wrong("output.head", "zero") else 1)
        elif self.wrong("output.head", "tied"):
            head = self.weight("token_embd.weight")
        divisors = {"missing": 1, "multiplied": 1 / self.logit_scale}
        logits = self.product(x, head) / divisors.get(self.switch.get("logits.scale"), self.logit_scale)
        tap("result_output", self.softcap * np.tanh(logits / self.softcap) if self.softcap else logits)

    def run(self, tokens, n_prompt):
        """Computes the first n_prompt tokens as one batch, the others one by one."""
        tokens, n_prompt = self.fed(tokens, n_prompt)
        taps = collections.defaultdict(list)

        def tap(name, value):
            if name.startswith("kq_soft_max"):       # keys to come are 0
                value = np.pad(value, [(0, 0), (0, 0), (0, len(tokens))])[..., :len(tokens)]
            taps[name].append(value)

        nothing = np.zeros((0, self.n_head_kv, self.head_dim))
        caches = [[nothing, nothing] for _ in range(self.n_layer)]
        with np.errstate(all="ignore"):              # mistakes overflow; their NaN is part of the dump
            self.batch(tokens[:n_prompt], 0, n_prompt, caches, tap)
            for at in range(n_prompt, len(tokens)):
                self.batch(tokens[at:at + 1], at, n_prompt, caches, tap)
        return Run(tokens, n_prompt, {name: np.concatenate(parts) for name, parts in taps.items()})


# ---- selftest: against llama.cpp and the gguf package --------------------------------------------------------------


def read_taps(path):
    """name -> values in ggml's order; layout: tests/vectors/llama/logits.c."""
    data, at, taps = open(path, "rb").read(), 0, {}
    while at < len(data):
        shape = np.frombuffer(data, "<u4", 4, at + 24)[::-1].astype(int)
        n = int(np.prod(shape))
        taps[data[at:at + 24].rstrip(b"\0").decode()] = np.frombuffer(data, "<f4", n, at + 40).reshape(shape)
        at += 40 + 4 * n
    return taps


def selftest():
    sys.path.insert(0, os.path.join(VECTORS, "llama"))
    from numpy_pass import read_vectors, relative_rms
    passed = []
    print("TAP version 13")

    def check(what, error, most):
        passed.append(error <= most)
        print(f"{'ok' if passed[-1] else 'not ok'} {len(passed)} - {what}: {error:.2g}")

    for line in open(os.path.join(VECTORS, "synth", "synth.txt")):
        model, truth, _ = line.split(" ", 2)
        vectors = read_vectors(os.path.join(VECTORS, "synth", truth))
        engine = Engine(os.path.join(VECTORS, "synth", model))
        n = len(vectors["tokens"])
        for n_prompt in (n, 1):                      # at once, and one by one
            run = engine.run(vectors["tokens"], n_prompt)
            check(f"{model}, prompt of {n_prompt}: logits, relative RMS",
                  relative_rms(run.taps["result_output"], vectors["sample"]), 1e-5)
            path = os.path.join(VECTORS, "synth", model.replace(".gguf", ".taps"))
            if os.path.exists(path):
                dump = read_taps(path)
                errors = {}
                for name, theirs in dump.items():
                    ours = run.taps[name]
                    if name.startswith("kq_soft_max"):
                        ours = ours.swapaxes(0, 1)
                    errors[name] = relative_rms(ours.ravel(), theirs.ravel())
                worst = np.max(list(errors.values()))   # NaN is the worst; max() would pass it over
                check(f"{model}, prompt of {n_prompt}: worst of {len(errors)} taps", worst, 1e-5)
    rng = np.random.default_rng(1)
    for name in blocks.READERS:
        kind = gguf.GGMLQuantizationType[name]
        raw = rng.integers(0, 256, (8, 64 * gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
        with np.errstate(all="ignore"):
            theirs = gguf.quants.dequantize(raw, kind).astype(np.float64)
            ours = blocks.read(name, gguf.GGML_QUANT_SIZES[kind][1], raw, None)
        finite = np.isfinite(theirs)
        assert np.array_equal(finite, np.isfinite(ours)), name
        check(f"{name}: blocks read, relative RMS", relative_rms(ours[finite], theirs[finite]), 1e-6)
    print(f"1..{len(passed)}")
    if not all(passed):
        sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--selftest", action="store_true", required=True)
    parser.parse_args()
    selftest()
