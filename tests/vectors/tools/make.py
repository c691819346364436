#!/usr/bin/env python3
"""Writes tools.json: conversations with tools, rendered by the models' own templates with jinja2, as transformers does.

    pip install jinja2==3.1.6
    python3 make.py

The templates are those of ../tokenizer/chat.txt.  As transformers' documentation wants them, arguments of calls are
objects here; in tools.json they are text, as in OpenAI's API.

    {"chats": {NAME: {"tools": [...], "messages": [...]}}, "prompts": [{"template", "chat", "text"}]}

A text is null where the template refuses the chat.
"""
import json
import pathlib
import re
import sys

import jinja2

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "jinja2"))
from environment import Raised, make_environment, tojson

TEMPLATES = ["Qwen-Qwen2.5-7B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "meta-llama-Llama-3.1-8B-Instruct",
             "meta-llama-Llama-3.2-3B-Instruct",
             "Mistral-Large-Instruct-2407 (mistralai 'v3' template; modified to have system prompt at start)"]


def tool(name, description, parameters):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def said(*calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id, content):
    return {"role": "tool", "tool_call_id": id, "content": content}


def user(content):
    return {"role": "user", "content": content}


TOOLS = [
    tool("weather", "The weather of a \"place\": 20 °C, wind < 3 & rain > 0", {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "Zürich, 東京 …"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "array", "items": {"type": "integer", "minimum": -1}},
        },
        "required": ["place"],
    }),
    tool("now", "The time", {"type": "object", "properties": {}, "required": []}),
]
ZURICH = call("a1B2c3D4e", "weather", {
    "place": "Zürich\n\"Mitte\" </tool_call> \\ 🌧", "days": [0, -1, 123456789012], "wind": 2.5, "unit": None,
    "more": {"a": [], "b": {}, "c": True},
})
NOW = call("f5G6h7I8j", "now", {})
CHATS = {
    "tools, no call yet": [user("Is it raining?")],
    "a system message": [{"role": "system", "content": "Be brief. "}, user("Is it raining?")],
    "a call and its result": [user("Is it raining?"), said(ZURICH), result("a1B2c3D4e", '{"rain": 3}')],
    "an answer behind it, and the next question": [
        user("Is it raining?"), said(ZURICH), result("a1B2c3D4e", '{"rain": "yes", "mm": 3}'),
        {"role": "assistant", "content": "Yes: 3 mm."}, user("And what time is it? <b>now</b>")],
    "a call without arguments": [user("What time is it?"), said(NOW), result("f5G6h7I8j", "12:00 'noon' é")],
    "text before a call": [user("What time is it?"), said(NOW, content="I look."), result("f5G6h7I8j", "12")],
    "two calls at once": [
        user("Time and weather?"), said(NOW, ZURICH), result("f5G6h7I8j", "12"), result("a1B2c3D4e", "rain")],
    "two calls in turn": [
        user("Time and weather?"), said(NOW), result("f5G6h7I8j", "12"), said(ZURICH), result("a1B2c3D4e", "rain")],
}


def quoted(message):
    """The message as OpenAI has it."""
    if "tool_calls" not in message:
        return message
    return message | {"tool_calls": [
        one | {"function": one["function"] | {"arguments": tojson(one["function"]["arguments"])}}
        for one in message["tool_calls"]]}


def main():
    templates = {}
    for line in (HERE / "../tokenizer/chat.txt").read_text().splitlines():
        if line.startswith("T "):
            name, text = line[2:].split("\t")
            templates[name] = re.sub(rb"\\x(..)", lambda hex: bytes([int(hex[1], 16)]), text.encode()).decode()
    env = make_environment()
    prompts = []
    for name in TEMPLATES:
        template = env.from_string(templates[name])
        for chat, messages in CHATS.items():
            try:
                text = template.render(messages=messages, tools=TOOLS, documents=None, add_generation_prompt=True,
                                       bos_token="<s>", eos_token="</s>", date_string="26 Jul 2024")
            except Raised:
                text = None
            prompts.append({"template": name, "chat": chat, "text": text})
    chats = {name: {"tools": TOOLS, "messages": [quoted(one) for one in messages]} for name, messages in CHATS.items()}
    (HERE / "tools.json").write_text(
        json.dumps({"chats": chats, "prompts": prompts}, ensure_ascii=False, indent=1) + "\n")
    print(f"{len(prompts)} prompts, {sum(one['text'] is None for one in prompts)} refused, jinja2 {jinja2.__version__}")


main()
