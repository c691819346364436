#!/usr/bin/env python3
"""Writes a tiny GGUF with random weights for each architecture that plumb runs, for tests/vectors/archs.

    synth_archs.py NAME OUT.gguf [--f32] [--fixed]

Needs numpy and the PyPI package gguf.  The same versions give the same bytes.  Matrices are Q8_0; with --f32 the file
has the same numbers as F32, for engines that round activations of quantized products.  The vocabulary has the kind
"none": ids alone; that of t5-gated has texts.  The shapes hide no mistakes: several K/V heads, more layers than the
period of windows or of layers without RoPE, windows shorter than the prompt.
"""
import sys
import zlib

import gguf
import numpy as np

EMBD, HEADS, KV_HEADS, HEAD_DIM, FF, VOCAB = 32, 4, 2, 16, 64, 64
LLAMA = {"gate": True, "norms": "rms"}
BERT = {"norms": "layer", "gate": False, "pre": False, "around": True, "types": 2, "embd_norm": True, "head_dim": 8,
        "output_norm": None, "bias": "q k v output embd_norm around"}
RWKV = {"norms": "layer", "untied": True, "embd_norm": True, "ffn_norm": "attn_norm_2", "channel_mix": True,
        "bias": "attn_norm ffn_norm output_norm embd_norm heads_norm"}
GRANITE = {"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.1, "logit_scale": 8.0}
T5 = {"norms": "rms", "prefix": "enc.", "output_norm": "enc.output_norm", "output": "attn_o", "gain": 0.4,
      "buckets": 16, "kv_heads": 4, "keys": {"attention.relative_buckets_count": 16}}
# qk_norm: what the norms of Q and K are computed over; post: norms after attention and feed forward; fused: attn_qkv;
# gate: the feed-forward network has a gate; sub_norms: norms before the output projections; scales: tensors of factors;
# norms: "rms", "layer" or "bare" (without weights); bias: which weights have one; keys: those that differ from the
# defaults; plain_keys: without the architecture's name; layers; head_dim: embd / heads where the shapes need it.
# Encoders: around: norms after the residual is added; types: rows of token_types; positions: learned; embd_norm;
# norm_2: a second norm after attention; gate "fused": ffn_up has both matrices, or a kind for each layer; experts: how
# many, and every how many layers; cls: rows of the classifier's matrix; labels: rows of cls.output; dense: rows of
# dense_2.  Gemma 3n and 4: beside: experts, of a width, beside the dense network; window_layers: those with a window,
# window_dim: elements of their heads; shared: layers that read the K and V of earlier ones; no_v: layers where V is K;
# per_layer: elements of an embedding for each layer; out_scale: a factor of each layer; altup: residual streams;
# laurel: columns of the path beside attention.  latent: elements of a head of K, those of it that are rotated,
# those of V, and of the latent vector.  sparse: experts behind the first layer, their width and how many are shared.
# T5: buckets: of distances, buckets_in: layers that have attn_rel_b; prefix: of blk.N; output: the name of attn_output;
# gain: of Q and K, whose scores are not divided by anything.  seed: another one where rounding shows more than in other
# models, as a softmax is close to a step.  lora: adapters of which rank, and whether number 0 has no zeros, as those of
# real models do; vocab: tokens; qk_norm "heads": over each head, with weights of its own.
ARCHS = {
    "llama": {"bias": "q k v output gate up down", "freqs": True},
    "qwen": {"fused": True, "bias": "qkv", "head_dim": 8, "kv_heads": 4, "untied": True, "ff_key": 2 * FF},
    "qwen2": {"bias": "q k v head", "untied": True, "head_dim": 8},
    "qwen3": {"qk_norm": "head", "labels": 2, "keys": {"pooling_type": 3}},
    "gemma": {},
    "gemma2": {"post": True, "layers": 3, "keys": {"attention.sliding_window": 3, "attn_logit_softcapping": 5.0,
                                                   "final_logit_softcapping": 7.0}},
    "gemma3": {"post": True, "qk_norm": "head", "layers": 7,
               "keys": {"attention.sliding_window": 3, "rope.freq_base": 1e6}},
    "granite": {"bias": "q k v output gate up down",
                "keys": GRANITE},
    "smollm3": {"layers": 5},
    "internlm2": {"head_dim": 8, "untied": True},
    "xverse": {"head_dim": 8, "untied": True, "fused": True},
    "exaone": {"freqs": True},
    "ernie4_5": {"bias": "q k v"},
    "maincoder": {"qk_norm": "head"},
    "hunyuan-dense": {"qk_norm": "head"},
    "seed_oss": {"ffn_norm": "post_attention_norm", "bias": "q k v"},
    "pangu-embedded": {"bias": "q k v output"},
    "mistral3": {"bias": "output"},
    "minicpm": {"keys": {"embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0}},
    "arcee": {"gate": False},
    "olmo2": {"pre": False, "qk_norm": "row", "post": True, "head_dim": 8, "untied": True, "layers": 5,
              "keys": {"attention.sliding_window": 3, "rope.scaling.type": "linear", "rope.scaling.factor": 4.0}},
    "olmo": {"norms": "bare", "head_dim": 8},
    "orion": {"norms": "layer", "bias": "attn_norm ffn_norm output_norm", "head_dim": 8, "untied": True},
    "starcoder2": {"norms": "layer", "gate": False, "head_dim": 8,
                   "bias": "q k v output up down attn_norm ffn_norm output_norm"},
    "phi2": {"norms": "layer", "gate": False, "ffn_norm": None, "untied": True, "head_dim": 8,
             "bias": "q k v output up down attn_norm output_norm head", "keys": {"rope.dimension_count": 4}},
    "falcon": {"norms": "layer", "gate": False, "ffn_norm": None, "fused": True, "head_dim": 8,
               "bias": "attn_norm output_norm"},
    "gptneox": {"norms": "layer", "gate": False, "fused": True, "head_dim": 8, "untied": True, "kv_heads": 4,
                "bias": "qkv output up down attn_norm ffn_norm output_norm",
                "keys": {"use_parallel_residual": True, "rope.dimension_count": 4}},
    "command-r": {"norms": "layer", "ffn_norm": None, "head_dim": 8, "keys": {"logit_scale": 0.0625}},
    "apertus": {"gate": False, "qk_norm": "head", "untied": True, "bias": "output", "plain_keys": {
        "xielu.alpha_n": 0.7, "xielu.alpha_p": 0.4, "xielu.beta": 0.5, "xielu.eps": -1e-6}},
    "bitnet": {"sub_norms": True, "head_dim": 8, "scales": True},
    "nanbeige": {"freqs": True, "layers": 2, "keys": {"num_loops": 2}},
    "nemotron": {"norms": "layer", "gate": False, "head_dim": 8, "untied": True,
                 "bias": "q k v output up down attn_norm ffn_norm output_norm", "keys": {"rope.dimension_count": 4}},
    "bert": {**BERT, "positions": True, "cls": EMBD, "labels": 3, "keys": {"pooling_type": 4},
             "bias": BERT["bias"] + " up down cls cls_output"},
    "nomic-bert": {**BERT, "seed": 1, "gate": True, "fused": True, "bias": BERT["bias"] + " qkv",
                   "keys": {"pooling_type": 1, "rope.freq_base": 1000.0}},
    "nomic-bert-moe": {**BERT, "fused": True, "layers": 5, "experts": (4, 2), "bias": BERT["bias"] + " qkv up down",
                       "keys": {"pooling_type": 1, "rope.freq_base": 1000.0, "expert_count": 4,
                                "expert_used_count": 2, "moe_every_n_layers": 2}},
    "jina-bert-v2": {**BERT, "gate": ("fused", True, False), "qk_norm": "row", "norm_2": True, "cls": 1, "kv_heads": 4,
                     "bias": BERT["bias"] + " qk_norm norm_2 up down cls", "keys": {"pooling_type": 4}},
    "jina-bert-v3": {**BERT, "fused": True, "bias": BERT["bias"] + " qkv up down", "keys": {"pooling_type": 1}},
    "modern-bert": {"norms": "layer", "gate": "fused", "fused": True, "kv_heads": 4, "head_dim": 8, "embd_norm": True,
                    "layers": 5, "cls": EMBD, "cls_norm": True, "labels": 3, "bias": "cls_output", "first_norm": False,
                    "keys": {"attention.sliding_window": 4, "pooling_type": 2, "rope.freq_base": 160000.0,
                             "rope.freq_base_swa": 1000.0}},
    "neo-bert": {"gate": "fused", "fused": True, "head_dim": 8, "cls": EMBD, "labels": 1, "bias": "cls cls_output",
                 "output_norm": "enc.output_norm", "keys": {"pooling_type": 2}},
    "eurobert": {"head_dim": 8, "keys": {"pooling_type": 3}},
    "gemma-embedding": {"post": True, "qk_norm": "head", "layers": 7, "dense": 64,
                        "keys": {"attention.sliding_window": 5, "rope.freq_base": 1e6, "pooling_type": 1,
                                 "dense_2_feat_in": EMBD, "dense_2_feat_out": 64, "dense_3_feat_in": 64,
                                 "dense_3_feat_out": EMBD}},
    # Two layers with a window and one without, which has no attn_v and whose pairs are partly not rotated; three more
    # read the K and V of the last two.
    "gemma4": {"post": True, "qk_norm": "head", "layers": 6, "window_layers": [1, 1, 0, 1, 1, 0], "window_dim": 8,
               "shared": 3, "kv_heads": [2, 2, 1, 2, 2, 1], "no_v": [2], "per_layer": 32, "out_scale": True,
               "ff": [FF, FF, FF, FF + 32, FF + 32, FF + 32], "freqs": [1, 1, 1, 1, 1e30, 1e30, 1e30, 1e30],
               "keys": {"attention.sliding_window": 3, "rope.freq_base": 1e6, "rope.freq_base_swa": 1000.0,
                        "final_logit_softcapping": 7.0, "attention.shared_kv_layers": 3}},
    "gemma4-moe": {"architecture": "gemma4", "post": True, "qk_norm": "head", "layers": 3, "window_layers": [1, 0, 1],
                   "kv_heads": [2, 1, 2], "no_v": [1], "beside": (4, 32), "freqs": [1, 1, 1, 1, 1e30, 1e30, 1e30, 1e30],
                   "keys": {"attention.sliding_window": 3, "expert_count": 4, "expert_used_count": 2,
                            "expert_feed_forward_length": 32, "attention.shared_kv_layers": 0,
                            "rope.freq_base": 1e6}},
    # As gemma4, with a path of few columns beside attention, and three more streams.  llama.cpp has fixed numbers for
    # those that a file of this size cannot have; tests/vectors/archs/make.sh changes them.
    "gemma3n": {"post": True, "qk_norm": "head", "layers": 6, "window_layers": [1, 1, 1, 0, 1, 0], "shared": 2,
                "per_layer": 32, "altup": 4, "laurel": 256,
                "keys": {"attention.sliding_window": 3, "rope.freq_base": 1e6, "attention.shared_kv_layers": 2,
                         "altup.active_idx": 0, "altup.num_inputs": 4,
                         "activation_sparsity_scale": [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]}},
    "plm": {"gate": False, "kv_heads": 4, "head_dim": 8, "latent": (12, 4, 8, 32), "keys": {
        "attention.key_length": 12, "attention.value_length": 8, "rope.dimension_count": 4,
        "attention.kv_lora_rank": 32}},
    # llama.cpp computes heads of 32 elements at once, or not right.  Low ranks; ungated: layers without a gate; bare:
    # layers without norms of heads.
    "rwkv7": {**RWKV, "embd": 64, "head_dim": 32, "rwkv": {"w": 6, "v": 3, "a": 5, "g": 7}, "keys": {
        "wkv.head_size": 32, "attention.decay_lora_rank": 6, "attention.value_residual_mix_lora_rank": 3,
        "attention.iclr_lora_rank": 5, "attention.gate_lora_rank": 7}},
    "arwkv7": {"untied": True, "bias": "heads_norm", "embd": 64, "head_dim": 32, "layers": 4, "ungated": [1, 3],
               "bare": [2, 3], "rwkv": {"w": 6, "v": 3, "a": 5, "g": 7}, "keys": {
        "wkv.head_size": 32, "attention.decay_lora_rank": 6, "attention.value_residual_mix_lora_rank": 3,
        "attention.iclr_lora_rank": 5, "attention.gate_lora_rank": 7, "token_shift_count": 1}},
    # The second layer has its factors in tensors of their own, as older files.
    "rwkv6": {**RWKV, "seed": 2, "head_dim": 8, "rwkv": {"lerp": 4, "w": 6}, "apart": [1], "keys": {
        "wkv.head_size": 8, "time_mix_extra_dim": 4, "time_decay_extra_dim": 6, "rescale_every_n_layers": 2}},
    "rwkv6qwen2": {"untied": True, "head_dim": 8, "rwkv": {"lerp": 4, "w": 6}, "apart": [], "bias": "q k v", "keys": {
        "wkv.head_size": 8, "time_mix_extra_dim": 4, "time_decay_extra_dim": 6, "token_shift_count": 1}},
    "t5encoder": {**T5, "gate": False, "keys": {**T5["keys"], "pooling_type": 1}},
    "t5encoder-gated": {**T5, "architecture": "t5encoder", "gate": (True, False, True), "buckets_in": [0, 2]},
    "llama-embed": {"freqs": True, "keys": {"attention.causal": False, "pooling_type": 1}},
    # decoder: its blocks, those with attn_rel_b, and whether they have gates.
    "t5": {**T5, "layers": 4, "gate": False, "decoder": (3, [0], False), "keys": {
        **T5["keys"], "decoder_block_count": 3, "decoder_start_token_id": 0}},
    "t5-gated": {**T5, "architecture": "t5", "gate": True, "untied": True, "texts": True, "buckets": 32,
                 "buckets_in": [0, 1],
                 "decoder": (2, [0, 1], True), "keys": {"attention.relative_buckets_count": 32,
                                                        "decoder_block_count": 2, "decoder_start_token_id": 3}},
    "t5-deep": {**T5, "architecture": "t5", "layers": 2, "gate": (False, True), "decoder": (5, [0, 3], True), "keys": {
        **T5["keys"], "decoder_block_count": 5, "decoder_start_token_id": 0}},
    "deepseek2-ocr": {"head_dim": 8, "kv_heads": 4, "untied": True, "bias": "q k v", "sparse": (8, 32, 2), "keys": {
        "leading_dense_block_count": 1, "expert_count": 8, "expert_used_count": 3, "expert_shared_count": 2,
        "expert_feed_forward_length": 32, "expert_weights_scale": 1.5, "expert_weights_norm": True}},
    # Its codes of images are the tokens 4 to 8195.  llama.cpp computes with the norms after attention and feed forward
    # in the model of 34 billion parameters.
    "chameleon": {"head_dim": 8, "qk_norm": "heads", "vocab": 8200, "bias": "qk_norm", "keys": {"swin_norm": False}},
    "chameleon-swin": {"architecture": "chameleon", "head_dim": 8, "qk_norm": "heads", "vocab": 8200, "keys": {
        "swin_norm": True}},
    # Adapters 1, 2 and 3 are switched on by the tokens 60, 2 and 1.
    "graniteswitch": {"head_dim": 8, "fused": True, "lora": (8, False), "keys": {
        **GRANITE, "adapters.count": 3, "adapters.lora_rank": 8, "adapters.router_gain": 15.0,
        "adapters.token_ids_activate": [60, 2, 1], "adapters.token_ids_substitute": [5, 9, 11]}},
    "graniteswitch-base": {"architecture": "graniteswitch", "head_dim": 8, "fused": True, "lora": (4, True), "keys": {
        **GRANITE, "rope.scaling.finetuned": False, "adapters.count": 4, "adapters.lora_rank": 4,
        "adapters.router_gain": 1.0, "adapters.token_ids_activate": [60, 1, 2, 1],
        "adapters.token_ids_substitute": [5, 9, 11, 13]}},
}


# With --fixed, the numbers that llama.cpp has fixed where a file may have others: a larger file, which it can read.
# calm: smaller scores of attention and coefficients, so that rounding does not grow in many layers.
FIXED = {
    "gemma3n": {"layers": 22, "window_layers": [il % 5 != 4 for il in range(20)] + [0, 0], "shared": 2,
                "per_layer": 256, "laurel": 64, "calm": 0.05,
                "keys": {"attention.sliding_window": 3, "rope.freq_base": 1e6}},
}


def write(name, path, as_f32, is_fixed):
    arch = {**LLAMA, **ARCHS[name], **(FIXED[name] if is_fixed else {})}
    seed, name = zlib.crc32(name.encode()) + arch.get("seed", 0), arch.get("architecture", name)
    n_layer, heads, kv_heads = arch.get("layers", 3), HEADS, arch.get("kv_heads", KV_HEADS)
    dim, bias = arch.get("head_dim", HEAD_DIM), arch.get("bias", "").split()
    embd = arch.get("embd", EMBD)
    windows, ff = arch.get("window_layers", [0] * n_layer), arch.get("ff", [FF] * n_layer)
    calm = arch.get("calm", 1)
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(path, name)
    keys = {"attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5, **arch.get("keys", {})}
    del keys["attention.layer_norm_epsilon" if arch["norms"] == "rms" else "attention.layer_norm_rms_epsilon"]
    w.add_block_count(n_layer)
    w.add_context_length(64)
    w.add_embedding_length(embd)
    w.add_feed_forward_length(ff if "ff" in arch else arch.get("ff_key", FF))
    w.add_head_count(0 if "rwkv" in arch else heads)
    if name not in ("rwkv6", "rwkv7", "arwkv7"):
        w.add_head_count_kv(kv_heads)
    n_vocab = arch.get("vocab", VOCAB)
    w.add_vocab_size(n_vocab)
    if "rwkv" not in arch and dim * heads != embd:
        w.add_key_length(dim)
        w.add_value_length(dim)
        w.add_rope_dimension_count(dim)
    if "window_layers" in arch:
        w.add_sliding_window_pattern([window == 1 for window in windows])
        if "altup" not in arch:
            w.add_key_length_swa(arch.get("window_dim", dim))
            w.add_value_length_swa(arch.get("window_dim", dim))
            w.add_rope_dimension_count_swa(arch.get("window_dim", dim))
        w.add_embedding_length_per_layer_input(arch.get("per_layer", 0))
    for key, value in keys.items():
        add = {list: w.add_array, float: w.add_float32, int: w.add_uint32, bool: w.add_bool,
               str: w.add_string}[type(value)]
        add(f"{name}.{key}", value)
    for key, value in arch.get("plain_keys", {}).items():
        w.add_float32(key, value)
    if "labels" in arch:
        w.add_array(f"{name}.classifier.output_labels", [f"label {i}" for i in range(arch["labels"])])
    if "texts" in arch:   # letters with and without a space before them, the likeliest first
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        pieces = [*letters, *("\u2581" + letter for letter in letters), "\u2581", "th", "he"]
        pieces += [".", ",", "'", "-", "?", "!"]
        pieces = ["<pad>", "</s>", "<unk>", *pieces]
        w.add_tokenizer_model("t5")
        w.add_token_list(pieces)
        w.add_token_scores([0.0, 0.0, 0.0, *(-2.0 - 0.125 * i for i in range(VOCAB - 3))])
        w.add_token_types([3, 3, 2, *[1] * (VOCAB - 3)])
        w.add_eos_token_id(1)
        w.add_unk_token_id(2)
        w.add_pad_token_id(0)
        w.add_add_bos_token(False)
        w.add_add_eos_token(True)
    else:
        w.add_tokenizer_model("none")
    if "types" in arch:
        w.add_token_type_count(arch["types"])

    def matrix(tensor, rows, columns, gain, key=None):
        shape = (*rows, columns) if isinstance(rows, tuple) else (rows, columns)   # experts have three dimensions
        data = rng.standard_normal(shape, np.float32) * np.float32(gain / np.sqrt(columns))
        packed = gguf.quants.quantize(data, gguf.GGMLQuantizationType.Q8_0)
        if as_f32:
            w.add_tensor(tensor + ".weight", gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0))
        else:
            w.add_tensor(tensor + ".weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        if key in bias:
            w.add_tensor(tensor + ".bias", rng.normal(0, 0.3, rows).astype(np.float32))

    def adapters(tensor, rows, columns):
        if "lora" not in arch:
            return
        (rank, is_trained), n_adapter = arch["lora"], arch["keys"]["adapters.count"] + 1
        a = rng.standard_normal((n_adapter, rank, columns), np.float32) * np.float32(1 / np.sqrt(columns))
        b = (rng.standard_normal((n_adapter, rows, rank), np.float32) * np.float32(0.7 / np.sqrt(rank)))
        for part, data in (("lora_a", a), ("lora_b", b)):
            data = data.astype(np.float16)
            data[0] *= is_trained
            w.add_tensor(f"{tensor}.{part}", data.astype(np.float32) if as_f32 else data)

    def norm(tensor, n, key=None, scale=1):
        w.add_tensor(tensor + ".weight", (scale * rng.normal(1, 0.2, n)).astype(np.float32))
        if key in bias:
            w.add_tensor(tensor + ".bias", rng.normal(0, 0.3, n).astype(np.float32))

    def floats(tensor, shape, mean, deviation):
        w.add_tensor(tensor + ".weight", rng.normal(mean, deviation, shape).astype(np.float32))

    def low_rank(block, names, rank, rows):
        floats(f"{block}{names[0]}", embd, *rows)
        floats(f"{block}{names[1]}", (rank, embd), 0, 1 / np.sqrt(embd))
        floats(f"{block}{names[2]}", (embd, rank), 0, 1 / np.sqrt(rank))

    def time_mix(il, block, ranks):
        t = block + "time_mix_"
        kv = embd if name != "rwkv6qwen2" else kv_heads * dim
        for part, rows, key in (("receptance", embd, "q"), ("key", kv, "k"), ("value", kv, "v"), ("output", embd, "")):
            matrix(t + part, rows, embd, 1, key)
        if "lerp" in ranks:
            low_rank(t, ("decay", "decay_w1", "decay_w2"), ranks["w"], (-1, 1))
            matrix(t + "gate", embd, embd, 2)
            floats(t + "lerp_x", embd, 0.5, 0.3)
            floats(t + "w1", (5 * ranks["lerp"], embd), 0, 1 / np.sqrt(embd))
            floats(t + "w2", (5, embd, ranks["lerp"]), 0, 0.3)
            for part in "wkvrg" if il in arch["apart"] else ():
                floats(t + "lerp_" + part, embd, 0.5, 0.3)
            if il not in arch["apart"]:
                floats(t + "lerp_fused", (5, 1, 1, embd), 0.5, 0.3)
            if name == "rwkv6":
                floats(t + "first", (embd // dim, dim), 0, 1)
        else:
            for part, mean in (("w", 0), ("a", 0), ("v", 0)) if il > 0 else (("w", 0), ("a", 0)):
                low_rank(t, [f"{part}{i}" for i in range(3)], ranks[part], (mean, 1))
            for i in range(3) if il == 0 else ():   # llama.cpp wants those that it does not use
                floats(f"{t}v{i}", (embd, (ranks["a"], embd), (embd, ranks["a"]))[i], 0, 1)
            is_gated = il not in arch.get("ungated", [])
            if is_gated:
                floats(t + "g1", (ranks["g"], embd), 0, 2 / np.sqrt(embd))
                floats(t + "g2", (embd, ranks["g"]), 0, 2 / np.sqrt(ranks["g"]))
            floats(t + "lerp_fused", (6 if is_gated else 5, 1, 1, embd), 0.5, 0.3)
            for part, mean in (("k_k", 1), ("k_a", 1), ("r_k", 0)):
                floats(t + part, embd, mean, 0.3)
        if name != "rwkv6qwen2" and il not in arch.get("bare", []):
            norm(t + "ln", embd, "heads_norm")

    def channel_mix(block):
        c = block + "channel_mix_"
        floats(c + "lerp_k", embd, 0.5, 0.3)
        matrix(c + "key", FF, embd, 1)
        matrix(c + "value", embd, FF, 1)
        if name == "rwkv6":
            floats(c + "lerp_r", embd, 0.5, 0.3)
            matrix(c + "receptance", embd, embd, 1)

    def decoder(n_block, buckets_in, has_gate):
        gain, n_q = arch["gain"], heads * dim
        for il in range(n_block):
            block = f"dec.blk.{il}."
            for attn in ("attn", "cross_attn"):
                norm(f"{block}{attn}_norm", embd)
                for part, rows, columns, size in (("q", n_q, embd, gain), ("k", n_q, embd, gain), ("v", n_q, embd, 1),
                                                  ("o", embd, n_q, 1)):
                    matrix(f"{block}{attn}_{part}", rows, columns, size)
                if il in buckets_in:   # nobody uses that of cross attention
                    rows = rng.normal(0, 1, (arch["buckets"], heads)).astype(np.float32)
                    w.add_tensor(f"{block}{attn}_rel_b.weight", rows)
            norm(block + "ffn_norm", embd)
            if has_gate:
                matrix(block + "ffn_gate", FF, embd, 2)
            matrix(block + "ffn_up", FF, embd, 1)
            matrix(block + "ffn_down", embd, FF, 1)
        norm("dec.output_norm", embd)

    matrix("token_embd", n_vocab, embd, np.sqrt(embd) * 0.5)
    if arch.get("freqs"):
        freqs = np.linspace(1, 8, dim // 2) if arch["freqs"] is True else arch["freqs"]
        w.add_tensor("rope_freqs.weight", np.array(freqs, np.float32))
    if "types" in arch:   # llama.cpp adds a row of it without converting it
        w.add_tensor("token_types.weight", rng.normal(0, 0.5, (arch["types"], embd)).astype(np.float32))
    if arch.get("positions"):
        matrix("position_embd", 64, embd, np.sqrt(embd) * 0.5)
    if arch.get("embd_norm"):
        norm("token_embd_norm", embd, "embd_norm")
    if "per_layer" in arch:
        matrix("per_layer_token_embd", VOCAB, n_layer * arch["per_layer"], np.sqrt(n_layer))
        matrix("per_layer_model_proj", n_layer * arch["per_layer"], embd, 1)
        norm("per_layer_proj_norm", arch["per_layer"])
    if "altup" in arch:
        matrix("altup_proj", (arch["altup"] - 1, embd), embd, 1)
        matrix("altup_unembd_proj", (arch["altup"] - 1, embd), embd, 1)
    for il in range(n_layer):
        head_dim = arch.get("window_dim", dim) if windows[il] else dim
        n_q, n_kv = heads * head_dim, (kv_heads[il] if isinstance(kv_heads, list) else kv_heads) * head_dim
        has_kv = il < n_layer - arch.get("shared", 0) or "altup" in arch   # llama.cpp wants those that it does not use
        block = f"{arch.get('prefix', '')}blk.{il}."
        has_norms = arch["norms"] != "bare"
        if has_norms and arch.get("pre", True) and (il > 0 or arch.get("first_norm", True)):
            norm(block + "attn_norm", embd, "attn_norm")
        if "rwkv" in arch:
            time_mix(il, block, arch["rwkv"])
        elif "latent" in arch:
            k_dim, rotated, v_dim, n_latent = arch["latent"]
            matrix(block + "attn_q", heads * k_dim, embd, 1.5)
            matrix(block + "attn_kv_a_mqa", n_latent + rotated, embd, 1.5)
            norm(block + "attn_kv_a_norm", n_latent)
            matrix(block + "attn_kv_b", heads * (k_dim - rotated + v_dim), n_latent, 1.5)
            n_q = heads * v_dim
        elif arch.get("fused"):
            matrix(block + "attn_qkv", n_q + 2 * n_kv, embd, 1.5, "qkv")
            for part, rows in (("q", n_q), ("k", n_kv), ("v", n_kv)):
                adapters(block + "attn_" + part, rows, embd)
        else:
            gain = arch.get("gain", 1.5)
            matrix(block + "attn_q", n_q, embd, gain, "q")
            if has_kv:
                matrix(block + "attn_k", n_kv, embd, gain, "k")
            if has_kv and il not in arch.get("no_v", []):
                matrix(block + "attn_v", n_kv, embd, 1, "v")
        if "qk_norm" in arch:
            is_row, is_own = arch["qk_norm"] == "row", arch["qk_norm"] == "heads"
            norm(block + "attn_q_norm", n_q if is_row else (heads, head_dim) if is_own else head_dim, "qk_norm", calm)
            if has_kv:
                n = n_kv if is_row else (kv_heads, head_dim) if is_own else head_dim
                norm(block + "attn_k_norm", n, "qk_norm", calm)
        if arch.get("sub_norms"):
            norm(block + "attn_sub_norm", n_q)
            norm(block + "ffn_sub_norm", FF)
        if arch.get("scales"):
            for tensor in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
                w.add_tensor(f"{block}{tensor}.scale", rng.normal(1, 0.3, 1).astype(np.float32))
        if il in arch.get("buckets_in", [0] if "buckets" in arch else []):
            rows = rng.normal(0, 1, (arch["buckets"], heads)).astype(np.float32)
            w.add_tensor(block + "attn_rel_b.weight", rows)
        if "rwkv" not in arch:
            matrix(block + arch.get("output", "attn_output"), embd, n_q, 1, "output")
            adapters(block + "attn_output", embd, n_q)
        if arch.get("post"):
            norm(block + "post_attention_norm", embd)
            norm(block + "post_ffw_norm", embd)
        ffn_norm = arch.get("ffn_norm", "ffn_norm")
        if has_norms and arch.get("pre", True) and ffn_norm:
            norm(block + ffn_norm, embd, "ffn_norm")
        if arch.get("channel_mix"):
            channel_mix(block)
            continue
        if arch.get("around"):
            norm(block + "attn_output_norm", embd, "around")
            norm(block + "layer_output_norm", embd, "around")
        if arch.get("norm_2"):
            norm(block + "attn_norm_2", embd, "norm_2")
        n_expert, period = arch.get("experts", (0, 1))
        if n_expert > 0 and il % period == 1:
            matrix(block + "ffn_gate_inp", n_expert, embd, 2)
            matrix(block + "ffn_up_exps", (n_expert, FF), embd, 1)
            matrix(block + "ffn_down_exps", (n_expert, embd), FF, 1)
            continue
        if "sparse" in arch and il > 0:
            n_expert, width, n_shared = arch["sparse"]
            matrix(block + "ffn_gate_inp", n_expert, embd, 2)
            w.add_tensor(block + "exp_probs_b.bias", rng.normal(0, 0.1, n_expert).astype(np.float32))
            for n, kind, experts in ((width, "exps", (n_expert,)), (n_shared * width, "shexp", ())):
                matrix(f"{block}ffn_gate_{kind}", (*experts, n), embd, 1)
                matrix(f"{block}ffn_up_{kind}", (*experts, n), embd, 1)
                matrix(f"{block}ffn_down_{kind}", (*experts, embd), n, 1)
            continue
        gate = arch["gate"][il] if isinstance(arch["gate"], tuple) else arch["gate"]
        if gate is True:
            matrix(block + "ffn_gate", ff[il], embd, 2, "gate")
        matrix(block + "ffn_up", 2 * FF if gate == "fused" else ff[il], embd, 1, "up")
        matrix(block + "ffn_down", embd, ff[il], 1, "down")
        for part, rows, columns in (("gate", ff[il], embd), ("up", ff[il], embd), ("down", embd, ff[il])):
            adapters(block + "ffn_" + part, rows, columns)
        if "per_layer" in arch:
            matrix(block + "inp_gate", arch["per_layer"], embd, 1)
            matrix(block + "proj", embd, arch["per_layer"], 1)
            norm(block + "post_norm", embd)
        if "altup" in arch:
            n = arch["altup"]
            norm(block + "altup_router_norm", embd)
            matrix(block + "altup_router", n, embd, embd)
            for tensor, rows in (("altup_predict_coef", n * n), ("altup_correct_coef", n)):
                w.add_tensor(f"{block}{tensor}.weight", rng.normal(0, 0.3 * calm, (rows, n)).astype(np.float32))
            norm(block + "altup_correct_scale", embd)
            matrix(block + "laurel_l", arch["laurel"], embd, 1)
            matrix(block + "laurel_r", embd, arch["laurel"], 1)
            norm(block + "laurel_post_norm", embd)
        if "beside" in arch:
            n_expert, width = arch["beside"]
            matrix(block + "ffn_gate_inp", n_expert, embd, 3)
            w.add_tensor(block + "ffn_gate_inp.scale", rng.normal(4, 0.5, embd).astype(np.float32))
            matrix(block + "ffn_gate_up_exps", (n_expert, 2 * width), embd, 1.5)
            matrix(block + "ffn_down_exps", (n_expert, embd), width, 1)
            w.add_tensor(block + "ffn_down_exps.scale", rng.normal(1, 0.3, n_expert).astype(np.float32))
            for tensor in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                norm(block + tensor, embd)
        if arch.get("out_scale"):
            w.add_tensor(block + "layer_output_scale.weight", rng.normal(1, 0.2, 1).astype(np.float32))
    output_norm = arch.get("output_norm", "output_norm")
    if arch["norms"] != "bare" and output_norm:
        norm(output_norm, embd, "output_norm")
    if "decoder" in arch:
        decoder(*arch["decoder"])
    if arch.get("untied"):
        matrix("output", VOCAB, embd, 3, "head")
    if "cls" in arch:
        matrix("cls", arch["cls"], embd, 1, "cls")
    if arch.get("cls_norm"):
        norm("cls.norm", embd)
    if "labels" in arch:
        matrix("cls.output", arch["labels"], embd, 1, "cls_output")
    if "dense" in arch:
        matrix("dense_2", arch["dense"], embd, 1)
        matrix("dense_3", embd, arch["dense"], 1)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(ARCHS))
    else:
        write(sys.argv[1], sys.argv[2], "--f32" in sys.argv[3:], "--fixed" in sys.argv[3:])
