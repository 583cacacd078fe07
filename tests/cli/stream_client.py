"""A client that believes nothing: it keeps every event of its streams, and fails if two with the same number differ."""

import os
import time

import msgpack
import zmq

DEADLINE = 60.0  # seconds until a wait fails


def lasting(event):
    """The event without what may be another when it is told again by another process: owner and times."""
    return {key: value for key, value in event.items() if key != "epoch" and not key.endswith("_ms")}


class Stream:
    """What was heard of one stream. Numbered events by (choice, seq); floats are compared bit by bit, as doubles that were read
    from float32 are."""

    def __init__(self, n):
        self.n, self.numbered, self.last, self.started, self.rejected, self.welcome = n, {}, None, [], [], False

    def hear(self, event):
        kind = event["type"]
        if kind in ("token", "finished"):
            key, said = (event["choice"], event["seq"]), lasting(event)
            if self.numbered.setdefault(key, said) != said:
                raise AssertionError(f"seq {key} was {self.numbered[key]}, and then {said}")
        elif kind == "done":
            if self.last is not None and lasting(self.last) != lasting(event):
                raise AssertionError(f"two ends: {self.last} and {event}")
            self.last = event
        elif kind == "started":
            self.started.append(event)
        elif kind == "welcome":
            self.welcome = True
        elif kind == "rejected":
            self.rejected.append(event)

    def next_seq(self, choice):
        seq = 0
        while (choice, seq) in self.numbered:
            seq += 1
        return seq

    def tokens(self):
        return sum(event["type"] == "token" for event in self.numbered.values())

    def complete(self):
        finished = [key for key, event in self.numbered.items() if event["type"] == "finished"]
        return self.last is not None and len(finished) == self.n and all(self.next_seq(choice) == seq + 1 for choice, seq in finished)

    def said(self):
        """All numbered events in order, without what names the stream."""
        return [{key: value for key, value in self.numbered[at].items() if key != "request"} for at in sorted(self.numbered)]


class Client:
    """Reads many streams; `keys` are its (public, secret) pair and the server's public key, for CURVE."""

    def __init__(self, requests, events, keys=None):
        self.context, self.streams, self.answers = zmq.Context(), {}, []
        self.requests, self.events = self.context.socket(zmq.DEALER), self.context.socket(zmq.SUB)
        for socket, endpoint in (self.requests, requests), (self.events, events):
            socket.linger, socket.reconnect_ivl, socket.rcvhwm = 0, 20, 0
            if keys:
                socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = keys
            socket.connect(endpoint)

    def close(self):
        self.context.destroy(0)

    def send(self, kind, stream, **fields):
        self.requests.send(msgpack.packb({"type": kind, "request": stream, **fields}))

    def watch(self, n=1, stream=None):
        """Subscribes to a stream, a new one if none is named."""
        stream = stream or os.urandom(16)
        self.streams[stream] = Stream(n)
        self.events.subscribe(stream)
        return stream

    def generate(self, prompt, n=1, **fields):
        stream = self.watch(n)
        self.hear_until(lambda: self.streams[stream].welcome, "no welcome")
        self.send("generate", stream, prompt=prompt, n=n, **fields)
        return stream

    def hear(self, milliseconds):
        """Takes what comes within this time, or what is there; false if nothing was."""
        heard = False
        for socket in zmq.select([self.requests, self.events], [], [], milliseconds / 1000)[0]:
            for _ in range(500):
                try:
                    event = msgpack.unpackb(socket.recv_multipart(zmq.NOBLOCK)[-1])
                except zmq.Again:
                    break
                heard = True
                if socket is self.requests and event["type"] in ("ack", "rejected"):
                    self.answers.append(event)
                else:
                    self.streams[event["request"]].hear(event)
        return heard

    def hear_until(self, condition, what):
        end = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what}: {[(s.tokens(), s.last, s.rejected) for s in self.streams.values()]}, {self.answers[-3:]}")
            self.hear(50)

    def answer(self, of, stream):
        """Waits for the ack or the refusal of a message that was just sent."""
        self.answers.clear()
        def answers():
            return [a for a in self.answers if a["type"] == "rejected" or a["of"] == of]
        self.hear_until(answers, f"no answer to {of} of {stream.hex()}")
        return answers()[0]

    def ask(self, kind, stream, **fields):
        self.send(kind, stream, **fields)
        return self.answer(kind, stream)

    def read_all(self, streams):
        """Reads the streams to their ends, asking again for whatever is missing after 0.3 s of silence."""
        end = time.monotonic() + DEADLINE
        while missing := [s for s in streams if not self.streams[s].complete()]:
            if time.monotonic() > end:
                raise AssertionError(f"unread: {[(self.streams[s].tokens(), self.streams[s].last) for s in missing]}, {self.answers[-3:]}")
            if not self.hear(300):
                for stream in missing:
                    for choice in range(self.streams[stream].n):
                        self.send("replay", stream, choice=choice, from_seq=self.streams[stream].next_seq(choice))
