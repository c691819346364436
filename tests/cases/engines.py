"""Engines with one mistake each, as their authors would have made it, on the numpy engine of tests/reference.

They override steps of that engine, or read a tensor in another way; nothing here knows the names of plumb's mistakes.
"""
import os
import sys

import gguf
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import blocks  # noqa: E402
from engine import Engine, Run  # noqa: E402


class PairsHalvesInQ4_0(Engine):
    """The fast path of Q4_0 has a RoPE of its own, taken from an engine that reads files of transformers: elements i
    and i + head_dim / 2 are a pair.  The path of all other types is right."""

    def __init__(self, path):
        super().__init__(path)
        if self.file.tensors["blk.0.attn_q.weight"].tensor_type.name == "Q4_0":
            self.pairing = "halves"


class ReadsBlocks(Engine):
    """Reads the blocks of some types with functions of its own: name of the type -> function of (n_block, bytes)."""
    readers = {}

    def weight(self, name):
        tensor = self.file.tensors.get(name)
        read = self.readers.get(tensor.tensor_type.name) if tensor else None
        if read is None:
            return super().weight(name)
        if name not in self.file.known:
            raw = np.asarray(tensor.data).reshape(-1, gguf.GGML_QUANT_SIZES[tensor.tensor_type][1])
            self.file.known[name] = read(raw).reshape(tensor.shape[::-1])
        return self.file.known[name]


def scales_by_two(packed):
    """The 12 bytes of scales and minima as if each pair of parts shared two bytes: right for part 0 alone."""
    packed, part = packed.astype(int), np.arange(8)

    def read(at):
        low, high = packed[:, part // 2 + at], packed[:, part // 2 + at + 2]
        return np.where(part % 2 == 0, low & 63, low >> 6 | (high & 15) << 2)

    return read(0), read(4)


def q4_k_by_two(raw):
    d, dmin = blocks.f16(raw, 0, None), blocks.f16(raw, 2, None)
    scales, mins = scales_by_two(raw[:, 4:16])
    codes = blocks.nibbles(raw[:, 16:].reshape(-1, 4, 32), None).reshape(-1, 256)
    return np.repeat(d * scales, 32, axis=1) * codes - np.repeat(dmin * mins, 32, axis=1)


class UnpacksScalesByTwo(ReadsBlocks):
    """paiml/aprender, pull request 2141: another packing of the 6-bit scales of Q4_K."""
    readers = {"Q4_K": q4_k_by_two}


def q5_k_in_sequence(raw):
    """Element i takes its nibble from byte i / 2 and its fifth bit from bit i % 8 of byte i / 8."""
    d, dmin = blocks.f16(raw, 0, None), blocks.f16(raw, 2, None)
    scales, mins = blocks.scales_and_mins_k(raw[:, 4:16], None)
    i = np.arange(256)
    codes = (raw[:, 48 + i // 2] >> i % 2 * 4 & 15) + 16 * (raw[:, 16 + i // 8] >> i % 8 & 1).astype(float)
    return np.repeat(d * scales, 32, axis=1) * codes - np.repeat(dmin * mins, 32, axis=1)


class ReadsQ5KInSequence(ReadsBlocks):
    """paiml/aprender, pull request 2127."""
    readers = {"Q5_K": q5_k_in_sequence}


class SkipsTwoBytesOfQ4_1(ReadsBlocks):
    """ml-explore/mlx, pull request 3664: the codes of a Q4_1 block begin after 2 bytes, as in Q4_0, not after 4."""
    readers = {"Q4_1": lambda raw: blocks.f16(raw, 0, None) * blocks.nibbles(raw[:, 2:18], None)
               + blocks.f16(raw, 2, None)}


class ReadsFirstBlock(ReadsBlocks):
    """1bit-MONSTER, pull request 488: a return inside the loop over the blocks of a tensor; the rest stays 0."""

    @staticmethod
    def first(raw):
        values = np.zeros((len(raw), 256))
        values[0] = blocks.q6_k(raw[:1], None)
        return values


ReadsFirstBlock.readers = {"Q6_K": ReadsFirstBlock.first}


class StridesByQueryHeads(Engine):
    """The cache is written with n_head_kv heads a token, and read as if it had n_head: slot s is read where slot
    s * n_head / n_head_kv was written, or where nothing was written yet."""

    def attention(self, il, q, k, v, slot, position):
        def read(rows):
            memory = np.zeros((len(rows) * self.n_head // self.n_head_kv, *rows.shape[1:]))
            memory[:len(rows)] = rows
            return memory[::self.n_head // self.n_head_kv]

        return super().attention(il, q, read(k), read(v), slot, position)


class WeighsNormsTwice(Engine):
    """The norm multiplies by its weight, and so does its caller."""

    def normalized(self, x, weight, bias=None):
        return super().normalized(x, weight, bias) * weight


class ReturnsFirstLogits(Engine):
    """After a prompt the sampler gets the logits of the first row of the batch, not of the last one."""

    def run(self, tokens, n_prompt):
        run = super().run(tokens, n_prompt)
        run.taps["result_output"][:n_prompt] = run.taps["result_output"][0]
        return run


class RotatesPromptAlike(Engine):
    """Querent-ai/wasm-chord, PROGRESS.md: all tokens of a prompt are rotated by the position of the first."""

    def positions(self, start, n, n_prompt):
        position = np.full(n, start)
        return position, position


class ReadsMatricesAcross(Engine):
    """Querent-ai/wasm-chord, PROGRESS.md: matrices are taken as (n_in, n_out), but are stored as (n_out, n_in)."""

    def project(self, block, name, x):
        w = self.weight(f"{block}.{name}.weight")
        return x @ w.reshape(w.shape[::-1])


class PermutedForOtherHeads(Engine):
    """ggml-org/llama.cpp, pull request 3364: a converter that permutes the rows of K for n_head / n_head_kv heads, not
    for n_head_kv.  The engine is right; its file is not."""

    def weight(self, name):
        w = super().weight(name)
        if not name.endswith("attn_k.weight"):
            return w
        right, wrong = (order(n, len(w)) for n in (self.n_head_kv, self.n_head // self.n_head_kv))
        original = np.empty_like(w)
        original[right] = w
        return original[wrong]


def order(n_head, n_row):
    """Row i of a file is row order[i] of transformers: the halves of each head alternate."""
    return np.arange(n_row).reshape(n_head, 2, -1).swapaxes(1, 2).reshape(-1)
