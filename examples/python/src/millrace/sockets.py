"""The two sockets of a client, alike for both clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import zmq

from .errors import MillraceError
from .streams import Outgoing, Subscribe, Unsubscribe

REQUESTS = "tcp://127.0.0.1:5555"
EVENTS = "tcp://127.0.0.1:5556"


@dataclass
class Keys:
    """CURVE keys in Z85: the server's public one, and a pair of one's own."""

    server: str
    public: str
    secret: str


def keys_of(server_key: Optional[str], public_key: Optional[str], secret_key: Optional[str]) -> Optional[Keys]:
    """A server that tells nobody apart takes a pair made on the spot."""
    if server_key is None:
        if public_key or secret_key:
            raise ValueError("public_key and secret_key need a server_key")
        return None
    if (public_key is None) != (secret_key is None):
        raise ValueError("public_key and secret_key belong together")
    if public_key is None or secret_key is None:
        public, secret = zmq.curve_keypair()
        return Keys(server_key, public.decode(), secret.decode())
    return Keys(server_key, public_key, secret_key)


def connect(context: Any, kind: int, endpoint: str, keys: Optional[Keys]) -> Any:
    socket = context.socket(kind)
    try:
        socket.linger = 200  # milliseconds for a last cancel
        socket.set_hwm(10_000)
        socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 2_000
        # A host that went without a word is noticed, and libzmq connects again.
        socket.heartbeat_ivl, socket.heartbeat_timeout = 2_000, 6_000
        if keys:
            socket.curve_serverkey = keys.server.encode()
            socket.curve_publickey = keys.public.encode()
            socket.curve_secretkey = keys.secret.encode()
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise MillraceError("closed", f"{endpoint}: {error}") from error
    except BaseException:
        socket.close(linger=0)
        raise
    return socket


def apply(outgoing: Outgoing, events: Any) -> bool:
    """Does what the SUB socket has to do; False for a message to the ROUTER."""
    if isinstance(outgoing, Subscribe):
        events.subscribe(outgoing.topic)
    elif isinstance(outgoing, Unsubscribe):
        events.unsubscribe(outgoing.topic)
    else:
        return False
    return True
