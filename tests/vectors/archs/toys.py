#!/usr/bin/env python3
"""Rewrites a toy model of llama.cpp's conformance program (shapes.sed) as two files with the same numbers.

    toys.py TOY.gguf OUT.gguf OUT.f32.gguf

In OUT.gguf matrices are Q8_0, in OUT.f32.gguf they are F32, for engines that round activations of quantized products.
The program draws all weights from one distribution around 0.  Here the factors of norms are moved to 1, so that
a wrong step shows in the steps after it.
"""
import sys

import gguf
import numpy as np

Q8_0, F32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32


def rewrite(architecture, name, data):
    """The values of a tensor in the new files."""
    if architecture == "gpt-oss" and (".ffn_gate_exps." in name or ".ffn_up_exps." in name):
        return data * 1.5   # some results are beyond their limit, 7, on each side
    if name.endswith("norm.weight") or name.endswith("norm_2.weight"):
        return 1 + data / 2
    if name.endswith((".scale", ".scales")):
        return 1 + data / 2
    if name.endswith("ssm_a"):
        sign = 1 if architecture == "bailingmoe3" else -1
        return sign * (0.5 + np.abs(data))   # an exponential, or minus that
    if name.startswith("rope_f"):
        return 1 + np.abs(data) * 2
    return data


def is_left_out(architecture, tensor):
    """In some architectures the tensors say which layers have experts: here all but the first one."""
    if ".ffn_latent_" in tensor:
        return True   # of the largest Nemotron 3 only
    if architecture not in ("hy_v3", "step35", "mimo2") or not tensor.startswith("blk."):
        return False
    is_expert = "exp" in tensor or "ffn_gate_inp" in tensor
    is_dense = any(f".ffn_{part}." in tensor for part in ("gate", "up", "down"))
    return is_expert if tensor.startswith("blk.0.") else is_dense


def main():
    toy, packed_path, f32_path = sys.argv[1:]
    reader = gguf.GGUFReader(toy)
    name = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    writers = [gguf.GGUFWriter(path, name) for path in (packed_path, f32_path)]
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "tokenizer.ggml.tokens",
                                                            "tokenizer.ggml.scores", "tokenizer.ggml.model"):
            continue
        kind, sub = field.types[0], field.types[-1] if len(field.types) > 1 else None
        for w in writers if len(field.data) > 0 else []:   # the writer refuses empty arrays
            w.add_key_value(field.name, field.contents(), kind, sub)
    for w in writers:   # ids alone, as the texts of tokens would be most of the file
        w.add_tokenizer_model("none")
        if f"{name}.vocab_size" not in reader.fields:
            w.add_vocab_size(64)
    for tensor in reader.tensors:
        if is_left_out(name, tensor.name):
            continue
        data = rewrite(name, tensor.name, np.array(tensor.data, np.float32))
        is_matrix = tensor.name.endswith(".weight") and data.ndim > 1 and "norm" not in tensor.name
        if is_matrix and data.shape[-1] % 32 == 0:
            packed = gguf.quants.quantize(data, Q8_0)
            writers[0].add_tensor(tensor.name, packed, raw_dtype=Q8_0)
            writers[1].add_tensor(tensor.name, gguf.quants.dequantize(packed, Q8_0))
        else:
            for w in writers:
                w.add_tensor(tensor.name, data)
    for w in writers:
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


if __name__ == "__main__":
    main()
