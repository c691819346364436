#!/usr/bin/env python3
"""A forward pass in numpy, f64 throughout, written from the papers: the second opinion on llama.cpp's logits.

    numpy_pass.py MODEL.gguf VECTORS.bin...
    numpy_pass.py MODEL.gguf -i IDS.txt -o OUT.bin

Runs the tokens of VECTORS.bin (layout: logits.c) and prints how far its records are from this pass; or the tokens of a
text file, and writes every logit in the same layout.
Weights are what the gguf package dequantizes them to.  Sources: LLaMA (arXiv 2302.13971), RMSNorm (1910.07467),
SwiGLU (2002.05202), RoPE (2104.09864), linear position interpolation (2306.15595), GQA (2305.13245), Granite's factors
(its configuration in transformers: embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling),
Gemma 3 (2503.19786) and Qwen 3 (2505.09388) with their configurations, GELU (1606.08415), sliding windows (2004.05150);
names and keys from the GGUF specification.
"""
import argparse
import struct

import gguf
import numpy as np

MAGIC = b"PLMBLOGT"


def read_vectors(path):
    """The records of a file written by logits.c."""
    data = open(path, "rb").read()
    assert data[:8] == MAGIC, path
    n_vocab, n_token, n_record, stride, n_sample, n_top = struct.unpack_from("<6I", data, 8)
    tokens = np.frombuffer(data, "<u4", n_token, 32).astype(int)
    words = np.frombuffer(data, "<u4", offset=32 + 4 * n_token).reshape(n_record, 1 + n_sample + 2 * n_top)
    reals = words.view("<f4").astype(np.float64)
    return {"n_vocab": n_vocab, "tokens": tokens, "stride": stride, "logsumexp": reals[:, 0],
            "sample": reals[:, 1:1 + n_sample], "top_id": words[:, 1 + n_sample:1 + n_sample + n_top].astype(int),
            "top": reals[:, 1 + n_sample + n_top:]}


def log_sum_exp(logits):
    largest = logits.max(axis=-1, keepdims=True)
    return (largest + np.log(np.exp(logits - largest).sum(axis=-1, keepdims=True)))[..., 0]


def write_vectors(path, tokens, logits):
    """Every logit of every position, no top list, in the layout of logits.c."""
    n, n_vocab = logits.shape
    with open(path, "wb") as f:
        f.write(MAGIC + struct.pack("<6I", n_vocab, n, n, 1, n_vocab, 0) + tokens.astype("<u4").tobytes())
        f.write(np.hstack([log_sum_exp(logits)[:, None], logits]).astype("<f4").tobytes())


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in reader.fields.items() if field.data}
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.arch = self.keys["general.architecture"]

    def key(self, name, default=None):
        return self.keys.get(f"{self.arch}.{name}", default)

    def weight(self, name):
        """(n_out, n_in) for a matrix, (n) for a vector, f64; None if there is no such tensor."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def window_of(model, il):
    """How many tokens a token of the layer sees, itself included; None: all before it."""
    window = model.key("attention.sliding_window", 0)
    pattern = model.key("attention.sliding_window_pattern", 6)
    is_local = pattern[il] if isinstance(pattern, list) else (il + 1) % pattern != 0
    return window if window and is_local else None


def rope(x, model, is_local):
    """x: (n_token, n_head, head_dim).  Pair k of the first n_rot components turns by position / base^(2k/n_rot)."""
    n_token, _, head_dim = x.shape
    n_rot = model.key("rope.dimension_count", head_dim)
    base = model.key("rope.freq_base_swa" if is_local else "rope.freq_base", 10000.0)
    angle = float(base) ** (-np.arange(0, n_rot, 2) / n_rot)
    factors = model.weight("rope_freqs.weight")
    if factors is not None:
        angle = angle / factors
    if model.key("rope.scaling.type") == "linear" and not is_local:
        angle = angle / float(model.key("rope.scaling.factor"))
    angle = np.arange(n_token)[:, None, None] * angle
    if model.arch in ("llama", "granite"):  # neighbours are a pair, as the paper has it
        first, second = np.arange(0, n_rot, 2), np.arange(1, n_rot, 2)
    else:                      # component k and k + n_rot/2 are a pair, as GPT-NeoX has it
        first, second = np.arange(n_rot // 2), np.arange(n_rot // 2, n_rot)
    a, b = x[..., first], x[..., second]
    x = x.copy()
    x[..., first] = a * np.cos(angle) - b * np.sin(angle)
    x[..., second] = a * np.sin(angle) + b * np.cos(angle)
    return x


def attention(model, il, x, n_head, n_head_kv, eps):
    block, window = f"blk.{il}", window_of(model, il)

    def project(name, n):
        y = x @ model.weight(f"{block}.attn_{name}.weight").T
        bias = model.weight(f"{block}.attn_{name}.bias")
        y = (y if bias is None else y + bias).reshape(len(x), n, -1)
        norm = model.weight(f"{block}.attn_{name}_norm.weight")
        return y if norm is None else rms_norm(y, norm, eps)

    q = rope(project("q", n_head), model, window is not None)
    k = rope(project("k", n_head_kv), model, window is not None)
    v = project("v", n_head_kv)
    future = np.triu(np.full((len(x), len(x)), -np.inf), 1)
    if window:
        future += np.tril(np.full((len(x), len(x)), -np.inf), -window)
    heads = []
    for head in range(n_head):
        group = head // (n_head // n_head_kv)  # n_head / n_head_kv query heads in a row share one key and value head
        scores = q[:, head] @ k[:, group].T * model.key("attention.scale", q.shape[-1] ** -0.5) + future
        share = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(share / share.sum(axis=-1, keepdims=True) @ v[:, group])
    return np.hstack(heads) @ model.weight(f"{block}.attn_output.weight").T


def feed_forward(model, block, x):
    gate = x @ model.weight(f"{block}.ffn_gate.weight").T
    up = x @ model.weight(f"{block}.ffn_up.weight").T
    if model.arch == "gemma3":
        gate = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3)))
    else:
        gate = gate / (1 + np.exp(-gate))
    return (gate * up) @ model.weight(f"{block}.ffn_down.weight").T


def forward(model, tokens):
    """Logits (n_token, n_vocab) after each of the tokens."""
    n_head = model.key("attention.head_count")
    n_head_kv = model.key("attention.head_count_kv", n_head)
    eps = float(model.key("attention.layer_norm_rms_epsilon"))
    embd = model.weight("token_embd.weight")
    x = embd[tokens] * (np.sqrt(embd.shape[1]) if model.arch == "gemma3" else model.key("embedding_scale", 1))
    share = model.key("residual_scale", 1)
    for il in range(model.key("block_count")):
        block = f"blk.{il}"

        def norm(name, y):
            weight = model.weight(f"{block}.{name}.weight")
            return y if weight is None else rms_norm(y, weight, eps)

        added = attention(model, il, norm("attn_norm", x), n_head, n_head_kv, eps)
        x = x + share * norm("post_attention_norm", added)
        x = x + share * norm("post_ffw_norm", feed_forward(model, block, norm("ffn_norm", x)))
    head = model.weight("output.weight")
    logits = rms_norm(x, model.weight("output_norm.weight"), eps) @ (embd if head is None else head).T
    logits = logits / model.key("logit_scale", 1)
    cap = model.key("final_logit_softcapping", 0)
    return cap * np.tanh(logits / cap) if cap else logits


def relative_rms(a, truth):
    return np.sqrt(((a - truth) ** 2).sum() / (truth ** 2).sum())


def compare(path, vectors, logits):
    logits = logits[-len(vectors["logsumexp"]):]
    line = f"{path}: {len(logits)} positions"
    if vectors["stride"]:
        line += f", relative RMS {relative_rms(vectors['sample'], logits[:, ::vectors['stride']]):.3g}"
    line += f", logsumexp within {np.abs(vectors['logsumexp'] - log_sum_exp(logits)).max():.3g}"
    if vectors["top_id"].size:
        same = (vectors["top_id"][:, 0] == logits.argmax(axis=-1)).mean()
        top = np.take_along_axis(logits, vectors["top_id"], axis=-1)
        line += f", top-1 equal at {same:.2%}, top logits within {np.abs(vectors['top'] - top).max():.3g}"
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("vectors", nargs="*", help="files of the same tokens")
    parser.add_argument("-i", "--ids", help="file of token ids, instead of those of the first vectors")
    parser.add_argument("-o", "--out", help="write this pass's logits")
    arguments = parser.parse_args()
    files = {path: read_vectors(path) for path in arguments.vectors}
    tokens = np.loadtxt(arguments.ids, int).ravel() if arguments.ids else next(iter(files.values()))["tokens"]
    logits = forward(Model(arguments.model), tokens)
    if arguments.out:
        write_vectors(arguments.out, tokens, logits)
    for path, vectors in files.items():
        assert np.array_equal(vectors["tokens"], tokens), path
        print(compare(path, vectors, logits))


if __name__ == "__main__":
    main()
