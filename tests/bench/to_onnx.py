#!/usr/bin/env python3
"""Writes the weights, vocabulary and chat template of a GGUF model as a folder that transformers.js loads, so that both
engines can be raced on the same model.

    PYTHONPATH=build/setup/py python3 tests/bench/to_onnx.py MODEL.gguf FOLDER

Takes Llama models with tied embeddings and the byte-level BPE of SmolLM2; others are refused.  The graph is like those
of onnxruntime-genai's model builder for CPU (Q, K and V in one, GroupQueryAttention that rotates by itself, f32 keys
and values), its operators as onnxruntime's docs/ContribOperators.md defines them.  Only the row that is asked for by
num_logits_to_keep reaches the head: the last one, by transformers.js.  The embedding is f32, as in most such files:
onnxruntime-web has no GatherBlockQuantized on CPU.

  --dtype q4  onnx/model_q4.onnx: MatMulNBits in blocks of 32, accuracy_level 4, as the builder sets it.  The values are
              those of a Q4_1 file: the zero points are f32, as rounded to 0..15 they would add an error like that of
              Q4_1 itself (cosine of the logits 0.98 in place of 0.9999) and be slower there.  The head, Q8_0, has 8
              bits, the builder's int8 for the last MatMul.
  --dtype q8  onnx/model_quantized.onnx: MatMulInteger, which transformers.js takes on WebAssembly if nobody says which,
              and many times as fast there, where MatMulNBits unpacks all weights for each call.  Less precise.
"""
import argparse
import json
import os
import sys

import gguf
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32
MICROSOFT = "com.microsoft"


def four_bits(values):
    """values: (..., 32) -> codes in 0..15 (..., 32), scales, zero points: those of Q4_1, whose offset lies anywhere."""
    low = values.min(-1)
    step = (values.max(-1) - low) / 15
    step[step == 0] = 1
    return np.rint((values - low[..., None]) / step[..., None]), step, -low / step


def eight_bits(values):
    """Like four_bits, centred on 128: values of Q8_0 stay exact."""
    peak = np.abs(values).max(-1)
    scale = np.where(peak > 0, peak / 127, 1)
    return np.rint(values / scale[..., None]) + 128, scale, np.full(scale.shape, 128)


def packed(codes, bits):
    """Packs two 4-bit codes per byte along the last axis, the first one in the low half."""
    codes = codes.astype(np.uint8)
    return codes if bits == 8 else codes[..., 0::2] | codes[..., 1::2] << 4


class Graph:
    def __init__(self, dtype):
        self.dtype = dtype
        self.nodes, self.constants, self.known = [], [], set()

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, op, inputs, outputs, domain="", **attributes):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, outputs, f"/{outputs[0]}/{op}", domain=domain, **attributes))
        return outputs[0]

    def quantized(self, name, weight, bits):
        """weight: (n_out, n_in) f32.  The names of codes, scales and zero points, in the layout of MatMulNBits."""
        n_out, n_in = weight.shape
        assert n_in % (2 * BLOCK) == 0, f"{name}: rows of {n_in}, which are no pairs of blocks of {BLOCK}"
        codes, scales, zeros = (four_bits if bits == 4 else eight_bits)(weight.reshape(n_out, -1, BLOCK))
        return [self.constant(f"{name}.weight_Q{bits}", packed(codes, bits)),
                self.constant(f"{name}.weight_scales", scales.astype(np.float32)),
                self.constant(f"{name}.weight_zp", zeros.astype(np.float32 if bits == 4 else np.uint8))]

    def linear(self, name, x, weight, bits=4):
        """weight: (n_out, n_in) f32."""
        if self.dtype == "q8":
            return self.linear_of_integers(name, x, weight)
        parts = self.quantized(name, weight, bits)
        return self.node("MatMulNBits", [x, *parts], name, MICROSOFT, N=weight.shape[0], K=weight.shape[1], bits=bits,
                         block_size=BLOCK, accuracy_level=4)

    def linear_of_integers(self, name, x, weight):
        """Like quantize_dynamic of onnxruntime: a scale per row, activations and weights of unsigned 8 bits, because
        sums of signed ones saturate on some x86."""
        scale = np.abs(weight).max(1) / 127
        codes = self.constant(f"{name}.weight_q8", (np.rint(weight / scale[:, None]) + 128).astype(np.uint8).T)
        zero = self.constant(f"{name}.weight_zero", np.array(128, np.uint8))
        x, x_scale, x_zero = self.bytes_of(x)
        sums = self.node("MatMulInteger", [x, codes, x_zero, zero], f"{name}.sums")
        scales = self.node("Mul", [x_scale, self.constant(f"{name}.weight_scale", scale)], f"{name}.scales")
        return self.node("Mul", [self.node("Cast", [sums], f"{name}.cast", to=TensorProto.FLOAT), scales], name)

    def bytes_of(self, x):
        """x in 8 bits, its scale and its zero point; one node for all users of the same x."""
        names = [f"{x}.q8", f"{x}.q8_scale", f"{x}.q8_zero"]
        if names[0] not in self.known:
            self.known.add(names[0])
            self.node("DynamicQuantizeLinear", [x], names)
        return names


def rotated_in_halves(weight, heads):
    """In GGUF's order of the rows of Q and K neighbours rotate together; here the halves of a head do."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def model_of(config, weight, dtype):
    """weight(name): a tensor of the GGUF as f32."""
    graph = Graph(dtype)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim, epsilon = config["head_dim"], config["rms_norm_eps"]
    half = np.arange(head_dim // 2) * 2 / head_dim
    angles = np.arange(config["max_position_embeddings"])[:, None] * config["rope_theta"] ** -half
    cos = graph.constant("cos_cache", np.cos(angles).astype(np.float32))
    sin = graph.constant("sin_cache", np.sin(angles).astype(np.float32))
    number = {n: graph.constant(f"int64_{n}", np.array(n)) for n in (0, 1)}
    lists = {n: graph.constant(f"int64_list_{n}", np.array([n])) for n in (-1, 0, 1, 2 ** 63 - 1)}

    counts = graph.node("ReduceSum", ["attention_mask", lists[1]], "mask_sums", keepdims=0)
    last = graph.node("Cast", [graph.node("Sub", [counts, number[1]], "mask_last")], "seqlens_k", to=TensorProto.INT32)
    total = graph.node("Gather", [graph.node("Shape", ["attention_mask"], "mask_shape"), number[1]], "mask_length")
    total = graph.node("Cast", [total], "total_seq_len", to=TensorProto.INT32)

    embedding = weight("token_embd")
    x = graph.node("Gather", [graph.constant("embed.weight", embedding), "input_ids"], "embed")

    skip, kv = None, []
    def normed(name, x, skip, gguf_name):
        """Returns the normalized output, and the sum x + skip."""
        gain = graph.constant(f"{name}.weight", weight(gguf_name))
        if skip is None:
            graph.node("SimplifiedLayerNormalization", [x, gain], name, axis=-1, epsilon=epsilon, stash_type=1)
            return name, x
        both = [name, "", "", f"{name}.sum"]
        graph.node("SkipSimplifiedLayerNormalization", [skip, x, gain], both, MICROSOFT, epsilon=epsilon)
        return name, both[3]

    for i in range(config["num_hidden_layers"]):
        name, blk = f"layers.{i}", f"blk.{i}"
        x, skip = normed(f"{name}.input_layernorm", x, skip, f"{blk}.attn_norm")
        qkv = np.concatenate([rotated_in_halves(weight(f"{blk}.attn_q"), heads),
                              rotated_in_halves(weight(f"{blk}.attn_k"), kv_heads), weight(f"{blk}.attn_v")])
        x = graph.linear(f"{name}.qkv_proj", x, qkv)
        past = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
        present = [f"present.{i}.key", f"present.{i}.value"]
        kv += [(past, present)]
        x = graph.node("GroupQueryAttention", [x, "", "", *past, last, total, cos, sin], [f"{name}.attn", *present],
                       MICROSOFT, num_heads=heads, kv_num_heads=kv_heads, do_rotary=1, rotary_interleaved=0)
        x = graph.linear(f"{name}.o_proj", x, weight(f"{blk}.attn_output"))
        x, skip = normed(f"{name}.post_attention_layernorm", x, skip, f"{blk}.ffn_norm")
        gate = graph.linear(f"{name}.gate_proj", x, weight(f"{blk}.ffn_gate"))
        up = graph.linear(f"{name}.up_proj", x, weight(f"{blk}.ffn_up"))
        act = graph.node("Mul", [gate, graph.node("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.silu")
        x = graph.linear(f"{name}.down_proj", graph.node("Mul", [act, up], f"{name}.act"), weight(f"{blk}.ffn_down"))

    x, _ = normed("norm", x, skip, "output_norm")
    first = graph.node("Reshape", [graph.node("Neg", ["num_logits_to_keep"], "minus_kept"), lists[-1]], "first_kept")
    x = graph.node("Slice", [x, first, lists[2 ** 63 - 1], lists[1]], "kept")
    graph.linear("logits", x, embedding, bits=8)

    def info(name, shape, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, shape)
    ids, mask = ["batch_size", "sequence_length"], ["batch_size", "total_sequence_length"]
    cache = ["batch_size", kv_heads, "past_sequence_length", head_dim]
    grown = ["batch_size", kv_heads, "total_sequence_length", head_dim]
    inputs = [info("input_ids", ids, TensorProto.INT64), info("attention_mask", mask, TensorProto.INT64),
              info("num_logits_to_keep", [], TensorProto.INT64)]
    outputs = [info("logits", ["batch_size", "kept_length", len(embedding)])]
    inputs += [info(name, cache) for past, _ in kv for name in past]
    outputs += [info(name, grown) for _, present in kv for name in present]
    made = helper.make_graph(graph.nodes, "main_graph", inputs, outputs, graph.constants)
    return helper.make_model(made, ir_version=10, producer_name="plumb tests/bench/to_onnx.py",
                             opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)])


def tokenizer_of(tokens, types, merges):
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    special = [{"id": i, "content": token, **plain}
               for i, (token, kind) in enumerate(zip(tokens, types)) if kind == gguf.TokenType.CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }


def main():
    parser = argparse.ArgumentParser(description="Writes a GGUF model as a folder that transformers.js loads.")
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--dtype", choices=["q4", "q8"], default="q4", help="what transformers.js calls it (q4)")
    options = parser.parse_args()

    reader = gguf.GGUFReader(options.model)
    tensors = {tensor.name.removesuffix(".weight"): tensor for tensor in reader.tensors}
    def key(name):
        return reader.fields[name].contents()
    arch, pre = key("general.architecture"), key("tokenizer.ggml.pre")
    if arch != "llama" or pre != "smollm" or "output" in tensors:
        sys.exit(f"{options.model}: {arch} with tokenizer {pre}; this takes llama with smollm and tied embeddings")

    special = {f"{kind}_token_id": int(key(f"tokenizer.ggml.{name}_token_id"))
               for kind, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))}
    tokens = key("tokenizer.ggml.tokens")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", **special,
        "hidden_size": key("llama.embedding_length"), "intermediate_size": key("llama.feed_forward_length"),
        "num_hidden_layers": key("llama.block_count"), "num_attention_heads": key("llama.attention.head_count"),
        "num_key_value_heads": key("llama.attention.head_count_kv"), "head_dim": key("llama.rope.dimension_count"),
        "max_position_embeddings": key("llama.context_length"), "rope_theta": key("llama.rope.freq_base"),
        "rms_norm_eps": key("llama.attention.layer_norm_rms_epsilon"), "tie_word_embeddings": True,
        "vocab_size": len(tokens),
    }
    files = {
        "config.json": config,
        "generation_config.json": special,
        "tokenizer.json": tokenizer_of(tokens, key("tokenizer.ggml.token_type"), key("tokenizer.ggml.merges")),
        "tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
            **{name.removesuffix("_id"): tokens[i] for name, i in special.items()},
            "model_max_length": config["max_position_embeddings"], "chat_template": key("tokenizer.chat_template"),
        },
    }
    def weight(name):
        tensor = tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    model = model_of(config, weight, options.dtype)

    os.makedirs(os.path.join(options.folder, "onnx"), exist_ok=True)
    for name, content in files.items():
        with open(os.path.join(options.folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
    name = {"q4": "model_q4.onnx", "q8": "model_quantized.onnx"}[options.dtype]
    onnx.save(model, os.path.join(options.folder, "onnx", name))


if __name__ == "__main__":
    main()
