#!/usr/bin/env python3
"""Gives the experts of a model of this directory latent vectors, as the largest Nemotron 3 have them.

    latent.py MODEL.gguf OUT.gguf OUT.f32.gguf

The vectors have 64 elements, more than a token has, so that memory for a token is not enough.  In OUT.gguf matrices are
Q8_0, in OUT.f32.gguf they have the same numbers as F32.
"""
import sys

import gguf
import numpy as np

Q8_0, N_LATENT = gguf.GGMLQuantizationType.Q8_0, 64


def main():
    source, packed_path, f32_path = sys.argv[1:]
    reader, rng = gguf.GGUFReader(source), np.random.default_rng(1)
    name = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    writers = [gguf.GGUFWriter(path, name) for path in (packed_path, f32_path)]
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        sub = field.types[-1] if len(field.types) > 1 else None
        for w in writers:
            w.add_key_value(field.name, field.contents(), field.types[0], sub)
    for w in writers:
        w.add_uint32(f"{name}.moe_latent_size", N_LATENT)

    def matrix(tensor, *shape, gain=1):
        packed = gguf.quants.quantize(rng.normal(0, gain / np.sqrt(shape[-1]), shape).astype(np.float32), Q8_0)
        writers[0].add_tensor(tensor, packed, raw_dtype=Q8_0)
        writers[1].add_tensor(tensor, gguf.quants.dequantize(packed, Q8_0))

    for tensor in reader.tensors:
        block, _, part = tensor.name.rpartition(".ffn_")
        if part == "up_exps.weight":
            n_embd, n_ff, n_expert = map(int, tensor.shape)
            matrix(f"{block}.ffn_latent_down.weight", N_LATENT, n_embd)
            matrix(tensor.name, n_expert, n_ff, N_LATENT, gain=0.5)
            matrix(f"{block}.ffn_latent_up.weight", n_embd, N_LATENT)
        elif part == "down_exps.weight":
            n_ff, _, n_expert = map(int, tensor.shape)
            matrix(tensor.name, n_expert, N_LATENT, n_ff, gain=0.5)
        else:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            writers[0].add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            writers[1].add_tensor(tensor.name, values.reshape([int(n) for n in reversed(tensor.shape)]))
    for w in writers:
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


if __name__ == "__main__":
    main()
