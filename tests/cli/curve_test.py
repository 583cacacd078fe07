"""The server with keys: who may connect, and who may read whose stream."""

import contextlib
import os
import tempfile
import unittest

import zmq
import zmq.auth

from program import ProgramTest
from serve_test import Server
from stream_client import Client

LONG = dict(prompt="Once upon a time", max_tokens=900, ignore_eos=True)


class CurveTest(ProgramTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.allowed = os.path.join(self.folder, "allow.txt")
        self.clients = []
        self.addCleanup(lambda: [client.close() for client in self.clients])
        self.server_key = self.make_key("server")[0]
        self.keys = {name: self.make_key(name) for name in ("alice", "bob", "carol", "mallory")}

    def make_key(self, name):
        self.output("keygen", os.path.join(self.folder, name))
        return zmq.auth.load_certificate(os.path.join(self.folder, name + ".key_secret"))

    def serve(self, *names):
        with open(self.allowed, "w") as file:
            file.writelines(self.keys[name][0].decode() + f" {name}\n" for name in names)
        server = Server("--curve-key", os.path.join(self.folder, "server.key_secret"), "--curve-allow", self.allowed)
        self.addCleanup(server.__exit__)
        return server

    def client(self, server, name):
        keys = (*self.keys[name], self.server_key) if name else None
        self.clients.append(Client(server.lines["requests"], server.lines["events"], keys))
        return self.clients[-1]

    def test_serves_who_has_a_key_of_the_list(self):
        client = self.client(self.serve("alice"), "alice")

        stream = client.generate("Once upon a time", max_tokens=20)
        client.read_all([stream])

        self.assertEqual(client.streams[stream].rejected, [])

    def test_gives_others_nothing(self):
        server = self.serve("alice", "bob")
        strangers = [self.client(server, "mallory"), self.client(server, None)]
        alice = self.client(server, "alice")
        stream = alice.generate(**LONG)
        for stranger in strangers:
            stranger.watch(1, stream)
            stranger.requests.sndtimeo = 0
            with contextlib.suppress(zmq.Again):  # a socket that knows that it was refused takes no messages
                stranger.send("replay", stream, choice=0, from_seq=0)
                stranger.send("generate", stranger.watch(), prompt="Once upon a time")

        alice.read_all([stream])  # meanwhile they would have heard of it

        for stranger in strangers:
            self.assertFalse(stranger.hear(200))

    def test_keeps_a_stream_from_other_keys(self):
        server = self.serve("alice", "bob")
        alice, bob = self.client(server, "alice"), self.client(server, "bob")
        stream = alice.generate(**LONG)
        self.assertEqual(alice.answer("generate", stream)["type"], "ack")
        bob.watch(1, stream)

        for kind, fields in [("replay", dict(choice=0, from_seq=0)), ("look", {}), ("cancel", {}), ("follow", {})]:
            answer = bob.ask(kind, stream, **fields)
            self.assertEqual((answer["type"], answer.get("error")), ("rejected", "unknown_request"), kind)
        self.assertEqual(bob.ask("generate", stream, **LONG)["error"], "conflict")
        alice.read_all([stream])

        self.assertEqual(alice.streams[stream].said()[-1]["reason"], "length")  # nobody cancelled it
        self.assertFalse(bob.hear(200))
        self.assertEqual(bob.streams[stream].numbered, {})

    def test_lets_a_reader_in_who_was_granted(self):
        server = self.serve("alice", "bob", "carol")
        alice, carol = self.client(server, "alice"), self.client(server, "carol")
        stream = alice.generate(**LONG, readers=[self.keys["carol"][0].decode()])
        self.assertEqual(alice.answer("generate", stream)["type"], "ack")

        carol.watch(1, stream)
        carol.read_all([stream])
        alice.read_all([stream])

        self.assertEqual(carol.streams[stream].said(), alice.streams[stream].said())

    def test_refuses_other_machines_without_leave_and_keys(self):
        remote = ["serve", "--requests-endpoint", "tcp://0.0.0.0:0", "--events-endpoint", "tcp://127.0.0.1:0"]
        self.assert_refused(remote, "0.0.0.0", code=1)
        self.assert_refused([*remote, "--allow-remote"], "keys", code=1)

    def test_refuses_half_of_the_files(self):
        key = os.path.join(self.folder, "server.key_secret")
        self.assert_refused(["serve", "--curve-key", key], "--curve-allow")
        self.assert_refused(["serve", "--curve-allow", self.allowed], "--curve-key")
        self.assert_refused(["serve", "--port", "0", "--curve-key", key, "--curve-allow", self.allowed], self.allowed, code=1)
        with open(self.allowed, "w") as file:
            file.write("# nobody yet\n")
        self.assert_refused(["serve", "--port", "0", "--curve-key", key, "--curve-allow", self.allowed], "holds no key", code=1)
        os.chmod(key, 0o640)
        self.assert_refused(["serve", "--port", "0", "--curve-key", key, "--curve-allow", self.allowed], "chmod 600", code=1)


if __name__ == "__main__":
    unittest.main()
