"""Streams that outlive the server: it is killed with -9 in mid stream and started again on the same ports."""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

import msgpack

from program import GOLDEN, MILLRACE, ProgramTest
from stream_client import DEADLINE, Client, lasting

OTHER_MODEL = os.path.join(GOLDEN, "tiny", "llama-Q8_0.gguf")

# What runs at once: several choices, hot sampling, stop strings, long greedy streams, log-probs, a seed of the server's.
REQUESTS = [
    dict(prompt="Once upon a time", n=3, max_tokens=250, sampling={"temperature": 1.0, "seed": 11}, logprobs=3),
    dict(prompt="The fox and the crow", n=2, max_tokens=250, sampling={"temperature": 1.0, "top_p": 0.9, "seed": 12}, stop=["the end", " moon"]),
    dict(prompt="A king had a daughter", max_tokens=900, sampling={"temperature": 0.0, "seed": 13}, logprobs=1, ignore_eos=True),
    dict(prompt="In the forest", n=4, max_tokens=200, sampling={"temperature": 1.3, "frequency_penalty": 0.7, "seed": 14}, ignore_eos=True),
]


class Server:
    """A server on the ports of an earlier one, or on free ones."""

    def __init__(self, *flags, like=None):
        endpoints = ["--port", "0"]
        if like:
            endpoints = ["--requests-endpoint", like.lines["requests"], "--events-endpoint", like.lines["events"]]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([MILLRACE, "serve", "--no-http", *endpoints, *flags], stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.lines = {}
        for line in iter(self.process.stdout.readline, "ready\n"):
            if not line:
                raise AssertionError(f"the server ended with {self.process.wait()}")
            name, _, value = line.rstrip().partition(" ")
            self.lines[name] = value

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return self.process.returncode


class DurabilityTest(ProgramTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.log = os.path.join(self.folder, "log")
        self.clients = []
        self.addCleanup(lambda: [client.close() for client in self.clients])

    def client(self, server):
        self.clients.append(Client(server.lines["requests"], server.lines["events"]))
        return self.clients[-1]

    def serve(self, *flags, like=None):
        server = Server("--log-dir", self.log, *flags, like=like)
        self.addCleanup(server.kill)
        return server

    def undisturbed(self, requests):
        """What the streams say if nobody dies."""
        with Server() as server:
            client = self.client(server)
            streams = [client.generate(**request) for request in requests]
            client.read_all(streams)
            return [client.streams[stream].said() for stream in streams]

    def begin(self, client, requests):
        streams = [client.generate(**request) for request in requests]
        client.hear_until(lambda: len(client.answers) == len(streams), "no acks")
        self.assertEqual({answer["type"] for answer in client.answers}, {"ack"})
        return streams

    def written(self, stream, kind):
        """How many events of this kind are in the stream's file."""
        with open(os.path.join(self.log, stream.hex()), "rb") as file:
            return file.read().count(msgpack.packb("type") + msgpack.packb(kind))

    def wait_until_written(self, stream, kind, count=1):
        """Events gather for a moment before they are written; what only readers have cannot be told again to the byte."""
        end = time.monotonic() + DEADLINE
        while self.written(stream, kind) < count:
            self.assertLess(time.monotonic(), end)

    def heard(self, client):
        return sum(stream.tokens() for stream in client.streams.values())

    def check_killed_at(self, moments):
        """The server dies when the client has heard so many tokens, each time."""
        expected = self.undisturbed(REQUESTS)
        server = self.serve()
        client = self.client(server)
        streams = self.begin(client, REQUESTS)

        for tokens in moments:
            client.hear_until(lambda: self.heard(client) >= tokens, f"{tokens} tokens are not reached")
            server.kill()
            self.assertTrue([stream for stream in streams if not self.written(stream, "done")], "nothing was interrupted")
            server = self.serve(like=server)
            for stream in streams:  # who is silent for long asks anyway; this saves the wait
                for choice in range(client.streams[stream].n):
                    client.send("replay", stream, choice=choice, from_seq=client.streams[stream].next_seq(choice))
        client.read_all(streams)

        self.assertEqual([client.streams[stream].said() for stream in streams], expected)
        self.assertEqual([client.streams[stream].rejected for stream in streams], [[] for _ in streams])
        late = self.client(server)  # somebody who comes now reads the very same
        for stream, request in zip(streams, REQUESTS):
            late.watch(request.get("n", 1), stream)
        late.read_all(streams)
        self.assertEqual([late.streams[stream].said() for stream in streams], expected)
        self.assertEqual([lasting(late.streams[stream].last) for stream in streams],
                         [lasting(client.streams[stream].last) for stream in streams])
        for stream, events in zip(streams, expected):
            self.assertEqual(late.streams[stream].last["generated_tokens"], sum(event["type"] == "token" for event in events))
        self.assertEqual(server.end(), 0)

    def test_goes_on_after_a_death_before_the_first_token(self):
        self.check_killed_at([0])

    def test_goes_on_after_a_death_at_the_first_tokens(self):
        self.check_killed_at([1])

    def test_goes_on_after_a_death_in_the_middle(self):
        self.check_killed_at([500])

    def test_goes_on_after_a_death_near_the_end(self):
        self.check_killed_at([1500])

    def test_does_not_put_a_deadline_off(self):
        server = self.serve()
        client = self.client(server)
        admitted = time.time()
        [stream] = self.begin(client, [dict(prompt="Once upon a time", max_tokens=1000, n=8, ignore_eos=True, deadline_ms=1000)])
        server.kill()
        self.assertFalse(self.written(stream, "done"), "nothing was interrupted")
        told = self.written(stream, "token")
        while time.time() < admitted + 1:
            client.hear(50)

        server = self.serve(like=server)
        late = self.client(server)  # the first one may have heard what was not written yet
        late.watch(8, stream)
        late.read_all([stream])

        ends = [event for event in late.streams[stream].said() if event["type"] == "finished"]
        self.assertEqual([event["reason"] for event in ends], 8 * ["deadline"])
        self.assertEqual(late.streams[stream].tokens(), told)
        self.assertEqual(server.end(), 0)

    def test_goes_on_after_several_deaths(self):
        self.check_killed_at([50, 400, 401, 1200])

    def test_goes_on_after_a_death_while_it_goes_on(self):
        self.check_killed_at([100, 100, 100])

    def test_keeps_a_seed_that_the_server_drew(self):
        server = self.serve()
        client = self.client(server)
        request = dict(prompt="Once upon a time", n=2, max_tokens=150, sampling={"temperature": 1.0}, ignore_eos=True)
        [stream] = self.begin(client, [request])
        client.hear_until(lambda: self.heard(client) >= 20, "no tokens")
        server.kill()
        server = self.serve(like=server)
        client.read_all([stream])

        seeds = {event["seed"] for event in client.streams[stream].started}
        self.assertEqual(len(seeds), 1)
        request["sampling"]["seed"] = seeds.pop()
        self.assertEqual([client.streams[stream].said()], self.undisturbed([request]))

    def test_replays_a_finished_stream_byte_for_byte(self):
        server = self.serve()
        client = self.client(server)
        streams = self.begin(client, REQUESTS)
        client.read_all(streams)
        for stream in streams:
            self.wait_until_written(stream, "done")
        server.kill()

        late = self.client(self.serve(like=server))
        for stream, request in zip(streams, REQUESTS):
            late.watch(request.get("n", 1), stream)
        late.read_all(streams)

        for stream in streams:
            self.assertEqual(late.streams[stream].numbered, client.streams[stream].numbered)
            self.assertEqual(late.streams[stream].last, client.streams[stream].last)

    def test_joins_by_idempotency_key_after_a_death(self):
        server = self.serve()
        client = self.client(server)
        request = dict(prompt="Once upon a time", max_tokens=100, sampling={"temperature": 1.0}, idempotency_key="order 66")
        [stream] = self.begin(client, [request])
        server.kill()

        client = self.client(self.serve(like=server))
        same, other = client.watch(), client.watch()
        joined = client.ask("generate", same, n=1, **request)
        conflict = client.ask("generate", other, n=1, **dict(request, prompt="Something else"))

        self.assertEqual((joined["type"], joined.get("joined"), joined["request"]), ("ack", True, stream))
        self.assertEqual((conflict["type"], conflict["error"]), ("rejected", "conflict"))

    def test_says_unknown_request_without_a_folder(self):
        server = Server()
        self.addCleanup(server.kill)
        client = self.client(server)
        [stream] = self.begin(client, REQUESTS[:1])
        client.hear_until(lambda: self.heard(client) >= 20, "no tokens")
        server.kill()

        with Server(like=server):
            answer = client.ask("replay", stream, choice=0, from_seq=client.streams[stream].next_seq(0))

        self.assertEqual((answer["type"], answer["error"]), ("rejected", "unknown_request"))

    def test_ends_a_stream_of_another_model(self):
        server = self.serve()
        client = self.client(server)
        [stream] = self.begin(client, REQUESTS[2:3])
        client.hear_until(lambda: self.heard(client) >= 20, "no tokens")
        self.wait_until_written(stream, "token", 20)
        server.kill()
        written = self.written(stream, "token")

        server = self.serve("-m", OTHER_MODEL, like=server)
        late = self.client(server)
        late.watch(1, stream)
        late.read_all([stream])
        client.send("replay", stream, choice=0, from_seq=1 << 40)  # the end alone: it may have heard more than was written
        client.hear_until(lambda: late.streams[stream].last == client.streams[stream].last, "no end")

        *tokens, last = late.streams[stream].said()
        self.assertEqual([event["type"] for event in tokens], ["token"] * written)  # what was written stays said
        self.assertEqual((last["type"], last["reason"]), ("finished", "error"))
        self.assertTrue(last["error"])
        fresh = late.generate("Once upon a time", max_tokens=5)
        late.read_all([fresh])

    def test_forgets_what_was_cancelled_before_the_death(self):
        server = self.serve()
        client = self.client(server)
        [stream] = self.begin(client, REQUESTS[2:3])
        client.hear_until(lambda: self.heard(client) >= 5, "no tokens")
        self.assertEqual(client.ask("cancel", stream)["type"], "ack")
        client.read_all([stream])
        tokens = client.streams[stream].tokens()
        self.assertEqual(client.streams[stream].said()[-1]["reason"], "cancelled")
        self.wait_until_written(stream, "done")
        server.kill()

        late = self.client(self.serve(like=server))
        late.watch(1, stream)
        late.read_all([stream])

        self.assertEqual(late.streams[stream].said(), client.streams[stream].said())
        self.assertEqual(late.streams[stream].tokens(), tokens)

    def test_keeps_its_folder_from_others(self):
        server = self.serve()
        client = self.client(server)
        self.begin(client, REQUESTS[:1])

        self.assertEqual(stat.S_IMODE(os.stat(self.log).st_mode), 0o700)
        for name in os.listdir(self.log):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.log, name)).st_mode), 0o600, name)
        self.assert_refused(["serve", "--port", "0", "--log-dir", self.log], self.log, "another server", code=1)

    def test_starts_beside_damaged_files(self):
        server = self.serve()
        client = self.client(server)
        streams = self.begin(client, REQUESTS)
        client.read_all(streams)
        for stream in streams:
            self.wait_until_written(stream, "done")
        server.kill()
        names = [stream.hex() for stream in streams]
        for name, size in zip(names[:3], (0, 30, 700)):
            os.truncate(os.path.join(self.log, name), size)
        with open(os.path.join(self.log, "0" * 32), "wb") as file:
            file.write(os.urandom(100_000))

        server = self.serve(like=server)
        late = self.client(server)
        for stream, request in zip(streams[2:], REQUESTS[2:]):
            late.watch(request.get("n", 1), stream)
        late.read_all(streams[2:])

        for stream in streams[2:]:  # one was cut after its head and some tokens: it was drawn again
            self.assertEqual(late.streams[stream].said(), client.streams[stream].said())
        bad = sorted(name for name in os.listdir(self.log) if name.endswith(".bad"))
        self.assertEqual(bad, sorted([names[0] + ".bad", names[1] + ".bad", "0" * 32 + ".bad"]))


if __name__ == "__main__":
    unittest.main()
