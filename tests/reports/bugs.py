"""Mistakes from people's bug reports about engines, made in engine.py.

A bug has the report that it is from, what is wrong in one sentence, the model of measure.py that it is made in, and
`names`: a regular expression of what a finding must say to name it.  It replaces methods of the engine by functions
whose arguments are the engine, the right method, and what that method gets.  `tokens`: the bug shows only in some
tokens,
which a finding must say.  `reads` makes values of the raw rows of a quantized tensor.
"""
import dataclasses
import functools
import math

import numpy as np

from engine import F32, same, sigmoid


@dataclasses.dataclass(frozen=True)
class Bug:
    source: str
    text: str
    model: str
    names: str
    methods: dict
    flash: bool = False
    tokens: str = ""
    reads: object = None

    def make(self, engine):
        for name, function in self.methods.items():
            setattr(engine, name, functools.partial(function, engine, getattr(engine, name)))
        engine.reader = self.reads


BUGS = []


def bug(source, text, names, model="llama", flash=False, tokens="", reads=None, **methods):
    BUGS.append(Bug(source, text, model, names, methods, flash, tokens, reads))


def changed(x, where, value):
    """A copy of x with other values at an index."""
    y = np.array(x)
    y[where] = value
    return y


def before(x):
    """Rows of the token before; the first row of a chunk stays."""
    return np.concatenate([x[:1], x[:-1]])


def blocks_of(x, n):
    return x.reshape(*x.shape[:-1], -1, n)


def only(of, function):
    """A method that is wrong for the tensors whose name ends with one of `of`."""
    def method(e, right, il, name, *rest):
        return function(e, right, il, name, *rest) if name.endswith(of) else right(il, name, *rest)
    return method


# ---- tokens and embeddings -------------------------------------------------------------------------------------------

bug("wasm-chord, TOKEN_LOOP_DEBUG.md", "while decoding, the token before is fed again", r"token",
    tokens="decoded", run=lambda e, right, tokens, n: right(
        [*tokens[:n], *tokens[n - 1:-1]], n))
bug("EleutherAI/gpt-neox, rows of a padded vocabulary", "each token has the embedding of the next id", r"token|row|id",
    embed=lambda e, right, il, tokens: right(il, tokens + 1))
bug("ids kept in a byte", "ids of tokens lose their high byte", r"token|row|id",
    embed=lambda e, right, il, tokens: right(il, tokens & 255))
bug("Blaizzy/mlx-vlm#893", "the embedding is not multiplied by sqrt(n_embd)",
    r"factor|times|sqrt|scale", model="gemma3",
    embed=lambda e, right, il, tokens: right(il, tokens) / F32(math.sqrt(e.n_embd)))
bug("TensorAuto/OpenTau#179", "the embedding is multiplied by sqrt(n_embd) twice", r"factor|times|sqrt|scale|twice",
    model="gemma3", embed=lambda e, right, il, tokens: right(il, tokens) * F32(math.sqrt(e.n_embd)))
bug("apple/axlearn#909 (unsloth's gemma-bugs)", "sqrt(n_embd) is rounded to bf16", r"factor|times|sqrt|scale",
    model="gemma3", embed=lambda e, right, il, tokens: right(il, tokens) * F32(11.3125 / math.sqrt(128)))
bug("a stride of bytes for one of elements", "rows of the embedding begin half a row early",
    r"row|token|shift|element|half",
    embed=lambda e, right, il, tokens: np.roll(e.weight("token_embd.weight").ravel(), e.n_embd // 2).reshape(
        -1, e.n_embd)[tokens])
bug("candle#3351, a table split over buffers", "ids of the second half of the vocabulary read the first half",
    r"token|row|id",
    embed=lambda e, right, il, tokens: right(il, tokens % (len(e.weight("token_embd.weight")) // 2)))

# ---- norms -----------------------------------------------------------------------------------------------------------

bug("sgl-project/sgl-kernel-npu#157", "norms sum the squares of the first 64 elements only", r"first|half|part|sum",
    mean_square=lambda e, right, il, name, x: right(il, name, x[..., :64]) * F32(64 / x.shape[-1]))
bug("tile-ai/tilelang-ascend#890", "norms leave out the last 8 elements of a row", r"last|first|part|tail|element|size",
    mean_square=lambda e, right, il, name, x: np.sum(x[..., :-8] ** 2, axis=-1, keepdims=True) / F32(x.shape[-1]))
bug("tenstorrent/tt-mlir#8798", "norms divide by the root of the sum, not of the mean", r"sum|sqrt\(n|times",
    mean_square=lambda e, right, il, name, x: right(il, name, x) * F32(x.shape[-1]))
bug("greenrazer, candle#2930", "the root of the norms is missing", r"root|mean\(x\^2\)",
    norm=lambda e, right, il, name, x: x / (e.mean_square(il, name, x) + F32(e.eps)) * e.gain(il, name))
bug("hkproj, eps outside of the root", "eps is added outside of the root, and is 0.1", r"eps",
    norm=lambda e, right, il, name, x: x / (np.sqrt(e.mean_square(il, name, x)) + F32(.1)) * e.gain(il, name))
bug("paiml/aprender#2096", "1 is added to the weights of norms that a GGUF already holds", r"1 \+|\+ 1|one|plus",
    model="gemma3", gain=lambda e, right, il, name: right(il, name) + 1)
bug("a norm without its weight", "the weight of the last norm is left out", r"weight",
    gain=lambda e, right, il, name: right(il, name) if il >= 0 else F32(1))
bug("LayerNorm for RMSNorm", "norms subtract the mean", r"mean|variance|layer",
    norm=lambda e, right, il, name, x: right(il, name, x - x.mean(axis=-1, keepdims=True)))
bug("ROCm/aiter#5044", "norms take the first element of each row from the row before", r"element|first|row|token",
    norm=lambda e, right, il, name, x: changed(right(il, name, x), (..., 0), before(right(il, name, x))[..., 0]))
bug("axonn-ai/yalis#36", "norms of two halves of a row are computed apart, as of two devices",
    r"half|halves|part|group",
    mean_square=lambda e, right, il, name, x: np.repeat(np.mean(blocks_of(x, x.shape[-1] // 2) ** 2, axis=-1),
                                                        x.shape[-1] // 2, axis=-1))
bug("vllm-project/vllm#26599, in a norm", "the sums of norms are not cleared between tokens",
    r"token|sum|clear|earlier|before",
    mean_square=lambda e, right, il, name, x: np.cumsum(right(il, name, x), axis=0) if x.ndim == 2 else right(il,
        name, x))
bug("one field for two norms", "ffn_norm has the weight of attn_norm", r"attn_norm",
    gain=lambda e, right, il, name: right(il, name.replace("ffn_norm", "attn_norm")))
bug("a norm in place", "the residual is what the norm before attention left", r"norm",
    add=lambda e, right, il, what, y, x: right(
        il, what, y, e.taps[f"attn_norm-{il}"][-1] if what == "attn" else x))
bug("post-norm for pre-norm", "the norm after attention comes after the residual is added",
    r"norm|residual|input|l_out|after",
    model="gemma3", post_norm=lambda e, right, il, what, y: y if what == "attn" else right(il, what, y),
    add=lambda e, right, il, what, y, x: e.norm(il, f"blk.{il}.post_attention_norm", y + x) if what == "attn"
    else right(il, what, y, x))
bug("transformers' post_attention_layernorm", "ffn_norm and post_attention_norm are exchanged",
    r"ffn_norm|post_attention",
    model="gemma3", gain=lambda e, right, il, name: right(il, {
        "ffn_norm": name.replace("ffn_norm", "post_attention_norm"),
        "post_attention_norm": name.replace("post_attention_norm", "ffn_norm")}.get(name.split(".")[-1], name)))
bug("mattn/tensai#63, sandwich norms", "the norm after the feed-forward network is left out",
    r"left out|input|missing|skipped|ffn_out",
    model="gemma3", post_norm=lambda e, right, il, what, y: y if what == "ffn" else right(il, what, y))

# ---- norms of Q and K ------------------------------------------------------------------------------------------------

bug("timtoole02/Camelid#266", "the norms of Q and K are left out",
    r"left out|is Q|is K|input|skipped|not", model="qwen3",
    qk_norm=lambda e, right, il, letter, x: x)
bug("Qwen3's k_norm forgotten", "K is not normalized", r"left out|is K|input|skipped|not", model="qwen3",
    qk_norm=lambda e, right, il, letter, x: x if letter == "k" else right(il, letter, x))
bug("LMCache/LMCache#1633", "the norm of Q is over the whole row", r"row|over|heads|all", model="qwen3",
    qk_norm=lambda e, right, il, letter, x: right(il, letter, x) * np.sqrt(
        np.mean(x * x, axis=-1, keepdims=True) / np.mean(x * x, axis=(1, 2), keepdims=True)) if letter == "q"
    else right(il, letter, x))
bug("lablup/mlxcel#391 (#316)", "the norms of Q and K are over each head", r"head|over|group|part", model="olmoe",
    mean_square=lambda e, right, il, name, x: np.repeat(np.mean(blocks_of(x, e.dim) ** 2, axis=-1), e.dim, axis=-1)
    if name.endswith(("q_norm", "k_norm")) else right(il, name, x))
bug("hunyuan and qwen3 mixed up", "the norms of Q and K come after RoPE", r"after|rotat|norm|RoPE", model="qwen3",
    has=lambda e, right, name: not name.endswith(("q_norm.weight", "k_norm.weight")) and right(name),
    rope=lambda e, right, il, letter, x, position: type(e).qk_norm(e, il, letter, right(il, letter, x, position)))
bug("a loop over q, k and v", "V is normalized too, with K's weight", r"norm|mean|/", model="qwen3",
    qkv=lambda e, right, il, x: (lambda q, k, v: (q, k, e.norm(
        il, f"blk.{il}.attn_k_norm", v.reshape(len(v), e.n_kv, -1)).reshape(v.shape)))(*right(il, x)))
bug("weights bound by order", "the norms of Q and K have each other's weight",
    r"attn_[qk]_norm|exchanged", model="qwen3",
    gain=lambda e, right, il, name: right(il, name.replace("q_norm", "?").replace("k_norm", "q_norm").replace("?",
        "k_norm")))

# ---- products --------------------------------------------------------------------------------------------------------

def blocks_lost(every, rest):
    def method(e, right, il, name, x, w):
        kept = np.arange(x.shape[-1]) // 32 % every != rest
        return right(il, name, x * kept.astype(F32), w)
    return method


bug("tile-ai/tilelang-ascend#1341", "ffn_down leaves out the last 64 of 192 columns",
    r"column|element|last|input|zero|left out",
    product=only("ffn_down", lambda e, right, il, name, x, w: right(il, name, changed(x, (..., slice(128, None)), 0),
        w)))
bug("halide/Halide#656", "products leave out the last 8 elements of a row", r"column|element|last|input|zero|left out",
    product=lambda e, right, il, name, x, w: right(il, name, changed(x, (..., slice(-8, None)), 0), w))
bug("1bit-MONSTER/1bit-MONSTER#393", "every second block of 32 products is lost",
    r"column|element|block|group|zero|lost|left out",
    product=blocks_lost(2, 1))
bug("a race of two threads", "the second half of the products of attn_output is lost",
    r"column|element|half|zero|left out|last",
    product=only("attn_output", lambda e, right, il, name, x, w: right(
        il, name, changed(x, (..., slice(x.shape[-1] // 2, None)), 0), w)))
bug("an index of blocks that is one too large", "each block of the input of ffn_up is the next one",
    r"order|shift|input|block|group",
    product=only("ffn_up", lambda e, right, il, name, x, w: right(il, name, np.roll(x, -32, axis=-1), w)))
bug("Mojo-Numerics-and-Algorithms-group/NuMojo#382", "attn_output reads its input one element late",
    r"shift|order|input|element|next",
    product=only("attn_output", lambda e, right, il, name, x, w: right(il, name, np.roll(x, -1, axis=-1), w)))
bug("hw-native-sys/PTOAS#30", "of four rows of ffn_gate the last repeats the one before",
    r"row|element|order|place|repeat|before",
    product=only("ffn_gate", lambda e, right, il, name, x, w: right(
        il, name, x, w[np.where(np.arange(len(w)) % 4 == 3, np.arange(len(w)) - 1, np.arange(len(w)))])))
bug("a kernel of four rows", "row 37 of ffn_up repeats row 36", r"row|element|36|repeat|place",
    product=only("ffn_up", lambda e, right, il, name, x, w: changed(right(il, name, x, w), (..., 37),
                                                                  right(il, name, x, w)[..., 36])))
bug("ggml-org/ggml#1604", "the last 8 rows of attn_output are not computed", r"zero|element|row|last",
    product=only("attn_output", lambda e, right, il, name, x, w: changed(right(il, name, x, w), (..., slice(-8,
        None)), 0)))
bug("hw-native-sys/pto-isa#214", "products of the second half of the rows have the input of the token before",
    r"token|half|input|before",
    product=only("ffn_up", lambda e, right, il, name, x, w: changed(
        right(il, name, x, w), (..., slice(len(w) // 2, None)), right(il, name, before(x), w)[..., len(w) // 2:])))
bug("tensor-parallel shards not summed", "attn_output has the products of the first half of its columns alone",
    r"column|element|half|zero|left out|last",
    product=only("attn_output", lambda e, right, il, name, x, w: right(il, name, x[..., :64], w[..., :64])))
bug("SharpMind's loader, Integral2u/SharpMind#14", "output.weight is read transposed", r"transpos|column|dimension",
    model="qwen2", weight=lambda e, right, name: right(name).reshape(e.n_embd, -1).T if name == "output.weight" else
        right(name))
bug("1bit-MONSTER/1bit-MONSTER#319", "logits are computed with token_embd", r"token_embd",
    weight=lambda e, right, name: right("token_embd.weight" if name == "output.weight" else name))
bug("a matrix of n by n", "attn_output is transposed", r"transpos",
    weight=lambda e, right, name: right(name).T if name.endswith("attn_output.weight") else right(name))
bug("FFN tensors of the layer before", "the feed-forward network has the tensors of the layer before", r"blk\.\d|layer",
    weight=lambda e, right, name: right(name if "ffn_" not in name or "norm" in name else name.replace(
        f"blk.{name.split('.')[1]}", f"blk.{max(int(name.split('.')[1]) - 1, 0)}")))
bug("ROCm/hip-ep#937, in a dispatch", "the last 44 of 300 logits are not computed", r"zero|element|last|row",
    logits=lambda e, right, il, x: changed(right(il, x), (..., slice(256, None)), 0))
bug("google/gemma_pytorch, softcap", "the softcap of the logits is left out", r"cap|tanh", model="gemma3",
    logits=lambda e, right, il, x: (lambda y, cap: np.arctanh(y / cap) * cap)(
        right(il, x).astype(np.float64), 30.0).astype(F32))
bug("granite's divisor elsewhere", "logits are divided by sqrt(n_embd)", r"times|factor|scale",
    logits=lambda e, right, il, x: right(il, x) / F32(math.sqrt(e.n_embd)))
bug("executorch, rows of activations", "activations in 8 bits have one scale, that of the first block",
    r"8 bits|round|scale|clamp|block",
    product=only("attn_q", lambda e, right, il, name, x, w: (lambda s: (np.clip(
        np.rint(x / s), -127, 127) * s) @ w.T)(np.abs(x[..., :32]).max(axis=-1, keepdims=True) / F32(127))))

# ---- bias ------------------------------------------------------------------------------------------------------------

bug("sbryngelson/ANEForge#253", "the biases of Q, K and V are left out", r"bias", model="qwen2",
    bias=lambda e, right, il, name: F32(0))
bug("guoqingbao, candle-vllm#167", "the bias of K is left out", r"bias", model="qwen2",
    bias=lambda e, right, il, name: F32(0) if name.endswith("attn_k") else right(il, name))
bug("quic/efficient-transformers#328", "the bias of V is that of its first head for all",
    r"bias|head|order|factor", model="qwen2",
    bias=lambda e, right, il, name: np.tile(right(il, name)[:e.dim], e.n_kv) if name.endswith("attn_v") else
        right(il, name))
bug("a bias in the kernel and after it", "the bias of Q is added twice", r"bias", model="qwen2",
    bias=lambda e, right, il, name: right(il, name) * (2 if name.endswith("attn_q") else 1))
bug("a bias bound to the wrong slot", "V has the bias of K", r"bias", model="qwen2",
    bias=lambda e, right, il, name: right(il, name.replace("attn_v", "attn_k")))
bug("pytorch/executorch#20655", "the bias of Q is scaled by 0.1", r"bias", model="qwen2",
    bias=lambda e, right, il, name: right(il, name) * F32(.1 if name.endswith("attn_q") else 1))

# ---- fused projections -----------------------------------------------------------------------------------------------

def by_group(e, right, il, x):
    """Rows that are stored as Q, K, V are split as if they were stored by group: its queries, its K, its V."""
    groups = np.concatenate(right(il, x), axis=-1).reshape(len(x), e.n_kv, -1, e.dim)
    return tuple(part.reshape(len(x), -1) for part in (groups[:, :, :-2], groups[:, :, -2], groups[:, :, -1]))


bug("tenstorrent/tt-metal#6243", "the rows of Q, K and V are split by groups",
    r"group|order|attn_[kv]|row|head", qkv=by_group)
bug("wanshuiyin/ARIS-in-AI-Offer#45", "V begins where K does", r"attn_k|Kcur", qkv=lambda e, right, il, x: (
    lambda q, k, v: (q, k, k))(*right(il, x)))
bug("qkv unpacked as q, v, k", "K and V are exchanged", r"exchanged|attn_[kv]", qkv=lambda e, right, il, x: (
    lambda q, k, v: (q, v, k))(*right(il, x)))
bug("alibaba/ChatLearn#277", "the heads of Q are in the order of two shards", r"head|order|row",
    qkv=lambda e, right, il, x: (lambda q, k, v: (q.reshape(len(x), e.n_kv, -1, e.dim).swapaxes(1, 2).reshape(
        q.shape), k, v))(*right(il, x)))
bug("ggml-org/llama.cpp#28965, attn_output by groups", "attn_output reads the heads in the order of two shards",
    r"head|order|column|input", merge=lambda e, right, il, y: y.reshape(len(y), e.n_kv, -1, e.dim).swapaxes(
        1, 2).reshape(len(y), -1))
bug("huggingface/transformers#31788", "rows of K are permuted as if it had as many heads as Q",
    r"order|row|permut|even|element",
    qkv=lambda e, right, il, x: (lambda q, k, v: (q, k.reshape(len(x), 8, 2, -1).swapaxes(2, 3).reshape(
        k.shape), v))(*right(il, x)))
bug("rows not permuted back", "rows of Q and K have the halves of each head apart", r"order|row|permut|even|element",
    qkv=lambda e, right, il, x: (lambda q, k, v: tuple(a.reshape(len(x), -1, e.dim // 2, 2).swapaxes(2, 3).reshape(
        a.shape) for a in (q, k)) + (v,))(*right(il, x)))
bug("microsoft/onnxruntime, gate_up_proj", "rows of gate and up are taken to alternate",
    r"alternate|interleav|order|even|row|ffn_",
    gate_up=lambda e, right, il, x: (lambda a: (a[:, 0::2], a[:, 1::2]))(np.concatenate(right(il, x), axis=-1)))
bug("swiglu with w1 and w3 exchanged", "gate and up are exchanged", r"exchanged|silu\(up\)|ffn_up",
    gate_up=lambda e, right, il, x: right(il, x)[::-1])

# ---- quantized types -------------------------------------------------------------------------------------------------

def halves(raw, at):
    return np.ascontiguousarray(raw[:, at:at + 2]).view(np.float16).astype(F32)


def nibbles(codes):
    return np.concatenate([codes & 15, codes >> 4], axis=-1).astype(F32)


def of_type(kind, size, function):
    """A reader of blocks: function gets (n, size) bytes, or with `rows` the rows apart."""
    def reader(name, raw):
        return function(np.ascontiguousarray(raw).reshape(-1, size)) if name == kind else None
    return reader


def of_rows(kind, size, function):
    """A reader of rows: function gets (n_row, n_block, size) bytes."""
    def reader(name, raw):
        return function(np.ascontiguousarray(raw).reshape(-1, raw.shape[-1] // size, size)) if name == kind else None
    return reader


def q4_0(b, codes=nibbles, offset=8):
    return halves(b, 0) * (codes(b[:, 2:]) - F32(offset))


def q4_1(b, minimum=lambda m: m):
    return halves(b, 0) * nibbles(b[:, 4:]) + minimum(halves(b, 2))


def q5_0(b, order=np.arange(32), offset=16):
    high = (np.ascontiguousarray(b[:, 2:6]).view("<u4") >> order.astype(np.uint32) & 1).astype(F32)
    return halves(b, 0) * (nibbles(b[:, 6:]) + 16 * high - offset)


def q8_0(b, scale=None, codes=np.int8):
    return (halves(b, 0) if scale is None else scale(b)) * np.ascontiguousarray(b[:, 2:]).view(codes).astype(F32)


def q4_k(b, scales=None, order=None, sign=-1, exchanged=False, minimum=same):
    d, dmin, s = halves(b, 0), halves(b, 2), b[:, 4:16].astype(np.int32)
    d, dmin = (dmin, d) if exchanged else (d, dmin)
    sc = np.concatenate([s[:, :4] & 63, s[:, 8:] & 15 | s[:, :4] >> 6 << 4], axis=1)
    m = np.concatenate([s[:, 4:8] & 63, s[:, 8:] >> 4 | s[:, 4:8] >> 6 << 4], axis=1)
    sc, m = (sc, m) if scales is None else scales(s, sc, m)
    q = b[:, 16:].reshape(-1, 4, 32)
    q = np.stack([q & 15, q >> 4], axis=2).reshape(-1, 8, 32) if order is None else order(b[:, 16:]).reshape(-1, 8, 32)
    return (d * sc)[..., None] * q + sign * minimum(dmin * m)[..., None]


def q6_k(b, offset=32, scale_type=np.int8, low=lambda a, c: (a, c), shifts=(0, 2, 4, 6), zeros=slice(0, 0)):
    ql, qh, sc = b[:, :128].reshape(-1, 2, 2, 32), b[:, 128:192].reshape(-1, 2, 32), b[:, 192:208].view(scale_type)
    a, c = low(ql[:, :, 0], ql[:, :, 1])
    q = np.stack([part | (qh >> shift & 3) << 4 for part, shift in zip((a & 15, c & 15, a >> 4, c >> 4), shifts)],
        axis=2)
    sc = np.repeat(sc.astype(F32).reshape(-1, 2, 4, 2), 16, axis=-1)
    y = halves(b, 208).reshape(-1, 1, 1, 1) * sc * (q.astype(F32) - offset)
    y[:, :, zeros] = 0
    return y


bug("nibbles of Q4_0", "the nibbles of each byte are exchanged", r"nibble", model="Q4_0",
    reads=of_type("Q4_0", 18, lambda b: q4_0(b, lambda c: np.concatenate([c >> 4, c & 15], axis=-1).astype(F32))))
bug("elements of Q4_0", "the nibbles of a byte are taken for neighbours",
    r"nibble|layout|neighbour|interleav", model="Q4_0",
    reads=of_type("Q4_0", 18, lambda b: q4_0(b, lambda c: np.stack([c & 15, c >> 4], axis=-1).reshape(len(c),
        -1).astype(F32))))
bug("ROCm/hip-ep#178, zero points", "the zero point of Q4_0 is dropped", r"zero|offset|8|minus", model="Q4_0",
    reads=of_type("Q4_0", 18, lambda b: q4_0(b, offset=0)))
bug("ROCm/hip-ep#178", "nibbles of Q4_0 are read as signed", r"sign|nibble|code", model="Q4_0",
    reads=of_type("Q4_0", 18, lambda b: q4_0(b, lambda c: (nibbles(c) + 8) % 16 - 8, 0)))
bug("1bit-MONSTER/1bit-MONSTER#488", "only the first block of each row is decoded, the others are zeros",
    r"block|zero|column|element",
    model="Q4_0", reads=of_rows("Q4_0", 18, lambda b: changed(
        q4_0(b.reshape(-1, 18)).reshape(len(b), -1), (..., slice(32, None)), 0)))
bug("1bit-MONSTER/1bit-MONSTER#153", "all blocks of a row have the codes of the last one",
    r"block|code|group", model="Q4_0",
    reads=of_rows("Q4_0", 18, lambda b: q4_0(np.concatenate([b[..., :2], np.broadcast_to(
        b[:, -1:, 2:], b[..., 2:].shape)], axis=-1).reshape(-1, 18))))
bug("the offset of Q4_1", "the minimum of Q4_1 is dropped", r"min|offset|second f16", model="Q4_1",
    reads=of_type("Q4_1", 20, lambda b: q4_1(b, lambda m: 0)))
bug("blocks of 20 bytes read ahead", "each block of Q4_1 has the minimum of the next one",
    r"min|offset|next|m\b", model="Q4_1",
    reads=of_type("Q4_1", 20, lambda b: q4_1(b, lambda m: np.roll(m, -1, axis=0))))
bug("a sign of the offset", "the minimum of Q4_1 is subtracted", r"min|offset|sign|subtract", model="Q4_1",
    reads=of_type("Q4_1", 20, lambda b: q4_1(b, lambda m: -m)))
bug("paiml/aprender#1621", "the high bits of Q5_0 are those of the other half", r"high|bit|fifth", model="Q5_0",
    reads=of_type("Q5_0", 22, lambda b: q5_0(b, np.roll(np.arange(32), 16))))
bug("ggml-org/llama.cpp#1435", "the high bits of Q5_0 are taken for neighbours", r"high|bit|fifth", model="Q5_0",
    reads=of_type("Q5_0", 22, lambda b: q5_0(b, np.arange(32).reshape(16, 2).T.ravel())))
bug("Q5_0 as Q4_0", "the high bits of Q5_0 are ignored", r"high|bit|fifth", model="Q5_0",
    reads=of_type("Q5_0", 22, lambda b: halves(b, 0) * (nibbles(b[:, 6:]) - 16)))
bug("the zero point of Q5_0", "16 is not subtracted from the codes of Q5_0", r"zero|offset|16|minus", model="Q5_0",
    reads=of_type("Q5_0", 22, lambda b: q5_0(b, offset=0)))
bug("bytes for signed bytes", "the codes of Q8_0 are read as unsigned", r"sign", model="Q8_0",
    reads=of_type("Q8_0", 34, lambda b: q8_0(b, codes=np.uint8)))
bug("a struct with its scale last", "the scale of Q8_0 is taken from the end of its block",
    r"scale|end|last|layout", model="Q8_0",
    reads=of_type("Q8_0", 34, lambda b: halves(b, 32) * np.ascontiguousarray(b[:, :32]).view(np.int8).astype(F32)))
bug("ggml-org/llama.cpp#1422", "each block of Q8_0 has the scale of the one before",
    r"scale|before|block", model="Q8_0",
    reads=of_type("Q8_0", 34, lambda b: q8_0(b, lambda a: np.roll(halves(a, 0), 1, axis=0))))
bug("a scale of each row", "the blocks of a row of Q8_0 have the scale of the first",
    r"scale|first|block", model="Q8_0",
    reads=of_rows("Q8_0", 34, lambda b: q8_0(b.reshape(-1, 34), lambda a: np.repeat(
        halves(b[:, 0], 0), b.shape[1], axis=0))))
bug("paiml/aprender#2141", "the scales of Q4_K are read as if each had a byte of its own",
    r"scale|bits|min", model="Q4_K",
    reads=of_type("Q4_K", 144, lambda b: q4_k(b, lambda s, sc, m: (s[:, :8] & 63, s[:, 4:12] & 63))))
bug("cisco-ai-defense/defenseclaw#679", "the scales of the parts of Q4_K are ignored", r"scale|min|sub", model="Q4_K",
    reads=of_type("Q4_K", 144, lambda b: q4_k(b, lambda s, sc, m: (sc * 0 + 1, m * 0 + 1))))
bug("wasm-chord, nibble order of Q4_K", "the nibbles of Q4_K are taken for neighbours",
    r"nibble|layout|neighbour|interleav|half|halves|order",
    model="Q4_K", reads=of_type("Q4_K", 144, lambda b: q4_k(b, order=lambda c: np.stack([c & 15, c >> 4], axis=-1))))
bug("a sign of dmin", "the minimum of Q4_K is added", r"min|sign|add", model="Q4_K",
    reads=of_type("Q4_K", 144, lambda b: q4_k(b, sign=1)))
bug("wasm-chord, scale order of Q4_K", "the scale and the minimum of Q4_K are exchanged",
    r"exchanged|dmin|min|swapped", model="Q4_K",
    reads=of_type("Q4_K", 144, lambda b: q4_k(b, exchanged=True)))
bug("an index of minima", "each part of Q4_K has the minimum of the next one", r"min|next|offset", model="Q4_K",
    reads=of_type("Q4_K", 144, lambda b: q4_k(b, scales=lambda s, sc, m: (sc, np.roll(m, -1, axis=1)))))
bug("1bit-MONSTER/1bit-MONSTER#734", "three quarters of Q6_K are zeros", r"zero|element|block|quarter|32", model="Q6_K",
    reads=of_type("Q6_K", 210, lambda b: q6_k(b, zeros=slice(1, 4))))
bug("wasm-chord, index order of Q6_K", "the low bits of Q6_K are those of the other 32 elements",
    r"low|half|halves|order|bit|nibble|exchanged",
    model="Q6_K", reads=of_type("Q6_K", 210, lambda b: q6_k(b, low=lambda a, c: (c, a))))
bug("unsigned scales", "the scales of Q6_K are read as unsigned", r"scale|sign", model="Q6_K",
    reads=of_type("Q6_K", 210, lambda b: q6_k(b, scale_type=np.uint8)))
bug("the zero point of Q6_K", "32 is not subtracted from the codes of Q6_K", r"zero|offset|32|minus", model="Q6_K",
    reads=of_type("Q6_K", 210, lambda b: q6_k(b, offset=0)))
bug("shifts of Q6_K", "the high bits of Q6_K are read in reverse order", r"high|bit|order", model="Q6_K",
    reads=of_type("Q6_K", 210, lambda b: q6_k(b, shifts=(6, 4, 2, 0))))

# ---- RoPE ------------------------------------------------------------------------------------------------------------

def at(of, letters="qk", decoded=False):
    """Rotates at other positions."""
    def rope(e, right, il, letter, x, position):
        is_wrong = letter in letters and (e.is_decoding or not decoded)
        return right(il, letter, x, of(e, position) if is_wrong else position)
    return rope


def turned(function):
    return lambda e, right, il, a, b, cos, sin: function(a, b, cos, sin)


bug("google/gemma.cpp#986", "the base of RoPE is 10000 whatever the file says", r"base|frequenc",
    frequencies=lambda e, right, il: (10000.0 ** (-np.arange(0, e.n_rot, 2) / e.n_rot), 1.0))
bug("paiml/realizar#78", "the base of RoPE is 1000000", r"base|frequenc", model="qwen2",
    frequencies=lambda e, right, il: (1e6 ** (-np.arange(0, e.n_rot, 2) / e.n_rot), 1.0))
bug("Blaizzy/mlx-vlm#1983", "decoded tokens are rotated as at position 0", r"position|rotat", tokens="decoded",
    rope=at(lambda e, p: p * 0, decoded=True))
bug("RobertCsordas/moeut#6", "queries of decoded tokens are rotated as at position 0",
    r"position|rotat", tokens="decoded",
    rope=at(lambda e, p: p * 0, "q", decoded=True))
bug("flashrt-project/FlashRT#75", "decoded tokens have the position before theirs",
    r"position|earlier", tokens="decoded",
    rope=at(lambda e, p: p - 1, decoded=True))
bug("wasm-chord, step mode", "decoded tokens have the position of the first of them", r"position", tokens="decoded",
    rope=at(lambda e, p: p * 0 + e.n_prompt, decoded=True))
bug("hw-native-sys/pypto-lib#462", "all tokens of a chunk have the position of its first", r"position",
    rope=at(lambda e, p: p * 0 + p[0]))
bug("positions of a chunk", "positions begin anew in each chunk", r"position", rope=at(lambda e, p: p - p[0]))
bug("positions counted from 1", "positions of queries are counted from 1, of keys from 0",
    r"position", rope=at(lambda e, p: p + 1, "q"))
bug("an index of heads for one of tokens", "each head is rotated as if the token were as far as its number",
    r"position|head",
    rope=lambda e, right, il, letter, x, position: np.concatenate([right(
        il, letter, x[:, h:h + 1], position + h) for h in range(x.shape[1])], axis=1))
bug("timtoole02/Camelid#266, pairs", "neighbours are rotated together instead of halves", r"pair|half|halves|neighbour",
    model="qwen3", split=lambda e, right, x: (x[..., 0::2], x[..., 1::2]))
bug("jmaczan/tiny-vllm#6", "halves are rotated together instead of neighbours", r"pair|half|halves|neighbour",
    split=lambda e, right, x: (x[..., :e.dim // 2], x[..., e.dim // 2:]))
bug("kvcache-ai/sglang#31", "the tokens of a prompt see the keys of their own chunk unrotated",
    r"before RoPE|rotat|Kcur",
    tokens="prompt", cached=lambda e, right, il: (lambda k, v: (k if e.is_decoding else np.concatenate(
        [k[:e.start], e.taps[f"Kcur-{il}"][-1]]), v))(*right(il)))
bug("EleutherAI/gpt-neox#363", "K is cached before RoPE", r"before RoPE|rotat|Kcur",
    cached=lambda e, right, il: (lambda k, v: (np.concatenate([np.concatenate(e.taps[f"Kcur-{il}"])[:e.start],
        k[e.start:]]), v))(
        *right(il)))
bug("K never rotated", "K is not rotated", r"not rotated|left out|is Kcur|no RoPE|input|rotat",
    rope=lambda e, right, il, letter, x, position: x if letter == "k" else right(il, letter, x, position))
bug("NeuraLegion/shainet#110", "the keys of the cache are rotated again at each step", r"again|twice|rotat|position",
    cached=lambda e, right, il: (lambda k, v: (e.rope(il, "k", k, np.arange(len(k))) if e.is_decoding else k,
        v))(*right(il)),
    tokens="decoded")
bug("ikawrakow/ik_llama.cpp#2291", "the factors of rope_freqs are not applied",
    r"factor|frequenc|scaling", model="llama3",
    has=lambda e, right, name: name != "rope_freqs.weight" and right(name))
bug("lablup/mlxcel#1355", "all frequencies are divided by 8 instead of some",
    r"factor|frequenc|scal|position", model="llama3",
    frequencies=lambda e, right, il: (10000.0 ** (-np.arange(0, e.n_rot, 2) / e.n_rot) / 8, 1.0))
bug("factors multiplied", "the factors of rope_freqs are multiplied in, not divided by",
    r"factor|frequenc|scal", model="llama3",
    frequencies=lambda e, right, il: (right(il)[0] * e.weight("rope_freqs.weight") ** 2, 1.0))
bug("rotation in the other direction", "the sign of the sine is wrong", r"direction|sign|backward|negative|-1",
    turn=turned(lambda a, b, cos, sin: (a * cos + b * sin, b * cos - a * sin)))
bug("arguments of sincos", "sine and cosine are exchanged", r"sine|cosine", turn=turned(
    lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin)))
bug("a rotation in place", "the second element of a pair is made of the rotated first one",
    r"place|already|after its rotation",
    turn=turned(lambda a, b, cos, sin: (a * cos - b * sin, (a * cos - b * sin) * sin + b * cos)))
bug("Lightning-AI/litgpt#1745, exponents", "the exponents of the frequencies are half as large",
    r"exponent|frequenc|base",
    frequencies=lambda e, right, il: (20000.0 ** (-np.arange(e.n_rot // 2) / e.n_rot), 1.0))
bug("aws-neuron/neuronx-distributed-inference#106", "only half of each head is rotated",
    r"part|half|element|pair|first|rotat",
    rope=lambda e, right, il, letter, x, position: np.concatenate([right(il, letter, x, position)[..., :e.dim // 2],
                                                                  x[..., e.dim // 2:]], axis=-1))
bug("RoPE of the hidden size", "frequencies are computed with n_embd for the size of a head", r"exponent|frequenc|base",
    frequencies=lambda e, right, il: (20000.0 ** (-np.arange(0, e.n_rot, 2) / e.n_embd), 1.0))
bug("one base for all layers of Gemma 3", "layers with a window have the base of the others",
    r"base|frequenc", model="gemma3",
    frequencies=lambda e, right, il: (20000.0 ** (-np.arange(0, e.n_rot, 2) / e.n_rot), 1.0))
bug("mattn/tensai#63, bases exchanged", "layers with a window have the base of the others and the reverse",
    r"base|frequenc",
    model="gemma3", frequencies=lambda e, right, il: (
        (20000.0 if e.window(il) else 10000.0) ** (-np.arange(0, e.n_rot, 2) / e.n_rot), 1.0))
bug("a grid of one head", "only the first head of Q is rotated", r"head|not rotated",
    rope=lambda e, right, il, letter, x, position: np.concatenate([right(il, letter, x, position)[:, :1], x[:, 1:]],
        axis=1)
    if letter == "q" else right(il, letter, x, position))
bug("apply_rotary to qkv", "V is rotated too", r"rotat|RoPE",
    qkv=lambda e, right, il, x: (lambda q, k, v: (q, k, e.rope(
        il, "v", v.reshape(len(x), e.n_kv, -1), e.position).reshape(v.shape)))(*right(il, x)))
bug("RoPE in the kernel too", "queries are rotated twice while decoding", r"twice|rotat|position|2", tokens="decoded",
    rope=lambda e, right, il, letter, x, position: right(il, letter, right(il, letter, x, position), position)
    if letter == "q" and e.is_decoding else right(il, letter, x, position))
bug("YaRN without its magnitude", "YaRN's factor of Q and K is left out",
    r"times|magnitude|multiplied|yarn|factor", model="gpt-oss",
    frequencies=lambda e, right, il: (right(il)[0], 1.0))
bug("YaRN for linear scaling", "YaRN scales all frequencies alike", r"yarn|scal|frequenc|factor", model="gpt-oss",
    frequencies=lambda e, right, il: (10000.0 ** (-np.arange(0, e.n_rot, 2) / e.n_rot) / 4, right(il)[1]))

# ---- the cache -------------------------------------------------------------------------------------------------------

def stores(of, decoded=True):
    """K and V are stored in other slots."""
    def store(e, right, il, k, v):
        slot = of(e, e.position) if e.is_decoding or not decoded else e.position
        e.k[il][slot], e.v[il][slot] = k, v
    return store


def reads_cache(function):
    """function: (engine, layer, K, V) -> K, V, of the slots in use"""
    return lambda e, right, il: function(e, il, *right(il))


def past(e, k, value):
    """K or V with other values in the slots before this chunk"""
    return np.concatenate([np.broadcast_to(value, k[:e.start].shape), k[e.start:]]).astype(F32)


bug("wasm-chord, the position of the cache", "decoded tokens are stored one slot early",
    r"slot|key|K\b|stored|token", tokens="decoded",
    store=stores(lambda e, p: p - 1))
bug("skyzh/tiny-llm#65", "decoded tokens are stored one slot late", r"slot|key|K\b|stored|token|zero", tokens="decoded",
    store=stores(lambda e, p: p + 1))
bug("ring buffers without an offset", "each chunk is stored from slot 0 on", r"slot|key|K\b|stored|token|zero|chunk",
    store=stores(lambda e, p: p - p[0], decoded=False))
bug("a cache cleared for each chunk", "the second chunk of a prompt reads zeros for the first",
    r"zero|slot|key|token|before|earlier",
    cached=reads_cache(lambda e, il, k, v: (past(e, k, 0), past(e, v, 0)) if not e.is_decoding else (k, v)),
        tokens="prompt")
bug("exchanged buffers of the decoding kernel", "K and V of the cache are exchanged while decoding",
    r"exchanged|V\b|Vcur|Kcur",
    tokens="decoded", cached=reads_cache(lambda e, il, k, v: (v, k) if e.is_decoding else (k, v)))
bug("V of decoded tokens not stored", "V of decoded tokens is not stored",
    r"zero|V\b|slot|stored|prompt alone", tokens="decoded",
    store=lambda e, right, il, k, v: right(il, k, v * (not e.is_decoding)))
bug("K of decoded tokens not stored", "K of decoded tokens is not stored",
    r"zero|K\b|slot|stored|key", tokens="decoded",
    store=lambda e, right, il, k, v: right(il, k * (not e.is_decoding), v))
bug("a read before the write", "a decoded token does not see its own key",
    r"own|itself|zero|key|slot|K\b", tokens="decoded",
    seen=lambda e, right, il, n: changed(right(il, n), (..., -1), False) if e.is_decoding else right(il, n))
bug("wasm-chord, a slice of K that is too long", "a slot of zeros behind the last key takes part",
    r"zero|slot|extra|empty",
    cached=reads_cache(lambda e, il, k, v: (np.concatenate([k, k[:1] * 0]), np.concatenate([v, v[:1] * 0]))),
    seen=lambda e, right, il, n: changed(right(il, n), (..., -1), True),
    tap=lambda e, right, name, x: (right(name, x[..., :-1]), x)[1] if name.startswith("kq_soft_max") else right(name,
        x))
bug("kv_cache(layer - 1)", "past keys and values are those of the layer before", r"layer|blk|Kcur|Vcur|other",
    cached=reads_cache(lambda e, il, k, v: (past(e, k, e.k[max(il - 1, 0)][:e.start]), past(e, v, e.v[max(il - 1,
        0)][:e.start]))))
bug("Lightning-AI/litgpt#2215", "a ring buffer of the window is read as if it were in order",
    r"slot|order|key|window|token",
    model="gemma3", cached=reads_cache(lambda e, il, k, v: (k, v) if not e.window(il) else tuple(
        a[[max(t for t in range(len(a)) if t % e.window(il) == s % e.window(il)) for s in range(len(a))]] for a in
            (k, v))))
bug("(token, head) for (head, token)", "V of the cache is read by heads first",
    r"layout|order|token|head|unpermuted|transposed",
    cached=reads_cache(lambda e, il, k, v: (k, v.reshape(e.n_kv, len(v), -1).swapaxes(0, 1))))
bug("a cache of the prompt alone", "decoded tokens see only the prompt and themselves",
    r"key|seen|sees|mask|slot", tokens="token",
    seen=lambda e, right, il, n: right(il, n) & ((np.arange(n) < e.n_prompt) | (np.arange(n) == n - 1)) if e.is_decoding
    else right(il, n))
bug("paged attention, the last block", "decoded tokens do not see the last 2 keys before them",
    r"key|seen|sees|mask|slot", tokens="decoded",
    seen=lambda e, right, il, n: changed(right(il, n), (..., slice(-3, -1)), False) if e.is_decoding else right(il, n))

# ---- masks -----------------------------------------------------------------------------------------------------------

bug("Mikyx-1/TinyLLM#17", "the tokens of a chunk see each other's future",
    r"mask|future|later|sees?|seen", tokens="prompt",
    seen=lambda e, right, il, n: right(il, n) | (np.arange(n) >= e.start))
bug("hyprstream/hyprstream#1521", "the tokens of a chunk see as many keys as it has tokens before them",
    r"mask|key|sees?|seen|slot",
    seen=lambda e, right, il, n: right(il, n) & (np.arange(n) <= e.position[:, None] - (0 if e.is_decoding else
        e.start)))
bug("pytorch/executorch#21749", "a second chunk sees only itself", r"mask|key|sees?|seen|chunk|slot", tokens="token",
    seen=lambda e, right, il, n: right(il, n) & (e.is_decoding | (np.arange(n) >= e.start)))
bug("zml/zml#763", "the window has one key too many", r"window|key", model="gemma3",
    seen=lambda e, right, il, n: right(il, n) | (e.position[:, None] - np.arange(n) == e.window(il)) if e.window(il)
        else right(il, n))
bug("NVIDIA/TensorRT-LLM#5564", "the window has one key too few", r"window|key", model="gemma3",
    seen=lambda e, right, il, n: right(il, n) & (e.position[:, None] - np.arange(n) != e.window(il) - 1) if
        e.window(il) else right(il, n))
bug("mlc-ai/mlc-llm#3176", "the window is ignored", r"window|key|mask", model="gemma3",
    seen=lambda e, right, il, n: e.position[:, None] >= np.arange(n))
bug("huggingface/transformers#41228", "the window is ignored while decoding",
    r"window|key|mask|sees", model="gemma3", tokens="decoded",
    seen=lambda e, right, il, n: e.position[:, None] >= np.arange(n) if e.is_decoding else right(il, n))
bug("vllm-project, interleaved windows", "layers have the window of the layer before", r"window|layer|base",
    model="gemma3", window=lambda e, right, il: right((il + 1) % e.n_layer))
bug("EricLBuehler/candle-vllm#140", "all layers have a window", r"window|layer", model="gemma3",
    seen=lambda e, right, il, n: right(il, n) & (e.position[:, None] - np.arange(n) < e.window(0)))
bug("chunks for windows", "the window begins at multiples of its size", r"window|chunk", model="gemma3",
    seen=lambda e, right, il, n: (e.position[:, None] >= np.arange(n)) & (np.arange(n) >= (
        e.position // e.window(il) * e.window(il))[:, None]) if e.window(il) else right(il, n))
bug("a finite mask", "masked scores get -5 instead of -infinity", r"mask|weak|finite|hidden|-5",
    softmax=lambda e, right, il, s, seen: right(il, np.where(seen[:, None], s, s - F32(5)), np.ones_like(seen)))
bug("scores of zero for masked keys", "masked keys have a score of 0", r"mask|zero|0|hidden",
    softmax=lambda e, right, il, s, seen: right(il, np.where(seen[:, None], s, F32(0)), np.ones_like(seen)))

# ---- attention weights -----------------------------------------------------------------------------------------------

def scaled(of):
    return lambda e, right, il: of(e, right(il))


bug("scores not scaled", "scores are not scaled", r"scale|times", scale=scaled(lambda e, s: 1.0))
bug("1 / d for 1 / sqrt(d)", "scores are scaled by 1 / d", r"scale|times", scale=scaled(lambda e, s: 1 / e.dim))
bug("attn_scale of the hidden size", "scores are scaled by 1 / sqrt(n_embd)", r"scale|times", model="qwen3",
    scale=scaled(lambda e, s: 1 / math.sqrt(e.n_embd)))
bug("query_pre_attn_scalar", "scores are scaled by 1 / sqrt(n_embd / heads of keys)", r"scale|times", model="gemma3",
    scale=scaled(lambda e, s: 1 / math.sqrt(e.n_embd / e.n_kv)))
bug("scaled in Q and in the kernel", "scores are scaled twice while decoding", r"scale|times", tokens="decoded",
    scale=scaled(lambda e, s: s * s if e.is_decoding else s))
bug("attention temperature of Llama 4", "queries get a temperature that grows with the position",
    r"factor|temperature|times|scale",
    scores=lambda e, right, il, q, k: right(il, q * F32(1 + .1 * np.log1p((e.position + 1) // 4))[:, None, None], k))
bug("nerdai/llms-from-scratch-rs#30", "the softmax is over queries", r"quer|axis|token",
    softmax=lambda e, right, il, s, seen: (lambda x: np.where(seen[:, None], np.exp(x - x.max(axis=0)) / np.exp(
        x - x.max(axis=0)).sum(axis=0), 0))(np.where(seen[:, None], s, F32(-1e30))))
bug("exp of WGSL, clamped", "the argument of exp is at least -4", r"clamp|least|exp|limit",
    exp=lambda e, right, il, x: np.exp(np.maximum(x, F32(-4))))
bug("a fast exp", "exp is (1 + x / 256)^256", r"exp|approximat|\^", exp=lambda e, right, il, x: np.maximum(
    1 + x / F32(256), 0) ** 256)
bug("exp2 without log2(e)", "exponentials are of base 2", r"base|2|scale|times", exp=lambda e, right, il, x: np.exp2(x))
bug("vllm-project/vllm-metal#550", "the sinks are left out", r"sink", model="gpt-oss",
    softmax=lambda e, right, il, s, seen: (lambda x: np.where(seen[:, None], x / x.sum(axis=-1, keepdims=True), 0))(
        np.where(seen[:, None], np.exp(s - s.max(axis=-1, keepdims=True)), 0)))
bug("sinks of the wrong heads", "each head has the sink of the one before", r"sink", model="gpt-oss",
    sinks=lambda e, right, il: np.roll(right(il), 1))
bug("sinks in the scaled scores", "sinks are multiplied by the scale of scores", r"sink", model="gpt-oss",
    sinks=lambda e, right, il: right(il) * F32(e.scale(il)))
bug("sinks without exp", "sinks are added to the sum as they are", r"sink|sum", model="gpt-oss",
    sinks=lambda e, right, il: np.log(np.abs(right(il))))

# ---- online softmax --------------------------------------------------------------------------------------------------

def online(**options):
    return lambda e, right, il, scores, seen, v: right(il, scores, seen, v, **options)


def one(factor):
    return F32(1)


bug("paiml/aprender#2753", "online softmax does not rescale its sums", r"rescal|online|maximum|tile", flash=True,
    online=online(of_sum=one, of_values=one))
bug("PaddleJitLab/CUDATutorial#69", "online softmax does not rescale the sum of exponentials",
    r"rescal|online|sum|factor", flash=True,
    online=online(of_sum=one))
bug("Dao-AILab/flash-attention#2083", "online softmax does not rescale the sum of values",
    r"rescal|online|sum|maximum", flash=True,
    online=online(of_values=one))
bug("deepseek-ai/FlashMLA#177", "online softmax rescales by the inverse factor",
    r"rescal|online|inverse|sign", flash=True,
    online=online(of_sum=lambda f: 1 / np.where(f == 0, 1, f), of_values=lambda f: 1 / np.where(f == 0, 1, f)))
bug("vllm-project/vllm#26599", "the accumulators of attention are not cleared between heads",
    r"clear|head|accumul|sum|add", flash=True,
    attend=lambda e, right, il, q: np.cumsum(right(il, q), axis=1, dtype=F32))
bug("vllm-project/vllm#26599, tokens", "the accumulators of attention are not cleared between tokens",
    r"clear|token|accumul|sum|add", flash=True,
    attend=lambda e, right, il, q: np.cumsum(right(il, q), axis=0, dtype=F32))
bug("ROCm/aiter#3069", "the last tile of keys is left out of the sums", r"tail|last|tile|key", flash=True,
    online=lambda e, right, il, s, seen, v: right(il, s, seen, v, n_tile=max(1, s.shape[-1] // 4)))
bug("lightseekorg/tokenspeed#664", "the missing keys of a last tile count with a score of 0",
    r"zero|pad|slot|tile|sum", flash=True,
    online=online(padding=True))
bug("sgl-project/sgl-kernel-npu#216", "the sinks are left out of online softmax", r"sink", model="gpt-oss", flash=True,
    finish=lambda e, right, il, largest, total, values: values / total)
bug("vllm-project/vllm-metal#550, online", "sinks are added to the sum without the maximum",
    r"sink", model="gpt-oss", flash=True,
    finish=lambda e, right, il, largest, total, values: values / (total + np.exp(e.sinks(il)[:, None])))
bug("mstar-project/mstar#75", "attention is not divided by its sum", r"divid|sum|normaliz", flash=True,
    finish=lambda e, right, il, largest, total, values: values)

# ---- heads -----------------------------------------------------------------------------------------------------------

def mapped(function, of="kv"):
    return lambda e, right, what: function(e, np.arange(e.n_head)) if what in of else right(what)


bug("ekzhang/jax-js#180", "the heads of K and V are tiled, not repeated",
    r"head|interleav", groups=mapped(lambda e, h: h % e.n_kv))
bug("PSAL-POSTECH/ONNXim#34", "all heads use the first head of K and V",
    r"head|first", groups=mapped(lambda e, h: h * 0))
bug("onnx/onnx#7274", "the heads of V are tiled, those of K repeated",
    r"head|interleav", groups=mapped(lambda e, h: h % e.n_kv, "v"))
bug("apple/axlearn#842", "the heads of K are tiled, those of V repeated",
    r"head|interleav", groups=mapped(lambda e, h: h % e.n_kv, "k"))
bug("PrimeIntellect-ai/prime-rl#2681", "keys and values are repeated along the tokens", r"token|key|slot|repeat|order",
    cached=reads_cache(lambda e, il, k, v: tuple(a[np.arange(len(a)) // 4] for a in (k, v))))
bug("a merge without a transposition", "the outputs of the heads are joined element by element",
    r"transpos|order|element|merge|head",
    merge=lambda e, right, il, y: right(il, y.swapaxes(1, 2)))
bug("1bit-MONSTER/1bit-MONSTER#393, races", "the value of the last key alone is left", r"last|one|key|token|only",
    mix=lambda e, right, il, w, v: np.einsum("nh,nhd->nhd", w[np.arange(len(w)), :, e.position],
                                            v[e.position][:, e.groups("v")]))
bug("the sum of values is not weighted in a tail", "values of the last 2 keys are left out",
    r"last|tail|key|zero|weight",
    mix=lambda e, right, il, w, v: right(il, w[..., :-2], v[:-2]) if w.shape[-1] > 2 else right(il, w, v))

# ---- residuals and layers --------------------------------------------------------------------------------------------

def untapped(e, function, *arguments):
    """What a function returns; the taps stay as they are."""
    taps, e.taps = e.taps, {}
    y = function(*arguments)
    e.taps = taps
    return y


def added(of, function):
    return lambda e, right, il, what, y, x: function(e, il, y, x) if what == of else right(il, what, y, x)


bug("a residual forgotten", "attention's input is not added to its output",
    r"residual|without|missing|not added|is attn_out",
    add=added("attn", lambda e, il, y, x: y))
bug("the residual of the layer", "the feed-forward network's output is added to the input of the layer",
    r"l_out|embd|input|instead",
    add=added("ffn", lambda e, il, y, x: y + (e.taps[f"l_out-{il - 1}"] if il else e.taps["embd"])[-1]))
bug("a fused add and norm", "attention's input is added twice",
    r"2|twice", add=added("attn", lambda e, il, y, x: y + x + x))
bug("attention and feed-forward side by side", "the feed-forward network reads the input of the layer",
    r"l_out|embd|parallel|input", norm=lambda e, right, il, name, x: right(il, name, (
        e.taps[f"l_out-{il - 1}"] if il else e.taps["embd"])[-1] if name.endswith("ffn_norm") else x))
bug("n_layer - 1", "the last layer is left out", r"l_out|left out|skipp|layer",
    layer=lambda e, right, il, x: right(il, x) if il < e.n_layer - 1 else x)
bug("a layer run twice", "layer 2 is run twice", r"l_out|twice|layer|again",
    layer=lambda e, right, il, x: right(il, untapped(e, right, il, x) if il == 2 else x))

# ---- activations -----------------------------------------------------------------------------------------------------

def acts(function):
    return lambda e, right, il, x: function(x).astype(F32)


def gelu(x):
    return x / 2 * (1 + np.tanh(F32(math.sqrt(2 / math.pi)) * (x + F32(0.044715) * x ** 3)))


bug("silu in the product and after it", "the gate goes through silu twice", r"silu\(silu|twice", activation=acts(
    lambda x: x * sigmoid(x) * sigmoid(x * sigmoid(x))))
bug("a dispatch of too few groups", "only the first 128 of 192 elements are activated",
    r"first|element|only|part|128|last",
    activation=lambda e, right, il, x: np.concatenate([right(il, x[..., :128]), x[..., 128:]], axis=-1))
bug("a dispatch over tokens alone", "the second half of the gated elements stays zero", r"zero|half|element|last",
    glu=lambda e, right, il, g, u: changed(right(il, g, u), (..., slice(g.shape[-1] // 2, None)), 0))
bug("hard sigmoid for sigmoid", "silu is computed with a hard sigmoid", r"hard", activation=acts(
    lambda x: x * np.clip(x / 6 + F32(.5), 0, 1)))
bug("hard sigmoid of ONNX", "silu is computed with a hard sigmoid of slope 0.2",
    r"hard|clamp|slope|0\.2", activation=acts(
    lambda x: x * np.clip(x * F32(.2) + F32(.5), 0, 1)))
bug("sigmoid for silu", "the gate goes through a sigmoid", r"sigmoid", activation=acts(sigmoid))
bug("gelu for silu", "the gate goes through gelu", r"gelu", activation=acts(gelu))
bug("paiml/aprender#2096, silu for gelu", "the gate goes through silu",
    r"silu", model="gemma3", activation=acts(lambda x: x * sigmoid(x)))
bug("quick gelu", "gelu is x sigmoid(1.702 x)",
    r"1\.702|quick", model="gemma3", activation=acts(lambda x: x * sigmoid(F32(1.702) * x)))
bug("relu for silu", "the gate goes through relu", r"relu", activation=acts(lambda x: np.maximum(x, 0)))
bug("exp in f16 shaders", "silu clamps its argument to -2 and 2 in exp", r"clamp|limit|exp|2", activation=acts(
    lambda x: x * sigmoid(np.clip(x, -2, 2))))
bug("gated without a gate", "up alone is passed on", r"\bup\b|gate|missing", glu=lambda e, right, il, g, u: u)
bug("a product for a sum", "gate and up are added", r"sum|\+", glu=lambda e, right, il, g, u: e.activation(il, g) + u)
bug("vllm-project/vllm-ascend#9438", "a limit of 2 clamps gate and up",
    r"clamp|limit|2", glu=lambda e, right, il, g, u: right(
    il, np.minimum(g, 2), np.clip(u, -2, 2)))
bug("sgl-project/sglang#39939", "1 is not added to up", r"1|up", model="gpt-oss",
    glu=lambda e, right, il, g, u: (lambda a, b: a * sigmoid(F32(1.702) * a) * b)(*e.clamped(il, g, u)))
bug("anthony-chaudhary/fak#4837", "the gate is clamped from below too", r"clamp|limit|below|-7", model="gpt-oss",
    clamped=lambda e, right, il, g, u: (np.clip(g, -7, 7), right(il, g, u)[1]))
bug("sgl-project/sglang#39939, limits", "gate and up are not clamped",
    r"clamp|limit", model="gpt-oss", clamped=lambda e, right, il, g, u: (g, u))
bug("microsoft/onnxruntime#27221", "the limit of gate and up is 0", r"clamp|limit|0", model="gpt-oss",
    clamped=lambda e, right, il, g, u: (np.minimum(g, 0), u * 0))
bug("alpha of gpt-oss", "the gate goes through silu without 1.702", r"silu|1\.702|alpha|sigmoid", model="gpt-oss",
    glu=lambda e, right, il, g, u: (lambda a, b: a * sigmoid(a) * (b + 1))(*e.clamped(il, g, u)))
bug("gate and up of gpt-oss", "rows of gate and up are taken to alternate",
    r"alternat|interleav|order|even|row|ffn_|gate", model="gpt-oss",
    glu=lambda e, right, il, g, u: (lambda a: right(il, a[..., 0::2], a[..., 1::2]))(np.concatenate([g, u], axis=-1)))

# ---- experts ---------------------------------------------------------------------------------------------------------

def routed(function):
    return lambda e, right, il, scores: function(e, il, *right(il, scores))


bug("lablup/mlxcel#391", "the softmax is over the used experts alone", r"softmax|sum|norm", model="olmoe",
    weigh_experts=lambda e, right, il, y, w: right(il, y, w / w.sum(axis=-1, keepdims=True)))
bug("sgl-project/sglang#35160", "experts are weighted by the scores of the router",
    r"logits|scores|softmax|router", model="olmoe",
    weigh_experts=lambda e, right, il, y, w: right(il, y, np.take_along_axis(
        e.taps[f"ffn_moe_logits-{il}"][-1], e.taps[f"ffn_moe_topk-{il}"][-1].astype(int), axis=-1)))
bug("experts weighted twice", "the weights of experts are squared", r"twice|\^2|square|w", model="olmoe",
    weigh_experts=lambda e, right, il, y, w: right(il, right(il, y, w), w))
bug("experts not weighted", "experts are not weighted", r"weight|not|missing|is ffn_moe_down", model="olmoe",
    weigh_experts=lambda e, right, il, y, w: y)
bug("weights in the order of ids", "the weights of experts are in the order of their ids",
    r"order|reverse|weight|expert", model="olmoe",
    weigh_experts=lambda e, right, il, y, w: right(il, y, np.take_along_axis(w, np.argsort(
        e.taps[f"ffn_moe_topk-{il}"][-1], axis=-1), axis=-1)))
bug("topk of ascending order", "the worst experts are chosen", r"smallest|worst|chosen|expert", model="olmoe",
    choose=lambda e, right, il, p: right(il, -p))
bug("one expert for all", "the down projection of the first expert of each token is used for all",
    r"expert|order|matrix|row", model="olmoe",
    expert=only("ffn_down", lambda e, right, il, name, used, x: right(il, name, used[:, :1].repeat(used.shape[1],
        axis=1), x)))
bug("experts counted from 1", "the matrices of the next expert are used", r"expert|matrix|plus|index", model="olmoe",
    expert=lambda e, right, il, name, used, x: right(il, name, (used + 1) % e.file.key("expert_count"), x))
bug("gate and up of experts", "gate and up of the experts are exchanged", r"exchanged|gate|up", model="olmoe",
    expert=lambda e, right, il, name, used, x: right(il, {"ffn_gate": "ffn_up", "ffn_up": "ffn_gate"}.get(name,
        name), used, x))
bug("biases of experts", "the biases of the experts are left out", r"bias", model="gpt-oss",
    expert=lambda e, right, il, name, used, x: right(il, name, used, x) - e.weight(f"blk.{il}.{name}_exps.bias")[used])
bug("num_experts_per_tok", "one expert too few is used", r"expert|fewer|zero", model="olmoe",
    weigh_experts=lambda e, right, il, y, w: right(il, y, changed(w, (..., -1), 0)))
