"""Both clients against `millrace serve` with the built-in model, whose binary the environment variable MILLRACE names."""

import asyncio
import os
import subprocess
import tempfile
import unittest

import zmq.auth

from millrace import AsyncClient, Client, InvalidRequest, MillraceError, Silence, UnknownRequest

MILLRACE = os.environ.get("MILLRACE")


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen([MILLRACE, "serve", "--log-level", "off", *(flags or ["--port", "0"])],
                                        stdout=subprocess.PIPE, text=True)
        told = iter(self.process.stdout.readline, "")
        lines = {}
        for line in told:
            name, _, value = line.rstrip().partition(" ")
            lines[name] = value
            if name == "ready":
                break
        self.endpoints = lines.get("requests"), lines.get("events")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@unittest.skipUnless(MILLRACE, "MILLRACE does not name the binary")
class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.kill)

    def client(self, **options):
        client = Client(*self.server.endpoints, **options)
        self.addCleanup(client.close)
        return client

    def test_streams_a_text_that_is_the_same_however_it_is_read(self):
        client = self.client()
        stream = client.generate("Once upon a time", max_tokens=30, seed=1)
        text = "".join(event.text for event in stream)

        self.assertEqual((len(text) > 20, stream.done.generated_tokens, stream.started.seed), (True, 30, 1))
        self.assertEqual(client.complete("Once upon a time", max_tokens=30, seed=1), text)
        self.assertEqual(client.stream(stream.id).text(), text)
        self.assertTrue(text.endswith(client.stream(stream.id, from_seq=11).text()))

    def test_streams_in_tasks(self):
        async def texts():
            async with AsyncClient(*self.server.endpoints) as client:
                return await asyncio.gather(*(client.complete("A fox", max_tokens=20, seed=3, n=1) for _ in range(8)))

        self.assertEqual(len(set(asyncio.run(texts()))), 1)

    def test_reads_choices(self):
        texts = self.client().generate("A fox", n=3, max_tokens=10, seed=1).texts()

        self.assertEqual((len(texts), len(set(texts))), (3, 3))

    def test_cancels(self):
        client = self.client()
        stream = client.generate("A fox", ignore_eos=True)
        next(stream)
        stream.cancel()

        stream.text()

        self.assertEqual(stream.reasons, ["cancelled"])

    def test_a_deadline_ends_a_stream(self):
        client = self.client()
        stream = client.generate("A fox", ignore_eos=True, deadline_ms=1, priority=-5, tenant="a", cache_salt="s")

        stream.text()

        self.assertEqual(stream.reasons, ["deadline"])

    def test_tells_errors(self):
        client = self.client()
        for field, options in {
            "sampling.temperature": {"temperature": -1.0},
            "priority": {"priority": 101},
            "deadline_ms": {"deadline_ms": 0},
            "tenant": {"tenant": "a\nb"},
            "cache_salt": {"cache_salt": "x" * 257},
        }.items():
            with self.subTest(field=field), self.assertRaises(InvalidRequest) as caught:
                client.complete("x", **options)
            self.assertEqual(caught.exception.field, field)
        self.assertRaises(InvalidRequest, client.complete, "word " * 10_000)
        self.assertRaises(UnknownRequest, client.cancel, bytes(16))
        self.assertRaises(UnknownRequest, client.stream(bytes(16)).text)

    def test_follows_looks_and_tells_statistics(self):
        client = self.client(patience=2.0, timeout=6.0)
        id = client.submit("A fox", max_tokens=40, seed=2)

        text = client.follow(id, window=4).text()

        self.assertEqual(client.stream(id).text(), text)
        self.assertEqual(client.look(id).choices[0].text, text)
        stats = client.stats()
        self.assertEqual((stats.state, stats.generated_tokens >= 40), ("serving", True))

    def test_reads_the_log_probs_of_a_prompt(self):
        stream = self.client().generate("A fox said", prompt_logprobs=1, max_tokens=0)
        stream.text()

        self.assertEqual(len(stream.prompt), stream.done.prompt_tokens)
        self.assertIsNone(stream.prompt[0].logprob)

    def test_holds_a_conversation(self):
        text = self.client().complete(messages=[{"role": "user", "content": "Tell me of a fox."}], max_tokens=10, seed=1)

        self.assertGreater(len(text), 0)

    def test_joins_a_request_with_the_same_key(self):
        client = self.client()
        options = {"max_tokens": 20, "idempotency_key": "the fox"}

        self.assertEqual(client.complete("A fox", **options), client.complete("A fox", **options))
        with self.assertRaises(MillraceError) as caught:
            client.complete("A wolf", **options)
        self.assertEqual(caught.exception.code, "conflict")


@unittest.skipUnless(MILLRACE, "MILLRACE does not name the binary")
class RestartTest(unittest.TestCase):
    def test_rejoins_a_server_that_was_killed_and_restarted_with_its_log(self):
        options = {"max_tokens": 400, "seed": 5, "ignore_eos": True}
        with tempfile.TemporaryDirectory() as folder:
            server = Server("--port", "0", "--log-dir", folder)
            with Client(*server.endpoints) as client:
                whole = client.complete("Once upon a time", **options)
                server.kill()
            server = Server("--port", "0", "--log-dir", folder)
            client = Client(*server.endpoints, patience=1.0, timeout=60.0)
            stream = client.generate("Once upon a time", **options)
            text = "".join(next(stream).text for _ in range(20))
            server.kill()
            same = ["--requests-endpoint", server.endpoints[0], "--events-endpoint", server.endpoints[1]]
            again = Server(*same, "--log-dir", folder)
            try:
                self.assertEqual(text + stream.text(), whole)
            finally:
                client.close()
                again.kill()


@unittest.skipUnless(MILLRACE, "MILLRACE does not name the binary")
class KeysTest(unittest.TestCase):
    def test_a_server_with_keys_hears_only_those_that_it_allows(self):
        with tempfile.TemporaryDirectory() as folder:
            server_key, _ = make_keys(folder, "server")
            alice, bob = make_keys(folder, "alice"), make_keys(folder, "bob")
            allow = os.path.join(folder, "allow.txt")
            with open(allow, "w") as file:
                file.write(alice[0] + "\n")
            secret = os.path.join(folder, "server.key_secret")
            server = Server("--port", "0", "--curve-key", secret, "--curve-allow", allow)
            self.addCleanup(server.kill)

            with Client(*server.endpoints, server_key=server_key, public_key=alice[0], secret_key=alice[1]) as client:
                self.assertGreater(len(client.complete("A fox", max_tokens=10)), 0)
            for keys in {"server_key": server_key, "public_key": bob[0], "secret_key": bob[1]}, {}:
                with Client(*server.endpoints, patience=0.5, timeout=1.5, **keys) as client:
                    self.assertRaises(Silence, client.complete, "A fox")


def make_keys(folder, name):
    """Public and secret key of a pair that `millrace keygen` makes."""
    subprocess.run([MILLRACE, "keygen", os.path.join(folder, name)], check=True, capture_output=True)
    public, secret = zmq.auth.load_certificate(os.path.join(folder, f"{name}.key_secret"))
    return public.decode(), secret.decode()


if __name__ == "__main__":
    unittest.main()
