#!/usr/bin/env python3
"""The second engine: a forward pass in numpy, f64, with a KV cache, that can make every mistake that plumb knows.

    engine.py --selftest        holds it against llama.cpp's vectors in tests/vectors/synth; prints TAP

It shares nothing with plumb's C code but the sentences of the table in src/truth/mistakes/known_*.c, so that a
mistake which `plumb diagnose` names in a dump made here was understood twice.  Weights are what the gguf package
dequantizes them to, unless a mistake says otherwise (blocks.py).  Sources: LLaMA (arXiv 2302.13971), RMSNorm
(1910.07467), SwiGLU (2002.05202), RoPE (2104.09864), position interpolation (2306.15595), GQA (2305.13245), the GGUF
specification, for Granite's four multipliers its configuration in transformers; for the other architectures see
kinds.py.

Shapes: n tokens of a batch, S slots of the cache that are in use, H query heads, G key and value heads.
"""
import argparse
import collections
import glob
import math
import os
import sys

import gguf
import numpy as np

import blocks
from encoder import EncoderDecoder
from kinds import KINDS, kind_of
from per_layer import PerLayer
from recurrent import Recurrent
from rwkv import Rwkv
from stored import Stored

HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.path.join(HERE, "..", "vectors")
SQUARE = ("attn_q", "attn_k", "attn_v", "attn_output")

# tokens: (n_token) those that were really fed; taps: name -> (n_token, ...) f64
Run = collections.namedtuple("Run", "tokens n_prompt taps")


class File(Stored):
    """Tensors are dequantized once."""

    def __init__(self, path):
        super().__init__(path)
        self.known = {}

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
    """Activations in blocks of 32 8-bit codes and a scale, as in llama.cpp's Q8_0 except that the scale is f64.  The
    last block of a row may be shorter."""
    n = x.shape[-1]
    blocks = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -n % 32)]).reshape(*x.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    return (np.round(blocks / np.where(scale == 0, 1, scale)) * scale).reshape(*x.shape[:-1], -1)[..., :n]


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def most(value):
    """A number, or the largest of the numbers of all layers."""
    return max(value) if isinstance(value, list) else value


class Engine(Recurrent, Rwkv, EncoderDecoder, PerLayer):
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
        key, self.kind = self.file.key, kind_of(self.file.arch)
        self.n_layer, self.n_embd = key("block_count"), key("embedding_length")
        self.n_head = most(key("attention.head_count")) or self.n_embd // key("wkv.head_size")
        self.n_head_kv = most(key("attention.head_count_kv", self.n_head))
        self.head_dim = key("attention.key_length", self.n_embd // self.n_head)
        self.v_dim = self.head_dim
        kept = {"rms": "layer_norm_rms_epsilon", "layer": "layer_norm_epsilon"}[self.kind["norm"]]
        self.eps = float(key(f"attention.{kept}", 0.0))
        self.n_rot = key("rope.dimension_count", self.head_dim)
        self.scaled_dim = self.head_dim   # scores are divided by its square root
        if self.kind["latent"] == "absorbed":   # DeepSeek-V2, section 2.1.2: the head of K and V is the latent vector
            self.scaled_dim, self.v_dim = key("attention.key_length_mla"), key("attention.kv_lora_rank")
            self.n_head_kv, self.head_dim = 1, self.v_dim + self.n_rot
        self.set_blocks()
        self.pooling = {1: "mean", 2: "cls", 3: "last", 4: "rank"}.get(key("pooling_type"))
        self.set_factors()
        self.set_layers()
        self.set_ropes()
        self.parallel = self.kind["parallel"]
        if "block.order" in self.switch and not self.kind["from_norm"]:
            self.parallel = self.wrong("block.order", "parallel")
        self.act = self.switch.get("ffn.act", self.kind["act"])
        self.norm_kind = self.kind["norm"]
        mean = self.switch.get("norm.mean")
        if mean in ("subtracted", "kept"):
            self.norm_kind = "layer" if mean == "subtracted" else "rms"

    def wrong(self, switch, value):
        return self.switch.get(switch) == value

    def set_factors(self):
        """Numbers by which something is multiplied, and caps."""
        key = self.file.key
        self.embedding_scale, self.residual_scale = float(key("embedding_scale", 1) or 1), key("residual_scale", 1) or 1
        if self.kind["embedding"]:
            self.embedding_scale = math.sqrt(self.n_embd)
        self.attention_scale = key("attention.scale") or self.kind["scores"]
        self.logit_scale = float(key("logit_scale", 1) or 1)
        if self.kind["factor"]:
            self.logit_scale = 1 / self.logit_scale
        if self.kind["latent"] == "minicpm3":
            self.embedding_scale, self.residual_scale = 12.0, 1.4 / math.sqrt(self.n_layer)
            self.logit_scale = self.n_embd / 256
        if self.wrong("model.scales", "ignored"):
            self.embedding_scale, self.residual_scale, self.attention_scale, self.logit_scale = 1.0, 1.0, None, 1.0
        if self.wrong("residual.scale", "missing"):
            self.residual_scale = 1.0
        is_gemma = self.file.arch in ("gemma2", "gemma3", "gemma4")
        self.softcap = key("final_logit_softcapping", 0) if is_gemma else 0
        self.attention_softcap = key("attn_logit_softcapping", 0) if self.file.arch == "gemma2" else 0
        if self.wrong("softcap.logits", "missing"):
            self.softcap = 0
        if self.wrong("softcap.attn", "missing"):
            self.attention_softcap = 0

    def set_layers(self):
        """windows, 0 for none, and whether layers are rotated."""
        key, n, nope = self.file.key, self.n_layer, self.kind["nope"]
        window = key("attention.sliding_window", 0)
        pattern = key("attention.sliding_window_pattern", self.kind["period"])
        if window and self.file.arch == "llama4":
            window = 8192
        has = [bool(pattern[il]) if isinstance(pattern, list) else pattern == 0 or (il + 1) % pattern != 0
               for il in range(n)] if window else [False] * n
        attends = [self.mixer(f"blk.{il}") is None for il in range(n)]   # the others do not count
        if any(has) and all(one for one, there in zip(has, attends) if there):
            has = [True] * n
        self.has_window = has
        wrong = self.switch.get("window.layers")
        shown = has
        if any(has) and not all(has):
            wrongs = {"all": [True] * n, "exchanged": [not one for one in has], "shifted": has[1:] + has[:1]}
            shown = wrongs.get(wrong, has)
        size = {"plus_one": window + 1, "minus_one": max(window - 1, 1), "ignored": 0}.get(
            self.switch.get("window.size"), window)
        self.windows = [size if one else 0 for one in shown]
        self.chunked = self.wrong("window.kind", "chunk") or self.file.arch == "llama4" and not self.wrong(
            "window.kind", "sliding")
        if nope is True:
            self.rotated = [False] * n
        elif nope == "windowless":
            self.rotated = list(has)
        else:
            self.rotated = [not nope or (il + 1) % nope != 0 for il in range(n)]
        if any(self.rotated):
            if self.wrong("rope.layers", "all"):
                self.rotated = [True] * n
            elif self.wrong("rope.layers", "shifted"):
                self.rotated = self.rotated[1:] + self.rotated[:1]

    def set_ropes(self):
        """Base, factor and YaRN's two numbers of the frequencies, without and with a window: (base, factor, yarn,
        size).  A sector of Qwen2-VL's belongs to pairs that texts do not rotate."""
        key = self.file.key
        base, kind = float(key("rope.freq_base", 10000.0)), key("rope.scaling.type")
        factor = float(key("rope.scaling.factor", 1.0) or 1.0) if kind in ("linear", "yarn") else 1.0
        size, yarn = 1.0, None
        if kind == "yarn":
            n, original = self.n_rot, key("rope.scaling.original_context_length")
            low, high = (n * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1))
            yarn = max(0, math.floor(low)), min(n - 1, math.ceil(high))
            size = key("rope.scaling.attn_factor", 1.0) * (1 + 0.1 * math.log(factor))
        world = (base, factor, yarn, size)
        if self.wrong("rope.yarn", "linear"):
            world = (base, factor, None, size)
        if self.wrong("rope.yarn", "no_magnitude"):
            world = (base, factor, yarn, 1.0)
        base_swa = float(key("rope.freq_base_swa", 10000.0))
        self.ropes = {False: world, True: {"same": world, "key": (base_swa, 1.0, None, 1.0),
                                           "unscaled": (base, 1.0, None, 1.0)}[self.kind["local"]]}
        wrong = self.switch.get("rope.base")
        if wrong:
            self.ropes = {False: self.ropes[wrong != "global"], True: self.ropes[wrong == "local"]}
        n, sections = self.n_rot // 2, key("rope.dimension_sections")
        self.turns = np.full(self.head_dim, True)
        known = self.file.arch in ("qwen2vl", "glm4", "glm4moe", "qwen35") and sections and sections[0] and sections[1]
        if known and not self.wrong("rope.sections", "ignored"):
            sector = np.arange(self.head_dim) % sum(sections)
            self.turns = sector < sum(sections[:3])
            if self.file.arch == "qwen35":   # interleaved: time, height and width take turns
                self.turns = sector < 3 * np.array(sections)[sector % 3]
        self.pairing = self.switch.get("rope.pairing", "halves" if known else self.kind["pairing"])

    # ---- bytes ----

    def weight(self, name):
        shift = self.file.reader.alignment if self.wrong("tensor.offset", "shifted") else 0
        return self.file.tensor(self.stored_name(name), self.misreads, shift)

    def product(self, x, w):
        return (rounded(x) if self.rounds else x) @ w.T

    def square(self, name, w):
        is_wrong = name in SQUARE and w.shape[0] == w.shape[1] and self.wrong("weights.square", "transposed")
        has_square = self.kind["gate"] != "in_q" and not self.kind["latent"]   # attn_q or attn_k
        return w.T if is_wrong and has_square else w

    def project(self, block, name, x):
        """x W^T scale + bias, of attention"""
        w = self.square(name, self.weight(f"{block}.{name}.weight"))
        scale = self.weight(f"{block}.{name}.scale") if self.kind["attn_scale"] else None
        bias = None if self.wrong("attn.bias", "missing") else self.weight(f"{block}.{name}.bias")
        y = self.product(x, w) * (1 if scale is None else scale)
        return y if bias is None else y + bias

    def feed(self, block, name, x, part=None):
        """(x W^T + bias) scale, of the feed-forward network; part: of rows"""
        w, bias, scale = (self.weight(f"{block}.{name}.{what}") for what in ("weight", "bias", "scale"))
        w, bias = (one if part is None or one is None else one[part] for one in (w, bias))
        bias = None if self.wrong("ffn.bias", "missing") else bias
        y = self.product(x, w)
        y = y if bias is None else y + bias
        is_scaled = self.kind["ffn_scale"] is True or self.kind["ffn_scale"] and not name.endswith("shexp")
        return y * scale if is_scaled and scale is not None else y

    # ---- steps ----

    def fed(self, tokens, n_prompt):
        """The tokens that this engine feeds if these are requested."""
        tokens = list(tokens)
        if self.wrong("tokens.last", "twice"):
            tokens.insert(n_prompt, tokens[n_prompt - 1])
        if self.wrong("tokens.padding", "included") and self.pooling:
            tokens.insert(n_prompt, 0)
            n_prompt += 1
        if self.wrong("tokens.bos", "missing") and len(tokens) > 1:
            tokens, n_prompt = tokens[1:], n_prompt - 1
        elif self.wrong("tokens.bos", "doubled"):
            tokens, n_prompt = tokens[:1] + tokens, n_prompt + 1
        return np.array(tokens), n_prompt

    def epsilon(self):
        return {"0": 0.0, "1e-6": 1e-6, "1e-5": 1e-5}.get(self.switch.get("norm.eps"), self.eps)

    def normalized(self, x, weight, bias=None):
        """Norms of the last axis.  weight: of one row or of all, or None."""
        eps = self.epsilon()
        if self.norm_kind == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        square = (x * x).sum(axis=-1, keepdims=True) / (1 if self.wrong("norm.mean", "sum") else x.shape[-1])
        y = x / (np.sqrt(square) + eps if self.wrong("norm.eps", "outside") else np.sqrt(square + eps))
        if weight is not None and not self.wrong("norm.weight", "missing"):
            y = y * (weight + 1 if self.wrong("norm.weight", "plus_one") else weight)
        return y if bias is None or self.wrong("norm.bias", "missing") else y + bias

    def norm(self, name, x):
        return self.normalized(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def qk_norm(self, block, name, x):
        """x: (n, heads, head_dim) -> the same, after the norm of Q or K; None if there is none"""
        weight, kind = self.weight(f"{block}.attn_{name}_norm.weight"), self.kind["qk_norm"]
        applied = self.switch.get("qk_norm.applied")
        if applied == "none" or applied == "q_only" and name == "k":
            return None
        if weight is None and kind != "bare":
            return None
        wide = kind == "row" and not self.wrong("qk_norm.kind", "head")
        wide = wide or kind == "head" and not self.kind["late"] and self.wrong("qk_norm.kind", "row")
        n, heads, dim = x.shape
        if kind == "head" and weight.size == dim:
            weight = np.tile(weight, heads)
        if wide:
            return self.normalized(x.reshape(n, -1), weight).reshape(x.shape)
        return self.normalized(x, None if weight is None else weight.reshape(heads, dim))

    def rope(self, il, x, position, part="right"):
        """x: (n, heads, head_dim), position: (n).  Rotates pair i of the first n_rot, or of the last ones in latent
        attention, by position * angle[i]."""
        n_rots = {"half": self.n_rot // 4 * 2, "full": self.head_dim // 2 * 2}
        n_rot = n_rots.get(self.switch.get("rope.dim"), self.n_rot)
        is_latent = self.kind["latent"]
        if is_latent and n_rot > self.n_rot:
            n_rot = self.n_rot
        base, factor, yarn, size = self.ropes[self.has_window[il]]
        is_local = {"global": False, "local": True, "exchanged": not self.has_window[il]}.get(
            self.switch.get("rope.base"), self.has_window[il])
        base = float(self.switch.get("rope.theta", base))
        pair = np.arange(n_rot // 2)
        angle = base ** (-2 * pair / (self.n_embd if self.wrong("rope.dim", "n_embd") else n_rot))
        if self.wrong("rope.scaling", "ignored"):
            size = 1.0
        else:
            factors = None if self.kind["local"] == "key" and is_local else self.weight("rope_freqs.weight")
            if is_latent:
                factors = self.weight("rope_factors_long.weight")   # llama.cpp pads contexts to 256 tokens
            if factors is not None:
                n = min(len(factors), len(angle))
                angle[:n] /= factors[:n]
            scaled = 1.0 if yarn is None else np.clip((pair - yarn[0]) / max(0.001, yarn[1] - yarn[0]), 0, 1)
            angle = angle * (1 - scaled + scaled / factor)
        angle = np.where(self.turns[:len(pair)], angle, 0)
        if self.wrong("rope.direction", "reversed"):
            angle = -angle
        angle = position[:, None, None] * angle
        # As in the paper, or as in GPT-NeoX.
        first = np.arange(0, n_rot, 2) if self.pairing == "neighbours" else np.arange(n_rot // 2)
        second = first + (1 if self.pairing == "neighbours" else n_rot // 2)
        if is_latent and part == "right":
            first, second = first + x.shape[2] - self.n_rot, second + x.shape[2] - self.n_rot
        if self.wrong("rope.part", "last") and not is_latent:
            first, second = first + self.head_dim - n_rot, second + self.head_dim - n_rot
        a, b, x = x[..., first], x[..., second], x.copy()
        x[..., first] = (a * np.cos(angle) - b * np.sin(angle)) * size
        x[..., second] = (a * np.sin(angle) + b * np.cos(angle)) * size
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
        slots, own, window = np.arange(n_slot), slot[:, None], self.windows[il]
        near = np.full((len(slot), n_slot), True)
        if window and self.chunked:
            near = slots >= own - own % window
        elif window:
            near = own - slots < window
        if self.sees_all(il):
            return near if self.is_encoder(il) or not self.wrong("cross.mask", "causal") else near & (slots <= own)
        wrong = self.switch.get("attn.mask")
        if self.is_cross(il) and wrong == "none":
            wrong = None
        if wrong == "none" or not self.kind["causal"] and wrong != "causal":
            return near
        if wrong == "strict":
            return near & ((slots < own) | (own == 0) & (slots == 0))
        return near & (slots <= own + (wrong == "late"))

    def softmax(self, scores, seen, sinks):
        """scores: (H, n, S), seen: (n, S), sinks: (H) or None: one more score of each head."""
        wrong = self.switch.get("attn.softmax")
        axis = {"over_heads": 0, "over_queries": 1}.get(wrong, 2)
        scores = np.where(seen, scores, -np.inf)
        if sinks is not None and axis == 2:
            column = np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))
            scores, seen = np.concatenate([scores, column], axis=2), np.hstack([seen, np.full((len(seen), 1), True)])
        if wrong == "no_max":
            e = np.where(scores > 88.7228, np.inf, np.exp(np.minimum(scores, 89)))
        else:
            largest = scores.max(axis=axis, keepdims=True)
            e = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
        total = e.sum(axis=axis, keepdims=True)
        weights = np.where(seen, e / total, 0)   # also if a total is NaN, or covers no token
        return weights if sinks is None or axis != 2 else weights[..., :-1]

    def alibi(self, slot, n_slot):
        """(H, n, S) what is added to scores"""
        wrong, n = self.switch.get("alibi.slopes"), 2 ** int(math.log2(self.n_head))
        if not self.kind["alibi"] or wrong == "missing":
            return 0
        head, largest = np.arange(self.n_head), self.kind["alibi"]
        power = (head + (wrong != "from_zero")) / n
        power[n:] = (2 * (head[n:] - n) + (wrong != "from_zero")) / (2 * n)
        distance = np.abs(slot[:, None] - np.arange(n_slot))
        return (1 if wrong == "positive" else -1) * 2.0 ** (-largest * power)[:, None, None] * distance

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
            k, v, group = np.hstack([k, zeros]), np.hstack([v, zeros[..., :1].repeat(v.shape[2], 2)]), head
        k, v = k[:, group], v[:, group]                                 # (S, H, head_dim)
        cached = self.wrong("rope.cache", "unrotated") and self.switch.get("rope.applied") not in ("none", "q_only")
        if cached and self.rotated[il]:
            scores = np.stack([np.einsum("hd,shd->hs", one, self.rope(il, k, np.full(len(k), at)))
                               for one, at in zip(q, position)], axis=1)
        else:
            scores = np.einsum("nhd,shd->hns", q, k)
        factors = {"missing": 1, "head_dim": 1 / self.scaled_dim, "n_embd": 1 / math.sqrt(self.n_embd),
                   "ignored": 1 / math.sqrt(self.scaled_dim)}
        right = self.attention_scale or factors["ignored"]
        if self.wrong("latent.scale", "absorbed"):
            right = 1 / math.sqrt(self.head_dim)
        scores = scores * factors.get(self.switch.get("attn.scale"), right)
        if self.attention_softcap:
            scores = self.attention_softcap * np.tanh(scores / self.attention_softcap)
        extra = scores.shape[2] - n_slot
        bias = self.alibi(slot, n_slot) + self.bucket_bias(il, slot, n_slot)
        scores = scores + (np.pad(bias, [(0, 0), (0, 0), (0, extra)]) if extra and not np.isscalar(bias) else bias)
        sinks = None if self.wrong("attn.sinks", "missing") else self.weight(f"blk.{il}.attn_sinks.weight")
        weights = self.softmax(scores, seen, sinks)
        out = np.stack([np.einsum("hs,shd->hd", row[:, there], v[there])    # 0 times a NaN that is not seen is not NaN
                        for row, there in zip(weights.swapaxes(0, 1), seen)])
        return weights[..., :n_slot].swapaxes(0, 1), out   # without that of kv.slot=extra

    def activation(self, gate, up):
        """up: 1 without a gate"""
        if self.act == "oai":
            wrong = self.switch.get("ffn.limit")
            limit = np.inf if wrong == "missing" else 7
            gate = np.clip(gate, -limit if wrong == "swapped" else -np.inf, limit)
            up = np.clip(up, -np.inf if wrong in ("swapped", "one_sided") else -limit, limit)
            return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
        if self.act == "gelu" or self.act == "t5" and not np.isscalar(up):
            return up * 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3)))
        if self.act == "gelu_erf":
            return up * 0.5 * gate * (1 + np.vectorize(math.erf)(gate / math.sqrt(2)))
        if self.act == "gelu_quick":
            return up * gate / (1 + np.exp(-1.702 * gate))
        if self.act in ("relu", "relu_sqr", "t5"):
            return up * np.maximum(gate, 0) ** (2 if self.act == "relu_sqr" else 1)
        return up * (gate if self.act == "none" else gate / (1 + np.exp(-gate)))

    def limited(self, block, part, gate, up):
        """The activation, in some architectures with the limit that a layer has: of up, and of the activated gate."""
        limits = self.file.key(f"swiglu_clamp_{part}") if self.kind["limits"] else None
        limit = limits[int(block.split(".")[1])] if limits else 0
        if limit <= 1e-6 or self.wrong("ffn.limit", "missing"):
            return self.activation(gate, up)
        return np.minimum(self.activation(gate, 1), limit) * np.clip(up, -limit, limit)

    # ---- experts ----

    def used_experts(self, block, scores, show):
        """scores: (n, n_expert).  The experts of each token, the best first, and their weights, (n, n_used) each."""
        key, n = self.file.key, scores.shape[-1]
        gating = self.kind["gating"] or {1: "softmax", 2: "sigmoid", 3: "softmax_used"}[key("expert_gating_func", 1)]
        gating = self.switch.get("router.gating", gating)
        if gating == "softmax":
            scores = show("ffn_moe_probs", softmax(scores))
        elif gating == "sigmoid":
            scores = show("ffn_moe_probs", 1 / (1 + np.exp(-scores)))
        bias = None if self.wrong("router.bias", "missing") else self.weight(f"{block}.exp_probs_b.bias")
        biased = scores if bias is None else show("ffn_moe_probs_biased", scores + bias)
        n_group, n_good = key("expert_group_count", 0), key("expert_group_used_count", 0)
        choice = biased
        if n_group > 1 and not self.wrong("router.groups", "ignored"):
            groups = biased.reshape(len(biased), n_group, -1)
            best = np.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
            rank = np.argsort(np.argsort(-best, axis=-1, kind="stable"), axis=-1, kind="stable")
            choice = np.where((rank < n_good)[..., None], groups, -np.inf).reshape(biased.shape)
        if self.wrong("experts.chosen", "smallest"):
            choice = np.where(np.isneginf(choice), -np.inf, -choice)
        n_used = key("expert_used_count")
        if self.wrong("experts.used", "one_fewer"):
            n_used = max(n_used - 1, 1)
        used = np.argsort(-choice, axis=-1, kind="stable")[:, :n_used]
        show("ffn_moe_topk", used.astype(float))
        weights = np.take_along_axis(biased if self.wrong("router.bias", "in_weights") else scores, used, axis=-1)
        show("ffn_moe_weights", weights)
        if gating == "softmax_used":
            weights = show("ffn_moe_weights_softmax", softmax(weights))
        sum_to_1 = key("expert_weights_norm") if self.kind["sum_to_1"] is None else self.kind["sum_to_1"]
        if {"missing": False, "added": True}.get(self.switch.get("router.norm"), sum_to_1):
            weights = show("ffn_moe_weights_norm",
                           weights / np.maximum(weights.sum(axis=-1, keepdims=True), 6.103515625e-5))
        scale = self.kind["gating"] is None and key("expert_weights_scale")
        if scale and scale != 1 and not self.wrong("router.scale", "missing"):
            weights = show("ffn_moe_weights_scaled", weights * scale)
        if self.wrong("experts.weights", "reversed"):
            weights = weights[:, ::-1]
        if self.wrong("experts.index", "plus_one"):
            used = (used + 1) % n
        return used, weights

    def products(self, block, name, used, x):
        """x: (n, n_used, n_in) -> (n, n_used, n_out), by the experts used"""
        w, bias, scale = (self.weight(f"{block}.{name}.{what}") for what in ("weight", "bias", "scale"))
        scale = scale if self.kind["ffn_scale"] is True else None
        if w is None:   # fused: the gate comes first
            w = np.split(self.weight(f"{block}.ffn_gate_up_exps.weight"), 2, axis=1)[name == "ffn_up_exps"]
        bias = None if self.wrong("ffn.bias", "missing") else bias

        def one(e, x):
            y = self.product(x, w[e]) * (1 if scale is None else scale[e])
            return y if bias is None else y + bias[e]

        return np.stack([np.stack([one(e, row) for e, row in zip(es, rows)]) for es, rows in zip(used, x)])

    def experts(self, block, x, show):
        """x: (n, n_embd) -> the outputs of the experts"""
        scores = show("ffn_moe_logits", self.feed(block, "ffn_gate_inp", x))
        used, weights = self.used_experts(block, scores, show)
        before = {"input": True, "output": False}.get(self.switch.get("experts.weighted"), self.kind["before"])
        each = np.repeat(x[:, None], used.shape[1], axis=1)
        if before:
            each = show("ffn_moe_weighted", each * weights[..., None])
        names = ("ffn_up", "ffn_gate") if self.wrong("ffn.order", "swapped") else ("ffn_gate", "ffn_up")
        gate = show("ffn_moe_gate", self.products(block, f"{names[0]}_exps", used, each))
        up = show("ffn_moe_up", self.products(block, f"{names[1]}_exps", used, each))
        each = show("ffn_moe_swiglu", self.limited(block, "exp", gate, up))
        each = show("ffn_moe_down", self.products(block, "ffn_down_exps", used, each))
        if not before:
            each = show("ffn_moe_weighted", each * weights[..., None])
        out = show("ffn_moe_out", each.sum(axis=1))
        if self.weight(f"{block}.ffn_up_shexp.weight") is None or self.wrong("shared.expert", "missing"):
            return out
        gate = show("ffn_gate", self.feed(block, f"{names[0]}_shexp", x))
        up = show("ffn_up", self.feed(block, f"{names[1]}_shexp", x))
        shared = self.feed(block, "ffn_down_shexp", show("ffn_swiglu", self.limited(block, "shexp", gate, up)))
        router = None if self.wrong("shared.gate", "missing") else self.weight(f"{block}.ffn_gate_inp_shexp.weight")
        if router is not None:
            shared = shared / (1 + np.exp(-self.product(x, router.reshape(1, -1))))
        return out + show("ffn_shexp", shared)

    # ---- the pass ----

    def qkv(self, block, x):
        """Q (n, H, head_dim), K and V (n, G, head_dim)"""
        n_q, n_kv, dim = self.n_head * self.head_dim, self.n_head_kv * self.head_dim, self.head_dim
        names = ("attn_q", "attn_k", "attn_v")
        if self.weight(f"{block}.attn_qkv.weight") is None:
            parts = [self.project(block, name, x) for name in names[:2]]
            has_v = self.weight(f"{block}.attn_v.weight") is not None   # K takes its place
            parts.append(self.project(block, "attn_v", x) if has_v else parts[1])
        else:
            w, bias, scale = (self.weight(f"{block}.attn_qkv.{what}") for what in ("weight", "bias", "scale"))
            starts = np.cumsum([n_q, n_kv])
            ws = [self.square(name, one) for name, one in zip(names, np.split(w, starts))]
            row = np.concatenate([self.product(x, one) for one in ws], axis=1) * (1 if scale is None else scale)
            row = row if bias is None or self.wrong("attn.bias", "missing") else row + bias
            if self.wrong("qkv.split", "by_group"):   # for each of G: its query heads, its K, its V
                groups = row.reshape(len(x), self.n_head_kv, -1, dim)
                row = np.concatenate([part.reshape(len(x), -1) for part in
                                      (groups[:, :, :-2], groups[:, :, -2], groups[:, :, -1])], axis=1)
            parts = np.split(row, starts, axis=1)
        q, k, v = (part.reshape(len(x), -1, dim) for part in parts)
        return (q, v, k) if self.wrong("qkv.order", "v_before_k") else (q, k, v)

    def latent(self, block, x, show):
        """Q and K (n, H, head_dim), not yet rotated, and V (n, H, v_dim).  DeepSeek-V2 (2405.04434), section 2.1.
        Absorbed, Q is what it is before attn_k_b, and K and V have one head."""
        def normed(switch, name, value):
            return value if self.wrong(switch, "missing") else self.norm(f"{block}.{name}", value)

        row = self.product(x, self.weight(f"{block}.attn_kv_a_mqa.weight"))
        if self.weight(f"{block}.attn_q_a.weight") is not None:
            q = show("q_a", normed("latent.q_norm", "attn_q_a_norm", self.product(x, self.weight(
                f"{block}.attn_q_a.weight"))))
            q = show("q", self.product(q, self.weight(f"{block}.attn_q_b.weight")))
        else:
            q = show("q", self.product(x, self.weight(f"{block}.attn_q.weight")))
        show("kv_cmpr_pe", row)
        row, rotated = np.split(row, [self.file.key("attention.kv_lora_rank")], axis=1)
        row = show("kv_cmpr", normed("latent.norm", "attn_kv_a_norm", row))
        q = q.reshape(len(x), self.n_head, -1)
        if self.kind["latent"] == "absorbed":
            return q, np.concatenate([row, rotated], axis=1)[:, None], row[:, None]
        kv = show("kv", self.product(row, self.weight(f"{block}.attn_kv_b.weight")))
        kv, plain = kv.reshape(len(x), self.n_head, -1), self.head_dim - self.n_rot
        if self.wrong("latent.split", "v_first"):
            v, k = np.split(kv, [kv.shape[2] - plain], axis=2)
        else:
            k, v = np.split(kv, [plain], axis=2)
        k = np.concatenate([k, np.repeat(rotated[:, None], self.n_head, axis=1)], axis=2)
        return q, k, v

    def of_heads(self, block, name, x):
        """x: (n, H, n_in) -> (n, H, n_out), each head by its matrix of attn_k_b or attn_v_b, (H, n_out, n_in)"""
        w, wrong = self.weight(f"{block}.attn_{name}.weight"), self.switch.get(f"latent.{name}")
        if wrong == "transposed":   # stored as (n_out, n_in), read as (n_in, n_out)
            w = w.reshape(len(w), w.shape[2], w.shape[1]).swapaxes(1, 2)
        elif wrong == "next_head":
            w = np.roll(w, -1, axis=0)
        return np.stack([self.product(x[:, h], w[h]) for h in range(len(w))], axis=1)

    def absorbed(self, block, q):
        """q: (n, H, plain + rotated) -> (n, H, n_kv + rotated)"""
        plain = q.shape[2] - self.n_rot
        return np.concatenate([self.of_heads(block, "k_b", q[..., :plain]), q[..., plain:]], axis=2)

    def temperature(self, il, start, n):
        """(n, 1, 1) factors of Q, in Llama 4 and Mistral 3; None: there are none"""
        key, arch = self.file.key, self.file.arch
        scale, every, offset = key("attention.temperature_scale", 0), key("rope.scaling.original_context_length"), 0
        if arch == "llama4":
            scale, every, offset = (0 if self.kind_is_rotated(il) else 0.1), 8192, 1
        if arch not in ("llama4", "mistral3") or not scale or self.wrong("attn.temperature", "missing"):
            return None
        position = start + np.arange(n)
        return (1 + scale * np.log(1 + np.floor((position + offset) / every)))[:, None, None]

    def kind_is_rotated(self, il):
        return (il + 1) % self.kind["nope"] != 0

    def attend(self, il, normed, start, n_prompt, cache, show):
        """normed: (n, n_embd), the input of attention.  cache: [K, V], each (S, G, head_dim), of the batches before."""
        block, n = f"blk.{il}", len(normed)

        def normalize(name, which, value):
            after = self.qk_norm(block, which, value) if has_qk_norm and value is not None else None
            return value if after is None else show(name, after)

        slot = self.slots(start, n, n_prompt)
        if self.is_cross(il) and self.sees_all(il):
            return self.attend_encoder(il, normed, slot, cache, show)
        has_kv = self.kv_layer(il) == il
        if has_kv:
            q, k, v = self.latent(block, normed, show) if self.kind["latent"] else self.qkv(block, normed)
        else:
            q, k, v = self.project(block, "attn_q", normed).reshape(n, self.n_head, -1), None, None
        gate = None
        if self.kind["gate"] == "in_q":
            q, gate = q[:, ::2], q[:, 1::2].reshape(n, -1)
        if not self.kind["latent"]:
            for name, value in (("Qcur", q), ("Kcur", k), ("Vcur", v))[:3 if has_kv else 1]:
                show(name, value)
        has_qk_norm = self.kind["qk_norm"] != "bare" or self.kind_is_rotated(il)
        late = self.kind["late"] and not self.wrong("qk_norm.kind", "early")
        late = late or self.kind["qk_norm"] == "head" and self.wrong("qk_norm.kind", "late")
        if not late:
            q, k = normalize("Qcur_normed", "q", q), normalize("Kcur_normed", "k", k)
        if self.kind["v_norm"] and has_kv:
            v = show("Vcur_normed", self.normalized(v, None))
        applied = self.switch.get("rope.applied") if self.rotated[il] else "none"
        q_position, k_position = self.positions(start, n, n_prompt)
        q_rotated = q if applied in ("none", "k_only") else self.rope(
            il, q, q_position, "first" if self.wrong("latent.rope", "first_of_q") else "right")
        q_rotated = show("Qcur_rope", self.absorbed(block, q_rotated) if self.kind["latent"] == "absorbed"
                         else q_rotated)
        k_rotated = k if applied in ("none", "q_only") or not has_kv else self.rope(il, k, k_position)
        if has_kv:
            show("Kcur_rope", k_rotated)
        if self.kind["latent"]:
            show("Vcur", v)
        if late:
            q_rotated = normalize("Qcur_normed", "q", q_rotated)
            k_rotated = normalize("Kcur_normed", "k", k_rotated)
        k = k if self.wrong("rope.cache", "unrotated") else k_rotated

        step = start >= n_prompt
        if not has_kv:
            cache = self.caches[self.kv_layer(il)]
            k, v = (rows[slot[0]:] for rows in cache)
        written = [np.concatenate([old[:slot[0]], new]) for old, new in zip(cache, (k, v))]
        read = written
        if step and self.wrong("kv.slot", "stale"):
            read = [np.concatenate([old[:slot[0]], np.zeros_like(new)]) for old, new in zip(cache, (k, v))]
        cache[:] = written
        temperature = self.temperature(il, start, n)
        if temperature is not None:
            q_rotated = show("Qcur_attn_temp_scaled", q_rotated * temperature)
        return self.attended(il, *self.attention(il, q_rotated, *read, slot, q_position), normed, gate, show)

    def slots(self, start, n, n_prompt):
        """(n) the places of the cache to which a batch is written"""
        slot = start + np.arange(n)
        if start >= n_prompt and self.wrong("kv.slot", "overwritten"):
            slot[:] = n_prompt
        return slot

    def attended(self, il, weights, out, normed, gate, show):
        """out: (n, H, v_dim) -> (n, n_embd).  gate: (n, H * v_dim) where it is a part of Q."""
        block, n = f"blk.{il}", len(out)
        show("kq_soft_max", weights)
        if self.wrong("attn.merge", "unpermuted"):   # in memory as (h, token), read as (token, h)
            out = np.ascontiguousarray(out.swapaxes(0, 1)).reshape(out.shape)
        if self.kind["latent"] == "absorbed":
            out = self.of_heads(block, "v_b", show("kqv_latent", out))
        out = show("kqv_out", out.reshape(n, -1))
        if self.kind["gate"] and not self.wrong("attn.gate", "missing"):
            if gate is None:
                gate = self.product(normed, self.weight(f"{block}.attn_gate.weight"))
            show("attn_gate_proj", gate)
            gate = np.logaddexp(0, gate) if self.wrong("attn.gate", "softplus") else 1 / (1 + np.exp(-gate))
            out = show("attn_gated", out * np.repeat(gate, out.shape[1] // gate.shape[1], axis=1))
        return show("attn_out", self.project(block, "attn_output", out))

    def layer(self, il, x, start, n_prompt, cache, tap):
        """x: (n, n_embd), the batch's stream.  cache: see attend and recurrent.py."""
        block = f"blk.{il}"

        def show(name, value):
            tap(f"{name}-{il}", value)
            return value

        def optional_norm(name, weight, value):
            if weight is None or self.weight(f"{block}.{weight}.weight") is None:
                return value
            return show(name, self.norm(f"{block}.{weight}", value))

        attn_norm, ffn_norm = "attn_norm", self.kind["ffn_norm"]
        attn_post, ffn_post = "post_attention_norm", "post_ffw_norm"
        attn_out, layer_out = "attn_output_norm", "layer_output_norm"   # of the sums, in encoders
        if ffn_norm == attn_post:
            attn_post = ffn_post = None
        has_post = attn_post and self.weight(f"{block}.{attn_post}.weight") is not None
        if has_post and self.wrong("norm.post", "before"):
            attn_norm, ffn_norm, attn_post, ffn_post = attn_post, ffn_post, None, None
        elif has_post and self.wrong("norm.post", "as_llama"):
            ffn_norm, attn_post, ffn_post = attn_post, None, None
        elif has_post and self.wrong("norm.post", "residual"):
            attn_out, layer_out, attn_post, ffn_post = attn_post, ffn_post, None, None
        elif self.wrong("norm.post", "missing"):
            attn_post = ffn_post = None
        if self.weight(f"{block}.{attn_out}.weight") is None:
            attn_out = layer_out = None
        elif self.wrong("norm.out", "before"):
            attn_norm, ffn_norm, attn_out, layer_out = attn_out, layer_out, None, None
        elif self.wrong("norm.out", "missing"):
            attn_out = layer_out = None

        layer_input = x
        self.enter(il)
        normed = optional_norm("attn_norm", attn_norm, x)
        mix, step = self.mixer(block), start >= n_prompt
        out = (mix(block, normed, step, cache, show) if mix
               else self.attend(il, normed, start, n_prompt, cache, show))
        from_norm = self.wrong("residual.from", "norm") and not self.kind["from_norm"]
        out, x = self.scaled_sum(optional_norm("attn_post_norm", attn_post, out), x, normed)
        is_missing = self.wrong("residual.attn", "missing") and not self.kind["alone"]
        x = out + (0 if is_missing else normed if from_norm else x)
        if self.is_alone(il):
            return show("l_out", x)
        x = show("ffn_inp", self.norm(f"{block}.{attn_out}", x) if attn_out else x)

        has_ffn_norm = ffn_norm and self.weight(f"{block}.{ffn_norm}.weight") is not None
        if self.parallel:
            normed = show("ffn_norm", self.norm(f"{block}.{ffn_norm}", layer_input)) if has_ffn_norm else normed
        elif has_ffn_norm:
            normed = show("ffn_norm", self.norm(f"{block}.{ffn_norm}", x))
        elif self.kind["parallel"]:   # block.order=sequential
            normed = optional_norm("ffn_norm", attn_norm, x)
        else:
            normed = x
        out = show("ffn_out", self.feed_forward(block, normed, show))
        out, x = self.scaled_sum(optional_norm("ffn_post_norm", ffn_post, out), x, normed)
        x = out + (0 if self.wrong("residual.ffn", "missing") else normed if from_norm else x)
        every = self.file.key("rescale_every_n_layers", 0)
        if every and self.file.arch == "rwkv6" and (il + 1) % every == 0:
            x = x / 2
        x = self.norm(f"{block}.{layer_out}", x) if layer_out else x
        return show("l_out", self.add_own(il, x, show))

    def scaled_sum(self, out, x, normed):
        """The output and what it is added to, one of them times residual_scale."""
        if not self.kind["from_norm"]:
            return out * self.residual_scale, x
        return out, (x if self.wrong("lightning.residual", "input") else normed) * self.residual_scale

    def feed_forward(self, block, x, show):
        if self.is_rwkv():
            return self.channel_mix(block, x, show)
        if self.kind["act"] == "t5" and "ffn.act" not in self.switch:
            self.act = "relu" if self.weight(f"{block}.ffn_gate.weight") is None else "gelu"
        if self.weight(f"{block}.ffn_gate_inp.weight") is not None:
            return self.experts(block, x, show)
        swapped = self.wrong("ffn.order", "swapped")
        if self.weight(f"{block}.ffn_gate.weight") is None and self.file.arch == "glm4":   # fused: the gate comes first
            n_ff = len(self.weight(f"{block}.ffn_up.weight")) // 2
            halves = slice(0, n_ff), slice(n_ff, None)
            parts = [("ffn_up", half) for half in (halves[::-1] if swapped else halves)]
        elif self.weight(f"{block}.ffn_gate.weight") is None:
            up = show("ffn_up", self.feed(block, "ffn_up", x))
            return self.feed(block, "ffn_down", show("ffn_swiglu", self.activation(up, 1)))
        else:
            parts = [("ffn_up", None), ("ffn_gate", None)] if swapped else [("ffn_gate", None), ("ffn_up", None)]
        gate = show("ffn_gate", self.feed(block, parts[0][0], x, parts[0][1]))
        up = show("ffn_up", self.feed(block, parts[1][0], x, parts[1][1]))
        return self.feed(block, "ffn_down", show("ffn_swiglu", self.limited(block, "shexp", gate, up)))

    def embed(self, tokens, start):
        x = self.weight("token_embd.weight")[tokens]
        if not self.wrong("embd.scale", "missing"):
            x = x * self.embedding_scale
        if self.wrong("embd.scale", "added"):
            x = x * math.sqrt(self.n_embd)
        types = self.weight("token_types.weight")
        if types is not None and not self.wrong("embd.types", "missing"):
            x = x + types[0]
        table, wrong = self.weight("position_embd.weight"), self.switch.get("position.learned")
        if table is not None and wrong != "missing":
            position = np.arange(len(tokens)) + (0 if wrong == "restarted" else start)
            x = x + table[np.minimum(position + {"plus_one": 1, "plus_two": 2}.get(wrong, 0), len(table) - 1)]
        has_norm = self.weight("token_embd_norm.weight") is not None and self.kind["output_norm"] == "output_norm"
        has_norm = has_norm and not self.wrong("norm.embd", "missing")
        return self.norm("token_embd_norm", x) if has_norm else x

    def batch(self, tokens, start, n_prompt, caches, tap):
        x = self.embed(self.fed_to_decoder(tokens), start)
        tap("embd", x)
        self.own, self.caches = self.embed_layers(tokens, x, tap), caches
        for il in range(self.n_encoder, self.n_layer):
            x = self.layer(il, x, start, n_prompt, caches[il], tap)
        norm = self.kind["output_norm"]
        if self.weight(f"{norm}.weight") is not None and not self.wrong("norm.output", "missing"):
            x = self.norm(norm, x)
        tap("result_norm", x)
        if self.file.arch.endswith("bert"):
            return   # encoders have no head
        head = self.weight("output.weight")
        if head is None:
            head = self.weight("token_embd.weight") * (0 if self.wrong("output.head", "zero") else 1)
        elif self.wrong("output.head", "tied"):
            head = self.weight("token_embd.weight")
        logits, bias = self.product(x, head), self.weight("output.bias")
        if bias is not None and not self.wrong("output.bias", "missing") and self.file.arch != "qwen2vl":
            logits = logits + bias
        divisors = {"missing": 1, "multiplied": 1 / self.logit_scale}
        logits = logits / divisors.get(self.switch.get("logits.scale"), self.logit_scale)
        tap("result_output", self.softcap * np.tanh(logits / self.softcap) if self.softcap else logits)

    def run(self, tokens, n_prompt):
        """Computes the first n_prompt tokens as one batch, the others one by one."""
        tokens, n_prompt = self.fed(tokens, n_prompt)
        taps, self.last = collections.defaultdict(list), {}

        def tap(name, value):
            if name.startswith("kq_soft_max"):       # keys to come are 0
                value = np.pad(value, [(0, 0), (0, 0), (0, len(tokens))])[..., :len(tokens)]
            taps[name].append(value)

        def nothing(il):
            self.enter(il)
            return [np.zeros((0, self.n_head_kv, dim)) for dim in (self.head_dim, self.v_dim)]

        is_recurrent = [self.mixer(f"blk.{il}") is not None for il in range(self.n_layer)]
        caches = [[None, None] if one else nothing(il) for il, one in enumerate(is_recurrent)]
        with np.errstate(all="ignore"):              # mistakes overflow; their NaN is part of the dump
            if self.n_encoder:
                self.encode(tokens, caches, tap)
            if self.wrong("state.start", "used") and any(is_recurrent):
                self.batch(tokens[:n_prompt], 0, n_prompt, caches, lambda name, value: None)
                caches = [kept if one else nothing(il) for il, (one, kept) in enumerate(zip(is_recurrent, caches))]
            self.batch(tokens[:n_prompt], 0, n_prompt, caches, tap)
            for at in range(n_prompt, len(tokens)):
                self.batch(tokens[at:at + 1], at, n_prompt, caches, tap)
        taps = {name: np.concatenate(parts) for name, parts in taps.items()}
        if self.pooling and self.pooling != "rank":   # classifiers are not computed
            rows, kind = taps["result_norm"], self.switch.get("pooling.kind", self.pooling)
            taps["result_embd_pooled"] = {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}[kind][None]
        return Run(tokens, n_prompt, taps)


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


def other_name(file, name):
    """The engine's name of a tap of llama.cpp's, which differs in some architectures."""
    stem, _, layer = name.partition("-")
    if file.arch in ("gpt-oss", "glm4moe") and stem == "attn_post_norm":
        stem = "ffn_norm"
    return f"{stem}-{layer}" if layer else stem


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
    tokens = [7, 1, 33, 33, 60, 2, 19, 48]   # tests/vectors/archs/make.sh
    for path in sorted(glob.glob(os.path.join(VECTORS, "archs", "*.taps"))):
        file = File(path.replace(".taps", ".gguf"))
        if file.arch not in KINDS or file.arch == "gemma4" and file.key("expert_count", 0):   # not its experts
            continue
        dump = read_taps(path)
        for n_prompt in (len(tokens), 3) if kind_of(file.arch)["causal"] else (len(tokens),):
            run, errors = Engine(file).run(tokens, n_prompt), {}
            for name, theirs in dump.items():
                ours = run.taps.get(other_name(file, name))
                if ours is None or ours.size != theirs.size:
                    continue
                if name.startswith("kq_soft_max"):
                    ours = ours.swapaxes(0, 1)
                errors[name] = relative_rms(ours.ravel(), theirs.ravel())
            n_layer = sum(name.startswith("l_out-") for name in run.taps)
            worst = np.max(list(errors.values())) if len(errors) > 7 * n_layer else np.nan
            if "-v" in sys.argv and not worst <= 1e-5:
                print({name: f"{error:.2g}" for name, error in errors.items()})
            check(f"{os.path.basename(path)}, prompt of {n_prompt}: worst of {len(errors)} of {len(dump)} taps", worst,
                  1e-5)
    rng = np.random.default_rng(1)
    for name in blocks.READERS:
        kind = gguf.GGMLQuantizationType[name]
        raw = rng.integers(0, 256, (8, 64 * gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
        with np.errstate(all="ignore"):
            theirs = gguf.quants.dequantize(raw, kind).astype(np.float64)
            ours = blocks.read(name, gguf.GGML_QUANT_SIZES[kind][1], raw, None)
        finite = np.isfinite(theirs)   # of f32
        with np.errstate(all="ignore"):
            assert np.array_equal(finite, np.isfinite(ours.astype(np.float32))), name
        check(f"{name}: blocks read, relative RMS", relative_rms(ours[finite], theirs[finite]), 1e-6)
    print(f"1..{len(passed)}")
    if not all(passed):
        sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--selftest", action="store_true", required=True)
    parser.add_argument("-v", action="store_true", help="print the errors of taps that differ")
    parser.parse_args()
    selftest()
