"""The messages of messages/PROTOCOL.md as dataclasses, and their frames as msgpack."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional, Union

import msgpack

VERSION = 1

Bytes = bytes  # fields are called bytes, too
StreamId = bytes  # 16 of them


class ProtocolError(ValueError):
    """Bytes that are no message of the protocol."""


def _many(of: type) -> Any:
    """A list of maps that are dataclasses themselves."""
    return field(default_factory=list, metadata={"build": lambda held: [_build(of, item) for item in held]})


def _one(of: type) -> Any:
    """A map that is a dataclass itself."""
    return field(default_factory=of, metadata={"build": lambda held: _build(of, held)})


# ---- from the client ----


@dataclass
class SamplingParams:
    """How a token is drawn. Absent fields are the server's defaults, which PROTOCOL.md tells."""

    temperature: Optional[float] = None
    top_k: Optional[int] = None
    top_p: Optional[float] = None
    min_p: Optional[float] = None
    repetition_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    logit_bias: Optional[dict[int, float]] = None
    seed: Optional[int] = None


@dataclass
class ChatMessage:
    """One turn of a conversation."""

    role: str
    content: str
    name: Optional[str] = None
    tool_call_id: Optional[str] = None
    tool_calls: Optional[str] = None


@dataclass
class Generate:
    TYPE: ClassVar[str] = "generate"
    request: StreamId
    prompt: Optional[str] = None
    prompt_ids: Optional[list[int]] = None
    messages: Optional[list[ChatMessage]] = None
    tools: Optional[str] = None
    template_arguments: Optional[str] = None
    add_generation_prompt: bool = True
    time: Optional[int] = None
    add_bos: bool = True
    parse_special: bool = False
    n: int = 1
    max_tokens: Optional[int] = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: list[str] = field(default_factory=list)
    stop_ids: list[int] = field(default_factory=list)
    ignore_eos: bool = False
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    idempotency_key: Optional[str] = None
    readers: list[str] = field(default_factory=list)
    priority: int = 0
    deadline_ms: Optional[int] = None
    tenant: str = ""
    cache_salt: str = ""


@dataclass
class Cancel:
    TYPE: ClassVar[str] = "cancel"
    request: StreamId


@dataclass
class Replay:
    TYPE: ClassVar[str] = "replay"
    request: StreamId
    choice: int = 0
    from_seq: int = 0


@dataclass
class Follow:
    TYPE: ClassVar[str] = "follow"
    request: StreamId
    from_seq: list[int] = field(default_factory=list)
    window: int = 256


@dataclass
class Read:
    TYPE: ClassVar[str] = "read"
    request: StreamId
    next_seq: list[int] = field(default_factory=list)


@dataclass
class Look:
    TYPE: ClassVar[str] = "look"
    request: StreamId


@dataclass
class Stats:
    TYPE: ClassVar[str] = "stats"
    max_requests: int = 64


Request = Union[Generate, Cancel, Replay, Follow, Read, Look, Stats]


# ---- from the gateway: answers on the ROUTER ----


@dataclass
class Ack:
    TYPE: ClassVar[str] = "ack"
    request: StreamId
    of: str = ""
    joined: bool = False
    from_seq: int = 0
    next_seq: int = 0


@dataclass
class Rejected:
    TYPE: ClassVar[str] = "rejected"
    request: StreamId
    error: str = ""
    field: str = ""
    message: str = ""
    retry_after_ms: int = 0


@dataclass
class Lagging:
    TYPE: ClassVar[str] = "lagging"
    request: StreamId
    choice: int = 0
    wanted_seq: int = 0
    held_seq: int = 0


@dataclass
class ChoiceSnapshot:
    """Where a choice stands: `text` is that of the events from first_seq up to next_seq."""

    first_seq: int = 0
    next_seq: int = 0
    text: str = ""
    reason: str = ""


@dataclass
class Snapshot:
    TYPE: ClassVar[str] = "snapshot"
    request: StreamId
    live: bool = False
    prompt_tokens: int = 0
    choices: list[ChoiceSnapshot] = _many(ChoiceSnapshot)


@dataclass
class RequestStats:
    stream: str = ""
    phase: str = ""
    choices: int = 1
    prompt_tokens: int = 0
    processed_tokens: int = 0
    generated_tokens: int = 0
    age_ms: float = 0.0
    tokens_per_second: float = 0.0


@dataclass
class SchedulerStats:
    """How the device's passes were shared, since the start of the server."""

    preempted: int = 0
    yielded: int = 0
    cancelled: int = 0
    expired: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    cache_evictions: int = 0
    kv_blocks_cached: int = 0
    prefill_passes: int = 0
    prefill_rows: int = 0
    prefill_seconds: float = 0.0
    decode_passes: int = 0
    decode_rows: int = 0
    decode_seconds: float = 0.0
    loop_seconds: float = 0.0
    decode_bytes: float = 0.0
    prefill_operations: float = 0.0
    peak_bytes_per_second: float = 0.0
    peak_operations_per_second: float = 0.0
    cancel_passes: list[int] = field(default_factory=list)


@dataclass
class ServerStats:
    TYPE: ClassVar[str] = "server_stats"
    version: str = ""
    model: str = ""
    device: str = ""
    uptime_seconds: float = 0.0
    state: str = ""
    running: int = 0
    waiting: int = 0
    queued_tokens: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    rejected: int = 0
    restarts: int = 0
    passes: int = 0
    device_busy_seconds: float = 0.0
    scheduler: SchedulerStats = _one(SchedulerStats)
    log_streams: int = 0
    log_bytes: int = 0
    subscriptions: int = 0
    http_connections: int = 0
    replays: int = 0
    lagging: int = 0
    requests: list[RequestStats] = _many(RequestStats)


# ---- from the gateway: events ----


@dataclass
class Welcome:
    TYPE: ClassVar[str] = "welcome"
    request: StreamId
    version: int = VERSION
    live: bool = False
    next_seq: list[int] = field(default_factory=list)


@dataclass
class Started:
    TYPE: ClassVar[str] = "started"
    request: StreamId
    choice: int = 0
    epoch: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    seed: int = 0


@dataclass
class Progress:
    TYPE: ClassVar[str] = "progress"
    request: StreamId
    choice: int = 0
    epoch: int = 0
    processed: int = 0
    total: int = 0


@dataclass
class TokenLogprob:
    id: int = 0
    bytes: Bytes = b""
    logprob: float = 0.0


@dataclass
class PromptToken:
    id: int = 0
    bytes: Bytes = b""
    logprob: Optional[float] = None
    top: list[TokenLogprob] = _many(TokenLogprob)


@dataclass
class PromptLogprobs:
    TYPE: ClassVar[str] = "prompt_logprobs"
    request: StreamId
    choice: int = 0
    epoch: int = 0
    position: int = 0
    tokens: list[PromptToken] = _many(PromptToken)


@dataclass
class Token:
    TYPE: ClassVar[str] = "token"
    request: StreamId
    choice: int = 0
    epoch: int = 0
    seq: int = 0
    id: int = 0
    bytes: Bytes = b""
    text: str = ""
    logprob: float = 0.0
    top: list[TokenLogprob] = _many(TokenLogprob)


@dataclass
class Finished:
    TYPE: ClassVar[str] = "finished"
    request: StreamId
    choice: int = 0
    epoch: int = 0
    seq: int = 0
    reason: str = ""
    text: str = ""
    error: str = ""


@dataclass
class Done:
    TYPE: ClassVar[str] = "done"
    request: StreamId
    prompt_tokens: int = 0
    generated_tokens: int = 0
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0


@dataclass
class Heartbeat:
    TYPE: ClassVar[str] = "heartbeat"
    request: StreamId
    next_seq: list[int] = field(default_factory=list)


Answer = Union[
    Ack, Rejected, Lagging, Snapshot, ServerStats,
    Welcome, Started, Progress, PromptLogprobs, Token, Finished, Done, Heartbeat,
]  # fmt: skip

_ANSWERS: dict[str, Any] = {kind.TYPE: kind for kind in Answer.__args__}  # type: ignore[attr-defined]


# ---- frames ----


def _plain(value: Any) -> Any:
    """Dataclasses as maps without what is None: absent and nil are the same, or else mean the default."""
    if dataclasses.is_dataclass(value):
        held = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: _plain(item) for name, item in held if item is not None}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def encode(message: Union[Request, Answer]) -> bytes:
    packed: bytes = msgpack.packb({"type": message.TYPE, **_plain(message)})
    return packed


@functools.lru_cache(maxsize=None)
def _fields(kind: Any) -> dict[str, Any]:
    """The names of the fields, and what makes dataclasses of those that hold some."""
    return {f.name: f.metadata.get("build") for f in dataclasses.fields(kind)}


def _build(kind: Any, held: Any) -> Any:
    if not isinstance(held, dict):
        raise ProtocolError(f"a map was expected for {kind.__name__}")
    fields = _fields(kind)
    known = {}
    for name, value in held.items():
        if name in fields:  # others are of a later version
            build = fields[name]
            known[name] = build(value) if build and value is not None else value
    return kind(**known)


def decode(frame: bytes) -> Optional[Answer]:
    """The message in a frame of the gateway; None if its type is one of a later version. Throws ProtocolError."""
    try:
        held = msgpack.unpackb(frame, strict_map_key=False)
        kind = _ANSWERS.get(held["type"])
        answer: Optional[Answer] = None if kind is None else _build(kind, held)
        return answer
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise ProtocolError(str(error)) from error
