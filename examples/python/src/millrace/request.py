"""Requests from the words of a program: what both clients take as arguments."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Mapping, Optional, Sequence, Union

from .protocol import ChatMessage, Generate, SamplingParams, StreamId
from .session import new_stream_id

Message = Union[ChatMessage, Mapping[str, Any]]

_SAMPLING = {field.name for field in dataclasses.fields(SamplingParams)}


def generate_request(prompt: Optional[str], messages: Optional[Sequence[Message]], options: Mapping[str, Any]) -> Generate:
    """`options` are fields of Generate and SamplingParams. Throws TypeError for a name that is neither."""
    sampling = SamplingParams(**{name: value for name, value in options.items() if name in _SAMPLING})
    others = {name: value for name, value in options.items() if name not in _SAMPLING}
    for name in "tools", "template_arguments":
        if others.get(name) is not None and not isinstance(others[name], str):
            others[name] = json.dumps(others[name])
    if "stop" in others and isinstance(others["stop"], str):
        others["stop"] = [others["stop"]]
    turns = None if messages is None else [_turn(message) for message in messages]
    return Generate(new_stream_id(), prompt=prompt, messages=turns, sampling=sampling, **others)


def _turn(message: Message) -> ChatMessage:
    if isinstance(message, ChatMessage):
        return message
    turn = ChatMessage(**message)
    if turn.tool_calls is not None and not isinstance(turn.tool_calls, str):
        turn.tool_calls = json.dumps(turn.tool_calls)
    return turn


def stream_id(id: Union[StreamId, str]) -> StreamId:
    """16 bytes, or their 32 hex digits."""
    held = bytes.fromhex(id) if isinstance(id, str) else bytes(id)
    if len(held) != 16:
        raise ValueError("a stream id has 16 bytes")
    return held
