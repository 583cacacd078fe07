"""A gateway without a model that does what a test tells it, in a thread of its own. Written from PROTOCOL.md, without
the package that it tests."""

import queue
import threading

import msgpack
import zmq

BASE = {"choice": 0, "epoch": 0}


def _bind_when_free(socket, endpoint):
    """libzmq closes sockets in the background: the port of one that was closed may still be taken for a moment."""
    while True:
        try:
            return socket.bind(endpoint)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
            socket.poll(10)


class Stream:
    def __init__(self, generate):
        self.id = generate["request"]
        self.generate = generate
        self.log = {choice: [] for choice in range(generate.get("n", 1))}  # numbered events
        self.preamble = []
        self.last = None

    def next_seq(self):
        return [len(events) for events in self.log.values()]


class FakeGateway:
    """`tokens` of each choice are published when a request comes, up to `pause_at`; the rest upon `resume`."""

    def __init__(self, tokens=20, pause_at=None):
        self.tokens = tokens
        self.pause_at = tokens if pause_at is None else pause_at
        self.end = pause_at is None  # with finished and done
        self.drop = set()  # (choice, seq) that do not get to the topic
        self.drop_others = set()  # types of events that do not either
        self.reversed = False  # publishes each choice from its end
        self.log_begins = 0  # seq below it are gone
        self.ignore = {}  # type: so many messages are not even read
        self.lose_answers = {}  # type: so many answers are lost
        self.welcomes_to_lose = 0
        self.refusal = None  # of the next generate
        self.received = []
        self.requests = self.events = "tcp://127.0.0.1:*"
        self._streams, self._keys, self._follows = {}, {}, {}
        self._commands = queue.Queue()
        self._context = zmq.Context()
        self._bind()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # ---- for the test ----

    def do(self, action, *arguments):
        """Runs an action in the gateway's thread and waits for it."""
        finished = threading.Event()
        self._commands.put((action, arguments, finished))
        assert finished.wait(30), "the fake gateway hangs"

    def resume(self):
        """Publishes what is left of all streams."""
        self.do(self._resume)

    def heartbeat(self):
        self.do(self._heartbeat)

    def stop(self):
        """Nobody listens any more."""
        self.do(self._unbind)

    def start(self, keep_log=True):
        """On the same ports."""
        if not keep_log:
            self._streams.clear()
        self.do(self._bind)

    def close(self):
        self._commands.put(None)
        self._thread.join()
        self._context.destroy(linger=0)

    def count(self, kind):
        return sum(message["type"] == kind for message in self.received)

    # ---- the thread ----

    def _bind(self):
        self._router, self._xpub = self._context.socket(zmq.ROUTER), self._context.socket(zmq.XPUB)
        for socket in self._router, self._xpub:
            socket.linger = 0
            socket.set_hwm(100_000)
        self._xpub.setsockopt(zmq.XPUB_VERBOSER, 1)
        _bind_when_free(self._router, self.requests)
        _bind_when_free(self._xpub, self.events)
        self.requests = self._router.last_endpoint.decode()
        self.events = self._xpub.last_endpoint.decode()

    def _unbind(self):
        self._router.close()
        self._xpub.close()
        self._follows.clear()

    def _run(self):
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                self._listen()
                continue
            if command is None:
                self._unbind()
                return
            action, arguments, finished = command
            action(*arguments)
            finished.set()

    def _listen(self):
        if self._router.closed:
            command = self._commands.get()
            self._commands.put(command)
            return
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._xpub, zmq.POLLIN)
        for socket, _ in poller.poll(5):
            if socket is self._xpub:
                self._on_subscription(socket.recv())
            else:
                client, frame = socket.recv_multipart()
                self._on_request(client, msgpack.unpackb(frame, strict_map_key=False))

    def _on_subscription(self, frame):
        if frame[:1] == b"\x00":
            return
        if self.welcomes_to_lose > 0:
            self.welcomes_to_lose -= 1
            return
        topic = frame[1:]
        stream = self._streams.get(topic)
        self._publish(topic, {
            "type": "welcome", "version": 1, "live": bool(stream and not stream.last),
            "next_seq": stream.next_seq() if stream else [],
        })  # fmt: skip

    def _on_request(self, client, message):
        kind = message["type"]
        self.received.append(message)
        if self.ignore.get(kind, 0) > 0:
            self.ignore[kind] -= 1
            return
        self._client = client
        getattr(self, f"_on_{kind}")(message)

    def _answer(self, request, kind, /, **fields):
        if self.lose_answers.get(request["type"], 0) > 0:
            self.lose_answers[request["type"]] -= 1
        else:
            message = {"type": kind, "request": request.get("request", bytes(16)), **fields}
            self._router.send_multipart([self._client, msgpack.packb(message)])

    def _publish(self, topic, message):
        seq = message.get("seq", -1)
        if message["type"] in self.drop_others or (message.get("choice"), seq) in self.drop:
            return
        header = msgpack.packb([message.get("choice", 0), seq, message.get("epoch", 0)])
        self._xpub.send_multipart([topic, header, msgpack.packb({**message, "request": topic})])

    # ---- messages ----

    def _on_generate(self, message):
        if self.refusal:
            self._answer(message, "rejected", **self.refusal)
            return
        key = message.get("idempotency_key")
        if key in self._keys:
            self._answer({**message, "request": self._keys[key]}, "ack", of="generate", joined=True)
            return
        if message["request"] in self._streams:
            self._answer(message, "rejected", error="conflict", field="request", message="in use")
            return
        stream = self._streams[message["request"]] = Stream(message)
        if key:
            self._keys[key] = stream.id
        self._answer(message, "ack", of="generate")
        stream.preamble = [{"type": "started", **BASE, "prompt_tokens": 3, "seed": 7, "unknown": {"x": 1}}]
        if message.get("prompt_logprobs") is not None:
            tokens = [{"id": i, "bytes": b"p", "logprob": -1.0 if i else None, "top": []} for i in range(3)]
            stream.preamble += [
                {"type": "prompt_logprobs", **BASE, "position": 0, "tokens": tokens[:2]},
                {"type": "prompt_logprobs", **BASE, "position": 2, "tokens": tokens[2:]},
            ]
        self._advance(stream, self.pause_at, self.end)

    def _advance(self, stream, tokens, end):
        new = [] if any(stream.log.values()) else list(stream.preamble)
        for choice, events in stream.log.items():
            begin = len(events)
            for seq in range(begin, tokens):
                events.append({"type": "token", "choice": choice, "epoch": 0, "seq": seq, "id": seq, "bytes": b"t",
                               "text": f" {choice}.{seq}", "logprob": -0.5, "top": []})  # fmt: skip
            if end:
                events.append({"type": "finished", "choice": choice, "epoch": 0, "seq": len(events), "reason": "length",
                               "text": "!", "error": ""})  # fmt: skip
            new += reversed(events[begin:]) if self.reversed else events[begin:]
        if end:
            stream.last = {"type": "done", "prompt_tokens": 3, "generated_tokens": sum(stream.next_seq())}
            new.append(stream.last)
        for event in new:
            self._publish(stream.id, event)
        self._feed(stream)

    def _resume(self):
        for stream in self._streams.values():
            if not stream.last:
                self._advance(stream, self.tokens, True)

    def _heartbeat(self):
        for stream in self._streams.values():
            self._publish(stream.id, {"type": "heartbeat", "next_seq": stream.next_seq()})

    def _known(self, message):
        stream = self._streams.get(message["request"])
        if stream is None:
            self._answer(message, "rejected", error="unknown_request", field="request", message="no such stream")
        return stream

    def _on_cancel(self, message):
        if self._known(message):
            self._answer(message, "ack", of="cancel")

    def _on_replay(self, message):
        stream = self._known(message)
        if stream is None:
            return
        events = stream.log[message["choice"]]
        begin = min(max(message["from_seq"], self.log_begins), len(events))
        sent = (stream.preamble if message["choice"] == 0 and message["from_seq"] == 0 else []) + events[begin:]
        for event in sent + ([stream.last] if stream.last else []):
            self._answer(message, event["type"], **{name: value for name, value in event.items() if name != "type"})
        self._answer(message, "ack", of="replay", from_seq=begin, next_seq=len(events))

    def _on_follow(self, message):
        stream = self._known(message)
        if stream is None:
            return
        self._answer(message, "ack", of="follow")
        wanted = message["from_seq"] + [0] * (len(stream.log) - len(message["from_seq"]))
        self._follows[stream.id] = {
            "message": message, "client": self._client, "sent": list(wanted), "read": list(wanted), "over": False,
        }  # fmt: skip
        self._feed(stream)

    def _on_read(self, message):
        follow = self._follows.get(message["request"])
        if follow:
            follow["read"] = message["next_seq"]
            self._feed(self._streams[message["request"]])

    def _feed(self, stream):
        follow = self._follows.get(stream.id)
        if follow is None or follow["over"]:
            return
        self._client, message, sent = follow["client"], follow["message"], follow["sent"]
        for choice, events in stream.log.items():
            if sent[choice] < self.log_begins:
                self._answer(message, "lagging", choice=choice, wanted_seq=sent[choice], held_seq=self.log_begins)
                sent[choice] = follow["read"][choice] = self.log_begins
            while sent[choice] < len(events) and sum(sent) - sum(follow["read"]) < message["window"]:
                event = events[sent[choice]]
                self._answer(message, event["type"], **{name: value for name, value in event.items() if name != "type"})
                sent[choice] += 1
        if stream.last and sent == stream.next_seq():
            follow["over"] = True
            last = {name: value for name, value in stream.last.items() if name != "type"}
            self._answer(message, stream.last["type"], **last)

    def _on_look(self, message):
        stream = self._known(message)
        if stream:
            choices = [
                {"first_seq": 0, "next_seq": len(events), "text": "".join(event["text"] for event in events),
                 "reason": events[-1].get("reason", "")}
                for events in stream.log.values()
            ]  # fmt: skip
            self._answer(message, "snapshot", live=not stream.last, prompt_tokens=3, choices=choices)

    def _on_stats(self, message):
        requests = [{"stream": stream.id.hex()[:8], "phase": "decode"} for stream in self._streams.values()]
        scheduler = {"expired": 2, "cancel_passes": [5, 1], "unknown": {"x": 1}}
        self._answer(message, "server_stats", model="fake", state="serving", requests=requests[: message["max_requests"]],
                     scheduler=scheduler)  # fmt: skip
