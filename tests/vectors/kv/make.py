#!/usr/bin/env python3
"""Makes input.f32.bin, slices of 32 elements of heads of K or V, and Q8_0.bin and Q4_0.bin, what ggml makes of them.
Slices have outliers of both signs, powers of 2 whose quotients end in .5, equal magnitudes, and only zeros.

Usage: python3 make.py GGML_QUANTIZE [directory]   (default: beside this script).  Same versions, same bytes.
"""
import subprocess
import sys
from pathlib import Path

import numpy as np

program, where = sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent)
random = np.random.default_rng(1)
x = random.standard_normal((160, 32)).astype(np.float32)
x[::3, 5] *= 20
x[40:60] *= np.float32(2.0) ** np.arange(-10, 10)[:, None]
x[60:80] = random.integers(-127, 128, (20, 32)) / 2   # with amax 127 or 63.5, quotients of Q8_0 end in .0 or .5
x[60:70, 0] = 127
x[70:80, 0] = 8 * np.where(np.arange(10) % 2, 1, -1) * 16   # of Q4_0: multiples of the scale, 16, and halves of it
x[70:80, 1:] = random.integers(-16, 17, (10, 31)) * 8
x[80:90] = np.where(random.integers(0, 2, (10, 32)), 3, -3)
x[90] = 0
x[91, 1:] = 0
x.tofile(where / "input.f32.bin")
for name, number in ("Q4_0", 2), ("Q8_0", 8):
    blocks = subprocess.run([program, str(number)], input=x.tobytes(), stdout=subprocess.PIPE, check=True).stdout
    (where / f"{name}.bin").write_bytes(blocks)
