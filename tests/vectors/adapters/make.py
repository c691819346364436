#!/usr/bin/env python3
"""Writes small adapters for models of ../archs: make.py

NAME-lora.gguf is a LoRA of rank 4, in F32, for every matrix that llama.cpp applies one to; where it has an alpha, that
is 6.  llama-types.gguf has other types, another rank, and only some matrices.  Of a control vector, layer 1 of 3 has no
direction.  All numbers are normal with a fixed seed.
"""
import re
from pathlib import Path

import gguf
import numpy as np

HERE = Path(__file__).parent
MATRIX = re.compile(
    r"blk\.\d+\.(attn_(q|k|v|qkv|output)|ffn_(gate|up|down|gate_up)(_exps|_shexp|_chexps)?|ffn_gate_inp(_shexp)?"
    r"|ssm_(in|out)|inp_gate|proj)\.weight|(token_embd|output)\.weight")


def write(name, architecture, keys, tensors):
    writer = gguf.GGUFWriter(HERE / f"{name}.gguf", architecture)
    for key, value in keys.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_string)(key, value)
    for tensor, (values, kind) in tensors.items():
        quantized = gguf.quants.quantize(values.astype(np.float32), kind)
        writer.add_tensor(tensor, quantized, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def pair(random, tensor, rank):
    """A and B of a tensor; of the embeddings, A is transposed, and the numbers of rows and columns are exchanged."""
    n_in, n_out, *n_matrix = [int(n) for n in tensor.shape] + ([1] if len(tensor.shape) == 1 else [])
    if tensor.name == "token_embd.weight":
        return random.normal(0, 0.3, (n_out, rank)), random.normal(0, 0.3, (n_in, rank))
    return (random.normal(0, 0.3, (*n_matrix, rank, n_in)), random.normal(0, 0.1, (*n_matrix, n_out, rank)))


def lora(name, model, rank, alpha, seed, kinds, wanted=MATRIX):
    reader = gguf.GGUFReader(HERE / f"../archs/{model}.gguf")
    random = np.random.default_rng(seed)
    tensors = {}
    for tensor in reader.tensors:
        if wanted.fullmatch(tensor.name):
            for side, values, kind in zip("ab", pair(random, tensor, rank), kinds):
                tensors[f"{tensor.name}.lora_{side}"] = (values, kind)
    architecture = reader.fields["general.architecture"].contents()
    keys = {"general.type": "adapter", "adapter.type": "lora"} | ({"adapter.lora.alpha": alpha} if alpha else {})
    write(name, architecture, keys, tensors)


def control(name, layers, n_embd, seed):
    random = np.random.default_rng(seed)
    f32 = gguf.GGMLQuantizationType.F32
    write(name, "controlvector", {"controlvector.model_hint": "llama"},
          {f"direction.{il}": (random.normal(0, 0.3, n_embd), f32) for il in layers})


def main():
    kinds = gguf.GGMLQuantizationType
    for seed, model in enumerate(["llama", "chatglm", "qwen2moe", "gemma4-moe", "grovemoe", "falcon-h1"], 1):
        alpha = None if model == "chatglm" else 6.0
        lora(f"{model}-lora", model, 4, alpha, seed, (kinds.F32, kinds.F32))
    some = re.compile(r"blk\.[02]\.(attn_q|attn_v|ffn_down)\.weight")
    lora("llama-types", "llama", 32, 16.0, 11, (kinds.F16, kinds.Q8_0), some)
    control("llama-control", [2], 32, 12)


if __name__ == "__main__":
    main()
