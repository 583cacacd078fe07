"""All streams and questions of one connection: who gets which message, and what is to be sent. Still no sockets."""

from __future__ import annotations

import os
from collections import deque
from typing import Callable, Optional, Sequence, Union

from . import protocol
from .errors import MillraceError, Silence, error_of
from .protocol import Ack, Cancel, Generate, Look, Rejected, ServerStats, Snapshot, Stats, StreamId, Welcome
from .streams import Outgoing, PacedStream, Patience, Stream, StreamMessage, Subscribe, TopicStream, Unsubscribe

NO_STREAM = bytes(16)


class Question:
    """A request with one answer, asked again until it comes."""

    def __init__(self, message: Union[Generate, Cancel, Look, Stats], patience: Patience, now: float):
        self.message = message
        self.answer: Union[Ack, Snapshot, ServerStats, None] = None
        self.error: Optional[MillraceError] = None
        self.on_change: Callable[[], None] = lambda: None
        self.sent = 0
        self._patience = patience
        self._asked_at = self._begun_at = now

    @property
    def about(self) -> StreamId:
        return NO_STREAM if isinstance(self.message, Stats) else self.message.request

    @property
    def answered(self) -> bool:
        return self.answer is not None or self.error is not None

    def result(self) -> Union[Ack, Snapshot, ServerStats]:
        if self.error:
            raise self.error
        assert self.answer is not None
        return self.answer

    def fits(self, answer: protocol.Answer) -> bool:
        if isinstance(answer, Rejected):
            return answer.request == self.about
        if isinstance(self.message, Stats):
            return isinstance(answer, ServerStats)
        if isinstance(self.message, Look):
            return isinstance(answer, Snapshot) and answer.request == self.about
        if not isinstance(answer, Ack) or answer.of != self.message.TYPE:
            return False
        return answer.request == self.about or (answer.joined and self.has_key)

    @property
    def has_key(self) -> bool:
        """Its answer may name another stream."""
        return isinstance(self.message, Generate) and self.message.idempotency_key is not None

    def settle(self, answer: protocol.Answer) -> None:
        if isinstance(answer, (Ack, Snapshot, ServerStats)):
            self.answer = answer
        elif isinstance(answer, Rejected):
            if answer.error == "conflict" and self.sent > 1:  # it is our own: the first one had arrived
                self.answer = Ack(self.about, of="generate", joined=True)
            else:
                self.error = error_of(answer.error, answer.message, answer.field, answer.retry_after_ms)
        self.on_change()

    def fail(self, error: MillraceError) -> None:
        if not self.answered:
            self.error = error
            self.on_change()

    def tick(self, now: float, outbox: deque[Outgoing], may_send: bool) -> float:
        if now - self._begun_at >= self._patience.give_up:
            self.fail(Silence("silent", f"no answer for {self._patience.give_up:g} s"))
        elif may_send and (self.sent == 0 or now - self._asked_at >= self._patience.repeat):
            self.sent += 1
            self._asked_at = now
            outbox.append(self.message)
        return min(self._begun_at + self._patience.give_up, self._asked_at + self._patience.repeat)


class Session:
    def __init__(self, patience: Patience):
        self.patience = patience
        self.outbox: deque[Outgoing] = deque()
        self._topics: set[StreamId] = set()  # subscribed to, once for any number of readers
        self._streams: list[Stream] = []
        self._questions: list[Question] = []

    # ---- for the client ----

    def generate(self, request: Generate, now: float) -> TopicStream:
        """A new stream, and its reader."""
        stream = TopicStream(request.request, request, 0, self.patience, now)
        self._streams.append(stream)
        return stream

    def join(self, id: StreamId, from_seq: Union[int, Sequence[int]], now: float) -> TopicStream:
        stream = TopicStream(id, None, from_seq, self.patience, now)
        self._streams.append(stream)
        return stream

    def follow(self, id: StreamId, from_seq: Union[int, Sequence[int]], window: int, now: float) -> PacedStream:
        stream = PacedStream(id, from_seq, window, self.patience, now)
        self._streams.append(stream)
        return stream

    def ask(self, message: Union[Generate, Cancel, Look, Stats], now: float) -> Question:
        question = Question(message, self.patience, now)
        self._questions.append(question)
        return question

    def close(self, stream: Stream) -> None:
        """Reads it no more; it goes on without us."""
        if stream not in self._streams:
            return
        self._collect(stream)
        self._streams.remove(stream)
        self._put(Unsubscribe(stream.id))

    def forget(self, question: Question) -> None:
        if question in self._questions:
            self._questions.remove(question)

    def fail(self, error: MillraceError) -> None:
        """Ends whatever is open."""
        for stream in self._streams:
            stream.fail(error)
        for question in self._questions:
            question.fail(error)

    # ---- for the sockets ----

    def on_event(self, frames: Sequence[bytes], now: float) -> None:
        """[topic, header, message] of the SUB socket."""
        event = self._decode(frames)
        if event is not None and not isinstance(event, ServerStats):
            for stream in self._readers_of(event.request, Stream):
                stream.on_topic(event, now)

    def on_answer(self, frames: Sequence[bytes], now: float) -> None:
        """[message] of the DEALER socket."""
        answer = self._decode(frames)
        if answer is None or isinstance(answer, Welcome):
            return
        question = next((asked for asked in self._questions if not asked.answered and asked.fits(answer)), None)
        if question is not None:
            question.settle(answer)
        if isinstance(answer, ServerStats):
            return
        if question is None or isinstance(answer, Rejected):
            self._tell_streams(answer, now)

    def tick(self, now: float) -> float:
        """Does what is due, fills the outbox, and returns when it wants to be asked again."""
        times = [now + 60]
        for stream in list(self._streams):
            if isinstance(stream, TopicStream) and self._may_send(stream):
                stream.may_send(now)
            times.append(stream.tick(now))
            self._collect(stream)
        for question in list(self._questions):
            if not question.answered:
                times.append(question.tick(now, self.outbox, self._may_send(question)))
        return min(times)

    def _collect(self, stream: Stream) -> None:
        while stream.outbox:
            self._put(stream.outbox.popleft())

    def _put(self, outgoing: Outgoing) -> None:
        if isinstance(outgoing, Subscribe):
            if outgoing.topic in self._topics:
                self.outbox.append(Unsubscribe(outgoing.topic))
            self._topics.add(outgoing.topic)
        elif isinstance(outgoing, Unsubscribe):
            if outgoing.topic not in self._topics or self._readers_of(outgoing.topic, TopicStream):
                return
            self._topics.remove(outgoing.topic)
        self.outbox.append(outgoing)

    def _tell_streams(self, answer: StreamMessage, now: float) -> None:
        if isinstance(answer, Ack) and answer.joined and not self._readers_of(answer.request, Stream):
            for stream in self._streams:  # it is the one with a key that waits for its answer
                if isinstance(stream, TopicStream) and stream.unanswered and _key_of(stream):
                    stream.move(answer.request, now)
                    return
        for stream in self._readers_of(answer.request, Stream):
            stream.on_answer(answer, now)

    def _may_send(self, waiting: Union[Stream, Question]) -> bool:
        """A joined `ack` names another stream than its `generate`: of those with a key, one at a time waits for its answer."""
        if not _key_of(waiting):
            return True
        held: list[Union[Stream, Question]] = [*self._streams, *self._questions]
        before = [asked for asked in held if _key_of(asked) and _unanswered(asked)]
        return not before or before[0] is waiting

    def _readers_of(self, id: StreamId, kind: type[Stream]) -> list[Stream]:
        return [stream for stream in self._streams if stream.id == id and isinstance(stream, kind)]

    @staticmethod
    def _decode(frames: Sequence[bytes]) -> Optional[protocol.Answer]:
        try:
            return protocol.decode(frames[-1])
        except protocol.ProtocolError:
            return None  # not from a gateway of this protocol: silence will tell


def _key_of(waiting: Union[Stream, Question]) -> bool:
    if isinstance(waiting, Question):
        return waiting.has_key
    return isinstance(waiting, TopicStream) and waiting.generate is not None and waiting.generate.idempotency_key is not None


def _unanswered(waiting: Union[Stream, Question]) -> bool:
    if isinstance(waiting, Question):
        return waiting.sent > 0 and not waiting.answered
    return isinstance(waiting, TopicStream) and waiting.unanswered


def new_stream_id() -> StreamId:
    """One that nobody can guess: who knows it may read the stream."""
    return os.urandom(16)
