#!/usr/bin/env python3
"""Writes a GGUF of random weights in the shape of a small model that is not a plain transformer, for make bench.

    shapes.py OUT.gguf NAME [TYPE]

NAME is a key of SHAPES; TYPE is the type of the matrices, default Q4_0.  The widths are those of the models' published
config.json files.  Activations have the size that trained ones have, and states neither vanish nor explode: what a
step costs does not depend on the values otherwise.  Needs numpy and the PyPI package gguf, as models/synth.py.
"""
import pathlib
import sys
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "models"))
from synth import Synth  # pylint: disable=wrong-import-position

SHAPES = {
    "lfm2-350m": {"arch": "lfm2", "layers": 16, "embd": 1024, "ff": 4608, "heads": 16, "kv_heads": 8, "head_dim": 64,
                  "vocab": 65536, "tied": True, "attention": [2, 5, 8, 10, 12, 14], "conv": 3, "rope_base": 1e6},
    "qwen3.5-0.8b": {"arch": "qwen35", "layers": 24, "embd": 1024, "ff": 3584, "heads": 8, "kv_heads": 2,
                     "head_dim": 256, "vocab": 248320, "tied": True, "attention": range(3, 24, 4), "conv": 4,
                     "rope_base": 1e7, "rope_dim": 64, "inner": 2048, "state": 128, "ssm_heads": 16, "groups": 16},
    # E2B has 35 layers of which 20 share K and V; these are 10, of which 5 share.
    "gemma4-e2b": {"arch": "gemma4", "layers": 10, "embd": 1536, "ff": 6144, "heads": 8, "kv_heads": 1,
                   "head_dim": 512, "window_dim": 256, "vocab": 262144, "tied": True, "attention": range(4, 10, 5),
                   "shared": 5, "window": 512, "per_layer": 256, "rope_base": 1e6},
    "granite-4-h-350m": {"arch": "granitehybrid", "layers": 32, "embd": 768, "ff": 2048, "heads": 12, "kv_heads": 4,
                         "head_dim": 64, "vocab": 100352, "tied": True, "attention": [10, 13, 17, 27], "conv": 4,
                         "rope_base": 1e4, "inner": 1536, "state": 128, "ssm_heads": 48, "groups": 1},
    "falcon-h1-0.5b": {"arch": "falcon-h1", "layers": 36, "embd": 1024, "ff": 2048, "heads": 8, "kv_heads": 2,
                       "head_dim": 64, "vocab": 32784, "tied": False, "attention": range(36), "conv": 4,
                       "rope_base": 1e11, "inner": 1536, "state": 128, "ssm_heads": 24, "groups": 1},
    "rwkv7-0.1b": {"arch": "rwkv7", "layers": 12, "embd": 768, "ff": 3072, "heads": 0, "kv_heads": 0, "head_dim": 64,
                   "vocab": 65536, "tied": False, "attention": [], "rope_base": 1e4},
}


class Shape(Synth):
    """The keys and tensors of SHAPES; the vocabulary and the matrices are those of models/synth.py."""

    def keys(self):
        o, w = self.options, self.writer
        w.add_name(f"synthetic {o.shape} {o.type}")
        w.add_block_count(o.layers)
        w.add_context_length(o.context)
        w.add_embedding_length(o.embd)
        w.add_vocab_size(o.vocab)
        w.add_layer_norm_rms_eps(o.eps)
        w.add_rope_freq_base(o.rope_base)
        if o.arch == "rwkv7":
            self.rwkv_keys()
            return
        has_attention = [il in o.attention for il in range(o.layers)]
        w.add_head_count(o.heads)
        w.add_head_count_kv([o.kv_heads * has for has in has_attention]
                            if o.arch in ("lfm2", "granitehybrid") else o.kv_heads)
        w.add_key_length(o.head_dim)
        w.add_value_length(o.head_dim)
        w.add_rope_dimension_count(o.rope_dim or o.head_dim)
        w.add_feed_forward_length([o.ff * (1 + (il >= o.layers - o.shared)) for il in range(o.layers)]
                                  if o.arch == "gemma4" else o.ff)
        if o.arch == "lfm2":
            w.add_shortconv_l_cache(o.conv)
        elif o.arch == "gemma4":
            w.add_sliding_window(o.window)
            w.add_array("gemma4.attention.sliding_window_pattern", [not has for has in has_attention])
            for name in ("attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"):
                w.add_uint32("gemma4." + name, o.window_dim)
            w.add_float32("gemma4.rope.freq_base_swa", 1e4)
            w.add_uint32("gemma4.embedding_length_per_layer_input", o.per_layer)
            w.add_uint32("gemma4.attention.shared_kv_layers", o.shared)
            w.add_final_logit_softcapping(30.0)
        else:
            w.add_ssm_inner_size(o.inner)
            w.add_ssm_conv_kernel(o.conv)
            w.add_ssm_state_size(o.state)
            w.add_ssm_time_step_rank(o.ssm_heads)
            w.add_ssm_group_count(o.groups)
        if o.arch == "qwen35":
            w.add_rope_dimension_sections([11, 11, 10, 0])
            w.add_uint32("qwen35.full_attention_interval", 4)
        if o.arch == "granitehybrid":
            w.add_embedding_scale(12.0)
            w.add_residual_scale(0.246)
            w.add_attention_scale(1 / o.head_dim)
            w.add_logit_scale(3.0)

    def rwkv_keys(self):
        o, w = self.options, self.writer
        w.add_head_count(0)
        w.add_feed_forward_length(o.ff)
        w.add_layer_norm_eps(1e-5)
        w.add_wkv_head_size(o.head_dim)
        for name, rank in self.ranks().items():
            w.add_uint32(f"rwkv7.attention.{name}_lora_rank", rank)

    @staticmethod
    def ranks():
        return {"decay": 64, "iclr": 64, "value_residual_mix": 32, "gate": 128}

    def norm(self, name, n):
        self.vector(name + ".weight", n, 1, 0.1)

    def floats(self, name, shape, mean, deviation):
        """A tensor of F32; shape has the longest stride first, as numpy."""
        self.writer.add_tensor(name, self.rng.normal(mean, deviation, shape).astype(np.float32))

    def tensors(self):
        o = self.options
        self.matrix("token_embd.weight", o.vocab, o.embd, np.sqrt(o.embd) * 0.1, "Q8_0")
        if o.arch == "gemma4":
            self.matrix("per_layer_token_embd.weight", o.vocab, o.layers * o.per_layer, 1)
            self.matrix("per_layer_model_proj.weight", o.layers * o.per_layer, o.embd, 1)
            self.norm("per_layer_proj_norm", o.per_layer)
            # A quarter of the pairs of the layers without a window are rotated.
            factors = np.where(np.arange(o.head_dim // 2) < o.head_dim // 8, 1, 1e30)
            self.writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
        for il in range(o.layers):
            block = f"blk.{il}."
            self.norm(block + "attn_norm", o.embd)
            if o.arch == "rwkv7":
                self.vector(block + "attn_norm.bias", o.embd, 0, 0.1)
                self.time_mix(il, block)
                self.channel_mix(block)
                continue
            if il in o.attention or o.arch == "gemma4":
                self.attend(il, block)
            if il not in o.attention and o.arch == "lfm2":
                self.matrix(block + "shortconv.in_proj.weight", 3 * o.embd, o.embd, 1)
                self.floats(block + "shortconv.conv.weight", (o.embd, o.conv), 0, 0.5)
                self.matrix(block + "shortconv.out_proj.weight", o.embd, o.embd, 1)
            elif il not in o.attention and o.arch == "qwen35":
                self.delta(block)
            elif il not in o.attention and o.arch == "granitehybrid" or o.arch == "falcon-h1":
                self.scan(block)
            self.feed_forward(il, block)
        if o.arch == "lfm2":
            self.norm("token_embd_norm", o.embd)
        else:
            self.norm("output_norm", o.embd)
        if o.arch == "rwkv7":
            self.vector("output_norm.bias", o.embd, 0, 0.1)
            self.norm("token_embd_norm", o.embd)
            self.vector("token_embd_norm.bias", o.embd, 0, 0.1)
        if not o.tied:
            self.matrix("output.weight", o.vocab, o.embd, 3, "Q8_0")

    def attend(self, il, block):
        o = self.options
        dim = o.window_dim if o.arch == "gemma4" and il not in o.attention else o.head_dim
        is_gated = o.arch == "qwen35"
        self.matrix(block + "attn_q.weight", o.heads * dim * (1 + is_gated), o.embd, 1)
        if o.arch in ("lfm2", "qwen35", "gemma4"):
            self.norm(block + "attn_q_norm", dim)
        if il < o.layers - o.shared:
            self.matrix(block + "attn_k.weight", o.kv_heads * dim, o.embd, 1)
            self.matrix(block + "attn_v.weight", o.kv_heads * dim, o.embd, 1)
            if o.arch in ("lfm2", "qwen35", "gemma4"):
                self.norm(block + "attn_k_norm", dim)
        self.matrix(block + "attn_output.weight", o.embd, o.heads * dim, 1)

    def delta(self, block):
        o = self.options
        n_conv = o.inner + 2 * o.groups * o.state
        self.matrix(block + "attn_qkv.weight", n_conv, o.embd, 1)
        self.matrix(block + "attn_gate.weight", o.inner, o.embd, 1)
        self.floats(block + "ssm_conv1d.weight", (n_conv, o.conv), 0, 0.5)
        self.vector(block + "ssm_dt.bias", o.ssm_heads, -2, 0.5)
        self.vector(block + "ssm_a", o.ssm_heads, -1, 0.1)
        self.matrix(block + "ssm_alpha.weight", o.ssm_heads, o.embd, 0.5)
        self.matrix(block + "ssm_beta.weight", o.ssm_heads, o.embd, 1)
        self.norm(block + "ssm_norm", o.inner // o.ssm_heads)
        self.matrix(block + "ssm_out.weight", o.embd, o.inner, 1)

    def scan(self, block):
        o = self.options
        n_conv = o.inner + 2 * o.groups * o.state
        self.matrix(block + "ssm_in.weight", o.inner + n_conv + o.ssm_heads, o.embd, 1)
        self.floats(block + "ssm_conv1d.weight", (n_conv, o.conv), 0, 0.5)
        self.vector(block + "ssm_conv1d.bias", n_conv, 0, 0.1)
        self.vector(block + "ssm_dt.bias", o.ssm_heads, -3, 0.5)
        self.floats(block + "ssm_a", (o.ssm_heads, 1), -1, 0.1)
        self.floats(block + "ssm_d", (o.ssm_heads, 1), 1, 0.1)
        self.floats(block + "ssm_norm.weight", (o.groups, o.inner // o.groups), 1, 0.1)
        self.matrix(block + "ssm_out.weight", o.embd, o.inner, 1)

    def feed_forward(self, il, block):
        o = self.options
        ff = o.ff * (1 + (il >= o.layers - o.shared)) if o.shared else o.ff
        if o.arch == "qwen35":
            self.norm(block + "post_attention_norm", o.embd)
        elif o.arch == "falcon-h1":
            self.vector(block + "ffn_norm", o.embd, 1, 0.1)  # published files name it so
        else:
            self.norm(block + "ffn_norm", o.embd)
        self.matrix(block + "ffn_gate.weight", ff, o.embd, 1)
        self.matrix(block + "ffn_up.weight", ff, o.embd, 1)
        self.matrix(block + "ffn_down.weight", o.embd, ff, 1)
        if o.arch == "gemma4":
            for name in ("post_attention_norm", "post_ffw_norm", "post_norm"):
                self.norm(block + name, o.embd)
            self.matrix(block + "inp_gate.weight", o.per_layer, o.embd, 1)
            self.matrix(block + "proj.weight", o.embd, o.per_layer, 1)
            self.vector(block + "layer_output_scale.weight", 1, 1, 0.1)

    def time_mix(self, il, block):
        o, ranks = self.options, self.ranks()
        block += "time_mix_"
        for name in ("receptance", "key", "value", "output"):
            self.matrix(f"{block}{name}.weight", o.embd, o.embd, 1)
        for letter, rank, mean in (("w", ranks["decay"], -1), ("a", ranks["iclr"], 0),
                                   ("v", ranks["iclr" if il == 0 else "value_residual_mix"], 0),
                                   ("g", ranks["gate"], None)):
            if mean is not None:
                self.vector(f"{block}{letter}0.weight", o.embd, mean, 0.5)
            self.matrix(f"{block}{letter}1.weight", rank, o.embd, 1, "F16")
            self.matrix(f"{block}{letter}2.weight", o.embd, rank, 0.5, "F16")
        self.floats(block + "lerp_fused.weight", (6, 1, 1, o.embd), 0.5, 0.2)
        for name, mean in (("k_k", 0.8), ("k_a", 1), ("r_k", 0)):
            self.vector(f"{block}{name}.weight", o.embd, mean, 0.1)
        self.norm(block + "ln", o.embd)
        self.vector(block + "ln.bias", o.embd, 0, 0.1)

    def channel_mix(self, block):
        o = self.options
        self.norm(block + "attn_norm_2", o.embd)
        self.vector(block + "attn_norm_2.bias", o.embd, 0, 0.1)
        self.vector(block + "channel_mix_lerp_k.weight", o.embd, 0.5, 0.2)
        self.matrix(block + "channel_mix_key.weight", o.ff, o.embd, 1)
        self.matrix(block + "channel_mix_value.weight", o.embd, o.ff, 1)


def main(out, shape, type_name="Q4_0"):
    defaults = {"context": 32768, "tokenizer": "gpt2", "eps": 1e-6, "seed": 1, "rope_dim": None, "shared": 0}
    Shape(SimpleNamespace(out=out, shape=shape, type=type_name, **{**defaults, **SHAPES[shape]})).write()


if __name__ == "__main__":
    main(*sys.argv[1:])
