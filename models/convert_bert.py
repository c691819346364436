#!/usr/bin/env python3
"""Converts a sentence encoder of the kind BERT (safetensors, as sentence-transformers stores it) to GGUF.

    convert_bert.py FOLDER FILE.gguf --type F32|F16|Q8_0

The file is byte for byte the one that llama.cpp's convert_hf_to_gguf.py writes; tests/vectors/README.md says how this
was compared.  It needs the packages gguf, numpy and PyYAML, which tools/setup.sh installs into build/setup/py.  Only
what such a model has is converted: a WordPiece vocabulary, and weights in F32.  Anything else is an error."""
import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "setup", "py"))
import gguf   # noqa: E402
import numpy   # noqa: E402


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def tensors_of(path):
    """Yields the name and the values of each tensor, in the order of their names."""
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    start = 8 + int(data[:8].view("<u8")[0])
    entries = json.loads(data[8:start].tobytes())
    for name in sorted(entries.keys() - {"__metadata__", "embeddings.position_ids"}):
        entry = entries[name]
        if entry["dtype"] != "F32":
            raise SystemExit(f"{path}: expected {name} in F32, the file has {entry['dtype']}")
        begin, end = entry["data_offsets"]
        yield name, data[start + begin:start + end].view("<f4").reshape(entry["shape"])


def add_tensors(writer, folder, n_layer, kind):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, n_layer)
    kept_f32 = {"position_embd.weight", "token_types.weight"}
    for name, values in tensors_of(folder / "model.safetensors"):
        if name.startswith("pooler."):   # for classification, which is not part of the embedding
            continue
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if new is None:
            raise SystemExit(f"{folder}: {name} is not a tensor of BERT")
        matrix = values.ndim > 1 and not new.endswith("_norm.weight") and new not in kept_f32
        dtype = gguf.GGMLQuantizationType[kind] if matrix else gguf.GGMLQuantizationType.F32
        writer.add_tensor(new, gguf.quants.quantize(values, dtype), raw_dtype=dtype)


def add_keys(writer, folder, config, kind):
    parameters, *rest = writer.get_total_parameter_count()
    metadata = gguf.Metadata.load(None, folder, None, parameters)
    metadata.size_label = metadata.size_label or gguf.size_label(parameters, *rest)
    writer.add_type(gguf.GGUFType.MODEL)
    metadata.set_gguf_meta_model(writer)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"])
    writer.add_causal_attention(False)
    pooling = next(m["path"] for m in read_json(folder / "modules.json") if m["type"].endswith("Pooling"))
    modes = read_json(folder / pooling / "config.json")
    kinds = {"pooling_mode_mean_tokens": gguf.PoolingType.MEAN, "pooling_mode_cls_token": gguf.PoolingType.CLS}
    writer.add_pooling_type(next(value for key, value in kinds.items() if modes[key]))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def add_vocabulary(writer, folder, config):
    tokenizer = read_json(folder / "tokenizer.json")
    vocabulary, normalizer = tokenizer["model"]["vocab"], tokenizer["normalizer"]
    if tokenizer["model"]["type"] != "WordPiece" or len(vocabulary) != config["vocab_size"]:
        raise SystemExit(f"{folder}: expected a WordPiece vocabulary of {config['vocab_size']} tokens")
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"] if token["special"]}
    tokens = [t if t in special else t[2:] if t.startswith("##") else "\u2581" + t
              for t in sorted(vocabulary, key=vocabulary.get)]
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")   # llama.cpp's name of this vocabulary; nothing depends on it
    writer.add_token_list(tokens)
    controls = set(special.values())
    writer.add_token_types([gguf.TokenType.CONTROL if i in controls else gguf.TokenType.NORMAL
                            for i in range(len(tokens))])
    for key, token in (("bos", "[CLS]"), ("eos", "[SEP]"), ("unknown", "[UNK]"), ("seperator", "[SEP]"),
                       ("padding", "[PAD]"), ("mask", "[MASK]")):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", special[token])
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_add_sep_token(False)   # between two texts, which an encoder of sentences does not get
    writer.add_bool("tokenizer.ggml.normalizer.lowercase", normalizer["lowercase"])


def main():
    parser = argparse.ArgumentParser(description="Converts a BERT sentence encoder to GGUF.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("file")
    parser.add_argument("--type", choices=("F32", "F16", "Q8_0"), required=True)
    options = parser.parse_args()
    config = read_json(options.folder / "config.json")
    if config["model_type"] != "bert" or config["hidden_act"] != "gelu":
        raise SystemExit(f"{options.folder}: expected bert with gelu, config.json has {config['model_type']} with "
                         f"{config['hidden_act']}")
    writer = gguf.GGUFWriter(None, "bert")
    add_tensors(writer, options.folder, config["num_hidden_layers"], options.type)
    add_keys(writer, options.folder, config, options.type)
    add_vocabulary(writer, options.folder, config)
    writer.write_header_to_file(path=pathlib.Path(options.file))
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
