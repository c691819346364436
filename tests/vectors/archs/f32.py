#!/usr/bin/env python3
"""Writes a model of this directory again with all its matrices in F32: f32.py MODEL.gguf OUT.gguf [options]

With --untie a model without output.weight gets a copy of token_embd.weight.  With --deepen the encoder of T5 gets as
many blocks as its decoder, of which those that it did not have add nothing: llama.cpp computes no decoder with more
blocks than the encoder.
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
            is_deepened = "--deepen" in sys.argv and field.name == "t5.block_count"
            value = reader.fields["t5.decoder_block_count"].contents() if is_deepened else field.contents()
            writer.add_key_value(field.name, value, field.types[0], sub)
    names = [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        writer.add_tensor(tensor.name, values)
        if "--untie" in sys.argv and tensor.name == "token_embd.weight" and "output.weight" not in names:
            writer.add_tensor("output.weight", values)
        if "--deepen" in sys.argv and tensor.name.startswith("enc.blk.0."):
            for name in ("attn_o", "ffn_down"):
                values = values * (not tensor.name.endswith(f".{name}.weight"))
            blocks = (reader.fields[f"t5.{key}"].contents() for key in ("block_count", "decoder_block_count"))
            for i in range(*blocks):
                writer.add_tensor(tensor.name.replace("blk.0", f"blk.{i}"), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
