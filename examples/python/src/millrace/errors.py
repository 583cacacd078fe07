"""What can go wrong, as exceptions. Their `code` is a code of PROTOCOL.md, or one of the client's own."""

from __future__ import annotations


class MillraceError(Exception):
    """A refusal of the server, or a stream that could not go on.

    code: of PROTOCOL.md, "Errors"; the client adds `events_lost`, `silent`, `protocol` and `closed`.
    field: path of the field that is to blame, or "". retry_after: seconds, with `busy`; else None.
    """

    def __init__(self, code: str, message: str = "", field: str = "", retry_after: float | None = None) -> None:
        super().__init__(": ".join(part for part in (code, field, message) if part))
        self.code = code
        self.message = message
        self.field = field
        self.retry_after = retry_after


class InvalidRequest(MillraceError):
    """The request breaks a limit; it will do so again. Codes `malformed`, `invalid_field`, `prompt_too_long`."""


class Busy(MillraceError):
    """Try again after `retry_after` seconds. Codes `busy`, `draining` (then at another server)."""


class UnknownRequest(MillraceError):
    """There is no such stream, or its log is gone, or it is somebody else's."""


class EventsLost(MillraceError):
    """The log has dropped events before they were read: seq `first` up to `next` of `choice`, `next` not
    included. Go on iterating to get what comes from `next` on."""

    def __init__(self, choice: int, first: int, next: int) -> None:
        super().__init__("events_lost", f"choice {choice} has lost seq {first} to {next - 1}")
        self.choice = choice
        self.first = first
        self.next = next


class Silence(MillraceError):
    """Nothing was heard of the server for `timeout` seconds, whatever was tried."""


_CLASSES: dict[str, type[MillraceError]] = {
    "malformed": InvalidRequest,
    "invalid_field": InvalidRequest,
    "prompt_too_long": InvalidRequest,
    "busy": Busy,
    "draining": Busy,
    "unknown_request": UnknownRequest,
}


def error_of(code: str, message: str = "", field: str = "", retry_after_ms: int = 0) -> MillraceError:
    """The exception for a code of the protocol."""
    retry_after = retry_after_ms / 1000 if retry_after_ms > 0 else None
    return _CLASSES.get(code, MillraceError)(code, message, field, retry_after)
