#!/usr/bin/env python3
"""Writes strings.txt, small.gguf, roles/ and what llama.cpp makes of them: <vocabulary>.txt, pre.txt and roles.txt.

    pip install gguf==0.19.0 numpy==2.4.6
    python3 make.py LLAMA LIB MODELS

LLAMA: a llama.cpp source tree (headers), LIB: its libllama shared object, MODELS: the directory with the GGUFs.
The strings go through oracle.c, which calls llama_tokenize and llama_detokenize as llama-tokenize does: one process
per vocabulary instead of thousands, and zero bytes can be passed.  The hashes are also over the texts of random.h.

small.gguf is a byte-level BPE vocabulary of 256 bytes and a merge for every two bytes that are neighbours in one of the
strings, in random order: wherever a pre-tokenizer cuts, one that cuts elsewhere gives other ids.  pre.txt has a hash of
all ids and texts for each name of tokenizer.ggml.pre that src/engine/tokenizer/pretokenize.c knows, put into
small.gguf; roles.txt the same of the vocabularies in roles/, whose tokens get roles by their texts, by keys or by the
model's name.
"""
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import gguf

HERE = pathlib.Path(__file__).resolve().parent
VOCABS = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": "gemma-3-270m.Q4_K_M.gguf",
    "llama-spm": "ggml-vocab-llama-spm.gguf",
    "llama-bpe": "ggml-vocab-llama-bpe.gguf",
    "qwen2": "ggml-vocab-qwen2.gguf",
}
# Vocabularies of which a hash is compared.
MODELS = ["bert-bge", "nomic-bert-moe", "gemma-4", "deepseek-llm", "llama-spm", "llama-bpe", "qwen2"]

TEXTS = """
Hello, world!
 Hello
Hello\\x20
The quick brown fox jumps over the lazy dog.
The capital of France is Paris. What's the capital of Spain?
supercalifragilisticexpialidocious antidisestablishmentarianism
HELLO WORLD, THIS IS SHOUTING!!!
camelCase PascalCase snake_case kebab-case SCREAMING_SNAKE dot.case
I'm you're he's she'd we'll they've it's don't
I'M YOU'RE HE'S SHE'D WE'LL THEY'VE IT'S DON'T
I'm'S'll'LL're'RE've'VE'd'D't'T'm'M
'S 's 'LL 'll 'Re 'rE 'vE 'Ve 'x 'X ' '' '''
can't've y'all'd've o'clock rock'n'roll 'tis 'twas
it’s don’t we’ll ‘quoted’ “double” „low“ «guillemets»
'ſ 'K 'ᵴ
0 1 12 123 1234 12345 123456 1234567 12345678 123456789 1234567890
3.14159 1,000,000.00 -42 +7 1e-10 0x1F 0b1010 1/2 50% $9.99 €5 £3 ¥100
2024-11-21T09:28:00Z 192.168.0.1 +1 (555) 123-4567 v1.2.3-rc.4
１２３ ٠١٢٣٤٥٦٧٨٩ ०१२३ ①②③ Ⅳ ½ ² ³ ⁴ 一二三 〇
a1b2c3 1a 22b 333c 4444d x86_64 utf8 H2O CO2
Привет, мир! Как дела? Ёлка, съёмка, объём
Γειά σου Κόσμε! Ελληνικά ΆΈΉΊΌΎΏ
שלום עולם! עִבְרִית עם נִקּוּד
مرحبا بالعالم! اللُّغَة العَرَبِيَّة ـــ
سلام دنیا! می‌خواهم نیم‌فاصله
नमस्ते दुनिया! हिन्दी क्षत्रिय ज्ञान
বাংলা ভাষা ক্ষেত্র
தமிழ் மொழி
తెలుగు భాష
ಕನ್ನಡ ಭಾಷೆ
മലയാളം ഭാഷ
ไทยไม่เว้นวรรคระหว่างคำ สวัสดีชาวโลก
ພາສາລາວ ສະບາຍດີ
မြန်မာဘာသာ
ភាសាខ្មែរ
བོད་སྐད་
ქართული ენა
Հայերեն լեզու
አማርኛ ቋንቋ
你好，世界！今天天气怎么样？
中文混English和数字123以及标点。。。
繁體中文測試，龍龜鬱
こんにちは世界！カタカナひらがな漢字ｶﾀｶﾅ
안녕하세요 세계! 한국어 조선글 ㄱㄴㄷㅏㅑ
Việt Nam: tiếng Việt có dấu ệ ẫ ỡ
Zażółć gęślą jaźń. Příliš žluťoučký kůň. Füße, Straße, ẞ
Ævar Þórðarson ðœøåØÅ ñ ç ß İstanbul ıI
ÉCOLE École éCOLE ÀÉÎõü Ünïcödé NAÏVE naïve
é é (composed and decomposed) ñ ñ å̊ Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!
😀😃😄 🎉 ❤️ ❤ ☺️ 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 🧑🏿‍🚀 1️⃣ #️⃣ ©️ ™
😀a 😀 a😀 a 😀b👩‍💻c
🤦🏼‍♂️🤦🏼‍♂️🤦🏼‍♂️
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, ∑ᵢ aᵢ² ≤ ∞, ∮ E·da = Q
x² + y² = z²; √2 ≈ 1.41421; α → β ⇒ γ ⟺ δ
→ ← ↑ ↓ ⇔ ■ □ ▲ ● ★ ☆ ♠ ♥ ♦ ♣ ♪ ☀ ☂
𝓗𝓮𝓵𝓵𝓸 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 ℌ𝔢𝔩𝔩𝔬
Ｆｕｌｌｗｉｄｔｈ ＴＥＸＴ！ （１）
ﬁ ﬂ ﬀ ﬃ Ǆ ǅ ǆ ŉ
𐍈𐌰𐌽 𒀀𒁀 𓀀𓂀 𐎀 𠀀𠀁 𪚥 𫝀
Ꭰ Ꮳ ᏣᎳᎩ ꭰ ᐃᓄᒃᑎᑐᑦ ⠓⠑⠇⠇⠕ ᚠᚢᚦ ᠮᠣᠩᠭᠣᠯ
def f(x):\\x0a    return x**2  # comment\\x0a\\x0aprint(f(3))\\x0a
#include <stdio.h>\\x0aint main(void) {\\x0a\\x09printf("%d\\n", 42);\\x0a\\x09return 0;\\x0a}\\x0a
<html><body class="a b">&amp; &#x27; &lt;tag/&gt;</body></html>
{"key": [1, 2.5, null, true, "va\\\\lue"], "k2": {"a": {}}}
SELECT * FROM t WHERE a <> 'b' AND c >= 10; -- note
https://example.com/path/to?x=1&y=%20z#frag user@mail.example.org
C:\\\\Users\\\\name\\\\file.txt /usr/local/bin/../lib ~/.config
for(;;){if(a&&b||!c){d^=e<<2;f>>=g;}}//x
--- *** ___ ``` ~~~ ### === +++ ... !!! ??? ,,, ;;; :::
!"#$%&'()*+,-./:;<=>?@[\\\\]^_`{|}~
(a)[b]{c}<d>"e"'f'`g`
a.b a,b a;b a:b a!b a?b a-b a_b a/b a|b a+b a=b a<b a@b a#b a$b a^b a~b
.a ,b ;c :d !e ?f -g _h /i |j +k =l <m @n #o $p ^q ~r `s
 .a  ,b   ;c    :d
word  two   three    four     five      six       seven        eight
   leading three
trailing three\\x20\\x20\\x20
\\x09tab\\x09\\x09two\\x09\\x09\\x09three \\x09mixed \\x09 \\x09
\\x0a
\\x0a\\x0a
\\x0a\\x0a\\x0a
\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a\\x0a
\\x0d\\x0a\\x0d\\x0a
\\x0d\\x0d
a\\x0ab\\x0a\\x0ac\\x0a\\x0a\\x0ad
a\\x0d\\x0ab\\x0d\\x0a\\x0d\\x0ac\\x0d
 \\x0a \\x0a  \\x0a   x
x \\x0a y  \\x0a  z   \\x0a
\\x0a x\\x0a  y\\x0a   z\\x0a    w
!\\x0a ?\\x0a\\x0a .\\x0d\\x0a ;/\\x0a a/\\x0a//\\x0a/x
   \\x0a\\x0a   \\x0a x
\\x09\\x0a\\x09\\x09\\x0a x\\x09
\\x20
\\x20\\x20
\\x20\\x20\\x20
\\x20\\x20\\x20\\x20
\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20\\x20
\\x09
\\x09\\x09
\\x0b\\x0c\\x1c\\x1d\\x1e\\x1f\\x85
a\\xc2\\xa0b\\xe2\\x80\\x83c\\xe3\\x80\\x80d\\xe2\\x80\\xa8e\\xc2\\x85f\\xe1\\x9a\\x80g
\\xc2\\xa0\\xc2\\xa0x \\xc2\\xa0 y\\xe2\\x80\\x89\\xe2\\x80\\x89z
a\\xe2\\x80\\x8bb\\xef\\xbb\\xbfc\\xe2\\x80\\x8dd\\xe2\\x80\\xaee\\xc2\\xadf
\\xef\\xbb\\xbfbyte order mark
▁underline▁block ▁ ▁▁ ▁a a▁
Ġ Ċ ĉ Ġa ĠĠ Ã© â€™ (the characters that stand for bytes)
�� � a�b
[EMPTY_0] [UNK_BYTE_0x] <0x41> <0x0A> <0xFF> <0x> <0xG1>
"""

BYTES = [   # what the lines above cannot say
    b"", b"\0", b"a\0b", b"\0\0\0", b"\0 \0\n\0", bytes(range(32)), bytes(range(127, 160)),
    bytes(range(256)), bytes(range(255, -1, -1)), b"\x7f\x7f", b"a\x01b\x02c\x03d\x1b[0m\x07",
    b"\xff", b"\xfe\xff", b"\x80", b"\xbf\xbf\xbf", b"\xc3", b"\xc3(", b"a\xc3", b"\xe2\x82", b"\xe2\x82x",
    b"\xe2(\xa1",
    b"\xf0\x9f\x98", b"\xf0\x9f\x98x", b"\xf0\x28\x8c\xbc", b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80",
    b"\xc0\x80", b"\xc1\x81 \xe0\x81\x81", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xed\xa0\x80",
    b"\xed\xb0\x80\xed\xa0\xbd", b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xf4\x8f\xbf\xbf", b"\xef\xbf\xbe\xef\xbf\xbf", b"ok \xff\xfe bad \xe2\x28 end",
    "ÄÖÜ".encode("latin1"), "Größe".encode("latin1"), "日本".encode("shift_jis"), "привет".encode("koi8-r"),
    "hi".encode("utf-16"), b"\x00h\x00i", b"PK\x03\x04\x14\0\0\0\x08\0", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    b"a" * 50, b"ab" * 40, b" " * 33 + b"x", b"\n" * 40 + b"x", b"\t" * 20 + b"x", b"0" * 20, b"=" * 80, b"-" * 65,
    b"!" * 30, "é".encode() * 30, "漢".encode() * 30, "😀".encode() * 20, b"\xff" * 10, b"' " * 12, b"''" * 9,
]

SPECIALS = [
    "<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<mask>", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
    "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>",
    "<start_of_turn>user\n", "<end_of_turn>\n", "<unused0>", "<unused99>", "<repo_name>", "<file_sep>",
    "<jupyter_start>", "<table>", "<td>cell</td>", "<h1>t</h1>", "[multimodal]", "<start_of_image>",
    "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n",
    "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "a<s>b</s>c", " <s> x </s> ", "<s><s></s></s>", "<<s>>", "<s", "s>", "< s >", "<S>", "<|im_start", "im_start|>",
    "<|im_start|><|im_start|>", "<|im_start|> <|im_end|>", "x<|im_end|>", "<|im_end|>x", "  <|im_end|>  ",
    "<|im_<|im_end|>end|>",
    "<|endoftext|><|im_start|>a<|endoftext|>", "<unk>a<unk>", "\n\n<eos>\n\n\n", "<0x0A><s><0x0A>", "▁<s>▁", "é<s>é",
    "<|reserved_special_token_0|>", "<|reserved_special_token_250|>x", "<unused0><unused1> <unused6241>",
]
# Vocabularies in which texts, keys or names give tokens a role: texts, keys, and general.name, tokenizer.ggml.pre or
# general.architecture.
# llama.cpp takes one of several spellings of a fill-in-the-middle token by the order of a hash table: one each.
ROLES = {
    "ends": (["<|eot_id|>", "<|im_end|>", "<|end|>", "<|call|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>",
              "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>",
              "<turn|>", "<｜end▁of▁sentence｜>", "[e~[", "<|message|>"], {}, ""),
    "harmony": (["<|return|>", "<|call|>", "<|end|>", "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"],
                {}, ""),
    "solar": (["<|flush|>", "<|calls|>", "<|end|>"], {}, ""),
    "flush": (["<|flush|>", "<|return|>", "<|end|>"], {}, ""),
    "tools": (["<|tool_response>", "<turn|>"], {}, ""),
    "fim1": (["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"],
             {}, ""),
    "fim2": (["<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<fim-pad>", "<fim-repo>"], {}, ""),
    "fim3": (["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<reponame>"], {}, ""),
    "fim4": (["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "[PAD]", "<|fim_repo|>"], {}, ""),
    "fim5": (["<PRE>", "<SUF>", "<MID>", "<PAD>", "<REPO>"], {}, ""),
    "fim6": (["▁<PRE>", "▁<SUF>", "▁<MID>"], {}, ""),
    "fim7": (["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"], {}, ""),
    "fim8": (["<|prefix|>", "<|suffix|>", "<|middle|>"], {}, ""),
    "keys": (["<x>", "<y>", "<z>", "<|eom_id|>", "<|eot_id|>", "<w>"],
             {"eos": 260, "eot": 261, "eom": 262, "fim_pad": 265, "prefix": 261, "fim_sep": 9999}, ""),
    "phi3": (["<|end|>", "<|user|>", "<|endoftext|>", "<x>"], {}, "My Phi-3 mini"),
    "mask": (["<mask>", "[MASK]"], {}, "jina-v2-de"),
    "mask2": (["<mask>", "[MASK]"], {}, "nomic-bert-moe"),
    "mask3": (["<mask>", "[MASK]"], {}, "jina-bert-v3"),
    "modernbert": (["<mask>", "[MASK]"], {}, "a Modern-BERT"),
}
ROLE_TEXTS = dict.fromkeys(text for texts, _, _ in ROLES.values() for text in texts)
ROLE_TEXT = "".join(f"x {text} \t\n{text}  y" for text in ROLE_TEXTS)

CLEAN = [
    "Hello , world ! How are you ? Fine . ' quoted ' it 's I 'm we 're they 've he 'd she 'll do n't",
    " ?  !  .  , a ' b '  c 's'm 're", "  ' '  ' ' ", " 's 's  's", "end '", "' s 'r 'v 're", " . . . , ,",
    "a ,b .c !d ?e",
]


def texts():
    for line in TEXTS[1:-1].split("\n"):
        out, raw, i = b"", line.encode(), 0
        while i < len(raw):
            if raw[i:i + 2] == b"\\x":
                out += bytes([int(raw[i + 2:i + 4], 16)])
                i += 4
            else:
                i += 2 if raw[i:i + 2] == b"\\\\" else 1
                out += raw[i - 1:i]
        yield out
    yield from BYTES
    for text in [*SPECIALS, *CLEAN, ROLE_TEXT]:
        yield text.encode()
    rng = random.Random(2026)
    letters = [(0x20, 0x7e), (0xa0, 0x24f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0xdff), (0xe00, 0xe7f),
               (0x1100, 0x11ff), (0x2000, 0x2bff), (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
               (0xfe00, 0xfe0f), (0x1f300, 0x1faff), (0x20000, 0x2a6df), (0xe0100, 0xe01ef), (0x10000, 0x1ffff)]
    for _ in range(12):      # code points of everywhere, unassigned ones too
        out = ""
        while len(out) < 60:
            first, last = rng.choice(letters)
            out += "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 6)))
        yield out.encode()
    for _ in range(12):      # the characters that rules of pre-tokenizers look at
        pieces = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "a", "Zb", "é", "7", "42", "!", "/", "\u0301", "\u3000",
                  "漢", "_", "$", "`", "😀", "<s>"]
        yield "".join(rng.choice(pieces) for _ in range(40)).encode()
    for _ in range(6):
        yield bytes(b for b in rng.randbytes(60) if not 0xf4 <= b <= 0xf7)   # lead bytes on which llama.cpp may throw


REPEATED = [(1000000, "a"), (100000, " "), (20000, "\n"), (30000, "The quick brown fox. "), (10000, "é漢😀 "),
            (2000, "<s>x<|im_start|>\n")]


def escape(raw):
    return "".join(chr(b) if 0x20 <= b < 0x7f and b != 0x5c else f"\\x{b:02x}" for b in raw)


def byte_characters():
    """GPT-2's printable character for each byte."""
    prints = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in prints]
    return [chr(b) if b in prints else chr(256 + others.index(b)) for b in range(256)]


def write_small(strings):
    characters = byte_characters()
    texts_utf8 = [s.decode("utf-8", "replace").encode() for s in strings]
    merges = sorted({(characters[a], characters[b]) for text in texts_utf8 for a, b in zip(text, text[1:])})
    random.Random(1).shuffle(merges)
    tokens = ["<s>", "</s>", "<unk>", *characters]
    tokens += ["".join(pair) for pair in merges]
    types = [3, 3, 2] + [1] * (len(tokens) - 3)
    writer = gguf.GGUFWriter(HERE / "small.gguf", "llama")
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "default")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", types)
    writer.add_array("tokenizer.ggml.merges", [" ".join(pair) for pair in merges])
    writer.add_uint32("tokenizer.ggml.bos_token_id", 0)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_roles(path, texts, keys, name):
    """An SPM vocabulary: <unk> <s> </s>, 256 bytes, the visible space, and texts (<x>... user defined, else normal)."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *texts]
    types = [2, 3, 3] + [6] * 256 + [1]
    types += [4 if re.fullmatch("<[a-z]>|.*user.*|.*(mask|MASK).*", text) else 1 for text in texts]
    architecture = name if name in ("nomic-bert-moe", "jina-bert-v3") else "llama"
    writer = gguf.GGUFWriter(path, architecture)
    if name.startswith("jina-v2"):
        writer.add_string("tokenizer.ggml.pre", name)
    elif name and name != architecture:
        writer.add_name(name)
    writer.add_string("tokenizer.ggml.model", "llama")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", types)
    for key, value in keys.items():
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


# ---- a small vocabulary of each kind ----

def write_kind(name, model, tokens, types=None, scores=None, merges=None, charsmap=None, keys=()):
    """keys: of tokenizer.ggml, with the types of Python."""
    writer = gguf.GGUFWriter(HERE / "kinds" / f"{name}.gguf", "llama")
    writer.add_string("tokenizer.ggml.model", model)
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", types or [1] * len(tokens))
    if scores:
        writer.add_array("tokenizer.ggml.scores", scores)
    if merges is not None:
        writer.add_array("tokenizer.ggml.merges", merges)
    if charsmap:
        writer.add_array("tokenizer.ggml.precompiled_charsmap", charsmap)
    for key, value in dict(keys).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}[type(value)]
        add(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def charsmap(replacements):
    """The double array of tokenizer.ggml.precompiled_charsmap, see src/engine/tokenizer/unigram.c."""
    trie, texts, places = {}, b"", {}
    for key, value in replacements.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        places[value] = places.get(value, len(texts))
        if places[value] == len(texts):
            texts += value.encode() + b"\0"
        node["value"] = places[value]
    entries, bases = {0: 0}, set()

    def place(node, at):   # the children and the value of a node whose entry is at `at`
        labels = [0 if label == "value" else label for label in node]
        base = 1
        while base in bases or any((at ^ base ^ label) in entries or at ^ base ^ label >= 1 << 20 for label in labels):
            base += 1
        bases.add(base)
        node_at = at ^ base
        entries[at] |= base << 10 | ((1 << 8) if "value" in node else 0)
        for label, child in node.items():
            entries[node_at ^ (0 if label == "value" else label)] = child | 1 << 31 if label == "value" else label
        for label, child in node.items():
            if label != "value":
                place(child, node_at ^ label)

    place(trie, 0)
    array = [entries.get(i, 0) for i in range(max(entries) + 256)]
    return struct.pack(f"<I{len(array)}I", len(array) * 4, *array) + texts


def pieces_of(strings, rng, longest, n):
    """n different pieces of the strings, of up to `longest` characters."""
    text, pieces = [s.decode("utf-8", "replace") for s in strings if s and 0 not in s], {}
    while len(pieces) < n:
        line = rng.choice(text)
        at = rng.randrange(len(line))
        pieces[line[at:at + rng.randint(1, longest)]] = None
    return list(pieces)


def write_kinds(strings):
    rng = random.Random(2026)
    (HERE / "kinds").mkdir(exist_ok=True)
    letters = [chr(c) for c in [*range(0x21, 0x7f), *range(0xa1, 0x180), *range(0x390, 0x450), *range(0x4e00, 0x4e20),
                                0x1100, 0x1112, 0xac00, 0x301, 0x1f600]]
    words = [p.strip() for p in pieces_of(strings, rng, 6, 900)]
    words += ["quick", "the", "of", "and", "ing", "tion", "hello", "world", "ecole", "naive", "strasse", "it", "is"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]

    marked = list(dict.fromkeys(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", *letters, *("▁" + c for c in letters),
                                 *words, *("▁" + w for w in words)]))
    types = [2, 3, 3, 3, 3] + [1] * (len(marked) - 5)
    ids = {"unknown_token_id": 0, "bos_token_id": 1, "seperator_token_id": 2, "padding_token_id": 3,
           "mask_token_id": 4}
    write_kind("wordpiece", "bert", marked, types, keys=ids)
    write_kind("wordpiece-cased", "bert", marked, types, keys={**ids, "normalizer.lowercase": False})
    write_kind("wordpiece-accents", "bert", marked, types, keys={**ids, "normalizer.strip_accents": False,
                                                                 "add_bos_token": False})

    special = ["<pad>", "</s>", "<unk>", "<s>", "<extra_id_1>", "<user_defined>", "▁▁user"]
    pieces = [p.replace(" ", "▁") for p in pieces_of(strings, rng, 5, 2500)]
    pieces = list(dict.fromkeys([*special, *letters, "▁", *pieces, *bytes_[65:70]]))
    types = [3, 3, 2, 3, 4, 4, 4] + [1 if rng.random() < 0.9 else rng.choice([1, 4, 5, 6, 3]) for _ in pieces[7:]]
    types = [1 if kind == 6 else kind for kind in types[:-5]] + [6] * 5
    scores = [0.0 if kind != 1 else -rng.randrange(64, 900) / 64 for kind in types]
    replaced = charsmap({"Ａ": "A", "Ｂ": "B", "ｆ": "f", "ﬁ": "fi", "½": "1⁄2", "\t": " ", "\n": " ", "\u3000": " ",
                         "\u200b": "", "e\u0301": "é", "e\u0300": "è", "n\u0303": "ñ", "①": "1", "\xa0": " ",
                         "\xad": "", "ﷺ": "صلى الله عليه وسلم",
                         "ab": "x y", "abc": "  z ", "\r\n": "\n"})
    write_kind("unigram", "t5", pieces, types, scores, charsmap=replaced,
               keys={"add_space_prefix": True, "remove_extra_whitespaces": True, "add_bos_token": True,
                     "bos_token_id": 3})
    write_kind("unigram-spaces", "t5", pieces, types, scores, charsmap=replaced, keys={"add_space_prefix": True})
    write_kind("unigram-plain", "t5", pieces, types, scores, keys={"add_eos_token": False})

    def escaped(raw):
        return "".join({9: "\\t", 10: "\\n", 13: "\\r", 0x5c: "\\\\", 0x27: "\\'"}.get(b) or (
            chr(b) if 0x20 <= b < 0x7f else f"\\x{b:02x}") for b in raw)
    raws = [p.encode() for p in pieces_of(strings, rng, 7, 1500)]
    world = ["<s>", *(escaped(bytes([b])) for b in range(256)), *map(escaped, raws), "\\u0041b", "tail\\"]
    world = list(dict.fromkeys([*world, *(p for p in pieces_of(strings, rng, 4, 300) if "\\" not in p)]))
    write_kind("rwkv", "rwkv", world, [3] + [1] * (len(world) - 1))

    special = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"]
    pieces = list(dict.fromkeys([*special, *bytes_, *letters[::2], *pieces_of(strings, rng, 8, 2500)]))
    types = [2, 3, 3, 3] + [6] * 256 + [rng.choice([1] * 9 + [5]) for _ in pieces[260:]]
    scores = [0.0] * 260 + [-rng.randrange(2, 1500) / 100 for _ in pieces[260:]]
    scores[300:306] = [float("-inf"), float("nan"), -3000.0, -999.5, 12.5, -1e-5]
    write_kind("plamo2", "plamo2", pieces, types, scores)

    plain = list(dict.fromkeys(["<unk>", "<s>", "</s>", *bytes_[:250], *letters, *"▁abcdefghijklmnopqrstuvwxyz"]))
    pairs = list(dict.fromkeys((line[i], line[i + 1]) for line in (s.decode("utf-8", "replace") for s in strings)
                               for i in range(len(line) - 1)))
    pairs = [("▁" if a == " " else a, "▁" if b == " " else b) for a, b in pairs if not {a, b} & set("\n\0")]
    rng.shuffle(pairs)
    pairs = list(dict.fromkeys(pairs))[:3000]
    plain += [p for p in dict.fromkeys(["\n\n", *(a + b for a, b in pairs)]) if p not in set(plain)]
    types = [2, 3, 3] + [6] * 250 + [1] * (len(plain) - 253)
    merges = [f"{a} {b}" for a, b in pairs]
    ids = {"unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    write_kind("gemma4", "gemma4", plain, types, merges=merges, keys={**ids, "add_bos_token": False})
    write_kind("sarvam", "gpt2", plain, types, merges=merges, keys={**ids, "pre": "sarvam-moe"})
    write_kind("whitespace", "whitespace", plain, types, merges=merges, keys={**ids, "pre": "whitespace"})
    write_kind("whitespace-lower", "whitespace", plain, types, merges=merges,
               keys={**ids, "pre": "whitespace", "normalizer.lowercase": True})

    characters = byte_characters()
    kmers = ["".join(rng.choice("ACGT") for _ in range(6)) + "\ue000" for _ in range(300)]
    kmers += ["CCCCCC\ue000", "ACGTAC\ue000", "GTAAAA\ue000", "AAAAAA\ue000"]
    pairs = [("C", "C"), ("CC", "CC"), ("CCCC", "CC"), ("t", "h"), ("th", "e")]
    tokens = ["<s>", "</s>", "<x>\ue000", *characters, *(a + b for a, b in pairs), "<dna>", "</dna>", "<oov>", *kmers]
    tokens = list(dict.fromkeys(tokens))
    types = [3, 3, 4] + [1] * (len(tokens) - 3)
    merges = [f"{a} {b}" for a, b in pairs]
    ids = {"bos_token_id": 0, "eos_token_id": 1, "add_bos_token": True, "pre": "qwen2"}
    write_kind("hybriddna", "hybriddna", tokens, types, merges=merges, keys=ids)
    write_kind("hybriddna-none", "hybriddna", [t for t in tokens if t != "<oov>"], types[:-1], merges=merges, keys=ids)


def with_pre(data, name):
    key = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    at = data.index(key) + len(key)
    old = struct.unpack_from("<Q", data, at)[0]
    return data[:at] + struct.pack("<Q", len(name)) + name.encode() + data[at + 8 + old:]


def main():
    llama, lib, models = map(pathlib.Path, sys.argv[1:4])
    strings = list(dict.fromkeys(texts()))
    write_small(strings)
    lines = [escape(t) for t in strings]
    lines += [f"\\*{n};{escape(t.encode())}" for n, t in REPEATED]
    (HERE / "strings.txt").write_text("".join(line + "\n" for line in lines))
    print(f"{len(lines)} strings")
    with tempfile.TemporaryDirectory() as tmp:
        oracle = os.path.join(tmp, "oracle")
        lib = lib.resolve()
        subprocess.run(["cc", "-O1", f"-I{llama}/include", f"-I{llama}/ggml/include", HERE / "oracle.c", lib,
                        f"-Wl,-rpath,{lib.parent}", "-Wl,--allow-shlib-undefined", "-o", oracle], check=True)
        for name, file in VOCABS.items():
            with open(HERE / "strings.txt", "rb") as strings, open(HERE / f"{name}.txt", "wb") as out:
                subprocess.run([oracle, models / file], stdin=strings, stdout=out, check=True)

        def hash_of(vocabulary):
            with open(HERE / "strings.txt", "rb") as strings:
                run = subprocess.run([oracle, vocabulary, "hash"], stdin=strings, stdout=subprocess.PIPE, check=True)
            return run.stdout.decode().strip()

        pretokenize = HERE / "../../../src/engine/tokenizer/pretokenize.c"
        names = re.findall(r'^    {"([^"]+)", pre_', pretokenize.read_text(), re.M)
        small, patched, rows = (HERE / "small.gguf").read_bytes(), pathlib.Path(tmp) / "pre.gguf", []
        names.remove("whitespace")   # llama.cpp aborts on spaces if the model is gpt2
        for name in names:
            patched.write_bytes(with_pre(small, name))
            rows.append(f"{name} {hash_of(patched)}\n")
        (HERE / "pre.txt").write_text("".join(rows))
        print(f"{len(rows)} pre-tokenizers")
        (HERE / "roles").mkdir(exist_ok=True)
        rows = []
        for name, (tokens, keys, model) in ROLES.items():
            write_roles(HERE / "roles" / f"{name}.gguf", tokens, keys, model)
            rows.append(f"{name} {hash_of(HERE / 'roles' / f'{name}.gguf')}\n")
        (HERE / "roles.txt").write_text("".join(rows))
        print(f"{len(rows)} vocabularies with roles")
        write_kinds(strings)
        kinds = sorted(path.stem for path in (HERE / "kinds").glob("*.gguf"))
        rows = [f"{name} {hash_of(HERE / 'kinds' / f'{name}.gguf')}\n" for name in kinds]
        (HERE / "kinds.txt").write_text("".join(rows))
        print(f"{len(rows)} vocabularies of other kinds")
        rows = [f"{name} {hash_of(models / f'ggml-vocab-{name}.gguf')}\n" for name in MODELS]
        (HERE / "models.txt").write_text("".join(rows))


if __name__ == "__main__":
    main()
