#!/usr/bin/env python3
"""Writes encoders for the bench of embeddings: as a folder that transformers.js loads, and random ones as GGUF.

    PYTHONPATH=build/setup/py python3 tests/bench/encoder_onnx.py onnx MODEL.gguf FOLDER
    PYTHONPATH=build/setup/py python3 tests/bench/encoder_onnx.py gguf ARCHITECTURE VOCABULARY.gguf OUT.gguf

onnx: takes bert, such as all-MiniLM-L6-v2, and gemma-embedding, with a WordPiece vocabulary.  The graph is what
onnxruntime makes of an export with its fusions (MultiHeadAttention, SkipLayerNormalization, Gelu), and its products are
MatMulInteger with unsigned 8 bits, as quantize_dynamic writes them: onnx/model_quantized.onnx, the dtype q8.
gguf: random weights in the shape of EmbeddingGemma 300M (24 layers of 768, 3 heads of 256, ff 1152) with the vocabulary
of another file, which is smaller than its own.  ARCHITECTURE is gemma-embedding, or gemma3 for engines that do not know
that: the same products, but tokens see only earlier ones.
"""
import json
import os
import sys

import gguf
import numpy as np
import onnx
from onnx import TensorProto, helper

from to_onnx import MICROSOFT, Graph


class Encoder:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.arch = self.key("general.architecture")
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.graph = Graph("q8")
        self.embd, self.layers = self.of("embedding_length"), self.of("block_count")
        self.heads = self.of("attention.head_count")
        self.kv_heads = self.of("attention.head_count_kv", self.heads)
        self.dim = self.of("attention.key_length", self.embd // self.heads)

    def key(self, name, default=None):
        return self.reader.fields[name].contents() if name in self.reader.fields else default

    def of(self, name, default=None):
        return self.key(f"{self.arch}.{name}", default)

    def weight(self, name):
        tensor = self.tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def constant(self, name):
        return self.graph.constant(name, self.weight(name))

    def linear(self, name, x):
        y = self.graph.linear(name, x, self.weight(f"{name}.weight"))
        if f"{name}.bias" not in self.tensors:
            return y
        return self.graph.node("Add", [y, self.constant(f"{name}.bias")], f"{name}.sum")

    def attention(self, name, q, k, v):
        g = self.graph
        if self.kv_heads < self.heads:
            times = g.constant(f"{name}.times", np.array([1, 1, self.heads // self.kv_heads]))
            k, v = (g.node("Tile", [x, times], f"{x}.tiled") for x in (k, v))
        return g.node("MultiHeadAttention", [q, k, v, "", "key_mask"], f"{name}.attn", MICROSOFT, num_heads=self.heads)

    def skip_norm(self, name, x, skip, weight):
        parts = [self.constant(f"{weight}.weight"), self.constant(f"{weight}.bias")]
        return self.graph.node("SkipLayerNormalization", [x, skip, *parts], name, MICROSOFT,
                               epsilon=self.of("attention.layer_norm_epsilon"))

    def bert(self):
        g = self.graph
        gather = lambda table, ids: g.node("Gather", [self.constant(f"{table}.weight"), ids], table)
        x = g.node("Add", [gather("token_embd", "input_ids"), gather("token_types", "token_type_ids")], "typed")
        x = self.skip_norm("embd", x, gather("position_embd", "position_ids"), "token_embd_norm")
        for i in range(self.layers):
            b = f"blk.{i}"
            q, k, v = (self.linear(f"{b}.attn_{name}", x) for name in "qkv")
            x = self.skip_norm(f"{b}.mid", x, self.linear(f"{b}.attn_output", self.attention(b, q, k, v)),
                               f"{b}.attn_output_norm")
            up = g.node("Gelu", [self.linear(f"{b}.ffn_up", x)], f"{b}.gelu", MICROSOFT)
            x = self.skip_norm(f"{b}.out", x, self.linear(f"{b}.ffn_down", up), f"{b}.layer_output_norm")
        return x

    def rms_norm(self, name, x, weight):
        return self.graph.node("SimplifiedLayerNormalization", [x, self.constant(f"{weight}.weight")], name, axis=-1,
                               epsilon=self.of("attention.layer_norm_rms_epsilon"))

    def rotated(self, name, x, heads):
        """Norm of each head, then RoPE."""
        g = self.graph
        split = g.constant(f"{name}.split", np.array([0, 0, heads, self.dim]))
        whole = g.constant(f"{name}.whole", np.array([0, 0, heads * self.dim]))
        x = self.rms_norm(f"{name}.normed", g.node("Reshape", [x, split], f"{name}.heads"), f"{name}_norm")
        x = g.node("Reshape", [x, whole], f"{name}.row")
        return g.node("RotaryEmbedding", [x, "position_ids", "cos", "sin"], f"{name}.rope", MICROSOFT, num_heads=heads,
                      interleaved=0)

    def gemma(self):
        g = self.graph
        angles = np.arange(512)[:, None] * 1e6 ** (-np.arange(self.dim // 2) * 2 / self.dim)
        g.constant("cos", np.cos(angles).astype(np.float32))
        g.constant("sin", np.sin(angles).astype(np.float32))
        x = g.node("Gather", [self.constant("token_embd.weight"), "input_ids"], "embd")
        x = g.node("Mul", [x, g.constant("scale", np.float32(np.sqrt(self.embd)))], "scaled")
        for i in range(self.layers):
            b = f"blk.{i}"
            h = self.rms_norm(f"{b}.h", x, f"{b}.attn_norm")
            q, k, v = (self.linear(f"{b}.attn_{name}", h) for name in "qkv")
            q, k = self.rotated(f"{b}.attn_q", q, self.heads), self.rotated(f"{b}.attn_k", k, self.kv_heads)
            y = self.linear(f"{b}.attn_output", self.attention(b, q, k, v))
            x = g.node("Add", [x, self.rms_norm(f"{b}.y", y, f"{b}.post_attention_norm")], f"{b}.mid")
            h = self.rms_norm(f"{b}.f", x, f"{b}.ffn_norm")
            gate = g.node("FastGelu", [self.linear(f"{b}.ffn_gate", h)], f"{b}.gelu", MICROSOFT)
            y = self.linear(f"{b}.ffn_down", g.node("Mul", [gate, self.linear(f"{b}.ffn_up", h)], f"{b}.act"))
            x = g.node("Add", [x, self.rms_norm(f"{b}.z", y, f"{b}.post_ffw_norm")], f"{b}.out")
        return self.rms_norm("normed", x, "output_norm")

    def model(self):
        g = self.graph
        g.node("Cast", ["attention_mask"], "key_mask", to=TensorProto.INT32)
        one = g.constant("one", np.array(1))
        counted = g.node("CumSum", ["attention_mask", one], "counted")
        g.node("Max", [g.node("Sub", [counted, one], "less"), g.constant("zero", np.array(0))], "position_ids")
        x = self.bert() if self.arch == "bert" else self.gemma()
        g.node("Identity", [x], "last_hidden_state")
        names = ["input_ids", "attention_mask"] + (["token_type_ids"] if self.arch == "bert" else [])
        shape = ["batch_size", "sequence_length"]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in names]
        output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, self.embd])
        made = helper.make_graph(g.nodes, "main_graph", inputs, [output], g.constants)
        return helper.make_model(made, ir_version=10, producer_name="plumb tests/bench/encoder_onnx.py",
                                 opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)])

    def tokenizer(self):
        """The words of a GGUF begin with a phantom space; other tokens continue a word."""
        tokens = self.key("tokenizer.ggml.tokens")
        texts = [t[1:] if t[0] == "▁" else t if t[0] == "[" and t[-1] == "]" else f"##{t}" for t in tokens]
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        special = [{"id": i, "content": t, **plain} for i, t in enumerate(texts)
                   if t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
        ends = {t["content"]: t["id"] for t in special}
        cls, sep = ({"SpecialToken": {"id": t, "type_id": 0}} for t in ("[CLS]", "[SEP]"))
        parts = [cls, {"Sequence": {"id": "A", "type_id": 0}}, sep]
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": parts, "pair": [],
                               "special_tokens": {t: {"id": t, "ids": [ends[t]], "tokens": [t]}
                                                              for t in ("[CLS]", "[SEP]")}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": {t: i for i, t in enumerate(texts)}},
        }


def write_onnx(path, folder):
    encoder = Encoder(path)
    os.makedirs(os.path.join(folder, "onnx"), exist_ok=True)
    files = {
        "config.json": {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": encoder.embd},
        "tokenizer.json": encoder.tokenizer(),
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "model_max_length": 512, "pad_token": "[PAD]",
                                  "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
                                  "mask_token": "[MASK]"},
    }
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)
    onnx.save(encoder.model(), os.path.join(folder, "onnx", "model_quantized.onnx"))


def write_gguf(arch, vocabulary, out):
    reader = gguf.GGUFReader(vocabulary)
    w, rng = gguf.GGUFWriter(out, arch), np.random.default_rng(1)
    embd, heads, dim, ff = 768, 3, 256, 1152
    w.add_block_count(24)
    w.add_context_length(2048)
    w.add_embedding_length(embd)
    w.add_feed_forward_length(ff)
    w.add_head_count(heads)
    w.add_head_count_kv(1)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(1e6)
    w.add_sliding_window(512)
    if arch == "gemma-embedding":
        w.add_pooling_type(gguf.PoolingType.MEAN)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer."):
            sub = field.types[-1] if len(field.types) > 1 else None
            w.add_key_value(field.name, field.contents(), field.types[0], sub)

    def matrix(name, rows, columns):
        data = rng.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))
        kind = gguf.GGMLQuantizationType.Q8_0
        w.add_tensor(f"{name}.weight", gguf.quants.quantize(data, kind), raw_dtype=kind)

    def norm(name, n):
        w.add_tensor(f"{name}.weight", rng.normal(1, 0.1, n).astype(np.float32))

    matrix("token_embd", len(reader.fields["tokenizer.ggml.tokens"].data), embd)
    norm("output_norm", embd)
    for i in range(24):
        b = f"blk.{i}"
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            norm(f"{b}.{name}", embd)
        for name in ("attn_q_norm", "attn_k_norm"):
            norm(f"{b}.{name}", dim)
        matrix(f"{b}.attn_q", heads * dim, embd)
        matrix(f"{b}.attn_k", dim, embd)
        matrix(f"{b}.attn_v", dim, embd)
        matrix(f"{b}.attn_output", embd, heads * dim)
        matrix(f"{b}.ffn_gate", ff, embd)
        matrix(f"{b}.ffn_up", ff, embd)
        matrix(f"{b}.ffn_down", embd, ff)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    {"onnx": write_onnx, "gguf": write_gguf}[sys.argv[1]](*sys.argv[2:])
