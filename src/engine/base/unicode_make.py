#!/usr/bin/env python3
"""Writes unicode_tables.c: the general categories that tokenizers ask for, lower case, and canonical decompositions.

    pip install unicodedata2==15.1.0
    python3 src/engine/base/unicode_make.py [--check llama.cpp/src/unicode-data.cpp] > src/engine/base/unicode_tables.c

Unicode 15.1 because llama.cpp's tables are 15.1 and token ids have to equal its ids: --check compares the two over all
1,114,112 code points (0 differ in version 0.5.0) and writes tests/vectors/tokenizer/unicode.txt, a hash of llama.cpp's
classes, white space, lower case and decompositions.  Python's own unicodedata is a different version on every machine.
Lower case is Python's, because unicodedata2 has none; Python 3.11 (Unicode 14) has the same as llama.cpp.
"""
import pathlib
import re
import sys

import unicodedata2

# the order of UNICODE_LETTER... in unicode.h; 0: any other; unassigned code points (Cn) are not control characters
CLASSES = {"L": 1, "N": 2, "M": 3, "P": 4, "S": 5, "C": 6}
LLAMA_FLAGS = {0x04: 1, 0x02: 2, 0x10: 3, 0x20: 4, 0x40: 5, 0x80: 6}
HANGUL = range(0xac00, 0xd7a4)   # their decompositions are computed


def class_of(c):
    category = unicodedata2.category(chr(c))
    return 0 if category == "Cn" else CLASSES.get(category[0], 0)


def lower_of(c):
    return ord(chr(c).lower()[0])


def decomposed(c):
    """The first code point of the canonical decomposition, which is all that llama.cpp keeps."""
    return c if 0xd800 <= c < 0xe000 else ord(unicodedata2.normalize("NFD", chr(c))[0])


def check(path, classes, lower, first):
    text = open(path, encoding="utf-8").read()
    begin = text.index("unicode_ranges_flags")
    rows = re.findall(r"\{0x([0-9A-F]+), 0x([0-9A-F]+)\}", text[begin:text.index("};", begin)])
    rows = [(int(start, 16), int(flags, 16)) for start, flags in rows]
    theirs = [0] * 0x110000
    for (start, flags), (end, _) in zip(rows, rows[1:]):
        theirs[start:end] = [LLAMA_FLAGS.get(flags, 0)] * (end - start)
    differ = [c for c in range(0x110000) if theirs[c] != classes[c]]
    print(f"{len(differ)} of {len(theirs)} code points differ {[hex(c) for c in differ[:9]]}", file=sys.stderr)
    begin = text.index("unicode_map_lowercase")
    pairs = re.findall(r"\{0x([0-9A-F]+), 0x([0-9A-F]+)\}", text[begin:text.index("};", begin)])
    map_of = {int(a, 16): int(b, 16) for a, b in pairs}
    their_lower = [map_of.get(c, c) for c in range(0x110000)]
    begin = text.index("unicode_ranges_nfd")
    rows = re.findall(r"\{0x([0-9A-F]+), 0x([0-9A-F]+), 0x([0-9A-F]+)\}", text[begin:text.index("};", begin)])
    their_first = list(range(0x110000))
    for start, last, nfd in rows:
        their_first[int(start, 16):int(last, 16) + 1] = [int(nfd, 16)] * (int(last, 16) + 1 - int(start, 16))
    n_lower = sum(a != b for a, b in zip(their_lower, lower))
    n_first = sum(a != b for a, b in zip(their_first, first))
    print(f"{n_lower} lower-case letters and {n_first} decompositions differ", file=sys.stderr)
    odd = [a for a, b in pairs if int(b, 16) < 128 and int(a, 16) >= 128]
    print(f"non-ASCII letters whose lower case is ASCII: {odd}", file=sys.stderr)
    begin = text.index("unicode_set_whitespace")
    spaces = {int(c, 16) for c in re.findall(r"^0x([0-9A-F]+)", text[begin:text.index("};", begin)], re.M)}
    value = 14695981039346656037
    for c in range(0x110000):
        value = (value ^ (theirs[c] | (c in spaces) << 3)) * 1099511628211 % 2**64
        value = (value ^ their_lower[c]) * 1099511628211 % 2**64
        value = (value ^ their_first[c]) * 1099511628211 % 2**64
    vectors = pathlib.Path(__file__).resolve().parents[3] / "tests/vectors/tokenizer"
    (vectors / "unicode.txt").write_text(f"{value:016x}\n")
    if differ or n_lower or n_first:
        sys.exit(1)


def print_array(kind, name, cells, of=""):
    print(f"const uint32_t {name}_count = {len(cells)};")
    print(f"const {kind} {name}[]{of} = {{")
    line = "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 120:
            print(line)
            line = "   "
        line += f" {cell},"
    print(line)
    print("};")


def lower_rows(lower):
    """Runs of letters with the same distance to their lower case, each or every second one."""
    pairs = [(c, lower[c] - c) for c in range(0x110000) if lower[c] != c]
    while pairs:
        best = (1, 1)
        for stride in (1, 2):
            n = 1
            while n < min(len(pairs), 127) and pairs[n] == (pairs[0][0] + n * stride, pairs[0][1]):
                n += 1
            best = max(best, (n, -stride))
        n, stride = best[0], abs(best[1])
        yield f"R(0x{pairs[0][0] << 8 | (stride - 1) << 7 | n:x}, {pairs[0][1]})"
        pairs = pairs[n:]


def first_rows(first):
    c = 0
    while c < 0x110000:
        n = 1
        if first[c] != c and c not in HANGUL:
            while n < 255 and first[c + n] == first[c]:
                n += 1
            yield f"R(0x{c << 8 | n:x}, 0x{first[c]:x})"
        c += n


def main():
    assert unicodedata2.unidata_version == "15.1.0", unicodedata2.unidata_version
    classes = [class_of(c) for c in range(0x110000)]
    lower = [lower_of(c) for c in range(0x110000)]
    first = [decomposed(c) for c in range(0x110000)]
    assert all(first[c] == 0x1100 + (c - HANGUL[0]) // 588 for c in HANGUL)
    if sys.argv[1:2] == ["--check"]:
        check(sys.argv[2], classes, lower, first)
    ranges = [c for c in range(0x110000) if c == 0 or classes[c] != classes[c - 1]]
    print("/* Generated by unicode_make.py from Unicode 15.1.0; do not edit. */")
    print('#include "base/unicode.h"\n')
    print("/* First code point << 3 | class, ascending; a range ends where the next begins. */")
    print("#define C(range) { (range) & 255, (range) >> 8 & 255, (range) >> 16 }")
    print_array("uint8_t", "unicode_ranges", [f"C(0x{c << 3 | classes[c]:x})" for c in ranges], "[3]")
    print("#define R(key, value) { (key) & 65535, (key) >> 16 | ((value) >> 16 & 7) << 13, (value) & 65535 }")
    print("\n/* First letter << 8 | 128 if they are every second one | how many, and how far their lower case is. */")
    print_array("struct unicode_run", "unicode_lowers", list(lower_rows(lower)))
    print("\n/* First code point << 8 | how many, and the first code point of their decomposition.  Without Hangul. */")
    print_array("struct unicode_run", "unicode_firsts", list(first_rows(first)))


main()
