#!/usr/bin/env python3
"""Writes the models of this directory: those of ../archs with a vocabulary of texts.  make.py [OUT_FOLDER]

Needs numpy and the PyPI package gguf.  The same versions give the same bytes.
"""
import os
import string
import sys

import gguf

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = 64
NORMAL, UNKNOWN, CONTROL = 1, 2, 3
LETTERS = string.ascii_lowercase


def padded(tokens):
    return tokens + [f"[unused{i}]" for i in range(ROWS - len(tokens))]


def wordpiece(w, eos):
    """BERT's: words begin with the phantom space that the converter writes for them.  eos: the separator is EOS too,
    and is added, as in files of cross-encoders."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["▁" + c for c in LETTERS] + list(LETTERS) + ["▁.", "▁,"]
    w.add_tokenizer_model("bert")
    w.add_token_list(padded(tokens))
    w.add_token_types([CONTROL] * 5 + [NORMAL] * (ROWS - 5))
    w.add_pad_token_id(0)
    w.add_unk_token_id(1)
    w.add_bos_token_id(2)
    w.add_sep_token_id(3)
    if eos:
        w.add_eos_token_id(3)
        w.add_add_eos_token(True)
        w.add_add_sep_token(False)


def unigram(w, sep):
    """XLM-RoBERTa's.  sep: add_sep_token, as in the files of its rerankers, where SEP is EOS."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "▁"] + ["▁" + c for c in LETTERS] + list(LETTERS) + [".", ","]
    w.add_tokenizer_model("t5")
    w.add_token_list(padded(tokens))
    w.add_token_scores([0.0] * 4 + [-1.0 - 0.01 * i for i in range(ROWS - 4)])
    w.add_token_types([CONTROL] * 3 + [UNKNOWN] + [NORMAL] * (ROWS - 4))
    w.add_bos_token_id(0)
    w.add_pad_token_id(1)
    w.add_eos_token_id(2)
    w.add_sep_token_id(2)
    w.add_unk_token_id(3)
    w.add_add_space_prefix(True)
    w.add_add_bos_token(True)
    w.add_add_eos_token(True)
    w.add_add_sep_token(sep)


def bpe(w, template):
    """Qwen's: byte-level, with <|endoftext|> behind a text."""
    tokens = list(LETTERS) + ["Ġ", "Ċ", ".", ",", "<", ">", "|", ":", "/", "Q", "D", "th", "Ġt", "in"]
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(padded(tokens + specials))
    w.add_token_types([NORMAL] * len(tokens) + [CONTROL] * 3 + [NORMAL] * (ROWS - len(tokens) - 3))
    w.add_token_merges(["t h", "Ġ t", "i n"])
    w.add_eos_token_id(len(tokens))
    w.add_add_bos_token(False)
    w.add_add_eos_token(True)
    if template:
        w.add_chat_template([{"name": "rerank", "template": template}])


def spm(w):
    """Gemma's: merges by scores, BOS and EOS around a text."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "▁", "▁t", "he", "▁the", "in"] + list(LETTERS) + [".", ","]
    w.add_tokenizer_model("llama")
    w.add_token_list(padded(tokens))
    w.add_token_scores([0.0] * 4 + [-float(i) for i in range(ROWS - 4)])
    w.add_token_types([CONTROL] * 3 + [UNKNOWN] + [NORMAL] * (ROWS - 4))
    w.add_pad_token_id(0)
    w.add_eos_token_id(1)
    w.add_bos_token_id(2)
    w.add_unk_token_id(3)
    w.add_add_space_prefix(False)
    w.add_add_bos_token(True)
    w.add_add_eos_token(True)


TEMPLATE = "<|im_start|>Q: {query}\n<|im_end|>\n<|im_start|>D: {document}<|im_end|>\n"
# name: the model of ../archs, the vocabulary, the pooling instead of the model's
MODELS = {
    "bert": ("bert", lambda w: wordpiece(w, False), 2),
    "modern-bert": ("modern-bert", lambda w: bpe(w, None), None),
    "nomic-bert-moe": ("nomic-bert-moe", lambda w: unigram(w, False), None),
    "gemma-embedding": ("gemma-embedding", spm, None),
    "qwen3": ("qwen3", lambda w: bpe(w, None), None),
    "rank-bert": ("bert", lambda w: wordpiece(w, False), None),
    "rank-bert-eos": ("bert", lambda w: wordpiece(w, True), None),
    "rank-xlm": ("bert", lambda w: unigram(w, True), None),
    "rank-qwen3": ("qwen3", lambda w: bpe(w, TEMPLATE), 4),
}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else HERE
    for name, (arch, vocabulary, pooling) in MODELS.items():
        reader = gguf.GGUFReader(f"{HERE}/../archs/{arch}.gguf")
        writer = gguf.GGUFWriter(f"{folder}/{name}.gguf", arch)
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name in ("general.architecture", "tokenizer.ggml.model"):
                continue
            sub = field.types[-1] if len(field.types) > 1 else None
            is_pooling = field.name == f"{arch}.pooling_type" and pooling is not None
            writer.add_key_value(field.name, pooling if is_pooling else field.contents(), field.types[0], sub)
        vocabulary(writer)
        for tensor in reader.tensors:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


if __name__ == "__main__":
    main()
