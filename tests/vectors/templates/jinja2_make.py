#!/usr/bin/env python3
"""Writes jinja2.json: what jinja2 makes of the conversations that llama.cpp's engine renders differently or not at all.

    pip install jinja2==3.1.6
    python3 jinja2_make.py

The filter tojson and the functions are those of transformers.  {TEMPLATE: {CONVERSATION: text}}
"""
import datetime
import json
import pathlib

import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent
WRONG = [("GigaChat3-10B-A1.8B", "parallel tool calls"), ("GigaChat3.1-10B-A1.8B", "parallel tool calls"),
         ("openbmb-MiniCPM5-1B", "parallel tool calls"), ("google-gemma-4-31B-it", "parallel tool calls"),
         ("google-gemma-4-31B-it-interleaved", "parallel tool calls")]


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.TemplateError(message)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals.update(raise_exception=raise_exception,
                           strftime_now=lambda form: datetime.datetime(2026, 7, 25, 12).strftime(form))
contexts = json.loads((HERE / "contexts.json").read_text())
texts = {}
for line in (HERE / "expected.tsv").read_text().splitlines():
    name, conversation, context, *_ = line.split("\t")
    if (name, conversation) not in WRONG:
        continue
    source = (HERE / "sources" / f"{name}.jinja").read_text()
    texts.setdefault(name, {})[conversation] = environment.from_string(source).render(**contexts[int(context)])
(HERE / "jinja2.json").write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n")
