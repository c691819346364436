#!/usr/bin/env python3
"""Writes cases.tsv and language.tsv: what jinja2 makes of templates that llama.cpp does not have.

    pip install jinja2==3.1.6
    python3 tests/vectors/jinja2/make.py

jinja2 is set up as transformers sets it up.  cases.tsv has 160 chat templates, put together from ways in which people's
templates do things, by a generator with a seed.  A line begins with T and a tab and has a template, or it has what the
template becomes with the next one of conversations.json.  language.tsv has a line for each template of snippets.txt:
the template, a tab, and its text for the variables in the first line.

long.tsv has what the 70 templates of llama.cpp (../templates/sources) become with the two conversations of long.json,
which have 401 messages: the template, the number of the conversation, and the length in bytes and the FNV-1a hash of
the text.

published.tsv has what those 70 templates and 34 others become with the 12 conversations of ../templates, whose
variables are in published.json.  The others, in published/, are the templates that axolotl 0.19.0 ships for models that
people train (Apache License 2.0; pip download axolotl==0.19.0 --no-deps), unchanged, without those that are there
twice.

Control characters and backslashes are \\xNN.  A text that begins with ! is the message of an exception that the
template raises, and ! alone means that jinja2 refuses the template.
"""
import json
import pathlib
import random
import re

from environment import Raised, make_environment

HERE = pathlib.Path(__file__).resolve().parent
N_TEMPLATE, SEED = 160, 33


environment = make_environment()


def rendered(source, variables):
    """The text; ! and the message of an exception that the template raises; ! alone if jinja2 refuses the template."""
    try:
        return environment.from_string(source).render(**json.loads(json.dumps(variables)))
    except Raised as error:
        return f"!{error}"
    except Exception:  # jinja2 refuses templates with the errors of Python, too
        return "!"


def escaped(text):
    return "".join(f"\\x{ord(c):02x}" if c < " " or c == "\\" else c for c in text)


def unescaped(text):
    return re.sub(r"\\x(..)", lambda match: chr(int(match[1], 16)), text)


# ---- the parts of templates ------------------------------------------------------------------------------------------
# Each list has ways in which templates do the same thing.  {OPEN} and {CLOSE} begin and end a turn, {ROLE} is the role.

TURNS = [
    ("<|im_start|>{ROLE}\n", "<|im_end|>\n"), ("<|start_header_id|>{ROLE}<|end_header_id|>\n\n", "<|eot_id|>"),
    ("[{ROLE}]\n", "\n[/{ROLE}]\n"), ("<|{ROLE}|>\n", "</s>\n"), ("{ROLE}: ", "\n\n"), ("<start>{ROLE}\n", "<end>\n"),
]

SYSTEM = [
    "{%- if messages[0]['role'] == 'system' -%}\n{%- set system_message = messages[0]['content'] -%}\n"
    "{%- set loop_messages = messages[1:] -%}\n{%- else -%}\n{%- set system_message = 'You are helpful.' -%}\n"
    "{%- set loop_messages = messages -%}\n{%- endif -%}\n",
    "{% if messages[0].role == 'system' %}{% set system_message = messages[0].content | trim %}"
    "{% set loop_messages = messages[1:] %}{% else %}{% set system_message = false %}"
    "{% set loop_messages = messages %}{% endif %}\n",
    "{%- set ns = namespace(system='', seen=false) -%}\n{%- for m in messages if m.role == 'system' -%}\n"
    "  {%- set ns.system = ns.system ~ ('' if not ns.seen else '\\n\\n') ~ m.content -%}\n"
    "  {%- set ns.seen = true -%}\n{%- endfor -%}\n{%- set system_message = ns.system -%}\n"
    "{%- set loop_messages = messages | rejectattr('role', 'equalto', 'system') | list -%}\n",
    "{%- set systems = messages | selectattr('role', '==', 'system') | map(attribute='content') | list -%}\n"
    "{%- set system_message = systems | join('\\n') | default('none', true) -%}\n"
    "{%- set loop_messages = messages | rejectattr('role', 'in', ['system', 'developer']) | list -%}\n",
    "{% set loop_messages = [] %}\n{%- for m in messages -%}\n{%- if m.role == 'system' -%}\n"
    "{{ m.content | trim }}\n{% continue %}\n{%- endif -%}\n{%- set loop_messages = loop_messages + [m] -%}\n"
    "{%- endfor -%}\n{% set loop_messages = messages %}{% set system_message = '' %}\n",
]

SHOW_SYSTEM = [
    "{% if system_message %}{OPEN:system}{{ system_message }}{CLOSE:system}{% endif %}",
    "{%- if system_message -%}\n    {{- '{OPEN:system}' + system_message + '{CLOSE:system}' -}}\n{%- endif -%}\n",
    "{OPEN:system}{% if system_message is defined and system_message %}{{ system_message | trim }}\n{% endif %}"
    "Today is {{ strftime_now('%d %B %Y') }}.{CLOSE:system}",
    "{% filter trim %}\n   {{ system_message if system_message else 'No system.' }}   \n\n{% endfilter %}\n",
    "{%- set head -%}\n{{ system_message }}\n{%- endset -%}\n{{ head | upper if head | length < 12 else head }}\n",
]

TOOLS = [
    "{% if tools %}\n# Tools\n{% for tool in tools %}\n{{ tool | tojson }}\n{% endfor %}\n{% endif %}\n",
    "{%- if tools is defined and tools is not none -%}\n{{- tools | map(attribute='function') | list | "
    "tojson(indent=4) }}"
    "\n{%- endif %}\n",
    "{%- for tool in tools or [] %}\n- {{ tool.function.name }}: {{ tool.function.description | default('nothing') }}\n"
    "  {%- for name, spec in (tool.function.parameters.properties or {}).items() %}\n"
    "    {{ name }}{{ '?' if name not in (tool.function.parameters.required or []) }}: {{ spec.type }}"
    "{% if spec.enum %} ({{ spec.enum | join(' | ') }}){% endif %}\n  {%- else %}\n    (none)\n  {%- endfor %}\n"
    "{%- endfor %}\n",
    "{% macro type_of(spec) %}{% if spec is not mapping %}any{% elif spec.type == 'array' %}list[{{ "
    "type_of(spec['items']) }}]{% elif spec.type == 'object' %}{ {%- for k, v in spec.properties | dictsort %}"
    "{{ k }}: {{ type_of(v) }}{{ ', ' if not loop.last }}{% endfor -%} }{% else %}{{ spec.type }}{% "
    "endif %}{% endmacro %}"
    "{%- if tools %}\n{% for tool in tools %}\nfunction {{ tool.function.name }}({% for k, v in "
    "tool.function.parameters.properties | items %}{{ k }}: {{ type_of(v) }}{% if not loop.last %}, {% endif %}"
    "{% endfor %});\n{% endfor %}\n{% endif %}\n",
    "{%- if tools %}\n  {%- for tool in tools %}\n    {%- set f = tool.function if tool.function is "
    "defined else tool %}\n"
    "    {{- loop.index ~ '. ' ~ f.name ~ ' ' ~ f.parameters | tojson(separators=(',', ':')) ~ '\\n' "
    "}}\n  {%- endfor %}\n"
    "{%- endif %}\n",
    "{% for group in ((tools or []) | map(attribute='function.name') | list | sort)[::-1] %}{{ loop.cycle('*', '-') }} "
    "{{ group | title }} ({{ loop.revindex }} of {{ loop.length }})\n{% endfor %}\n",
    "{% if tools %}{{ tools | length }} tools: {{ tools }}\n{% endif %}\n",
    "",
]

CONTENT = [
    "{%- if message.content is string -%}\n{%- set content = message.content -%}\n{%- else -%}\n{%- set content = "
    "message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\\n') "
    "-%}\n{%- endif -%}\n",
    "{% set parts = namespace(text='') %}{% if message['content'] is string %}{% set parts.text = message['content'] %}"
    "{% elif message['content'] is iterable %}{% for item in message['content'] %}{% if item['type'] != 'text' %}"
    "{% set parts.text = parts.text ~ '<' ~ item.type ~ '>' %}{% continue %}{% endif %}"
    "{% set parts.text = parts.text ~ item['text'] %}{% endfor %}{% endif %}{% set content = parts.text %}",
    "{%- macro show(content) -%}\n  {%- if content is none -%}\n  {%- elif content is string -%}\n{{ content }}\n"
    "  {%- else -%}\n    {%- for part in content -%}\n{{ part.text if part.type == 'text' else part.type | upper }}\n"
    "      {%- if not loop.last -%}, {% endif -%}\n    {%- endfor -%}\n  {%- endif -%}\n{%- endmacro -%}\n"
    "{%- set content = show(message.content) -%}\n",
    "{%- set content = (message.content if message.content is string else message.content | string) -%}\n",
    "{%- set content %}{% if message.content is not string %}{{ message.content | tojson }}{% else %}"
    "{{ message.content }}{% endif %}{% endset -%}\n",
]

REASONING = [
    "",
    "{%- set reasoning = '' -%}\n{%- if message.reasoning_content is string -%}\n"
    "{%- set reasoning = message.reasoning_content -%}\n{%- elif '</think>' in content -%}\n"
    "{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}\n"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}\n{%- endif -%}\n"
    "{%- if reasoning -%}<think>{{ reasoning | trim }}</think>{%- endif -%}\n",
    # As GLM-5.2's: set in one iteration, and not to be seen in the next.
    "{%- if message.reasoning_content is defined and message.reasoning_content -%}\n"
    "{%- set thought = message.reasoning_content -%}\n{%- endif -%}\n"
    "{%- if thought is defined -%}<think>{{ thought }}</think>{%- else -%}<think></think>{%- endif -%}\n",
    "{% if content.startswith('<think>') %}{% set content = content.partition('</think>')[2].strip() %}{% endif %}"
    "{% if not loop.last and message.reasoning_content %}[{{ message.reasoning_content | length }}]{% endif %}",
]

CALLS = [
    "",
    "{%- if message.tool_calls %}\n{%- for call in message.tool_calls %}\n{{- '\\n' if not loop.first }}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson if '
    "call.function.arguments is mapping else call.function.arguments }}}\n</tool_call>\n{%- endfor %}\n{%- endif %}\n",
    "{% for call in message.tool_calls or [] %}{{ call.function.name }}({% for k, v in "
    "call.function.arguments.items() %}{{ k }}={{ v | tojson if v is not string else \"'\" ~ v ~ \"'\" }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}){% if loop.nextitem is defined %}; {% endif %}{% endfor %}",
    "{%- if message.get('tool_calls') -%}{%- for call in message['tool_calls'] -%}\n<call {{ '%02d' % loop.index }} "
    "id={{ call.get('id', 'none') }}>{%- for k, v in call['function']['arguments'] | dictsort -%}\n"
    "<{{ k }}>{{ v }}</{{ k }}>{%- endfor -%}\n</call>\n{%- endfor -%}{%- endif -%}\n",
    "{% if message.tool_calls is defined and message.tool_calls %}{{ message.tool_calls | map(attribute='function') | "
    "map(attribute='name') | map('upper') | unique | join('+') }}{% endif %}",
    "{% macro value(v, depth=0) %}{% if v is none %}null{% elif v is boolean %}{{ v | lower }}{% elif v is mapping %}<"
    "{% for k in v | sort %}{{ k }}:{{ value(v[k], depth=depth + 1) }}{{ ';' if not loop.last }}{% endfor %}>"
    "{% elif v is iterable and v is not string %}[{% for i in v %}{{ value(i, depth + 1) }}{% if not loop.last %}, "
    "{% endif %}{% endfor %}]{% else %}{{ v }}@{{ depth }}{% endif %}{% endmacro %}"
    "{% for call in message.tool_calls or [] %}\n{{ call.function.name }} {{ value(call.function.arguments) }}\n"
    "{% endfor %}\n",
]

# What stands around the body of the loop.  BODY shows a message.
LOOPS = [
    "{% for message in loop_messages %}\nBODY{% endfor %}\n",
    "{%- for message in loop_messages -%}\n{%- if message.role == 'system' -%}{{ message.content | trim }};"
    "{%- continue -%}{%- endif -%}\nBODY{%- endfor -%}\n",
    "{%- for message in loop_messages -%}\n{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) "
    "and strict -%}\n"
    "{{- raise_exception('Roles must alternate: ' ~ message['role'] ~ ' at ' ~ loop.index0) -}}\n{%- endif -%}\n"
    "BODY{%- endfor -%}\n",
    "{% set last = namespace(user=-1) %}{% for m in loop_messages %}{% if m.role == 'user' %}"
    "{% set last.user = loop.index0 %}{% endif %}{% endfor %}{% for message in loop_messages %}"
    "{% if loop.index0 > last.user %}>{% endif %}\nBODY{% endfor %}\n",
    "{%- for message in loop_messages[::-1] -%}{{ loop.revindex0 }}{%- if message.role == 'user' and loop.index > 1 -%}"
    "(stop){%- break -%}{%- endif -%}{%- endfor -%}\n{%- for message in loop_messages %}\n{{ loop.index }}/"
    "{{ loop.length }} BODY{%- endfor %}\n",
    "{% for message in loop_messages if message.content or message.tool_calls %}{% if loop.changed(message.role) %}"
    "[{{ message.role }}]{% endif %}{% if loop.previtem is defined and loop.previtem.role == "
    "message.role %}&{% endif %}\n"
    "BODY{% else %}nothing\n{% endfor %}\n",
    "{% for message in loop_messages %}{% if message.role == 'tool' %}{% if loop.first or loop.previtem.role != 'tool' "
    "%}<results>{% endif %}{{ message.content }}{% if loop.last or loop.nextitem.role != 'tool' %}</results>\n"
    "{% endif %}{% continue %}{% endif %}{% set seen = seen | default(0) + 1 %}{{ seen }}.\nBODY{% endfor %}\n",
    "{% with n = loop_messages | length, label = 'turn' %}{% for message in loop_messages %}{{ label }} "
    "{{ loop.index }}"
    " of {{ n }}: {% set label = 'no' %}\nBODY{% endfor %}{{ label }}{% endwith %}\n",
]

BODY = [
    "{OPEN:role}CONTENTREASONING{{ content | trim }}CALLS{CLOSE:role}",
    "CONTENT{% if message.role == 'user' %}{OPEN:user}{{ content }}{CLOSE:user}{% elif message.role == 'assistant' %}"
    "{OPEN:assistant}REASONING{% generation %}{{ content }}{% endgeneration %}CALLS{CLOSE:assistant}{% else %}"
    "{OPEN:role}{{ content | replace('\\n', ' ') | indent(2, true) }}{CLOSE:role}{% endif %}\n",
    "CONTENT{{- '{OPEN}' ~ message.role ~ ' ' -}}REASONING{%- if content -%}{{ content.strip() }}{%- endif -%}CALLS"
    "{{- '{CLOSE}' }}\n",
    "{% macro turn(role, end='{CLOSE}') %}{OPEN}{{ role }}: {{ caller() }}{{ end }}{% endmacro %}CONTENT"
    "{% call turn(message.role | capitalize) %}REASONING{{ content }}CALLS{% endcall %}\n",
    "CONTENTREASONING{{ '%-10s|' % message.role }}{{ '%s' | format(content) }}CALLS\n",
]

PROMPT = [
    "{% if add_generation_prompt %}{OPEN:assistant}{% endif %}",
    "{%- if add_generation_prompt -%}\n{{ '{OPEN:assistant}' }}\n{%- if enable_thinking is defined and "
    "enable_thinking is "
    "false -%}\n<think>\n\n</think>\n\n{%- endif -%}\n{%- endif -%}\n",
    "{%- if add_generation_prompt %}{OPEN:assistant}{{ '<think>\\n' if enable_thinking | default(true) else '' }}"
    "{%- endif %}",
    "{{- eos_token if not add_generation_prompt else '{OPEN:assistant}' -}}\n",
]

# Texts beside: comments, raw blocks, white space.
ASIDES = [""] * 16 + [
    "{# a comment #}\n", "{#- another\n   comment -#}\n", "{% raw %}{{ as it is }}{% endraw %}\n",
    "  {% set x = 1 %}  \n\n", "\t{%+ if true +%}\n kept {% endif %}\n", "{{ bos_token }}",
    "{%- set ns2 = namespace(n=0) %}{% for i in range(3) %}{% set ns2.n = ns2.n + i * 2 %}{% endfor %}{{ ns2.n }}\n",
    "{% for i in range(1, 8, 3) %}{{ i }}{{ ',' if not loop.last }}{% endfor %}\n",
    "{{ messages | length }} {{ (messages | first).role }} {{ messages[-1]['role'] }} {{ "
    "messages[0].name | default('-') }}"
    " {{ 7 // 2 }} {{ 2 ** 5 }} {{ -7 % 3 }} {{ 10 / 4 }}\n",
    "{{ messages | map(attribute='role') | list }}\n",
    "{% macro twice(s, n=2) %}{{ s * n }}{{ varargs | join }}{% endmacro %}{{ twice('ab') }}{{ twice('c', 3, '!') }}\n",
    "{% for row in [[1, 2], [3]] recursive %}{{ loop.depth }}{% if row is iterable %}({{ loop(row) }}){% "
    "else %}{{ row }}"
    "{% endif %}{% endfor %}\n",
]


def built(rng):
    """A template: one way of each kind, at random."""
    opens, closes = rng.choice(TURNS)
    body = rng.choice(BODY)
    for slot, ways in (("CONTENT", CONTENT), ("REASONING", REASONING), ("CALLS", CALLS)):
        body = body.replace(slot, rng.choice(ways))
    source = (rng.choice(ASIDES) + rng.choice(TOOLS) + rng.choice(SYSTEM) + rng.choice(SHOW_SYSTEM) + rng.choice(ASIDES)
              + rng.choice(LOOPS).replace("BODY", body) + rng.choice(ASIDES) + rng.choice(PROMPT))

    def mark(text, role, in_string):
        text = text.replace("{ROLE}", role)
        return text.replace("\n", "\\n") if in_string else text

    for name, text in (("OPEN", opens), ("CLOSE", closes)):
        source = source.replace("'{%s}" % name, "'" + mark(text, "turn", True))
        source = source.replace("{%s}'" % name, mark(text, "turn", True) + "'")
        source = source.replace("{%s}" % name, mark(text, "turn", False))
        for role in ("system", "user", "assistant"):
            source = source.replace("'{%s:%s}" % (name, role), "'" + mark(text, role, True))
            source = source.replace("{%s:%s}'" % (name, role), mark(text, role, True) + "'")
            source = source.replace("{%s:%s}" % (name, role), mark(text, role, False))
        source = source.replace("{%s:role}" % name, mark(text, "{{ message.role }}", False))
    if rng.random() < 0.15:   # written on Windows
        source = source.replace("\n", "\r\n")
    return source


# ---- long conversations ----------------------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": {
    "type": "object", "properties": {"file": {"type": "integer", "description": "its number"}}, "required": ["file"]}}}


def long_conversation(n, has_calls):
    """Questions and answers, and a call before each second answer; the last message is a question."""
    messages = []
    while len(messages) < n - 1:
        i = len(messages)
        messages.append({"role": "user", "content": f"Question {i}?"})
        if has_calls and i % 3 == 0 and i < n - 5:
            call = {"id": f"call{i:05}", "type": "function", "function": {"name": "read", "arguments": {"file": i}}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"call{i:05}", "name": "read", "content": f"file {i}"})
        messages.append({"role": "assistant", "content": f"Answer {i}."})
    messages.append({"role": "user", "content": "The last one?"})
    return {"messages": messages, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
            **({"tools": [TOOL]} if has_calls else {})}


def named(text):
    """LENGTH:HASH"""
    if text.startswith("!"):
        return text
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return f"{len(text.encode())}:{value:016x}"


def write_long():
    conversations = [long_conversation(401, False), long_conversation(401, True)]
    lines = []
    for path in sorted((HERE.parent / "templates" / "sources").glob("*.jinja")):
        lines += [f"{path.stem}\t{i}\t{escaped(named(rendered(path.read_bytes().decode(), one)))}"
                  for i, one in enumerate(conversations)]
    (HERE / "long.json").write_text("\n".join(json.dumps(one) for one in conversations) + "\n")
    (HERE / "long.tsv").write_text("\n".join(lines) + "\n")


def twelve():
    """The variables of the conversations of ../templates; the arguments of calls are objects, as in transformers."""
    for one in json.loads((HERE.parent / "templates" / "conversations.json").read_text()):
        one = {"bos_token": "<s>", "eos_token": "</s>", **one, **one.pop("variables", {})}
        del one["name"]
        for message in one["messages"]:
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        yield one


def write_published():
    conversations, lines = list(twelve()), []
    for folder in "templates/sources", "jinja2/published":
        for path in sorted((HERE.parent / folder).glob("*.jinja")):
            lines += [f"{folder}/{path.stem}\t{i}\t{escaped(named(rendered(path.read_bytes().decode(), one)))}"
                      for i, one in enumerate(conversations)]
    (HERE / "published.json").write_text("\n".join(json.dumps(one) for one in conversations) + "\n")
    (HERE / "published.tsv").write_text("\n".join(lines) + "\n")


def main():
    write_long()
    write_published()
    rng = random.Random(SEED)
    conversations = json.loads((HERE / "conversations.json").read_text())
    sources, lines = [], []
    while len(sources) < N_TEMPLATE:
        source = built(rng)
        if source in sources:
            continue
        sources.append(source)
        lines.append(f"T\t{escaped(source)}")
        lines += [escaped(rendered(source, one["variables"])) for one in conversations]
    (HERE / "cases.tsv").write_text("\n".join(lines) + "\n")
    variables, *snippets = (HERE / "snippets.txt").read_text().splitlines()
    made = [f"{one}\t{escaped(rendered(unescaped(one), json.loads(variables)))}" for one in snippets]
    (HERE / "language.tsv").write_text("\n".join([variables] + made) + "\n")


if __name__ == "__main__":
    main()
