#!/usr/bin/env python3
"""Writes llama.bin: what llama.cpp's samplers leave of random logits, and with which probabilities;
and golden.bin: 64 tokens drawn for one seed by the sampler written down a second time, below.

usage: make.py DIRECTORY    (of libllama's and libggml's shared objects; needs numpy)

Made with libllama v0.5.0 of npm @node-llama-cpp/linux-x64 3.22.1, through the C API of llama.h: logit_bias, penalties,
top_k, typical, top_p, min_p, temp, dist applied one after the other, which is the default order of common/sampling.cpp.

Words of 32 bits, little-endian: the number of cases, then for each
  temperature top_k top_p min_p typical_p repeat presence frequency last_n n_bias n_accept n_vocab n_expect
  n_bias (token, bias) | n_accept tokens | n_vocab logits | n_expect (token, probability), by token
"""
import ctypes as C, glob, math, os, struct, sys
import numpy as np

# ---- the sampler, a second time ------------------------------------------------------------------------------------

M = 2**64 - 1
def rotl(x, k):
    return (x << k | x >> (64 - k)) & M

class Xoshiro256starstar:
    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & M
            z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & M
            z = (z ^ z >> 27) * 0x94D049BB133111EB & M
            self.s.append(z ^ z >> 31)

    def uniform(self):
        s = self.s
        result = rotl(s[1] * 5 & M, 7) * 9 & M
        t = s[1] << 17 & M
        s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = rotl(s[3], 45)
        return (result >> 11) * 2.0**-53

def choices(x, temperature, top_k, top_p, min_p):
    """The tokens that stay, likeliest first, and the running sums of their probabilities."""
    kept = sorted(range(len(x)), key=lambda i: (-x[i], i))[:top_k]
    share = np.cumsum([math.exp(float(x[i]) - float(x[kept[0]])) for i in kept])
    kept = kept[:int(np.argmax(share >= np.float32(top_p) * share[-1])) + 1]
    kept = [i for i in kept if x[i] >= x[kept[0]] + math.log(np.float32(min_p))]
    share = np.cumsum([math.exp((float(x[i]) - float(x[kept[0]])) / float(np.float32(temperature))) for i in kept])
    return kept, share / share[-1]

def draw(x, random, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05):
    """The token, and how far the random number was from choosing another."""
    kept, share = choices(x, temperature, top_k, top_p, min_p)
    u = random.uniform()
    i = int(np.argmax(share > u))
    return kept[i], min(share[i] - u, u - (share[i - 1] if i > 0 else 0))

def golden(seed=2026, n=1000, n_draw=64):
    """1000 logits that need no file, the default parameters with repeat_penalty 1.25."""
    logits = [np.float32((i * 2654435761 % 2**32 >> 8) / 2**24 * 8 - 4) for i in range(n)]
    random, text = Xoshiro256starstar(seed), []
    for _ in range(n_draw):
        x = list(logits)
        for token in set(text):
            x[token] = x[token] * np.float32(1.25) if x[token] <= 0 else x[token] / np.float32(1.25)
        text.append(draw(x, random)[0])
    return text

# ---- llama.cpp's ---------------------------------------------------------------------------------------------------

class Data(C.Structure):
    _fields_ = [("id", C.c_int32), ("logit", C.c_float), ("p", C.c_float)]

class Array(C.Structure):
    _fields_ = [("data", C.POINTER(Data)), ("size", C.c_size_t), ("selected", C.c_int64), ("sorted", C.c_bool)]

class Bias(C.Structure):
    _fields_ = [("token", C.c_int32), ("bias", C.c_float)]

def load(directory):
    for name in ("libggml-base*.so", "libggml.*so", "libllama.*so"):
        library = C.CDLL(glob.glob(os.path.join(os.path.abspath(directory), name))[0], mode=C.RTLD_GLOBAL)
    return library

def sampler(name, *args):
    f = getattr(lib, "llama_sampler_init_" + name)
    f.restype = C.c_void_p
    return C.c_void_p(f(*args))

def apply(s, array, accept=()):
    for token in accept:
        lib.llama_sampler_accept(s, C.c_int32(token))
    lib.llama_sampler_apply(s, C.byref(array))
    lib.llama_sampler_free(s)

F, I, Z = C.c_float, C.c_int32, C.c_size_t(0)

def run(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical=1.0, repeat=1.0, presence=0.0, frequency=0.0,
        last_n=64, bias=(), accept=()):
    logits = np.asarray(logits, np.float32)
    n = len(logits)
    data = (Data * n)(*[Data(i, float(x), 0) for i, x in enumerate(logits)])
    array = Array(data, n, -1, False)
    if bias:
        apply(sampler("logit_bias", I(n), I(len(bias)), (Bias * len(bias))(*[Bias(*b) for b in bias])), array)
    apply(sampler("penalties", I(n), I(last_n), F(repeat), F(frequency), F(presence)), array, accept)
    apply(sampler("top_k", I(top_k)), array)
    apply(sampler("typical", F(typical), Z), array)
    apply(sampler("top_p", F(top_p), Z), array)
    apply(sampler("min_p", F(min_p), Z), array)
    apply(sampler("temp", F(temperature)), array)
    apply(sampler("dist", C.c_uint32(1)), array)
    expect = sorted((array.data[i].id, array.data[i].p) for i in range(array.size) if array.data[i].p > 0)
    out = struct.pack("<fIffffffIIIII", temperature, top_k, top_p, min_p, typical, repeat, presence, frequency, last_n,
                      len(bias), len(accept), n, len(expect))
    out += b"".join(struct.pack("<if", *b) for b in bias)
    out += np.asarray(accept, np.int32).tobytes() + logits.tobytes()
    return out + b"".join(struct.pack("<if", *e) for e in expect)

def cases():
    rng = np.random.default_rng(1)
    def normal(n=64, scale=2.5):
        return rng.normal(0, scale, n)

    rows = [run(normal()), run(normal(), temperature=0.25), run(normal(), temperature=3), run(normal(), temperature=0),
             run(normal(), temperature=0, typical=0.3),
             run(normal(2100, 0.5), top_p=0.97), run(normal(300), top_k=280), run(normal(), top_k=1000)]
    rows += [run(normal(), top_k=k) for k in (1, 2, 7, 40, 63, 64)]
    rows += [run(normal(), top_p=p) for p in (0, 0.1, 0.5, 0.9, 0.99)]
    rows += [run(normal(), min_p=p) for p in (0.01, 0.05, 0.2, 0.9, 1)]
    rows += [run(normal(), typical=p) for p in (0.05, 0.2, 0.5, 0.9, 0.99)]
    seen = [int(x) for x in rng.integers(0, 16, 40)]
    rows += [run(normal(), repeat=1.3, accept=seen), run(normal(), repeat=0.8, accept=seen),
              run(normal(), presence=0.7, accept=seen), run(normal(), frequency=0.4, accept=seen),
              run(normal(), frequency=-0.2, presence=-0.5, accept=seen),
              run(normal(), repeat=1.2, presence=0.3, frequency=0.1, last_n=9, accept=seen),
              run(normal(), repeat=1.2, presence=0.3, frequency=0.1, last_n=1, accept=seen),
              run(normal(), repeat=2, frequency=1, last_n=0, accept=seen),
              run(normal(), bias=[(3, 5.0), (10, -4.0), (63, -np.inf)]),
              run(normal(), bias=[(0, 3.0), (1, 2.0)], repeat=1.5, accept=[0, 0, 1], top_k=5)]
    for _ in range(24):
        rows.append(run(normal(64, float(rng.uniform(0.5, 4))), temperature=float(rng.uniform(0.3, 1.8)),
                         top_k=int(rng.integers(0, 50)), top_p=float(rng.uniform(0.6, 1)),
                         min_p=float(rng.uniform(0, 0.15)), typical=float(rng.choice([1, 0.95, 0.7])),
                         repeat=float(rng.uniform(1, 1.4)), presence=float(rng.uniform(0, 0.5)),
                         frequency=float(rng.uniform(0, 0.3)), last_n=int(rng.integers(1, 64)),
                         accept=[int(x) for x in rng.integers(0, 64, 50)]))
    return rows

if __name__ == "__main__":
    lib = load(sys.argv[1])
    here = os.path.dirname(os.path.abspath(__file__))
    rows = cases()
    with open(os.path.join(here, "llama.bin"), "wb") as file:
        file.write(struct.pack("<I", len(rows)) + b"".join(rows))
    with open(os.path.join(here, "golden.bin"), "wb") as file:
        file.write(np.array(golden(), np.int32).tobytes())
