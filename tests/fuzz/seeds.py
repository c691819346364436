#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus/{model,chat,perplexity,options,regular,diagnose,adapter,
state}, tests/fuzz/tiny.gguf and tests/fuzz/experts.gguf.

    python3 tests/fuzz/seeds.py [--check]

--check writes nothing, and fails if a seed is missing or has other bytes: their numbers of taps, models and kinds of
state are those of src/ and of the fuzz targets.

Needs nothing but Python.  The same script gives the same bytes.  Inputs that a fuzzer has found are beside the seeds
and are kept; their names say what they did.
"""
import pathlib
import random
import re
import struct
import sys

HERE = pathlib.Path(__file__).parent
TAP_H = HERE / "../../src/engine/model/tap.h"
MODEL_FUZZ, STATE_FUZZ = HERE / "model_fuzz.c", HERE / "state_fuzz.c"
F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = 0, 1, 2, 3, 6, 7, 8
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16 = 10, 11, 12, 13, 14, 20, 23, 30
TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0 = 34, 35, 39, 40, 41, 42
IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ3_S, IQ2_S, IQ1_M = 16, 17, 18, 19, 21, 22, 29
# type: weights in a block, its bytes, where its f16 scales are
BLOCKS = {F32: (1, 4, []), F16: (1, 2, [0]), BF16: (1, 2, []), Q4_0: (32, 18, [0]), Q4_1: (32, 20, [0, 2]),
          Q5_0: (32, 22, [0]), Q5_1: (32, 24, [0, 2]), Q8_0: (32, 34, [0]), Q2_K: (256, 84, [80, 82]),
          Q3_K: (256, 110, [108]), Q4_K: (256, 144, [0, 2]), Q5_K: (256, 176, [0, 2]), Q6_K: (256, 210, [208]),
          IQ4_NL: (32, 18, [0]), IQ4_XS: (256, 136, [0]), TQ1_0: (256, 54, [52]), TQ2_0: (256, 66, [64]),
          MXFP4: (32, 17, []), NVFP4: (64, 36, []), Q1_0: (128, 18, [0]), Q2_0: (64, 18, [0]),
          IQ2_XXS: (256, 66, [0]), IQ2_XS: (256, 74, [0]), IQ2_S: (256, 82, [0]), IQ3_XXS: (256, 98, [0]),
          IQ3_S: (256, 110, [0]), IQ1_S: (256, 50, [0]), IQ1_M: (256, 56, [])}
# type: its scales of one byte, at the start of a block, and their lowest value and their highest one here
BYTE_SCALES = {MXFP4: (1, 116, 120), NVFP4: (4, 8, 24)}
U8, I32, U32, FLOAT, BOOL, STRING, ARRAY, U64 = 0, 5, 4, 6, 7, 8, 9, 10
CODES = {U8: "<B", I32: "<i", U32: "<I", FLOAT: "<f", BOOL: "<B", U64: "<Q"}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, item):
    return string(item) if kind == STRING else struct.pack(CODES[kind], item)


class Model:
    """A model of one layer.  keys and tensors may be changed before it is written."""

    def __init__(self, arch="llama", embd=32, heads=2, kv=1, head=16, ff=32, tokens=(), tokenizer="gpt2",
                 types=(F32,), layers=1, bias=False, tied=False, seed=1):
        self.random = random.Random(seed)
        self.keys = {
            "general.architecture": (STRING, arch), f"{arch}.block_count": (U32, layers),
            f"{arch}.embedding_length": (U32, embd), f"{arch}.feed_forward_length": (U32, ff),
            f"{arch}.context_length": (U32, 64), f"{arch}.attention.head_count": (U32, heads),
            f"{arch}.attention.head_count_kv": (U32, kv), f"{arch}.attention.key_length": (U32, head),
            f"{arch}.attention.value_length": (U32, head),
            f"{arch}.attention.layer_norm_rms_epsilon": (FLOAT, 1e-5),
            "tokenizer.ggml.model": (STRING, tokenizer), "tokenizer.ggml.tokens": (ARRAY, STRING, tokens),
        }
        if tokenizer == "gpt2":
            self.keys["tokenizer.ggml.pre"] = (STRING, "smollm")
            self.keys["tokenizer.ggml.merges"] = (ARRAY, STRING, ["a b", "c d"])
        else:
            self.keys["tokenizer.ggml.scores"] = (ARRAY, FLOAT, [-float(i) for i in range(len(tokens))])
            self.keys["tokenizer.ggml.token_type"] = (ARRAY, I32, [2, 3, 3] + [1] * (len(tokens) - 3))
        self.tensors = {}
        kinds = iter([types[i % len(types)] for i in range(64)])
        self.add("token_embd.weight", next(kinds), embd, len(tokens))
        for i in range(layers):
            def layer(name, *shape, kind=None):
                fits = [k for k in (kind if kind is not None else next(kinds), F32) if shape[0] % BLOCKS[k][0] == 0]
                self.add(f"blk.{i}.{name}", fits[0], *shape)
            layer("attn_norm.weight", embd, kind=F32)
            for name, rows in (("attn_q", heads * head), ("attn_k", kv * head), ("attn_v", kv * head)):
                layer(f"{name}.weight", embd, rows)
                if bias:
                    layer(f"{name}.bias", rows, kind=F32)
            layer("attn_output.weight", heads * head, embd)
            layer("ffn_norm.weight", embd, kind=F32)
            layer("ffn_gate.weight", embd, ff)
            layer("ffn_up.weight", embd, ff)
            layer("ffn_down.weight", ff, embd)
        self.add("output_norm.weight", F32, embd)
        if not tied:
            self.add("output.weight", next(kinds), embd, len(tokens))

    def add(self, name, kind, *shape):
        self.tensors[name] = (kind, shape)

    def data(self, kind, shape):
        n = 1
        for side in shape:
            n *= side
        weights, size, scales = BLOCKS[kind]
        if kind in (F32, BF16):
            numbers = [1 + 0.1 * self.random.gauss(0, 1) if len(shape) == 1 else 0.2 * self.random.gauss(0, 1)
                       for _ in range(n)]
            words = [struct.pack("<f", x) for x in numbers]
            return b"".join(w if kind == F32 else w[2:] for w in words)
        blocks = bytearray(self.random.randbytes(n // weights * size))
        for at in range(0, len(blocks), size):
            for scale in scales:
                blocks[at + scale:at + scale + 2] = struct.pack("<e", 0.05 * self.random.gauss(0, 1) / weights ** 0.5)
            if kind == IQ1_M:   # the upper four bits of its f16, which is 2^-15 to 2^-12
                blocks[at + 55] = blocks[at + 55] & 0x8F
            n_byte, *ends = BYTE_SCALES.get(kind, (0,))
            for scale in range(n_byte):
                blocks[at + scale] = self.random.randint(*ends)
        return bytes(blocks)

    def write(self):
        header = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for name, (kind, *rest) in self.keys.items():
            header += string(name) + struct.pack("<I", kind)
            if kind == ARRAY:
                header += struct.pack("<IQ", rest[0], len(rest[1])) + b"".join(value(rest[0], x) for x in rest[1])
            else:
                header += value(kind, rest[0])
        data = b""
        for name, (kind, shape) in self.tensors.items():
            data += bytes(-len(data) % 32)
            header += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
            header += struct.pack("<IQ", kind, len(data))
            data += self.data(kind, shape)
        return header + bytes(-len(header) % 32) + data


LETTERS = [*"abcdefghijkl", "ab", "cd", "Ġ", "<|im_start|>", "<|im_end|>"]
PIECES = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab", "c"]
SMALL = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, F16, BF16, IQ4_NL]
FEW_BITS = [TQ2_0, TQ1_0, Q1_0, MXFP4, NVFP4, TQ2_0, TQ1_0, Q2_0, Q8_0]   # attn_output and ffn_down have rows of 64
GRIDS = [IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, Q8_0, IQ3_S, IQ1_S, Q8_0, IQ1_M]   # attn_output and ffn_down as above
LARGE = [Q6_K, Q2_K, Q3_K, Q4_K, IQ4_NL, Q5_K, IQ4_XS, Q5_1, Q8_0]


def changed(change, **options):
    """A small model that change has made invalid or unusual."""
    model = Model(**{"tokens": LETTERS[:6], "types": [Q4_0], **options})
    change(model)
    return model.write()


def set_key(name, *entry):
    return lambda model: model.keys.__setitem__(name, entry)


def models():
    small = {"tokens": LETTERS[:6]}
    yield "llama-f32", b"\0\x18" + Model(heads=1, types=[Q8_0, F32], **small).write()
    yield "kv-q8_0", b"\0\x19" + Model(heads=1, head=32, types=[Q8_0], **small).write()
    yield "kv-q4_0", b"\3\x1a" + Model(heads=2, head=64, types=[Q8_0, F32], **small).write()
    yield "llama-spm", b"\2\x38" + Model(tokens=PIECES, tokenizer="llama", types=[Q8_0]).write()
    yield "qwen2", b"\0\x3c" + Model(arch="qwen2", bias=True, types=[Q4_0], **small).write()

    def granite(model):
        for name in ("embedding_scale", "residual_scale", "logit_scale", "attention.scale"):
            model.keys[f"granite.{name}"] = (FLOAT, 0.5)
    yield "granite", b"\3\x19" + changed(granite, arch="granite", tied=True, types=[Q8_0])

    def bert(model):
        for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight", "output_norm.weight"):
            del model.tensors[name]
        for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
            model.add(f"{name}.weight", F32, 32)
            model.add(f"{name}.bias", F32, 32)
        model.add("token_types.weight", F32, 32, 2)
        model.add("position_embd.weight", Q8_0, 32, 64)
        model.add("cls.weight", Q8_0, 32, 32)
        model.add("cls.output.weight", Q8_0, 32, 2)
        model.keys["bert.attention.layer_norm_epsilon"] = (FLOAT, 1e-12)
        model.keys["bert.pooling_type"] = (U32, 4)
        model.keys["bert.classifier.output_labels"] = (ARRAY, STRING, ["no", "yes"])
        model.keys["tokenizer.ggml.token_type_count"] = (U32, 2)
    yield "bert", b"\0\x18" + changed(bert, arch="bert", tied=True, types=[Q8_0])

    def gemma_embedding(model):
        for name in ("post_attention_norm", "post_ffw_norm"):
            model.add(f"blk.0.{name}.weight", F32, 32)
        for name in ("attn_q_norm", "attn_k_norm"):
            model.add(f"blk.0.{name}.weight", F32, 16)
        model.add("dense_2.weight", Q8_0, 32, 64)
        model.add("dense_3.weight", Q8_0, 64, 32)
        for name, number in (("attention.sliding_window", 2), ("pooling_type", 1), ("dense_2_feat_out", 64),
                             ("dense_3_feat_in", 64)):
            model.keys[f"gemma-embedding.{name}"] = (U32, number)
    yield "gemma-embedding", b"\2\x2a" + changed(gemma_embedding, arch="gemma-embedding", tied=True, types=[Q8_0])

    def sees_all(model):
        model.keys["llama.attention.causal"] = (BOOL, 0)
    yield "not-causal", b"\0\x39" + changed(sees_all)

    yield "types-of-32", b"\2\x2a" + Model(types=SMALL, layers=2, **small).write()
    yield "types-of-256", b"\0\x2c" + Model(types=LARGE, embd=256, heads=1, head=32, **small).write()
    yield "types-of-few-bits", b"\0\x2c" + Model(types=FEW_BITS, embd=256, heads=1, head=64, ff=64, **small).write()
    yield "types-with-grids", b"\0\x2c" + Model(types=GRIDS, embd=256, heads=1, head=64, ff=64, **small).write()
    yield "rehearsal", b"\1\x18" + Model(types=[Q8_0], **small).write()

    def rope(model):
        model.add("rope_freqs.weight", F32, 8)
        model.keys["llama.rope.freq_base"] = (FLOAT, 5e5)
        model.keys["llama.rope.scaling.type"] = (STRING, "linear")
        model.keys["llama.rope.scaling.factor"] = (FLOAT, 2.0)
    yield "rope", b"\0\x28" + changed(rope)

    yield "tokens-that-are-numbers", b"\0\x08" + changed(set_key("tokenizer.ggml.tokens", ARRAY, I32, [1] * 6))
    yield "merges-that-are-numbers", b"\0\x08" + changed(set_key("tokenizer.ggml.merges", ARRAY, U8, [1, 2]))
    yield "one-type-too-few", b"\2\x08" + changed(set_key("tokenizer.ggml.token_type", ARRAY, I32, [1] * 5))
    yield "one-score-too-few", b"\0\x08" + changed(set_key("tokenizer.ggml.scores", ARRAY, FLOAT, [0.0] * 5))
    yield "types-of-64-bits", b"\0\x08" + changed(set_key("tokenizer.ggml.token_type", ARRAY, U64, [1] * 6))
    yield "one-token-too-many", b"\0\x08" + changed(set_key("tokenizer.ggml.tokens", ARRAY, STRING, LETTERS[:7]))
    yield "empty-tokens", b"\0\x08" + changed(lambda model: None, tokens=["a", "b", "", "ab", "", "[EMPTY_5]"])
    yield "no-heads", b"\0\x08" + changed(set_key("llama.attention.head_count", U32, 0))
    yield "more-heads", b"\0\x08" + changed(set_key("llama.attention.head_count", U32, 65536))
    yield "a-rope-of-more-than-a-head", b"\0\x08" + changed(set_key("llama.rope.dimension_count", U32, 18))
    yield "layers-of-billions", b"\0\x08" + changed(set_key("llama.block_count", U32, 4294967295))

    def transpose(model):
        model.tensors["blk.0.ffn_down.weight"] = (F32, (32, 64))
    yield "transposed", b"\2\x08" + changed(transpose, ff=64)

    def vectors_of_f16(model):
        model.tensors["output_norm.weight"] = (F16, (32,))
    yield "a-norm-of-f16", b"\2\x08" + changed(vectors_of_f16)

    # Models of every kind of layer, as they are (model_fuzz.c): the passes, rehearsal, selfcheck and weights in turn,
    # with the types of K and V, the precisions and other tokens.
    archs = re.search(r"archs\[\] = \{(.*?)\}", MODEL_FUZZ.read_text(), re.S)[1]
    for i, name in enumerate(re.findall(r'"([^"]+)"', archs)):
        yield f"arch-{name}", bytes([8 * (i + 1) + i % 4, i % 16 + 16 * (1 + i % 9)])


CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
          "+ '\n'}}{% endfor %}")
# A template for each part of the language.
TEMPLATES = {
    "chatml": CHATML,
    "blocks": "{%- set a %}x{% endset -%}\n  {% if a %}{# c #}\n1{% elif b %}2{% else %}3{% endif %}{% generation %}"
              "{% endgeneration %}",
    "loops": "{% for k, v in {'a': 1, 'b': 2}.items() if v > 0 %}{{ loop.index }}{{ loop.previtem }}{% if loop.last %}"
             "{% break %}{% else %}{% continue %}{% endif %}{% else %}none{% endfor %}",
    "macros": "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}{% call m(1) %}x{% endcall %}"
              "{{ m(a=3) }}",
    "filters": "{% filter upper %}a{% endfilter %}{{ messages | tojson(indent=2, separators=[',', ':']) }}{{ [3, 1] | "
               "sort | join(', ') | indent(2) | trim }}{{ {'b': 1} | dictsort }}{{ 'a' | default('b', true) }}",
    "tests": "{{ 1 is odd }}{{ x is not defined }}{{ 'a' is string and [] is iterable or none is none }}{{ 2 is "
             "divisibleby(2) }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "operators": "{{ -1 + 2 * 3 / 4 % 5 }}{{ 'a' ~ 1 }}{{ 'a' * 3 }}{{ 'a' in 'abc' not in [1] }}{{ 1 if x else 2.5 }}",
    "members": "{{ messages[0].role }}{{ messages[::-1][1:][:2] }}{{ 'abc'[0] }}"
               "{{ {'a': {'b': [1, (2, 3)]}}.a['b'][-1] }}",
    "methods": "{{ ' a,b '.strip().split(',') }}{{ 'x'.replace('', 'y').startswith('y') }}{{ '{}'.format(1) }}{{ "
               "{'a': 1}.get('b', 0) }}",
    "namespace": "{% set ns = namespace(a=[]) %}{% for i in range(5) %}{% set _ = ns.a.append(i) %}{% set ns.b = i %}"
                 "{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.a.pop() }}",
    "functions": "{{ strftime_now('%Y-%m-%d') }}{{ raise_exception('no: ' + messages[0].role) }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "cycle": "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}{{ a | string }}{{ a | tojson }}{{ a == a }}",
    "growth": "{% set ns = namespace(a='xxxxxxxx') %}{% for i in range(100) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
    "range": "{{ range(1000000000) | length }}", "repeat": "{{ 'abc' * 1000000000 }}",
    "nesting": "{{ " + "(" * 500 + "1" + ")" * 500 + " }}", "blocks-in-blocks": "{% if 1 %}" * 500,
    "unclosed": "{% for a in b %}{{ 'a' }", "unknown": "{% import 'a' %}",
}
CHATS = [
    '{"messages":[{"role":"user","content":"Hello!"}],"add_generation_prompt":true}',
    '{"messages":[{"role":"system","content":" Be brief. "},{"role":"user","content":[{"type":"text","text":"Hi"}]}]}',
    '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":'
    '{"name":"f","arguments":"{\\"a\\":[1,2.5,true,null]}"}}]},{"role":"tool","content":""}],"tools":[{"name":"f"}]}',
    '{"messages":[]}',
]


def chats():
    for i, (name, template) in enumerate(TEMPLATES.items()):
        yield name, bytes([7 * i, i & 1]) + template.encode() + b"\0" + CHATS[i % len(CHATS)].encode()
    yield "no-variables", b"\0\1" + CHATML.encode()
    yield "no-json", b"\0\1" + CHATML.encode() + b'\0{"messages":[{"role":'
    yield "no-utf-8", b"\x11\1" + CHATML.encode() + b"\0" + CHATS[0].encode().replace(
        b"Hello!", b"1\xf0\x9f\x98\xff\xc0\x80\xed\xa0\x80\xe2\x82")


TEXT = "abcdabcdefghabcdefghijkl"


def words_of(text):
    """The tokens of perplexity_fuzz.c's text: merges are "a b" and "c d"."""
    ids, at = [], 0
    while at < len(text):
        n = 2 if text[at:at + 2] in ("ab", "cd") else 1
        ids.append(LETTERS.index(text[at:at + n]))
        at += n
    return ids


def saved(n_ctx, n_vocab=len(LETTERS), n_chunk=None, scale=16 / 65535, least=-16.1, level=None, seed=1):
    rng, ids = random.Random(seed), words_of(TEXT)
    n_chunk = len(ids) // n_ctx if n_chunk is None else n_chunk
    data = b"_logits_" + struct.pack("<III", n_ctx, n_vocab, n_chunk)
    data += b"".join(struct.pack("<i", i) for i in ids[:n_ctx * n_chunk])
    for _ in range(n_chunk * (n_ctx - 1 - n_ctx // 2)):
        top = rng.randrange(n_vocab)   # little is left for the others
        levels = [65535 if i == top else rng.randrange(40000) for i in range(n_vocab + n_vocab % 2)]
        data += struct.pack("<ff", scale, least) + b"".join(struct.pack("<H", level or x) for x in levels)
    return data


def perplexities():
    yield "of-8", b"\1" + saved(8)
    yield "of-4-as-text", b"\0" + saved(4)
    yield "of-8-asked-for", b"\3" + saved(8)
    yield "one-chunk", b"\5" + saved(4)
    yield "cut-off", b"\1" + saved(8)[:-7]
    yield "cut-off-in-its-tokens", b"\1" + saved(8)[:30]
    yield "cut-off-in-its-header", b"\1" + saved(8)[:14]
    yield "no-saved-run", b"\1GGUF"
    yield "chunks-of-nothing", b"\1" + saved(8, n_chunk=0)
    yield "another-vocabulary", b"\1" + saved(8, n_vocab=16)
    yield "probabilities-above-1", b"\1" + saved(8, least=-1.0)
    yield "a-scale-without-an-end", b"\1" + saved(8, scale=3e38)
    yield "a-scale-that-is-no-number", b"\1" + saved(8, scale=float("nan"))
    yield "all-at-the-least", b"\1" + saved(8, least=-3e38, level=1)


def tokenizers():
    """tests/fuzz/tokenizer_fuzz.c: flags, the bytes of the tokens, the tokens, each with its type first, and a text."""
    def case(flags, tokens, text):
        lines = b"\n".join(tokens)
        return bytes([flags, len(lines)]) + lines + text
    marked = [b"\1[CLS]", b"\1[SEP]", "\1\u2581a".encode(), b"\1b", b"\1ab", "\1\u2581,".encode()]
    yield "wordpiece", case(0x17, marked, "A\u0301b, abb \u4e2da".encode())
    yield "unigram", case(0x27, [b"\1a", b"\1ab", b"\1b", "\1\u2581".encode(), b"\4<user>", b"\5unused"],
                          b"ab a  b<us<user> x")
    entries = [0x400] + [0] * 15   # of a double array; that of byte 1 leads back to the root
    entries[1] = 1 << 10 | 1
    array = b"".join(e.to_bytes(4, "little") for e in entries)
    yield "unigram-map", bytes([0x25, 2 * len(array)]) + array + b"\0" * len(array) + b"\1\1\2ab"
    yield "rwkv", case(0x36, [b"\1a", b"\1\\x61b", b"\1\\n", b"\1\\", b"\1\\x"], b"aab\nb")
    yield "plamo2", case(0x47, ["\1\u3042".encode(), b"\x81ab", b"\xc0a", b"\xffb"], "\ufeffab\u3042\u3044a".encode())
    yield "dna", case(0xb7, [b"\1<dna>", b"\1</dna>", b"\1<oov>", "\1ACGTAA\ue000".encode()],
                      b"x<dna>acgtN</dna><dna>A")
    yield "gemma4", case(0xd7, ["\1\u2581 a".encode(), b"\1\n\n", b"\6<0x62>"], b" ab\n\n c")
    yield "white-space", case(0xf0, [b"\1a b", b"\1ab"], b"AB ab \t b")


OPTIONS = {
    "run": "run m.gguf -p Hello -n 10 --temp 0.5 --top-k 3 --top-p 0.9 --min-p 0 --seed 18446744073709551615",
    "run-penalties": "run m.gguf --raw -p=x --repeat-penalty=1.1 --presence-penalty -1 --frequency-penalty 1e-3 "
                     "--repeat-last-n 0 --typical 1 --ids --parse-special",
    "run-words": "run m.gguf n.gguf hello -n 1 there",
    "score": "score m.gguf --ids 1,2,3 --ctx 8 --batch 4 --threads 64 --json",
    "tokenize": "tokenize a b.gguf - --ids",
    "bench": "bench m.gguf -p 1 -n 16777216 -r 1000 --precision fast8 --kv-type q8_0",
    "trace": "trace m.gguf --tokens 1,2 --n-prompt 1 --taps l_out-*,Qcur --layers 0-3 --values all -o t.gguf",
    "trace-profile": "trace -p x m.gguf --profile -o t.json --layers 4294967295",
    "logits": "logits m -p x --top 16777216",
    "perplexity": "perplexity m.gguf t.txt --ctx 4 --chunks 1 --kl reference --save s.base --reference",
    "diff": "diff a b --model m.gguf --tolerance 1e-12 --html r.html --json", "selfcheck": "selfcheck m.gguf --json",
    "weights": "weights a b --all --tolerance 1e12", "diagnose": "diagnose m --against t.json --max 3 --chat -p x",
    "list": "diagnose --list", "help": "help", "help-of": "help trace", "version": "--version",
    "words": "inspect -- -p",
    "numbers": "run m -p x -n 0x10 --temp nan --top-p inf --seed -1", "none": "", "unknown": "frobnicate",
    "ends-run": "run m -p x -n 1 --top-k 2147483647 --repeat-last-n 16777216 --ctx 16777216 --batch 65536 --threads 64",
    "ends-bench": "bench m -p 16777216 -n 16777216 -r 1000",
    "ends-perplexity": "perplexity m t --ctx 4 --chunks 16777216",
    "beyond-top-k": "run m -p x --top-k 2147483648",
    "beyond-last-n": "run m -p x --repeat-last-n 16777217",
    "beyond-ctx": "run m -p x --ctx 16777217",
    "beyond-batch": "run m -p x --batch 65537",
    "beyond-n": "bench m -n 16777217",
    "below-ctx": "perplexity m t --ctx 3",
    "more-files": "inspect " + " ".join("m" * 65),
}


def options():
    for name, line in OPTIONS.items():
        yield name, line.replace(" ", "\n").encode()


# flags, two regular expressions, a text
REGULARS = {
    "intersect": (0, r"(?=.*\d)\w{2,5}", r"[^1]*2?", "ab2"),
    "union-of-searches": (7, r"\bfoo\b|^$", r"a{2}$", "a foo"),
    "minus": (8, r"[a-z]+(?:-[a-z]+)*", r"a*?", "ab-c"),
    "concat": (12, r"(?<n>a|b)+", r"\u{1F600}|\x61\cA", "ab\U0001f600"),
    "repeat": (0x50, r"a|bc|\p{L}d", "", "abcéd"),
    "complement": (20, r"(?:(?!ab).)*", "", "xaby"),
    "json": (24, r"[^\w\s]{1,3}\n", "", '"\\\x07\n'),
    "dead": (24, r"[]|a$b", "", "ab"),
    "nested": (24, r"(?:a*)*(?:b?){3}(?=c(?!d))\B.", "", "aabbc"),
    "large": (24, r"(?:a{1000}){1000}", "", "a"),
    "broken": (0, r"a{2,1}", r"\1[", "a"),
}


def regulars():
    for name, (flags, first, second, text) in REGULARS.items():
        yield name, bytes([flags]) + b"\0".join(part.encode() for part in (first, second, text))


def experts():
    """A model with 4 experts, 2 of which each token uses."""
    model = Model(arch="qwen3moe", tokens=LETTERS, types=[Q8_0])
    for name in ("expert_count", "expert_used_count", "expert_feed_forward_length"):
        model.keys[f"qwen3moe.{name}"] = (U32, {"expert_count": 4, "expert_used_count": 2}.get(name, 32))
    for name in ("ffn_gate", "ffn_up", "ffn_down"):
        del model.tensors[f"blk.0.{name}.weight"]
        model.add(f"blk.0.{name}_exps.weight", Q8_0, 32, 32, 4)
    model.add("blk.0.ffn_gate_inp.weight", F32, 32, 4)
    for name in ("attn_q_norm", "attn_k_norm"):
        model.add(f"blk.0.{name}.weight", F32, 16)
    return model.write()


# diagnose_fuzz.c: the numbers of taps, and what an error does
TAPS = re.findall(r"\bTAP_(\w+),", re.search(r"enum tap_id \{(.*?)\}", TAP_H.read_text(), re.S)[1])
(EMBD, ATTN_NORM, QCUR_ROPE, KQ_SOFT_MAX, KQV_OUT, FFN_ROUTER, FFN_USED, FFN_EXPERTS, FFN_SWIGLU, FFN_OUT, L_OUT,
 RESULT_OUTPUT) = map(TAPS.index, ("EMBD", "ATTN_NORM", "QCUR_ROPE", "KQ_SOFT_MAX", "KQV_OUT", "FFN_ROUTER", "FFN_USED",
                                   "FFN_EXPERTS", "FFN_SWIGLU", "FFN_OUT", "L_OUT", "RESULT_OUTPUT"))
FEW, LOGITS, WHOLE = 1 << L_OUT, 1 << RESULT_OUTPUT, (1 << 128) - 1
TIMES_2, TO_1E30, TO_NAN = 2, 5 | 16, 7 | 16
ERRORS = {   # the taps that the dump shows, of each how many values (0: all), errors: tap, token, what, value
    "right": (WHOLE, 0, []), "right-few": (FEW, 8, []),
    "logits": (LOGITS, 0, [(RESULT_OUTPUT, 0, TIMES_2, 0)]), "l_out": (FEW, 8, [(L_OUT, 1, TIMES_2, 0)]),
    "embd": (FEW, 8, [(EMBD, 0, TIMES_2, 0)]), "whole": (WHOLE, 0, [(KQV_OUT, 0, TIMES_2, 0)]),
    "scores": (LOGITS | FEW, 8, [(QCUR_ROPE, 0, TIMES_2, 0)]), "gate": (LOGITS, 0, [(FFN_SWIGLU, 0, TIMES_2, 0)]),
    "router": (LOGITS, 0, [(FFN_ROUTER, 0, TIMES_2, 0)]), "experts": (1 << FFN_EXPERTS, 8, [(FFN_EXPERTS, 0, 1, 0)]),
    "used": (1 << FFN_USED | LOGITS, 0, [(RESULT_OUTPUT, 4, TIMES_2, 0)]),
    "huge": (LOGITS | FEW, 0, [(FFN_OUT, 2, TO_1E30, 0)]), "not-a-number": (LOGITS | FEW, 8, [(L_OUT, 0, TO_NAN, 0)]),
    "one-nan": (WHOLE, 0, [(ATTN_NORM, 3, TO_NAN | 8, 100)]),
    "nan-logits": (LOGITS, 0, [(RESULT_OUTPUT, 4, TO_NAN, 0)]),
    "mask": (1 << KQ_SOFT_MAX | FEW, 0, [(KQ_SOFT_MAX, 0, 16, 0)]),
}


def diagnoses():
    for name, (taps, n_value, errors) in ERRORS.items():
        for model in range(2):
            data = bytes([model | 2 * (len(errors) == 0), *taps.to_bytes(16, "little"), n_value])
            yield f"{name}-{model}", data + b"".join(map(bytes, errors))
    taps = '{"tokens":[3,7,5],"taps":[{"name":"%s","token":2,"values":[%s]}]}'
    for name, tap, values in (("file", "l_out-0", "1,2,3,4"), ("file-used", "ffn_moe_topk-0", "1e9,-1"),
                              ("file-logits", "result_output", "null,1")):
        yield name, bytes([33]) + (taps % (tap, values)).encode()


def adapters():
    """adapter_fuzz.c: the model, how, and a LoRA or a control vector for it."""
    def adapter(arch, keys, tensors):
        file = Model()
        file.keys = {"general.architecture": (STRING, arch), **keys}
        file.tensors = {name: (kind, shape) for name, kind, *shape in tensors}
        return file.write()

    keys = {"general.type": (STRING, "adapter"), "adapter.type": (STRING, "lora"), "adapter.lora.alpha": (FLOAT, 8.0)}

    def lora(arch, names, rank, kinds, *n_matrix):
        return adapter(arch, keys, [(f"{name}.weight.lora_{side}", kind, *shape, *n_matrix)
                                    for name, n_in, n_out in names
                                    for side, kind, shape in zip("ab", kinds, ((n_in, rank), (rank, n_out)))])
    dense = [("blk.0.attn_q", 32, 32), ("blk.0.attn_v", 32, 16), ("blk.0.ffn_down", 32, 32), ("output", 32, 17)]
    yield "lora", bytes([0, 8 | 4 << 5]) + lora("llama", dense, 4, (F32, F32))
    yield "lora-q8_0", bytes([0, 4 | 5 << 5]) + lora("llama", dense, 32, (Q8_0, Q4_0))
    experts = [(f"blk.0.ffn_{name}_exps", 32, 32) for name in ("gate", "up", "down")]
    yield "experts", bytes([1, 4 << 5]) + lora("qwen3moe", experts, 2, (BF16, F32), 4)
    embeddings = [("token_embd.weight.lora_a", F32, 2, 17), ("token_embd.weight.lora_b", F32, 2, 32)]
    yield "embeddings", bytes([0, 16 | 2 << 5]) + adapter("llama", keys, embeddings)
    control = adapter("controlvector", {}, [("direction.1", F32, 32), ("direction.2", F32, 32)])
    yield "control", bytes([2, 4 << 5]) + control
    yield "control-of-a-larger-model", bytes([0, 4 << 5]) + control


def states():
    """state_fuzz.c: the kind of state, how, and edits of a right file, or a file."""
    def edit(at, what, *value):
        return struct.pack("<IB3s", at, what, bytes(value))
    for kind in range(len(re.findall(r"\{ (?:ARCH|KV)\(", STATE_FUZZ.read_text()))):
        yield f"right-{kind}", bytes([kind, 0])
        yield f"large-codes-{kind}", bytes([kind, 2]) + b"".join(edit(at, 4, 0xff, 200) for at in range(900, 6000, 190))
    yield "cut", bytes([4, 0]) + edit(3000, 3)
    yield "tokens", bytes([0, 2]) + edit(100, 2, 0xff, 0xff, 0xff)
    yield "length", bytes([5, 0]) + edit(24, 2, 0xff, 0xff, 0xff)
    yield "other-tokens", bytes([4, 2]) + edit(48, 0, 41)
    yield "empty", bytes([0, 1]) + b"PLUMBSES" + struct.pack("<I4sIQ", 1, b"head", 0, 0) + bytes(8)


def write(path, data):
    if "--check" not in sys.argv:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    elif not path.exists() or path.read_bytes() != data:
        sys.exit(f"{path} is not what {sys.argv[0]} writes: run it again")


def main():
    write(HERE / "experts.gguf", experts())
    tiny = Model(tokens=LETTERS, types=[Q8_0])
    tiny.keys["tokenizer.chat_template"] = (STRING, CHATML)
    write(HERE / "tiny.gguf", tiny.write())
    for folder, seeds in (("model", models), ("chat", chats), ("perplexity", perplexities), ("options", options),
                          ("tokenizer", tokenizers), ("regular", regulars), ("diagnose", diagnoses),
                          ("adapter", adapters), ("state", states)):
        for name, data in seeds():
            write(HERE / "corpus" / folder / name, data)


main()
