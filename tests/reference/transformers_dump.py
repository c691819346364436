#!/usr/bin/env python3
"""Runs transformers on a GGUF file and saves the output of every module, as an .npz under PyTorch's module names.

    transformers_dump.py MODEL.gguf OUT.npz TOKEN...

The hooks below are all that a user of transformers needs (docs/trace.md); the rest makes a transformers model of a
GGUF file of architecture llama or qwen2, on the weights that the gguf package dequantizes, in f32.
Run with Debian bookworm's python3-torch 1.13.1 and PyPI's transformers 4.40.2 and gguf 0.19.0:

    apt-get install --no-install-recommends python3-torch python3-venv
    python3 -m venv --system-site-packages venv && venv/bin/pip install transformers==4.40.2 gguf==0.19.0
"""
import sys

import gguf
import numpy as np
import torch
import transformers

MODULES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def read_model(path):
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if field.data}
    arch = keys["general.architecture"]
    weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}

    def key(name, default=None):
        return keys.get(f"{arch}.{name}", default)

    n_head = key("attention.head_count")
    config_of, model_of = {"llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
                           "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM)}[arch]
    config = config_of(
        vocab_size=len(weights["token_embd.weight"]), hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"), num_hidden_layers=key("block_count"),
        num_attention_heads=n_head, num_key_value_heads=key("attention.head_count_kv", n_head),
        max_position_embeddings=key("context_length"), rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        rope_theta=key("rope.freq_base", 10000.0), tie_word_embeddings="output.weight" not in weights,
        attn_implementation="eager")

    def unpermuted(w, heads):
        """Rows of a head of Q or K in transformers' order: row s * half + i is the file's row 2 i + s."""
        return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)

    state = {}
    for name, w in weights.items():
        if name == "token_embd.weight":
            state["model.embed_tokens.weight"] = w
        elif name in ("output.weight", "output_norm.weight"):
            state["lm_head.weight" if name == "output.weight" else "model.norm.weight"] = w
        else:
            _, il, part, kind = name.split(".")
            if arch == "llama" and part in ("attn_q", "attn_k"):
                w = unpermuted(w, n_head if part == "attn_q" else config.num_key_value_heads)
            state[f"model.layers.{il}.{MODULES[part]}.{kind}"] = w
    state.setdefault("lm_head.weight", weights["token_embd.weight"])
    model = model_of(config)
    missing = model.load_state_dict({name: torch.from_numpy(w.copy()) for name, w in state.items()}, strict=False)
    left_out = [name for name in (*missing.missing_keys, *missing.unexpected_keys) if "inv_freq" not in name]
    assert not left_out, left_out
    return model.eval()


def main():
    model, tokens = read_model(sys.argv[1]), [int(word) for word in sys.argv[3:]]
    outputs = {"tokens": np.array(tokens, np.int32)}

    def keep(name):
        def hook(module, inputs, output):
            output = output[0] if isinstance(output, tuple) else output
            if isinstance(output, torch.Tensor):
                outputs[name] = output.numpy()
        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(keep(name))
    with torch.no_grad():
        model(torch.tensor([tokens]))
    np.savez(sys.argv[2], **outputs)


main()
