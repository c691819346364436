#!/usr/bin/env python3
"""Writes GGUF models with random weights: small ones for tests, and models of real shapes for benchmarks.

    synth.py OUT.gguf --type Q4_K --embd 256 --heads 4 --kv-heads 1
    synth.py OUT.gguf --shape tinyllama --type Q4_0

Needs numpy and the PyPI package gguf.  The same options and versions give the same bytes.  Weights are scaled so that
logits, attention weights and gates are neither flat nor saturated.  Quantized tensors are random bits in every field
except the f16 scales, so every nibble, high bit and sub-block scale occurs.  Keys whose value is the default are
omitted, so that the defaults of readers are tested too.
"""
import argparse

import gguf
import numpy as np

# type: the f16 scales of a block, as (byte offset, what it is in units of the first).  The second scale of a block is
# the offset that centres it: value = d * sc * q - dmin * m with q in 0..15 is centred by dmin = 7.5 d.
BLOCKS = {
    "Q4_0": [(0, 1)], "Q4_1": [(0, 1), (2, -7.5)], "Q5_0": [(0, 1)], "Q5_1": [(0, 1), (2, -15.5)], "Q8_0": [(0, 1)],
    "Q2_K": [(80, 1), (82, 1.5)], "Q3_K": [(108, 1)], "Q4_K": [(0, 1), (2, 7.5)], "Q5_K": [(0, 1), (2, 15.5)],
    "Q6_K": [(208, 1)], "IQ4_NL": [(0, 1)], "IQ4_XS": [(0, 1)], "IQ2_XXS": [(0, 1)], "IQ2_XS": [(0, 1)],
    "IQ2_S": [(0, 1)], "IQ3_XXS": [(0, 1)], "IQ3_S": [(0, 1)], "IQ1_S": [(0, 1)],
    "TQ1_0": [(52, 1)], "TQ2_0": [(64, 1)],
}
SHAPES = {
    "tinyllama": {"layers": 22, "embd": 2048, "heads": 32, "kv_heads": 4, "ff": 5632, "vocab": 32000,
                  "tokenizer": "llama", "context": 2048},
    "smollm2": {"layers": 30, "embd": 768, "heads": 12, "kv_heads": 4, "ff": 1536, "vocab": 49152, "context": 8192,
                "rope_base": 1e5, "tied": True},  # SmolLM2 135M with 768 in place of 576, a multiple of 256
    "granite": {"arch": "granite", "layers": 40, "embd": 2048, "heads": 32, "kv_heads": 8, "ff": 8192, "vocab": 49155,
                "context": 131072, "rope_base": 1e7, "attention_scale": 1 / 64, "tied": True},  # Granite 3 2B
    "qwen3": {"arch": "qwen3", "layers": 28, "embd": 1024, "heads": 16, "kv_heads": 8, "head_dim": 128, "ff": 3072,
              "vocab": 151936, "context": 40960, "rope_base": 1e6, "eps": 1e-6, "tied": True},  # Qwen3 0.6B
    "qwen2-7b": {"arch": "qwen2", "layers": 28, "embd": 3584, "heads": 28, "kv_heads": 4, "ff": 18944, "vocab": 152064,
                 "context": 32768, "rope_base": 1e6, "eps": 1e-6, "bias": True},  # Qwen2.5 7B
    "olmoe": {"arch": "olmoe", "layers": 16, "embd": 2048, "heads": 16, "kv_heads": 16, "ff": 1024, "experts": 64,
              "experts_used": 8, "vocab": 50304, "context": 4096},  # OLMoE 1B of 7B
}
FREQ_BASE = 10000.0


def more_bits(il, n_layer):
    """Whether llama-quantize gives attn_v and ffn_down of this layer more bits in files of type Q4_K_M."""
    return il < n_layer // 8 or il >= 7 * n_layer // 8 or (il - n_layer // 8) % 3 == 2


def iq1_m_scales(some, scale):
    """Four bits of the scale are at the top of each of the four last 16-bit fields."""
    bits = scale.astype("<f2").view("<u2")[:, None] >> np.array([0, 4, 8, 12], "<u2") << 12
    some[:, 48:] = (some[:, 48:].copy().view("<u2") & 0xfff | bits).astype("<u2").view(np.uint8)


def mxfp4_scales(some, scale):
    """A power of two."""
    some[:, 0] = 128 + np.rint(np.log2(np.abs(scale)))


def nvfp4_scales(some, scale):
    """Four unsigned floats; their mantissas stay random."""
    exponents = np.clip(7 + np.rint(np.log2(np.abs(scale))), 0, 14).astype(np.uint8)
    some[:, :4] = exponents[:, None] << 3 | some[:, :4] & 7


OTHER_SCALES = {"IQ1_M": iq1_m_scales, "MXFP4": mxfp4_scales, "NVFP4": nvfp4_scales}


def random_blocks(rng, rows, columns, type_name, deviation):
    """(rows, bytes) of random valid blocks whose values have this standard deviation, a lone scale of either sign."""
    kind = gguf.GGMLQuantizationType[type_name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    fields = BLOCKS.get(type_name, [None])
    n = rows * columns // block
    data = np.frombuffer(rng.bytes(n * size), np.uint8).reshape(n, size).copy()

    def set_scales(some, scale):
        if type_name in OTHER_SCALES:
            OTHER_SCALES[type_name](some, scale)
            return
        for offset, ratio in fields:
            some[:, offset:offset + 2] = (scale * ratio).astype("<f2")[:, None].view(np.uint8)

    probe = data[:4096].copy()
    set_scales(probe, np.ones(len(probe)))
    unit = gguf.quants.dequantize(probe, kind).std()
    scale = rng.uniform(0.5, 1.5, n) * (deviation / unit)
    if len(fields) == 1:
        scale *= rng.choice([-1.0, 1.0], n)
    set_scales(data, scale)
    return data.reshape(rows, -1)


class Synth:
    def __init__(self, options):
        self.options = options
        self.rng = np.random.default_rng(options.seed)
        self.writer = gguf.GGUFWriter(options.out, options.arch)

    def matrix(self, name, rows, columns, gain, type_name=None, experts=None):
        """(rows, columns) weights that give outputs of deviation gain for inputs of deviation 1, for each expert."""
        type_name = type_name or self.options.type
        rows *= experts or 1
        deviation = gain / np.sqrt(columns)
        if type_name in BLOCKS or type_name in OTHER_SCALES:
            if columns % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]][0]:
                type_name = "Q8_0"  # as llama-quantize does, rows that are no multiple of 256 get another type
            data = random_blocks(self.rng, rows, columns, type_name, deviation)
        else:
            data = self.rng.standard_normal((rows, columns), np.float32) * np.float32(deviation)
            data = gguf.quants.quantize(data, gguf.GGMLQuantizationType[type_name])
        if experts:
            data = data.reshape(experts, rows // experts, -1)
        self.writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[type_name])

    def vector(self, name, n, mean, deviation):
        self.writer.add_tensor(name, self.rng.normal(mean, deviation, n).astype(np.float32))

    def keys(self):
        o, w = self.options, self.writer
        w.add_name(f"synthetic {o.arch} {o.type}")
        w.add_block_count(o.layers)
        w.add_context_length(o.context)
        w.add_embedding_length(o.embd)
        w.add_feed_forward_length(o.ff)
        w.add_head_count(o.heads)
        w.add_layer_norm_rms_eps(o.eps)
        if o.kv_heads != o.heads:
            w.add_head_count_kv(o.kv_heads)
        if o.head_dim * o.heads != o.embd:
            w.add_key_length(o.head_dim)
            w.add_value_length(o.head_dim)
        if o.rope_dim:
            w.add_rope_dimension_count(o.rope_dim)
        elif o.head_dim * o.heads != o.embd:
            w.add_rope_dimension_count(o.head_dim)
        if o.rope_base != FREQ_BASE:
            w.add_rope_freq_base(o.rope_base)
        if o.rope_scaling:
            w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            w.add_rope_scaling_factor(o.rope_scaling)
        if o.window:
            w.add_sliding_window(o.window)
            w.add_sliding_window_pattern(o.window_period)
            w.add_rope_freq_base_swa(o.rope_base_swa)
        if o.experts:
            w.add_expert_count(o.experts)
            w.add_expert_used_count(o.experts_used)
        if o.softcap:
            w.add_final_logit_softcapping(o.softcap)
        if o.arch == "granite":
            w.add_embedding_scale(o.embedding_scale)
            w.add_residual_scale(o.residual_scale)
            w.add_attention_scale(o.attention_scale)
            w.add_logit_scale(o.logit_scale)

    def tensors(self):
        o = self.options
        n_q, n_kv = o.heads * o.head_dim, o.kv_heads * o.head_dim
        # Granite's factors are made up for, so that activations are as those of the others.
        embedding_scale, residual_scale, attention, logit_scale = (
            (o.embedding_scale, o.residual_scale, np.sqrt(o.attention_scale * np.sqrt(o.head_dim)), o.logit_scale)
            if o.arch == "granite" else (np.sqrt(o.embd) if o.arch == "gemma3" else 1, 1, 1, 1))
        post_norm = o.arch == "gemma3"
        # What the norms of Q and K are computed over: each head, or all of them.
        qk_norm = {"qwen3": (o.head_dim, o.head_dim), "gemma3": (o.head_dim, o.head_dim), "olmoe": (n_q, n_kv)}
        self.matrix("token_embd.weight", o.vocab, o.embd, np.sqrt(o.embd) * (0.5 if o.tied else 1) / embedding_scale,
                    o.head_type if o.tied else None)
        if o.rope_freqs:
            factors = 1 + 7 * np.arange(o.head_dim // 2) / (o.head_dim // 2)
            self.writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
        for il in range(o.layers):
            block = f"blk.{il}."
            finer = "Q6_K" if o.mixed and more_bits(il, o.layers) else None
            self.vector(block + "attn_norm.weight", o.embd, 1, 0.2)
            for name, rows, gain in (("q", n_q, 1.5 / attention), ("k", n_kv, 1.5 / attention), ("v", n_kv, 1)):
                self.matrix(f"{block}attn_{name}.weight", rows, o.embd, gain, finer if name == "v" else None)
                if o.bias:
                    self.vector(f"{block}attn_{name}.bias", rows, 0, 0.5)
            for name, n in zip("qk", qk_norm.get(o.arch, ())):
                self.vector(f"{block}attn_{name}_norm.weight", n, 1, 0.2)
            self.matrix(block + "attn_output.weight", o.embd, n_q, 1 / residual_scale)
            if post_norm:
                self.vector(block + "post_attention_norm.weight", o.embd, 1, 0.2)
                self.vector(block + "post_ffw_norm.weight", o.embd, 1, 0.2)
            self.vector(block + "ffn_norm.weight", o.embd, 1, 0.2)
            if o.experts:
                self.matrix(block + "ffn_gate_inp.weight", o.experts, o.embd, 2, "F32")
            of = "_exps.weight" if o.experts else ".weight"
            self.matrix(f"{block}ffn_gate{of}", o.ff, o.embd, 2, None, o.experts)
            self.matrix(f"{block}ffn_up{of}", o.ff, o.embd, 1, None, o.experts)
            self.matrix(f"{block}ffn_down{of}", o.embd, o.ff, 1 / residual_scale, finer, o.experts)
        gain = logit_scale * (embedding_scale if o.tied else 1)
        self.vector("output_norm.weight", o.embd, gain, 0.2 * gain)
        if not o.tied:
            self.matrix("output.weight", o.vocab, o.embd, 3, o.head_type)

    def vocabulary(self):
        o, w, kind = self.options, self.writer, gguf.TokenType
        letters = "etaoinshrdlu"
        pairs = [a + b for a in letters for b in letters]
        fours = [a + b for a in pairs for b in pairs]
        words = pairs + fours + [four + letter for four in fours for letter in letters]
        if o.tokenizer == "gpt2":
            visible = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's names of the bytes, in its order
            tokens = [chr(b) for b in visible] + [chr(256 + k) for k in range(256 - len(visible))] + ["<|end|>"]
            types = [kind.NORMAL] * 256 + [kind.CONTROL]
            words = words[:o.vocab - len(tokens)]
            w.add_tokenizer_model("gpt2")
            w.add_tokenizer_pre("gpt-2")
            halves = [(word, 4 if len(word) == 5 else len(word) // 2) for word in words]
            w.add_token_merges([f"{word[:at]} {word[at:]}" for word, at in halves])
            w.add_bos_token_id(256)
            w.add_eos_token_id(256)
        else:
            tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581"]
            types = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL] + [kind.BYTE] * 256 + [kind.NORMAL]
            words = ([*letters] + words)[:o.vocab - len(tokens)]
            w.add_tokenizer_model("llama")
            w.add_token_scores([0.0] * len(tokens) + [float(-k) for k in range(len(words))])
            w.add_bos_token_id(1)
            w.add_eos_token_id(2)
            w.add_unk_token_id(0)
        tokens, types = tokens + words, types + [kind.NORMAL] * len(words)
        assert len(tokens) == o.vocab == len(set(tokens)), f"no vocabulary of {o.vocab} tokens: {len(tokens)}"
        w.add_token_list(tokens)
        w.add_token_types(types)

    def write(self):
        self.keys()
        self.vocabulary()
        self.tensors()
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("out")
    add("--shape", choices=SHAPES, help="use the sizes and keys of TinyLlama, SmolLM2 135M (but 768 wide), "
        "Granite 3 2B, Qwen3 0.6B, Qwen2.5 7B or OLMoE 1B-7B, unless other options change them")
    add("--arch", choices=("llama", "qwen2", "granite", "qwen3", "gemma3", "olmoe"), default="llama")
    types = ("F32", "F16", "BF16", *BLOCKS, *OTHER_SCALES)
    add("--type", choices=(*types, "Q4_K_M"), default="F32", help="the type of every matrix; "
        "Q4_K_M: Q4_K, and Q6_K where llama-quantize chooses it")
    add("--head-type", choices=types, help="the type of output.weight, and of token_embd.weight "
        "if --tied; default for --shape as in llama-quantize: Q6_K where --type is smaller than Q8_0, for Q4_K_M also "
        "if --tied")
    add("--layers", type=int, default=2)
    add("--embd", type=int, default=32)
    add("--heads", type=int, default=4)
    add("--kv-heads", type=int, default=2)
    add("--head-dim", type=int, help="attention.key_length and value_length; default embd / heads")
    add("--ff", type=int, default=64)
    add("--experts", type=int, help="feed-forward networks of a layer, of which a router chooses for each token")
    add("--experts-used", type=int, default=2)
    add("--vocab", type=int, default=260)
    add("--context", type=int, default=512)
    add("--tied", action=argparse.BooleanOptionalAction, default=None,
        help="omit output.weight; default unless --shape")
    add("--bias", action=argparse.BooleanOptionalAction, default=None, help="add q, k, v biases; default for qwen2")
    add("--eps", type=float, default=1e-5, help="the epsilon of the RMS norms")
    add("--rope-freqs", action="store_true", help="add a rope_freqs.weight with factors 1..8")
    add("--rope-scaling", type=float, metavar="FACTOR", help="linear scaling of positions")
    add("--rope-base", type=float, default=FREQ_BASE)
    add("--rope-dim", type=int, help="rope.dimension_count, if it is not head-dim")
    add("--embedding-scale", type=float, default=12.0, help="this option and the next three are for granite only")
    add("--residual-scale", type=float, default=0.22)
    add("--attention-scale", type=float, default=0.1, help="the scale of scores, instead of 1 / sqrt(head-dim)")
    add("--logit-scale", type=float, default=8.0, help="the divisor of the logits")
    add("--window", type=int, help="the sliding window of all layers but every --window-period-th")
    add("--window-period", type=int, default=6)
    add("--rope-base-swa", type=float, default=FREQ_BASE, help="the frequency base of layers with a window")
    add("--softcap", type=float, help="final_logit_softcapping")
    add("--tokenizer", choices=("gpt2", "llama"), default="gpt2", help="byte-level BPE, or SentencePiece")
    add("--seed", type=int, default=1)
    parser.set_defaults(**SHAPES.get(parser.parse_known_args(arguments)[0].shape, {}))
    options = parser.parse_args(arguments)
    options.tied = options.shape is None if options.tied is None else options.tied
    options.mixed = options.type == "Q4_K_M"
    if options.mixed:
        options.type = "Q4_K"
    if options.mixed or options.shape and not options.tied and options.type not in ("F32", "F16", "BF16", "Q8_0"):
        options.head_type = options.head_type or "Q6_K"
    options.bias = options.arch == "qwen2" if options.bias is None else options.bias
    options.head_dim = options.head_dim or options.embd // options.heads
    return options


if __name__ == "__main__":
    Synth(parse()).write()
