"""The client for programs without an event loop. One thread at a time."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Callable, Iterator, Optional, Sequence, Union, cast

import zmq

from . import protocol
from .errors import MillraceError
from .protocol import Ack, Cancel, Look, ServerStats, Snapshot, Stats, StreamId
from .request import Message, generate_request, stream_id
from .session import Question, Session
from .sockets import EVENTS, REQUESTS, apply, connect, keys_of
from .streams import Numbered, Patience, Stream
from .view import StreamView

_AT_ONCE = 1_000  # messages of a socket before the others get their turn


class TokenStream(StreamView):
    """The events of a stream as they come: `Token`, and a `Finished` for each choice; both have a `text`.

    Reading less than all is allowed: `close` (or the end of a `with`) stops reading, `cancel` the generation.
    """

    def __init__(self, client: Client, stream: Stream):
        super().__init__(stream)
        self._client = client

    def __iter__(self) -> Iterator[Numbered]:
        return self

    def __next__(self) -> Numbered:
        self._client._wait(lambda: self._stream.readable)
        event = self._stream.pop()
        if event is None:
            self.close()
            raise StopIteration
        return event

    def text(self) -> str:
        """Reads to the end: the text of the first choice."""
        return self.texts()[0]

    def texts(self) -> list[str]:
        """Reads to the end: the text of each choice."""
        return self._joined(list(self))

    def cancel(self) -> None:
        """Ends the generation; the events up to there still come, the last one with reason `cancelled`."""
        self._client.cancel(self.id)

    def close(self) -> None:
        self._client._close_stream(self._stream)

    def __enter__(self) -> TokenStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._client._abandon(self._stream)


class Client:
    """Speaks to a gateway. Options and errors are the same as those of `AsyncClient`.

    requests, events: endpoints of the gateway. server_key, public_key, secret_key: CURVE keys in Z85. patience: seconds
    without an answer until it is asked again. timeout: seconds without any word of the server until `Silence`; only
    time spent in calls of this client counts.
    """

    def __init__(
        self,
        requests: str = REQUESTS,
        events: str = EVENTS,
        *,
        server_key: Optional[str] = None,
        public_key: Optional[str] = None,
        secret_key: Optional[str] = None,
        patience: float = 6.0,
        timeout: float = 30.0,
    ):
        keys = keys_of(server_key, public_key, secret_key)
        self._session = Session(Patience(patience, timeout))
        self._asleep = 0.0  # seconds in which nobody listened
        self._left_at = time.monotonic()
        self._abandoned: list[Stream] = []
        self._closed = False
        self._context = zmq.Context()
        try:
            self._requests = connect(self._context, zmq.DEALER, requests, keys)
            self._events = connect(self._context, zmq.SUB, events, keys)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._poller = zmq.Poller()
        self._poller.register(self._requests, zmq.POLLIN)
        self._poller.register(self._events, zmq.POLLIN)

    # ---- streams ----

    def generate(
        self, prompt: Optional[str] = None, *, messages: Optional[Sequence[Message]] = None, **options: Any
    ) -> TokenStream:
        """Begins a stream; iterate over what it returns. Options are the fields of `protocol.Generate` and
        `protocol.SamplingParams`: n, max_tokens, temperature, seed, stop, logprobs, priority, deadline_ms, …"""
        stream = self._session.generate(generate_request(prompt, messages, options), self._now())
        return self._open(stream)

    def complete(
        self, prompt: Optional[str] = None, *, messages: Optional[Sequence[Message]] = None, **options: Any
    ) -> str:
        """The whole text at once, of one choice. `generate(…, n=4).texts()` gives those of several."""
        if options.get("n", 1) != 1:
            raise ValueError("complete() is for one choice")
        return self.generate(prompt, messages=messages, **options).text()

    def submit(
        self, prompt: Optional[str] = None, *, messages: Optional[Sequence[Message]] = None, **options: Any
    ) -> StreamId:
        """Begins a stream without reading it, and returns its id once the server has taken it."""
        return cast(Ack, self._ask(generate_request(prompt, messages, options))).request

    def stream(self, id: Union[StreamId, str], from_seq: Union[int, Sequence[int]] = 0) -> TokenStream:
        """Joins a stream, also one that has ended: all its events from `from_seq` on (one for all choices, or a list)."""
        return self._open(self._session.join(stream_id(id), from_seq, self._now()))

    def follow(
        self, id: Union[StreamId, str], from_seq: Union[int, Sequence[int]] = 0, window: int = 256
    ) -> TokenStream:
        """As `stream`, at the pace of the reader: at most `window` events are on their way."""
        return self._open(self._session.follow(stream_id(id), from_seq, window, self._now()))

    # ---- questions ----

    def cancel(self, id: Union[StreamId, str]) -> None:
        self._ask(Cancel(stream_id(id)))

    def look(self, id: Union[StreamId, str]) -> Snapshot:
        """Where a stream stands, with its text so far."""
        return cast(Snapshot, self._ask(Look(stream_id(id))))

    def stats(self, max_requests: int = 64) -> ServerStats:
        return cast(ServerStats, self._ask(Stats(max_requests)))

    def close(self) -> None:
        if not self._closed:
            self._flush()
            self._closed = True
            self._session.fail(MillraceError("closed", "the client was closed"))
            self._context.destroy(linger=200)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    # ---- the loop ----

    def _ask(self, message: Union[protocol.Generate, Cancel, Look, Stats]) -> Union[Ack, Snapshot, ServerStats]:
        self._check_open()
        question: Question = self._session.ask(message, self._now())
        try:
            self._wait(lambda: question.answered)
            return question.result()
        finally:
            self._session.forget(question)

    def _open(self, stream: Stream) -> TokenStream:
        opened = TokenStream(self, stream)
        self._check_open()
        self._session.tick(self._now())
        self._flush()
        return opened

    def _check_open(self) -> None:
        if self._closed:
            raise MillraceError("closed", "the client was closed")

    def _close_stream(self, stream: Stream) -> None:
        self._session.close(stream)
        if not self._closed:
            self._flush()

    def _abandon(self, stream: Stream) -> None:
        """From a finalizer, which may run anywhere: only takes note."""
        self._abandoned.append(stream)

    def _now(self) -> float:
        """Seconds in which somebody listened: a program that does other things for long has not met silence."""
        return time.monotonic() - self._asleep

    def _wait(self, until: Callable[[], bool]) -> None:
        if until():
            return
        self._check_open()
        self._asleep += time.monotonic() - self._left_at
        try:
            self._receive()  # what came meanwhile
            while not until():
                due = self._session.tick(self._now())
                self._flush()
                if until():
                    break
                self._poller.poll(int(max(0.0, min(due - self._now(), 1.0)) * 1000) + 1)
                self._receive()
            self._session.tick(self._now())
            self._flush()
        finally:
            self._left_at = time.monotonic()

    def _receive(self) -> None:
        for socket, take in (self._requests, self._session.on_answer), (self._events, self._session.on_event):
            for _ in range(_AT_ONCE):
                try:
                    take(socket.recv_multipart(zmq.NOBLOCK), self._now())
                except zmq.Again:
                    break

    def _flush(self) -> None:
        while self._abandoned:
            self._session.close(self._abandoned.pop())
        outbox = self._session.outbox
        while outbox:
            outgoing = outbox[0]
            if not apply(outgoing, self._events):
                try:
                    self._requests.send(protocol.encode(cast(protocol.Request, outgoing)), zmq.NOBLOCK)
                except zmq.Again:
                    return  # the server does not read; later
            outbox.popleft()
