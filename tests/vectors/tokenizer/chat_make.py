#!/usr/bin/env python3
"""Writes chat.txt: chats rendered by the models' own templates with jinja2, as transformers does.

    pip install jinja2==3.1.6 gguf==0.19.0
    python3 chat_make.py LLAMA MODELS

LLAMA: a llama.cpp source tree, whose models/templates and tests/test-chat-template.cpp quote many models' templates;
MODELS: the directory with the GGUFs.  BOS is <s>, EOS is </s>; one BOS in front is dropped, because tokenizing
adds it.  Left out: chats that a template refuses (a system role that it does not know).

    T name TAB template     the cases that follow use it
    M role TAB content      a message of the next case
    A text                  the case's text with the assistant's turn opened
    N text                  and without
    U name TAB template     a template of no known family
"""
import json
import pathlib
import re
import sys

import gguf
import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
    "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
STABLELM = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + "
    "'<|endoftext|>\\n'}}{% elif message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + "
    "'<|endoftext|>\\n'}}{% else %}{{'<|assistant|>\\n' + message['content'] + '<|endoftext|>\\n'}}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}")
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""
FILES = ["Qwen-Qwen2.5-7B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "meta-llama-Llama-3.1-8B-Instruct",
         "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct", "microsoft-Phi-3.5-mini-instruct",
         "google-gemma-2-2b-it"]
QUOTED = ["teknium/OpenHermes-2.5-Mistral-7B",
          "mistralai/Mistral-7B-Instruct-v0.2 (NOTE: Old pre-v1 without a system prompt)",
          "bofenghuang/vigogne-2-70b-chat", "google/gemma-7b-it", "Llama-3", "Phi-3-small", "phi-4",
          "mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1' template with a system prompt)",
          "Mistral-Large-Instruct-2407 (mistralai 'v3' template; modified to have system prompt at start)"]
UNKNOWN_FILES = ["openai-gpt-oss-120b", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "GLM-4.6"]
UNKNOWN_QUOTED = ["ChatGLM4", "GLMEdge", "eachadea/vicuna-13b-1.1", "mlabonne/AlphaMonarch-7B",
                  "mistralai/Mistral-Large-Instruct-2411 (mistralai 'v7' template)"]

CHATS = [
    [("user", "Why is the sky blue?")],
    [("system", "You are terse."), ("user", "Why is the sky blue?")],
    [("user", "Hello"), ("assistant", "Hi there!"), ("user", "Tell me a joke.\n\nA short one.")],
    [("system", "Antworte auf Deutsch.\n- immer\n"), ("user", "  Grüße! \n"), ("assistant", " Hallo 👋  "),
     ("user", "\tQuoted 'a' \"b\" <|x|> {{ y }} ")],
    [("user", "Hello"), ("assistant", "Hi")],
    [("system", "Be kind."), ("user", "Hello"), ("assistant", "Hi")],
]


def escape(text):
    return "".join(chr(b) if 0x20 <= b < 0x7f and b != 0x5c else f"\\x{b:02x}" for b in text.encode())


def quoted(source, name):
    begin = source.index('/* .name= */ "' + name + '"')
    begin = source.index(".template_str= */", begin) + len(".template_str= */")
    literal = re.match(r'\s*(?:U8C\()?"((?:[^"\\]|\\.)*)"', source[begin:]).group(1)
    return json.loads('"' + literal.replace("\\'", "'") + '"')


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def main():
    llama, models = map(pathlib.Path, sys.argv[1:3])
    source = (llama / "tests/test-chat-template.cpp").read_text(encoding="utf-8")
    templates = {}
    for name, file in [("SmolLM2 GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"), ("qwen2 GGUF", "ggml-vocab-qwen2.gguf")]:
        templates[name] = gguf.GGUFReader(models / file).get_field("tokenizer.chat_template").contents()
    for name in FILES:
        templates[name] = (llama / f"models/templates/{name}.jinja").read_text(encoding="utf-8")
    for name in QUOTED:
        templates[name] = quoted(source, name)
    templates |= {"TinyLlama, Zephyr": ZEPHYR, "Llama-2-chat": LLAMA2, "StableLM Zephyr": STABLELM, "Gemma 3": GEMMA3}
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.globals["raise_exception"] = refuse
    lines, n = [], 0
    for name, text in templates.items():
        template = env.from_string(text)
        lines.append(f"T {name}\t{escape(text)}")
        phi3 = "<|end|>" in text
        for chat in CHATS:
            messages = [{"role": role, "content": content} for role, content in chat]
            cases = []
            for add in (True, False):
                if not add and (phi3 or "add_generation_prompt" not in text):
                    continue    # Phi-3 ends such a text with EOS; others open the turn all the same
                try:
                    out = template.render(messages=messages, bos_token="<s>", eos_token="</s>",
                                          add_generation_prompt=add)
                except (Refused, jinja2.exceptions.UndefinedError):
                    break       # no system role, or not this order
                if "vigogne" in name and chat[0][0] != "system":
                    break       # a default system text that is code, not a literal
                cases.append(("A " if add else "N ") + escape(out.removeprefix("<s>")))
            if cases:
                lines += [f"M {role}\t{escape(content)}" for role, content in chat] + cases
                n += len(cases)
    for name in UNKNOWN_FILES:
        text = (llama / f"models/templates/{name}.jinja").read_text(encoding="utf-8")
        lines.append(f"U {name}\t{escape(text)}")
    for name in UNKNOWN_QUOTED:
        lines.append(f"U {name}\t{escape(quoted(source, name))}")
    (HERE / "chat.txt").write_text("".join(line + "\n" for line in lines))
    print(f"{len(templates)} templates, {n} chats, jinja2 {jinja2.__version__}")


main()
