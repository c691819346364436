#!/usr/bin/env python3
"""Writes formats.txt: which texts are addresses and dates, by the modules ipaddress and datetime of Python.

    python3 tests/vectors/grammar/formats.py

Lines: "= FORMAT", "+ TEXT" if the text is valid and "- TEXT" if it is not.  The seed is fixed, so the same version of
Python writes the same bytes.  Scopes (fe80::1%eth0), which ipaddress allows, are in no text.
"""
import datetime
import ipaddress
import pathlib
import random
import re

random.seed(22)


def is_ip(kind):
    def check(text):
        try:
            kind(text)
        except ValueError:
            return False
        return True
    return check


def is_date(text):
    parts = re.fullmatch("([0-9]{4})-([0-9]{2})-([0-9]{2})", text)
    try:
        return bool(parts) and bool(datetime.date(*map(int, parts.groups())))
    except ValueError:
        return False


def changed(text, characters):
    chars = list(text)
    for _ in range(random.randrange(3)):
        at = random.randrange(len(chars) + 1)
        if random.random() < 0.5:
            chars.insert(at, random.choice(characters))
        elif at < len(chars):
            del chars[at]
    return "".join(chars)


def ipv4():
    return ".".join(str(random.choice([0, 9, 10, 99, 100, 199, 249, 250, 255, 256, 260, 300, "01", "00"]))
                    for _ in range(random.choice([4, 4, 4, 3, 5])))


def ipv6():
    groups = [f"{random.randrange(1 << random.choice([1, 4, 8, 16])):x}" for _ in range(random.randrange(1, 9))]
    if random.random() < 0.3:
        groups[-2:] = [".".join(str(random.randrange(256)) for _ in range(4))]
    text = ":".join(groups)
    if random.random() < 0.6:
        at = random.randrange(len(groups) + 1)
        text = ":".join(groups[:at]) + "::" + ":".join(groups[at:])
    return text.upper() if random.random() < 0.2 else text


def date():
    year = random.choice([1, 4, 99, 100, 400, 1600, 1900, 1999, 2000, 2024, 2026, 2100, 9999])
    return f"{year:04}-{random.randrange(0, 14):02}-{random.choice([0, 1, 9, 10, 19, 28, 29, 30, 31, 32]):02}"


lines = []
for name, make, check, characters in (("ipv4", ipv4, is_ip(ipaddress.IPv4Address), "0159.:a"),
                                      ("ipv6", ipv6, is_ip(ipaddress.IPv6Address), "0159.:afg"),
                                      ("date", date, is_date, "0159-T")):
    lines.append(f"= {name}")
    texts = [make() if random.random() < 0.5 else changed(make(), characters) for _ in range(600)]
    lines += [f"{'+' if check(text) else '-'} {text}" for text in sorted(set(texts))]
pathlib.Path(__file__).with_name("formats.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
