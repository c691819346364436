"""An engine of Llama's family whose forward pass is a list of steps, so that a mistake can be made in any of them.

A step has a function, the names of its inputs, the tensors of the file that it reads, and constants.  The right engine
runs the steps as `steps` lists them.  mistakes.py changes the arguments of a step, or what is done to them.  The
arithmetic is 32-bit, as in most engines; `rounding` says what happens to the factors of products.

Sources: RMSNorm (arXiv 1910.07467), RoPE (2104.09864), SwiGLU (2002.05202), GQA (2305.13245), attention (1706.03762),
the GGUF specification, and for the order of the elements of a head llama.cpp's conversion scripts.

Shapes: n tokens of a batch, S tokens in the cache, H query heads, G heads of keys and values, d elements of a head.
"""
import dataclasses
import functools
import math
import os
import sys

import gguf
import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
from stored import Stored   # noqa: E402

F32 = np.float32


class File(Stored):
    """Each tensor is dequantized once."""

    def __init__(self, path):
        super().__init__(path)
        self.path = path
        self.read = functools.cache(self.read)

    def read(self, name):
        """(n_out, n_in) of a matrix, (n) of a vector, f32."""
        tensor = self.tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(F32)
        return values.reshape(tuple(int(n) for n in reversed(tensor.shape)))


@dataclasses.dataclass(frozen=True)
class Step:
    tap: str                     # the name of its output, without the layer
    layer: int                   # -1: outside the layers
    function: str
    inputs: tuple = ()           # names of earlier outputs, with their layers
    tensors: tuple = ()          # names of tensors; None: there is none
    constants: dict = dataclasses.field(default_factory=dict)
    heads: int = 0               # the output has that many heads; 0: no heads
    # What a wrong engine does besides: functions of an array, applied to the first input, the first tensor, the output.
    before: object = None
    reads: object = None
    after: object = None
    right: object = None         # the step that a right engine takes; None: this one is right
    only: object = None          # (n_token, heads or 1) -> where the wrong step is taken; None: everywhere

    @property
    def name(self):
        return self.tap if self.layer < 0 else f"{self.tap}-{self.layer}"


def steps(file):
    """The forward pass of a file of architecture llama, qwen2 or qwen3."""
    key = file.key
    n_layer, n_embd, n_head = key("block_count"), key("embedding_length"), key("attention.head_count")
    n_kv = key("attention.head_count_kv", n_head)
    head_dim = key("attention.key_length", n_embd // n_head)
    eps = key("attention.layer_norm_rms_epsilon")
    norm = {"eps": eps, "root": 0.5, "eps_outside": False, "center": False, "sum": False, "axis": "row", "add": 0.0,
            "weight_power": 1, "order": "normalize, weigh"}
    rope = {"base": key("rope.freq_base", 10000.0), "n_rot": key("rope.dimension_count", head_dim),
            "pairs": "neighbours" if file.arch == "llama" else "halves", "position": 0, "scale": 1.0, "direction": 1.0,
            "times": 1, "exponent": 2.0, "form": "rotation", "first": 0}
    heads = {"group": "blocks"}

    def has(name):
        return name if name in file.tensors else None

    def step(tap, function, inputs, tensors=(), constants=None, n=0, layer=-1):
        return Step(tap, layer, function, tuple(inputs), tuple(tensors), constants or {}, n)

    program = [step("embd", "embed", (), ["token_embd.weight"], {"token": 0, "scale": 1.0})]
    last = "embd"
    for il in range(n_layer):
        block = f"blk.{il}."

        def at(tap, function, inputs, tensors=(), constants=None, n=0):
            names = [f"{x}-{il}" if x != last else x for x in inputs]
            program.append(step(tap, function, names, [t and has(block + t) for t in tensors], constants, n, il))
            return f"{tap}-{il}"

        linear = {"scale": 1.0}
        at("attn_norm", "norm", [last], ["attn_norm.weight"], norm)
        qk = {}
        for letter, n in (("Q", n_head), ("K", n_kv)):
            of = f"attn_{letter.lower()}"
            at(letter + "cur", "linear", ["attn_norm"], [of + ".weight", of + ".bias"], linear, n)
            qk[letter] = letter + "cur"
            if has(f"{block}{of}_norm.weight"):
                qk[letter] = letter + "cur_normed"
                at(qk[letter], "norm", [letter + "cur"], [of + "_norm.weight"], norm, n)
        at("Vcur", "linear", ["attn_norm"], ["attn_v.weight", "attn_v.bias"], linear, n_kv)
        for letter, n in (("Q", n_head), ("K", n_kv)):
            at(letter + "cur_rope", "rope", [qk[letter]], [], rope, n)
        at("K_cache", "store", ["Kcur_rope"], [], {"slot": "position"}, n_kv)
        at("V_cache", "store", ["Vcur"], [], {"slot": "position"}, n_kv)
        at("kq_soft_max", "weigh", ["Qcur_rope", "K_cache"], [],
           {"scale": 1 / math.sqrt(head_dim), "softcap": 0.0, "future": 0, "window": 0, "hidden": (), "axis": "keys",
            "zeros": 0, "base": math.e, "order": "mask, softmax", **heads}, n_head)
        at("kqv_out", "mix", ["kq_soft_max", "V_cache"], [], {"merge": "heads", **heads}, n_head)
        at("attn_out", "linear", ["kqv_out"], ["attn_output.weight", "attn_output.bias"], linear)
        at("ffn_inp", "add", ["attn_out", last], [], {"first": 1.0, "second": 1.0})
        at("ffn_norm", "norm", ["ffn_inp"], ["ffn_norm.weight"], norm)
        at("ffn_gate", "linear", ["ffn_norm"], ["ffn_gate.weight", None], linear)
        at("ffn_up", "linear", ["ffn_norm"], ["ffn_up.weight", None], linear)
        at("ffn_swiglu", "gate", ["ffn_gate", "ffn_up"], [], {"activation": "silu", "order": "activate, multiply"})
        at("ffn_out", "linear", ["ffn_swiglu"], ["ffn_down.weight", None], linear)
        last = at("l_out", "add", ["ffn_out", "ffn_inp"], [], {"first": 1.0, "second": 1.0})
    program.append(step("result_norm", "norm", [last], ["output_norm.weight"], norm))
    head = has("output.weight") or "token_embd.weight"
    program.append(step("result_output", "linear", ["result_norm"], [head, None], linear))
    return program


# ---- the functions of the steps --------------------------------------------------------------------------------------

def embed(run, _, tensors, c):
    tokens = np.array(run.tokens)
    wanted = np.clip(run.positions + c["token"], 0, len(tokens) - 1)
    return tensors[0][tokens[wanted]] * F32(c["scale"])


def norm(run, inputs, tensors, c):
    x, weight = inputs[0], tensors[0]
    weight = np.ones(x.shape[-1], F32) if weight is None else weight
    weight = weight ** c["weight_power"] + F32(c["add"])
    if c["order"] == "weigh, normalize":
        x, weight = x * weight, F32(1)
    if c["center"]:
        x = x - x.mean(axis=-1, keepdims=True)
    rows = x if c["axis"] != "groups" else x.reshape(*x.shape[:-1], 4, -1)   # four norms side by side
    axis = {"row": -1, "groups": -1, "tokens": 0, "heads": 1}[c["axis"]]
    square = (np.sum if c["sum"] else np.mean)(np.square(rows), axis=axis, keepdims=True)
    if c["axis"] == "groups":
        square = np.broadcast_to(square, rows.shape).reshape(x.shape)
    size = square ** c["root"] + c["eps"] if c["eps_outside"] else (square + F32(c["eps"])) ** F32(c["root"])
    return x / size * weight


def linear(run, inputs, tensors, c):
    x = inputs[0].reshape(len(inputs[0]), -1)
    y = run.product(x, tensors[0]) * F32(c["scale"])
    return y if tensors[1] is None else y + tensors[1]


def rope(run, inputs, tensors, c):
    x, n, first = inputs[0], c["n_rot"], c["first"]
    for _ in range(c["times"]):
        part, half = x[..., first:first + n], n // 2
        is_adjacent = c["pairs"] == "neighbours"
        a, b = (part[..., 0::2], part[..., 1::2]) if is_adjacent else (part[..., :half], part[..., half:])
        position = (run.positions + c["position"]) * c["scale"] * c["direction"]
        if c["form"] == "integer":
            position = np.floor(position)
        angle = position[:, None, None] * float(c["base"]) ** (-c["exponent"] * np.arange(half) / n)
        if c["form"] == "degrees":
            angle = angle * math.pi / 180
        cos, sin = np.cos(angle).astype(F32), np.sin(angle).astype(F32)
        if c["form"] == "sine and cosine exchanged":
            cos, sin = sin, cos
        turned = a * cos - b * sin
        other = (turned if c["form"] == "in place" else a) * sin + b * cos
        if c["form"] == "no sine":
            turned, other = a * cos, b * cos
        y = x.copy()
        pair = np.stack([turned, other], axis=-1 if is_adjacent else -2)
        y[..., first:first + n] = pair.reshape(part.shape)
        x = y
    return x


def store(run, inputs, tensors, c):
    """Returns all S slots; the cache is memory of zeros before they are written."""
    old = run.cache.get(run.step.name)
    n_past = 0 if old is None else len(old)
    cache = np.zeros((run.positions[-1] + 1, *inputs[0].shape[1:]), F32)
    if n_past:
        cache[:n_past] = old
    is_decoding = n_past > 0
    for row, position in zip(inputs[0], run.positions):
        slot = {"position": position, "one early": position - is_decoding, "last of prompt": run.n_prompt - 1
                if is_decoding else position, "not decoded": None if is_decoding else position,
                "reversed prompt": position if is_decoding else run.n_prompt - 1 - position,
                "one late": position + is_decoding}[c["slot"]]
        if slot is not None and slot < len(cache):
            cache[slot] = row
    run.cache[run.step.name] = cache
    return cache


def mapping(c, n_head, n_kv):
    h, group = np.arange(n_head), n_head // n_kv
    return {"blocks": h // group, "interleaved": h % n_kv, "first": h * 0, "shifted": (h // group + 1) % n_kv,
            "reversed": n_kv - 1 - h // group, "off by one": ((h + 1) // group) % n_kv}[c["group"]]


def weigh(run, inputs, tensors, c):
    q, k = inputs
    k = k[:, mapping(c, q.shape[1], k.shape[1])]
    scores = np.einsum("nhd,shd->nhs", run.rounded(q), run.rounded(k)) * F32(c["scale"])
    if c["softcap"]:
        scores = np.tanh(scores / F32(c["softcap"])) * F32(c["softcap"])
    distance = run.positions[:, None] - np.arange(len(k))
    seen = distance >= -c["future"]
    if c["window"]:
        seen &= distance < c["window"]
    for slot in c["hidden"]:
        seen[:, slot:slot + 1] &= distance[:, slot:slot + 1] == 0
    seen = np.broadcast_to(seen[:, None, :], scores.shape)
    mask_first = c["order"] == "mask, softmax"
    logits = np.where(seen, scores, F32(-np.inf)) if mask_first else scores
    axis = {"keys": 2, "heads": 1, "queries": 0}[c["axis"]]
    top = np.max(np.where(np.isfinite(logits), logits, F32(-1e30)), axis=axis, keepdims=True)
    top = np.maximum(top, 0) if c["zeros"] else top
    e = np.power(F32(c["base"]), logits - top, dtype=F32)
    total = e.sum(axis=axis, keepdims=True) + c["zeros"] * np.power(F32(c["base"]), -top, dtype=F32)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.where(total > 0, e / total, 0)
    return np.where(seen, weights, 0).astype(F32)


def mix(run, inputs, tensors, c):
    weights, v = inputs
    v = v[:, mapping(c, weights.shape[1], v.shape[1])]
    y = np.einsum("nhs,shd->nhd", run.rounded(weights), run.rounded(v))
    if c["merge"] == "elements":
        y = np.ascontiguousarray(y.swapaxes(1, 2)).reshape(y.shape)
    return y


def add(run, inputs, tensors, c):
    return inputs[0] * F32(c["first"]) + inputs[1] * F32(c["second"])


def sigmoid(x):
    return 1 / (1 + np.exp(-x.clip(-80, 80)))


ACTIVATIONS = {
    "silu": lambda x: x * sigmoid(x), "sigmoid": sigmoid, "none": lambda x: x, "relu": lambda x: np.maximum(x, 0),
    "gelu, tanh": lambda x: x / 2 * (1 + np.tanh(F32(math.sqrt(2 / math.pi)) * (x + F32(0.044715) * x ** 3))),
    "gelu": lambda x: x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))).astype(F32),
    "gelu, quick": lambda x: x * sigmoid(F32(1.702) * x), "relu squared": lambda x: np.square(np.maximum(x, 0)),
    "tanh": np.tanh, "silu twice": lambda x: ACTIVATIONS["silu"](ACTIVATIONS["silu"](x)),
    "leaky relu": lambda x: np.where(x > 0, x, F32(0.01) * x), "softplus": lambda x: np.log1p(np.exp(x.clip(-80, 80))),
}


def gate(run, inputs, tensors, c):
    activation = ACTIVATIONS[c["activation"]]
    if c["order"] == "multiply, activate":
        return activation(inputs[0] * inputs[1])
    if c["order"] == "add":
        return activation(inputs[0]) + inputs[1]
    return activation(inputs[0]) * inputs[1]


FUNCTIONS = {f.__name__: f for f in (embed, norm, linear, rope, store, weigh, mix, add, gate)}


# ---- rounding --------------------------------------------------------------------------------------------------------

def bf16(x):
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(F32)


def int8(x, width):
    """Codes of 8 bits with one scale for each `width` elements."""
    blocks = x.reshape(-1, width)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / F32(127)
    return (np.rint(blocks / np.where(scale == 0, F32(1), scale)) * scale).reshape(x.shape).astype(F32)


# name: what happens to a row before its product with a matrix; the same for queries, keys, weights and values
ROUNDING = {
    "f32": (None, None),
    "f16": (lambda x: x.astype(np.float16).astype(F32),) * 2,
    "bf16": (bf16,) * 2,
    "int8 per block": (lambda x: int8(x, 32), None),
    "int8 per row": (lambda x: int8(x, x.shape[-1]), None),
    "another order": (None, None),
}


class Pass:
    """One run over the tokens: the first n_prompt at once, then one by one."""

    def __init__(self, file, program, tokens, n_prompt, rounding="f32"):
        self.file, self.tokens, self.n_prompt, self.rounding = file, tokens, n_prompt, rounding
        self.before_product, self.in_attention = ROUNDING[rounding]
        self.cache, self.effects, rows = {}, {}, {}   # effects: name -> relative differences that a mistake made
        for first, end in [(0, n_prompt), *((t, t + 1) for t in range(n_prompt, len(tokens)))]:
            self.positions = np.arange(first, end)
            values = {}
            for step in program:
                values[step.name] = self.take(step, values)
                if step.function != "store":
                    rows.setdefault(step.name, []).append(self.shown(step, values[step.name]))
        self.taps = {name: np.concatenate(parts) for name, parts in rows.items()}

    def shown(self, step, y):
        """The rows of kq_soft_max have a key for each token of the run."""
        if step.function == "weigh":
            y = np.pad(y, ((0, 0), (0, 0), (0, len(self.tokens) - y.shape[2])))
        return y

    def product(self, x, matrix):
        if self.before_product:
            x = self.before_product(x)
        if self.rounding == "another order":   # eight sums, of every eighth product, from the last to the first
            parts = [x[:, i::8] @ matrix[:, i::8].T for i in reversed(range(8))]
            return functools.reduce(np.add, parts)
        return x @ matrix.T

    def rounded(self, x):
        return self.in_attention(x) if self.in_attention else x

    def compute(self, step, values):
        self.step = step
        inputs = [values[name] for name in step.inputs]
        tensors = [name and self.file.read(name) for name in step.tensors]
        if step.before:
            inputs[0] = step.before(inputs[0])
        if step.reads:
            tensors[0] = step.reads(tensors[0])
        y = FUNCTIONS[step.function](self, inputs, tensors, step.constants)
        if step.heads:
            y = y.reshape(len(y), step.heads, -1)
        return (step.after(y) if step.after else y).astype(F32)

    def take(self, step, values):
        if step.right is None:
            return self.compute(step, values)
        if not all(name in values for name in step.right.inputs):   # of a layer that is left out
            self.effects.setdefault(step.name, []).append(math.inf)
            return self.compute(step, values)
        old = dict(self.cache)
        right = self.take(step.right, values)
        self.cache = old                        # a cache is written by the wrong step, or by where it is taken
        wrong = self.compute(step, values)
        if step.only is not None:
            tokens = np.arange(len(wrong)) if step.function == "store" else self.positions
            where = step.only(tokens)
            wrong = np.where(where.reshape(where.shape + (1,) * (wrong.ndim - where.ndim)), wrong, right)
        if step.function == "store":
            self.cache[step.name] = wrong
        with np.errstate(all="ignore"):
            difference = np.sqrt(np.mean(np.square((wrong - right).astype(np.float64))))
            size = np.sqrt(np.mean(np.square(right.astype(np.float64))))
        self.effects.setdefault(step.name, []).append(float(difference / max(size, 1e-30)))
        return wrong
