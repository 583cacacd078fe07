"""Client of a Millrace gateway: token streams over ZeroMQ that repair themselves.

    from millrace import Client

    with Client() as client:
        for event in client.generate("Once upon a time", max_tokens=50):
            print(event.text, end="", flush=True)
"""

from .aio import AsyncClient, AsyncTokenStream
from .client import Client, TokenStream
from .errors import Busy, EventsLost, InvalidRequest, MillraceError, Silence, UnknownRequest
from .protocol import ChatMessage, Done, Finished, SamplingParams, ServerStats, Snapshot, Started, Token

__all__ = [
    "AsyncClient", "AsyncTokenStream", "Busy", "ChatMessage", "Client", "Done", "EventsLost", "Finished", "InvalidRequest",
    "MillraceError", "SamplingParams", "ServerStats", "Silence", "Snapshot", "Started", "Token", "TokenStream",
    "UnknownRequest",
]  # fmt: skip
