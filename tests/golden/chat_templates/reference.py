"""Renders chat templates with Debian's python3-jinja2, in the environment that Hugging Face's tokenizers set up."""

import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the model's own turns; for a prompt it is a scope and nothing else."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment(now=None):
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        return (datetime.datetime.fromtimestamp(now) if now else datetime.datetime.now()).strftime(format)

    result = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    result.globals["strftime_now"] = strftime_now
    return result


@functools.lru_cache(maxsize=None)
def compiled(template, now):
    return environment(now).from_string(template)


def with_parsed_arguments(message):
    """The arguments of a tool call as an object where their text is one: what templates expect."""
    message = {"role": message["role"], "content": message.get("content", ""),
               **{key: message[key] for key in ("name", "tool_call_id", "tool_calls") if key in message}}
    calls = []
    for call in message.get("tool_calls", []):
        arguments = call.get("function", {}).get("arguments")
        if isinstance(arguments, str) and arguments.startswith("{"):
            try:
                call = {**call, "function": {**call["function"], "arguments": json.loads(arguments)}}
            except ValueError:
                pass
        calls.append(call)
    return {**message, "tool_calls": calls} if calls else message


def render(conversation):
    """{"text": …} or {"error": …} of an object as tests/text/chat/render_lines.cpp reads it."""
    try:
        template = compiled(conversation["template"], conversation.get("now"))
        return {"text": template.render(**{
            "messages": [with_parsed_arguments(message) for message in conversation.get("messages", [])],
            "tools": conversation.get("tools"),
            "documents": None,
            "add_generation_prompt": conversation.get("add_generation_prompt", True),
            "bos_token": conversation.get("bos_token", "<s>"),
            "eos_token": conversation.get("eos_token", "</s>"),
            **conversation.get("arguments", {}),
        })}
    except Exception as error:  # whatever Python thinks of the template
        return {"error": f"{type(error).__name__}: {error}"}
