#!/usr/bin/python3
"""Submit a prompt to a Millrace gateway, or join a stream, and print its text as it comes.

ZeroMQ drops what a slow subscriber does not take: `seq` shows it, `replay` brings it again, each event is taken once.
The rules are in messages/PROTOCOL.md. Needs Debian's python3-zmq and python3-msgpack."""
import argparse, json, msgpack, os, signal, sys, time, zmq

PATIENCE = 4.0  # seconds without an answer, or without an event (two heartbeats), until we ask again


class Follower:
    def __init__(self, options):
        self.options, self.first, self.begun = options, options.from_seq or 0, 0
        self.stream = bytes.fromhex(options.stream) if options.stream else os.urandom(16)
        self.next, self.told, self.ahead = {}, {}, {}  # by choice: next seq to take; to come; events behind a gap
        self.finished, self.done, self.exists = set(), None, bool(options.stream)
        self.asked, self.repair_until, self.replays, self.last_event = 0, 0.0, 0, time.monotonic()
        self.requests, self.events = (zmq.Context.instance().socket(kind) for kind in (zmq.DEALER, zmq.SUB))
        for socket, endpoint in (self.requests, options.requests), (self.events, options.events):
            socket.linger = 0
            socket.connect(endpoint)
        self.events.subscribe(self.stream)

    def send(self, kind, **fields):
        self.requests.send(msgpack.packb({"type": kind, "request": self.stream, **fields}))

    def begin(self):
        if self.exists:  # let repair() ask for what there is
            self.told.update((choice, seq + 1) for choice, seq in self.next.items())
        else:
            sampling = {"temperature": self.options.temp, "seed": self.options.seed}
            self.send("generate", prompt=self.options.prompt, max_tokens=self.options.n, sampling=sampling)
        self.begun += 1

    def hear(self, event):
        kind = event["type"]
        self.done = event if kind == "done" else self.done
        self.exists |= kind != "welcome"
        if kind in ("welcome", "heartbeat"):
            for choice, seq in enumerate(event["next_seq"] or [0]):
                self.next.setdefault(choice, self.first)
                self.told[choice] = max(seq, self.told.get(choice, 0))
            self.begun or self.begin()
        elif kind in ("token", "finished"):
            choice, ahead = event["choice"], self.ahead.setdefault(event["choice"], {})
            if event["seq"] >= self.next.setdefault(choice, self.first):
                ahead[event["seq"]] = event
            while self.next[choice] in ahead:
                event = ahead.pop(self.next[choice])
                self.next[choice] += 1
                self.show(event, event["text"])
                self.finished.update([choice] if event["type"] == "finished" else [])
        elif kind == "ack" and event["of"] == "replay":
            if event["from_seq"] > self.next[self.asked]:
                sys.exit(f"seq {self.next[self.asked]} is lost: the log begins at {event['from_seq']}")
            self.told[self.asked], self.repair_until = event["next_seq"], 0.0
        elif kind == "rejected" and not (event["error"] == "conflict" and self.begun > 1):  # the first one had arrived
            sys.exit(f"rejected: {event['error']} {event['field']} {event['message']}")

    def show(self, event, text):
        as_json = lambda data: data.hex() if data == self.stream else list(data)
        print(json.dumps(event, default=as_json) + "\n" if self.options.json else text, end="", flush=True)

    def repair(self):
        for choice, seq in self.next.items():
            missing = self.told.get(choice, 0) > seq or self.ahead.get(choice) or self.done
            if choice not in self.finished and missing and time.monotonic() > self.repair_until:  # one at a time
                self.send("replay", choice=choice, from_seq=seq)
                self.asked, self.repair_until, self.replays = choice, time.monotonic() + PATIENCE, self.replays + 1

    def follow(self):
        while not (self.done and self.finished.issuperset(self.next)):
            for socket in zmq.select([self.requests, self.events], [], [], PATIENCE)[0]:
                self.last_event = time.monotonic()
                if socket is self.requests and self.repair_until:
                    self.repair_until = self.last_event + PATIENCE
                self.hear(msgpack.unpackb(socket.recv_multipart()[-1]))
            if time.monotonic() - self.last_event > PATIENCE:  # no welcome, or no answer: as from the beginning
                self.events.unsubscribe(self.stream)
                self.events.subscribe(self.stream)
                self.last_event = time.monotonic()
                self.begun and self.begin()
            self.repair()
        self.show(self.done, "\n")

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("prompt", nargs="?", default="Once upon a time")
parser.add_argument("--requests", default="tcp://127.0.0.1:5555", help="ROUTER endpoint of the gateway")
parser.add_argument("--events", default="tcp://127.0.0.1:5556", help="XPUB endpoint of the gateway")
parser.add_argument("--temp", type=float, default=0.8, help="temperature; 0 is greedy")
for flag, text in ("-n", "at most so many tokens"), ("--seed", "of the draws"), ("--from-seq", "begin here, not at 0"):
    parser.add_argument(flag, type=int, help=text)
parser.add_argument("--json", action="store_true", help="one event a line instead of the text")
parser.add_argument("--stream", metavar="HEX", help="join this stream instead of submitting a prompt")
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
follower = Follower(parser.parse_args())
print(f"stream {follower.stream.hex()}", file=sys.stderr, flush=True)
follower.follow()
print(f"every seq exactly once, in order, after {follower.replays} replays", file=sys.stderr)
