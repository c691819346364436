#!/usr/bin/env python3
"""Writes jinja2.json: what jinja2 makes of the conversations that llama.cpp's engine renders differently or not at all.

    pip install jinja2==3.1.6
    python3 jinja2_make.py

{TEMPLATE: {CONVERSATION: text}}.  jinja2 itself refuses the conversations in LENIENT, because the template joins texts
with members that are missing.  Their texts are by a jinja2 in which these are empty texts.
"""
import json
import pathlib
import sys

import jinja2

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "jinja2"))
from environment import make_environment

WRONG = [("GigaChat3-10B-A1.8B", "parallel tool calls"), ("GigaChat3.1-10B-A1.8B", "parallel tool calls"),
         ("openbmb-MiniCPM5-1B", "parallel tool calls"), ("google-gemma-4-31B-it", "parallel tool calls"),
         ("google-gemma-4-31B-it-interleaved", "parallel tool calls")]

LENIENT = [("CohereForAI-c4ai-command-r-plus-tool_use", conversation)
           for conversation in ("tools", "a tool call and its result", "parallel tool calls")]


class EmptyText(jinja2.ChainableUndefined):
    """A missing value that can be joined to a text."""

    def __add__(self, other):
        return other

    __radd__ = __add__


environment, lenient = make_environment(), make_environment(undefined=EmptyText)
contexts = json.loads((HERE / "contexts.json").read_text())
texts = {}
for line in (HERE / "expected.tsv").read_text().splitlines():
    name, conversation, context, *_ = line.split("\t")
    if (name, conversation) not in WRONG + LENIENT:
        continue
    made_by = lenient if (name, conversation) in LENIENT else environment
    source = (HERE / "sources" / f"{name}.jinja").read_text()
    texts.setdefault(name, {})[conversation] = made_by.from_string(source).render(**contexts[int(context)])
(HERE / "jinja2.json").write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n")
