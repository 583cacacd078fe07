"""The client for asyncio programs. One event loop; any number of tasks."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Optional, Sequence, Union, cast

import zmq
import zmq.asyncio

from . import protocol
from .errors import MillraceError
from .protocol import Ack, Cancel, Look, ServerStats, Snapshot, Stats, StreamId
from .request import Message, generate_request, stream_id
from .session import Question, Session
from .sockets import EVENTS, REQUESTS, apply, connect, keys_of
from .streams import Numbered, Patience, Stream
from .view import StreamView

_AT_ONCE = 100  # messages before other tasks get their turn


class AsyncTokenStream(StreamView):
    """As `TokenStream`, with `async for`."""

    def __init__(self, client: AsyncClient, stream: Stream):
        super().__init__(stream)
        self._client = client
        self._changed = asyncio.Event()
        stream.on_change = self._changed.set

    def __aiter__(self) -> AsyncIterator[Numbered]:
        return self

    async def __anext__(self) -> Numbered:
        while not self._stream.readable:
            self._changed.clear()
            await self._client._until(self._changed)
        event = self._stream.pop()
        if event is None:
            self.close()
            raise StopAsyncIteration
        if self._stream.outbox:
            self._client._flush()  # the credit that was freed
        return event

    async def text(self) -> str:
        """Reads to the end: the text of the first choice."""
        return (await self.texts())[0]

    async def texts(self) -> list[str]:
        """Reads to the end: the text of each choice."""
        return self._joined([event async for event in self])

    async def cancel(self) -> None:
        """Ends the generation; the events up to there still come, the last one with reason `cancelled`."""
        await self._client.cancel(self.id)

    def close(self) -> None:
        self._client._close_stream(self._stream)

    async def __aenter__(self) -> AsyncTokenStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._client._abandon(self._stream)


class AsyncClient:
    """As `Client`, for one event loop. Make it with `async with`, or call `close` at the end."""

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
        self._abandoned: list[Stream] = []
        self._closed = False
        self._loop: Optional[asyncio.Task[None]] = None
        self._context = zmq.asyncio.Context()
        try:
            self._requests = connect(self._context, zmq.DEALER, requests, keys)
            self._events = connect(self._context, zmq.SUB, events, keys)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        # Sending never waits, so that it needs no task: what does not leave at once leaves later.
        self._direct: Any = zmq.Socket.shadow(self._requests.underlying)

    # ---- streams ----

    async def generate(
        self, prompt: Optional[str] = None, *, messages: Optional[Sequence[Message]] = None, **options: Any
    ) -> AsyncTokenStream:
        """Begins a stream: `async for event in await client.generate(…)`. Options as in `Client.generate`."""
        return self._open(self._session.generate(generate_request(prompt, messages, options), time.monotonic()))

    async def complete(
        self, prompt: Optional[str] = None, *, messages: Optional[Sequence[Message]] = None, **options: Any
    ) -> str:
        """The whole text at once, of one choice."""
        if options.get("n", 1) != 1:
            raise ValueError("complete() is for one choice")
        return await (await self.generate(prompt, messages=messages, **options)).text()

    async def submit(
        self, prompt: Optional[str] = None, *, messages: Optional[Sequence[Message]] = None, **options: Any
    ) -> StreamId:
        """Begins a stream without reading it, and returns its id once the server has taken it."""
        return cast(Ack, await self._ask(generate_request(prompt, messages, options))).request

    async def stream(self, id: Union[StreamId, str], from_seq: Union[int, Sequence[int]] = 0) -> AsyncTokenStream:
        """Joins a stream, also one that has ended: all its events from `from_seq` on."""
        return self._open(self._session.join(stream_id(id), from_seq, time.monotonic()))

    async def follow(
        self, id: Union[StreamId, str], from_seq: Union[int, Sequence[int]] = 0, window: int = 256
    ) -> AsyncTokenStream:
        """As `stream`, at the pace of the reader: at most `window` events are on their way."""
        return self._open(self._session.follow(stream_id(id), from_seq, window, time.monotonic()))

    # ---- questions ----

    async def cancel(self, id: Union[StreamId, str]) -> None:
        await self._ask(Cancel(stream_id(id)))

    async def look(self, id: Union[StreamId, str]) -> Snapshot:
        """Where a stream stands, with its text so far."""
        return cast(Snapshot, await self._ask(Look(stream_id(id))))

    async def stats(self, max_requests: int = 64) -> ServerStats:
        return cast(ServerStats, await self._ask(Stats(max_requests)))

    async def close(self) -> None:
        if self._closed:
            return
        self._flush()
        self._closed = True
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._session.fail(MillraceError("closed", "the client was closed"))
        self._context.destroy(linger=200)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    # ---- the loop ----

    async def _ask(self, message: Union[protocol.Generate, Cancel, Look, Stats]) -> Union[Ack, Snapshot, ServerStats]:
        self._check_open()
        question: Question = self._session.ask(message, time.monotonic())
        changed = asyncio.Event()
        question.on_change = changed.set
        try:
            self._run()
            while not question.answered:
                changed.clear()
                await self._until(changed)
            return question.result()
        finally:
            self._session.forget(question)

    def _open(self, stream: Stream) -> AsyncTokenStream:
        opened = AsyncTokenStream(self, stream)
        self._check_open()
        self._run()
        return opened

    def _check_open(self) -> None:
        if self._closed:
            raise MillraceError("closed", "the client was closed")

    def _close_stream(self, stream: Stream) -> None:
        self._session.close(stream)
        self._flush()

    def _abandon(self, stream: Stream) -> None:
        """From a finalizer, which may run anywhere: only takes note."""
        self._abandoned.append(stream)

    async def _until(self, changed: asyncio.Event) -> None:
        self._check_open()
        await changed.wait()

    def _run(self) -> None:
        """Starts the task that listens, and lets what is new leave at once."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop().create_task(self._listen())
        self._flush()

    async def _listen(self) -> None:
        poller = zmq.asyncio.Poller()
        poller.register(self._requests, zmq.POLLIN)
        poller.register(self._events, zmq.POLLIN)
        try:
            while True:
                due = self._flush()
                wait = max(0.0, min(due - time.monotonic(), self._session.patience.repeat / 2, 1.0))
                for socket, _ in await poller.poll(wait * 1000):
                    take = self._session.on_answer if socket is self._requests else self._session.on_event
                    await self._receive(socket, take)
                await asyncio.sleep(0)  # what is ready at once does not suspend
        except asyncio.CancelledError:
            raise
        except Exception as error:  # nobody awaits this task: those who wait must hear of it
            self._session.fail(MillraceError("closed", f"the client failed: {error!r}"))
            raise

    async def _receive(self, socket: Any, take: Callable[[Sequence[bytes], float], None]) -> None:
        for _ in range(_AT_ONCE):
            try:
                take(await socket.recv_multipart(zmq.NOBLOCK), time.monotonic())
            except zmq.Again:
                return

    def _flush(self) -> float:
        """Sends what is to be sent, and returns when to ask again."""
        while self._abandoned:
            self._session.close(self._abandoned.pop())
        due = self._session.tick(time.monotonic())
        outbox = self._session.outbox
        while outbox and not self._closed:
            outgoing = outbox[0]
            if not apply(outgoing, self._events):
                try:
                    self._direct.send(protocol.encode(cast(protocol.Request, outgoing)), zmq.NOBLOCK)
                except zmq.Again:
                    break  # the server does not read; later
            outbox.popleft()
        return due
