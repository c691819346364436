"""jinja2 as transformers sets it up, for the scripts that write what it makes of chat templates."""
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """The tag {% generation %} of transformers, which marks the assistant's text and prints it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


class Raised(Exception):
    """What a template raises by raise_exception."""


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment(**options):
    """The time is 12:00 on 25 July 2026."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, jinja2.ext.loopcontrols], **options)
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception,
                        strftime_now=lambda form: datetime.datetime(2026, 7, 25, 12).strftime(form))
    return made
