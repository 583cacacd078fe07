"""What a stream tells besides its events."""

from __future__ import annotations

from typing import Optional, Sequence

from .protocol import Done, Progress, PromptToken, Started, StreamId
from .streams import Numbered, Stream


class StreamView:
    def __init__(self, stream: Stream):
        self._stream = stream

    @property
    def id(self) -> StreamId:
        """With an idempotency key it may change until the first event: to that of the earlier stream."""
        return self._stream.id

    @property
    def started(self) -> Optional[Started]:
        """With the seed and the prompt's length, once a device has taken the request."""
        return self._stream.started

    @property
    def progress(self) -> Optional[Progress]:
        """How much of the prompt was read."""
        return self._stream.progress

    @property
    def prompt(self) -> list[PromptToken]:
        """The log-probs of the prompt, if `prompt_logprobs` was asked for."""
        return self._stream.prompt

    @property
    def next_seq(self) -> list[int]:
        """Of each choice: the first seq that was not read. Enough to rejoin with."""
        choices = self._stream.choices
        return [choices[number].taken for number in sorted(choices)]

    @property
    def reasons(self) -> list[str]:
        """Of each choice: why it has ended, or ""."""
        choices = self._stream.choices
        return [held.reason if (held := choices[number].finished) else "" for number in sorted(choices)]

    @property
    def done(self) -> Optional[Done]:
        """Counts and times, once the stream has ended."""
        return self._stream.done

    def _joined(self, events: Sequence[Numbered]) -> list[str]:
        texts = [""] * max(1, len(self._stream.choices))
        for event in events:
            texts[event.choice] += event.text
        return texts
