"""What a reader knows of a stream, and what it does about what is missing. No sockets and no clock in here.

A stream is fed with messages and with the time; what it wants to say goes into its `outbox`, what the reader gets is
taken with `pop`. There are two ways to read: `TopicStream` (publish/subscribe, gaps repaired by replay) and
`PacedStream` (over the ROUTER, no faster than it is read).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import Callable, Optional, Sequence, Union

from . import protocol
from .errors import EventsLost, MillraceError, Silence, error_of
from .protocol import (
    Ack, Done, Finished, Follow, Generate, Heartbeat, Lagging, Progress, PromptLogprobs, PromptToken, Read,
    Rejected, Replay, Snapshot, Started, StreamId, Token, Welcome,
)  # fmt: skip

Numbered = Union[Token, Finished]
StreamMessage = Union[
    Ack, Rejected, Lagging, Snapshot, Welcome, Started, Progress, PromptLogprobs, Token, Finished, Done, Heartbeat,
]  # fmt: skip

HELD_EVENTS = 16_384  # of one stream: unread, and behind gaps; what comes beyond is asked for again later


@dataclass
class Subscribe:
    """Makes a subscription, or makes it anew: a `welcome` follows."""

    topic: StreamId


@dataclass
class Unsubscribe:
    topic: StreamId


Outgoing = Union[protocol.Request, Subscribe, Unsubscribe]


@dataclass
class Patience:
    """Seconds. `repeat`: without an answer or a word on a topic (three heartbeats) until it is asked again; `give_up`: without
    any word of the server until an exception says so."""

    repeat: float = 6.0
    give_up: float = 30.0


@dataclass
class Choice:
    first: int = 0  # the seq that the reader began at
    next: int = 0  # the seq that we wait for
    told: int = 0  # the server said that all before this was sent
    ahead: dict[int, Numbered] = field(default_factory=dict)  # behind a gap
    taken: int = 0  # the reader has all before this
    finished: Optional[Finished] = None
    over: bool = False  # nothing comes any more


class Stream:
    """One stream as its reader sees it: each seq of each choice exactly once and in order."""

    def __init__(self, id: StreamId, choices: int, from_seq: Union[int, Sequence[int]], patience: Patience, now: float):
        self.id = id
        self.outbox: deque[Outgoing] = deque()
        self.on_change: Callable[[], None] = lambda: None
        self.started: Optional[Started] = None
        self.progress: Optional[Progress] = None
        self.done: Optional[Done] = None
        self.prompt: list[PromptToken] = []  # with prompt_logprobs, as far as it was told
        self.ended = False
        self._from_seq = from_seq
        self._choices: dict[int, Choice] = {}
        self._ready: deque[Union[Numbered, MillraceError]] = deque()
        self._patience = patience
        self._heard = now  # of the server, about this stream
        for number in range(choices):
            self.choice(number)

    # ---- for the reader ----

    def pop(self) -> Optional[Numbered]:
        """The next event, or None if there is none now. Throws what went wrong in its place."""
        if not self._ready:
            return None
        event = self._ready.popleft()
        if isinstance(event, MillraceError):
            raise event
        self.choice(event.choice).taken = event.seq + 1
        return event

    @property
    def choices(self) -> dict[int, Choice]:
        return self._choices

    @property
    def readable(self) -> bool:
        """There is something to pop, or never will be."""
        return bool(self._ready) or self.ended

    # ---- for the session ----

    def on_topic(self, event: StreamMessage, now: float) -> None:
        """What was published under its id."""
        raise NotImplementedError

    def on_answer(self, answer: StreamMessage, now: float) -> None:
        """What the ROUTER says about it."""
        raise NotImplementedError

    def fail(self, error: MillraceError) -> None:
        if not self.ended:
            self._ready.append(error)
            self.ended = True
            self.on_change()

    def tick(self, now: float) -> float:
        """Does what is due and returns when it wants to be asked again."""
        if not self.ended and now - self._heard >= self._patience.give_up:
            self.fail(Silence("silent", f"nothing was heard for {self._patience.give_up:g} s"))
        return inf if self.ended else self._heard + self._patience.give_up

    def choice(self, number: int) -> Choice:
        if number not in self._choices:
            first = self._from_seq
            if not isinstance(first, int):
                first = first[number] if number < len(first) else 0
            self._choices[number] = Choice(first, next=first, taken=first)
        return self._choices[number]

    def take(self, event: StreamMessage) -> None:
        """An event, from wherever it came; what is not due is dropped or waits."""
        if isinstance(event, (Token, Finished)):
            self._take_numbered(event)
        elif isinstance(event, Started):
            self.choice(event.choice)
            self.started = event
        elif isinstance(event, Progress):
            self.progress = event
        elif isinstance(event, PromptLogprobs):
            if event.position <= len(self.prompt):
                self.prompt += event.tokens[len(self.prompt) - event.position :]
        elif isinstance(event, Done):
            self.done = event
        self._end_if_complete()

    def _take_numbered(self, event: Numbered) -> None:
        choice = self.choice(event.choice)
        choice.told = max(choice.told, event.seq + 1)
        behind_gaps = sum(len(choice.ahead) for choice in self._choices.values())
        too_many = len(self._ready) >= HELD_EVENTS or (event.seq > choice.next and behind_gaps >= HELD_EVENTS)
        if event.seq >= choice.next and not too_many:
            choice.ahead[event.seq] = event
            self._advance(choice)

    def _advance(self, choice: Choice) -> None:
        """Hands over what is in order now."""
        while choice.next in choice.ahead:
            event = choice.ahead.pop(choice.next)
            choice.next += 1
            if isinstance(event, Finished):
                choice.finished, choice.over = event, True
            self._ready.append(event)
        if self._ready:
            self.on_change()

    def _skip(self, number: int, to: int) -> None:
        """Goes on behind events that are gone."""
        choice = self.choice(number)
        if to <= choice.next:
            return
        self._ready.append(EventsLost(number, choice.next, to))
        choice.ahead = {seq: event for seq, event in choice.ahead.items() if seq >= to}
        choice.next = to
        choice.told = max(choice.told, to)
        self._advance(choice)

    def _complete(self) -> bool:
        return self.done is not None and all(choice.over for choice in self._choices.values())

    def _end_if_complete(self) -> None:
        if self.ended or not self._complete():
            return
        failed = next((c.finished for c in self._choices.values() if c.finished and c.finished.reason == "error"), None)
        if failed:
            self._ready.append(error_of(failed.error, f"choice {failed.choice} could not go on"))
        self.ended = True
        self.on_change()


class TopicStream(Stream):
    """Follows the topic of a stream, and brings missing events by replay. With `generate` it makes the stream first."""

    def __init__(
        self, id: StreamId, generate: Optional[Generate], from_seq: Union[int, Sequence[int]], patience: Patience, now: float
    ):
        super().__init__(id, generate.n if generate else 0, from_seq, patience, now)
        self.generate = generate
        self._exists = generate is None  # the server is known to have it
        self._welcome = False  # the subscription has been in force
        self._sent_at: Optional[float] = None  # the generate without an answer
        self._sent_again = False
        self._asked: Optional[Replay] = None  # the replay in flight
        self._ask_again_at = 0.0
        self._topic_heard = now
        self._wants_prompt = generate is not None and generate.prompt_logprobs is not None
        self.outbox.append(Subscribe(id))

    @property
    def unanswered(self) -> bool:
        """A generate was sent, and nothing came back yet."""
        return self._sent_at is not None and not self._exists

    def on_topic(self, event: StreamMessage, now: float) -> None:
        self._heard = self._topic_heard = now
        if isinstance(event, Rejected):
            self.fail(error_of(event.error, event.message, event.field, event.retry_after_ms))
        elif isinstance(event, (Welcome, Heartbeat)):
            self._hear_position(event, now)
        else:
            self._exists = True
            self.take(event)

    def on_answer(self, answer: StreamMessage, now: float) -> None:
        self._heard = now
        if self._asked:
            self._ask_again_at = now + self._patience.repeat
        if isinstance(answer, Ack) and answer.of == "generate":
            self._exists = True
            if answer.joined:  # its beginning is not for us
                self._ask_for_all()
        elif isinstance(answer, Ack) and answer.of == "replay":
            self._end_replay(answer)
        elif isinstance(answer, Rejected):
            self._refuse(answer)
        else:
            self.take(answer)

    def move(self, id: StreamId, now: float) -> None:
        """The same request was made before: read the stream of that one."""
        before, self.id = self.id, id
        self.outbox += [Unsubscribe(before), Subscribe(id)]
        self._exists = True
        self._topic_heard = now
        self._ask_for_all()

    def tick(self, now: float) -> float:
        give_up_at = super().tick(now)
        if self.ended:
            return give_up_at
        repeat = self._patience.repeat
        if now - self._topic_heard >= repeat:  # a lost connection, or no welcome yet
            self.outbox.append(Subscribe(self.id))
            self._topic_heard = now
            if self._exists and self._welcome:
                self._ask_for_all()
        if self.unanswered and self._sent_at is not None and now - self._sent_at >= repeat:
            self._send_generate(now)
        self._repair(now)
        times = [give_up_at, self._topic_heard + repeat]
        if self.unanswered and self._sent_at is not None:
            times.append(self._sent_at + repeat)
        if self._asked:
            times.append(self._ask_again_at)
        return min(times)

    def may_send(self, now: float) -> None:
        """Lets a generate go that waited for its welcome."""
        if self._welcome and not self._exists and self._sent_at is None and not self.ended:
            self._send_generate(now)

    def _send_generate(self, now: float) -> None:
        assert self.generate is not None
        self.outbox.append(self.generate)
        self._sent_again = self._sent_at is not None
        self._sent_at = now

    def _hear_position(self, event: Union[Welcome, Heartbeat], now: float) -> None:
        if isinstance(event, Welcome) and event.version != protocol.VERSION:
            self.fail(MillraceError("protocol", f"the server speaks version {event.version}"))
        self._welcome = True
        for number, seq in enumerate(event.next_seq):
            choice = self.choice(number)
            choice.told = max(choice.told, seq)
        if event.next_seq:
            self._exists = True
        elif self._exists:  # ended long ago, or forgotten by a restarted server: a replay will tell
            self._ask_for_all()

    def _ask_for_all(self) -> None:
        """Makes the next repair ask for what there is, in all choices."""
        self.choice(0)
        for choice in self._choices.values():
            choice.told = max(choice.told, choice.next + 1)

    def _repair(self, now: float) -> None:
        may_ask = self._welcome and self._exists and not (self._asked and now < self._ask_again_at)
        if self.ended or not may_ask or len(self._ready) >= HELD_EVENTS // 2:
            return
        self._asked = self._missing()
        if self._asked:
            self._ask_again_at = now + self._patience.repeat
            self.outbox.append(self._asked)

    def _missing(self) -> Optional[Replay]:
        """What to ask for, if anything."""
        if self._lacks_prompt():
            return Replay(self.id, 0, 0)
        for number, choice in self._choices.items():
            if not choice.over and (choice.told > choice.next or choice.ahead or self.done):
                return Replay(self.id, number, choice.next)
        return None

    def _lacks_prompt(self) -> bool:
        """Pieces of the prompt's log-probs are missing although what follows them is here."""
        if not self._wants_prompt:
            return False
        begun = self.done is not None or any(choice.next > 0 for choice in self._choices.values())
        known = self.done or self.started
        return begun and (known is None or len(self.prompt) < known.prompt_tokens)

    def _complete(self) -> bool:
        return super()._complete() and not self._lacks_prompt()

    def _end_replay(self, ack: Ack) -> None:
        if self._asked is None:
            return  # of one that was sent twice
        asked, self._asked = self._asked, None
        choice = self.choice(asked.choice)
        # Of two replays in flight the first answer may be for the other choice: believe it only if its events came.
        if ack.from_seq > choice.next and (ack.from_seq in choice.ahead or ack.from_seq == ack.next_seq):
            self._skip(asked.choice, ack.from_seq)
        if asked.choice == 0 and asked.from_seq == 0 and self._lacks_prompt():
            self._wants_prompt = False  # the server does not know of it
            self._end_if_complete()
        if choice.next >= ack.next_seq:
            choice.told = choice.next
            choice.over = choice.over or self.done is not None  # all was read before
            self._end_if_complete()

    def _refuse(self, answer: Rejected) -> None:
        if answer.error == "conflict" and self._sent_again:  # it is our own: the first one had arrived
            self._exists = True
            self._ask_for_all()
        elif answer.error == "unknown_request" and not self._exists:
            return  # a cancel that overtook its stream
        else:
            self.fail(error_of(answer.error, answer.message, answer.field, answer.retry_after_ms))


class PacedStream(Stream):
    """Reads a stream over the ROUTER, at most `window` events ahead of its reader."""

    def __init__(self, id: StreamId, from_seq: Union[int, Sequence[int]], window: int, patience: Patience, now: float):
        super().__init__(id, 1, from_seq, patience, now)
        self._window = window
        self._asked_at = now
        self._unread = 0
        self._follow()

    def on_topic(self, event: StreamMessage, now: float) -> None:
        """Nothing: it has no topic."""

    def on_answer(self, answer: StreamMessage, now: float) -> None:
        self._heard = self._asked_at = now
        if isinstance(answer, Lagging):
            self._skip(answer.choice, answer.held_seq)
        elif isinstance(answer, Rejected):
            self.fail(error_of(answer.error, answer.message, answer.field, answer.retry_after_ms))
        elif isinstance(answer, (Heartbeat, Welcome)):
            for number, _ in enumerate(answer.next_seq):
                self.choice(number)
        else:
            self.take(answer)

    def pop(self) -> Optional[Numbered]:
        event = super().pop()
        if event is not None:
            self._unread += 1
            if self._unread >= max(1, self._window // 2):
                self._unread = 0
                self.outbox.append(Read(self.id, self._positions("taken")))
        return event

    def _complete(self) -> bool:
        """Events come in order here: a choice of which none came before the end was read earlier."""
        begun = [choice for choice in self._choices.values() if choice.next > choice.first]
        return self.done is not None and all(choice.over for choice in begun)

    def tick(self, now: float) -> float:
        give_up_at = super().tick(now)
        if self.ended:
            return give_up_at
        # Silence is a lost connection, a long prompt, or our own: unread events hold the credit back.
        if now - self._asked_at >= self._patience.repeat:
            self._asked_at = now
            self._follow()
        return min(give_up_at, self._asked_at + self._patience.repeat)

    def _follow(self) -> None:
        self.outbox.append(Follow(self.id, self._positions("next"), self._window))

    def _positions(self, of: str) -> list[int]:
        count = max(self._choices) + 1
        return [getattr(self.choice(number), of) for number in range(count)]
