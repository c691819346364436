#!/usr/bin/env python3
"""Writes a model of this directory again with all its matrices in F32: f32.py MODEL.gguf OUT.gguf [--untie]

With --untie a model without output.weight gets a copy of token_embd.weight.
"""
import sys

import gguf
import numpy as np


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    writer = gguf.GGUFWriter(sys.argv[2], bytes(reader.fields["general.architecture"].parts[-1]).decode())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture" and len(field.data) > 0:
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub)
    names = [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        writer.add_tensor(tensor.name, values)
        if "--untie" in sys.argv and tensor.name == "token_embd.weight" and "output.weight" not in names:
            writer.add_tensor("output.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
