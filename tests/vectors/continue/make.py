#!/usr/bin/env python3
"""Writes expected.json: what transformers makes of conversations whose last message is continued.

    pip install jinja2==3.1.6 numpy packaging
    pip download transformers==5.24.0 --no-deps -d FOLDER
    python3 tests/vectors/continue/make.py FOLDER/transformers-5.24.0-py3-none-any.whl

The templates are llama.cpp's (../templates/sources).  The function is render_jinja_template of
transformers/utils/chat_template_utils.py with continue_final_message, taken out of the package, of which it needs
nothing else.  Each template has for each of the conversations the text, or null if the template or transformers refuses
it.  The time is that of ../jinja2/environment.py.
"""
import json
import pathlib
import sys
import types
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "jinja2"))
from environment import make_environment  # noqa: E402

USER = {"role": "user", "content": "Count to ten."}
CONVERSATIONS = {
    "content": [USER, {"role": "assistant", "content": "One, two,"}],
    "space": [USER, {"role": "assistant", "content": "One, two, "}],
    "second turn": [USER, {"role": "assistant", "content": "One."}, {"role": "user", "content": "Go on!"},
                    {"role": "assistant", "content": "Two, <b>three"}],
    "reasoning": [USER, {"role": "assistant", "content": "One,", "reasoning_content": "Easy."}],
    "only reasoning": [USER, {"role": "assistant", "content": "", "reasoning_content": "Numbers are"}],
}


def load(wheel):
    """The module of the package."""
    name = "transformers.utils.chat_template_utils"
    for parent in ("transformers", "transformers.utils", "transformers.utils.logging",
                   "transformers.utils.import_utils"):
        sys.modules[parent] = types.ModuleType(parent)
    sys.modules["transformers.utils"].logging = sys.modules["transformers.utils.logging"]
    sys.modules["transformers.utils.logging"].get_logger = lambda _: None
    imports = sys.modules["transformers.utils.import_utils"]
    imports.is_jinja_available = lambda: True
    imports.is_torch_available = imports.is_vision_available = lambda: False
    module = types.ModuleType(name)
    module.__package__ = "transformers.utils"
    sys.modules[name] = module
    exec(compile(zipfile.ZipFile(wheel).read(name.replace(".", "/") + ".py"), name, "exec"), module.__dict__)
    return module


def main():
    transformers = load(sys.argv[1])
    environment = make_environment()
    transformers._compile_jinja_template = environment.from_string
    expected = {}
    for path in sorted((HERE.parent / "templates" / "sources").glob("*.jinja")):
        texts = {}
        for name, messages in CONVERSATIONS.items():
            field = "reasoning_content" if name == "only reasoning" else "content"
            try:
                [texts[name]], _ = transformers.render_jinja_template(
                    [messages], chat_template=path.read_text(), continue_final_message=field, bos_token="<s>",
                    eos_token="</s>", enable_thinking=True)
            except Exception:  # templates refuse chats with the errors of Python, too
                texts[name] = None
        expected[path.stem] = texts
    result = {"conversations": CONVERSATIONS, "expected": expected}
    (HERE / "expected.json").write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")


main()
