"""One validator behind all doors: the same bad values through ZeroMQ, HTTP and the command line, each refused with the field's name."""

import os
import subprocess
import unittest

import msgpack
import zmq

from server import MILLRACE, Server

# Field over ZeroMQ, field over HTTP, flag; the values that no door may take. A None where a door does not have the field.
FLOATS = [float("nan"), float("inf"), float("-inf")]
TABLE = [
    ("sampling.temperature", "temperature", "--temp", [-1e-9, 100.5, *FLOATS]),
    ("sampling.top_p", "top_p", "--top-p", [0.0, -0.5, 1.5, *FLOATS]),
    ("sampling.min_p", "min_p", "--min-p", [-0.1, 1.1, *FLOATS]),
    ("sampling.repetition_penalty", "repetition_penalty", "--repeat-penalty", [0.0, -1.0, *FLOATS]),
    ("sampling.frequency_penalty", "frequency_penalty", "--frequency-penalty", [-100.5, 100.5, *FLOATS]),
    ("sampling.presence_penalty", "presence_penalty", "--presence-penalty", [-100.5, 100.5, *FLOATS]),
    ("sampling.top_k", "top_k", "--top-k", [-2, 2**31, 2**63, 0.5, "many"]),
    ("sampling.seed", "seed", "--seed", [-1, -(2**63), 0.5, "one"]),
    ("max_tokens", "max_tokens", "--max-tokens", [-1, 2**24 + 1, 2**31, 2**63, 1.5, "all"]),
    ("n", "n", None, [0, -1, 17, 2**31, 2**63, 1.5, "two"]),
    ("logprobs", "logprobs", "--logprobs", [-1, 21, 2**31, 0.5, "top"]),
    ("priority", "priority", None, [-101, 101, 2**31, 2**63, 0.5, "high"]),
    ("deadline_ms", "deadline_ms", None, [0, -1, 86_400_001, 2**63, 0.5, "soon"]),
    ("tenant", "user", None, ["x" * 65, "a\nb", "\0", "\x7f", "\x9b", 5]),
    ("cache_salt", "cache_salt", None, ["x" * 257, "a\tb", "\0", 5]),
    ("stop", "stop", "--stop", [[""], ["x" * 1025], ["x"] * 17, ["x"] * 100_000]),
    ("stop_ids", "stop_token_ids", None, [[-1], [2**20], [1] * 17]),
    ("prompt", "prompt", None, ["x" * (4 * 2**20 + 1)]),
]
BIASES = [{-1: 1.0}, {2**20: 1.0}, {5: 100.5}, {5: float("nan")}, {5: float("-inf")}]

server = None


def setUpModule():
    global server
    server = Server()


def tearDownModule():
    server.__exit__()


def nested(path, value):
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


class DoorsTest(unittest.TestCase):
    def setUp(self):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(server.lines["requests"])

    def tearDown(self):
        self.socket.close()
        self.context.term()

    def zmq_answer(self, fields):
        request = {"type": "generate", "request": os.urandom(16), "prompt": "x", **fields}
        self.socket.send(msgpack.packb(request))
        self.assertTrue(self.socket.poll(60_000), "no answer")
        return msgpack.unpackb(self.socket.recv())

    def test_zeromq_names_the_field(self):
        for field, _, _, values in TABLE + [("sampling.logit_bias", None, None, BIASES)]:
            for value in values:
                with self.subTest(field=field, value=str(value)[:40]):
                    answer = self.zmq_answer(nested(field, value))
                    self.assertEqual((answer["type"], answer["error"]), ("rejected", "invalid_field"))
                    self.assertEqual(answer["field"].partition("[")[0], field)

    def test_http_names_the_field(self):
        for _, field, _, values in TABLE + [(None, "logit_bias", None, [{str(k): v for k, v in bias.items()} for bias in BIASES])]:
            for value in values:
                with self.subTest(field=field, value=str(value)[:40]):
                    status, answer = server.post("/v1/completions", {"prompt": "x", field: value})
                    self.assertEqual(status, 400)
                    # NaN and Infinity are not JSON at all: then there is no field to name.
                    if not any(word in str(value) for word in ("nan", "inf")):
                        self.assertEqual(answer["error"]["param"].partition("[")[0], field, answer)

    def test_the_command_line_names_the_flag(self):
        for _, _, flag, values in TABLE:
            for value in values if flag else []:
                words = [f"{flag}={value}"]
                if isinstance(value, list):
                    words = [part for word in value for part in (flag, word)]
                if len(words) > 1000:
                    continue  # longer than a command line
                with self.subTest(flag=flag, value=str(value)[:40]):
                    done = subprocess.run([MILLRACE, "generate", *words, "x"], capture_output=True, text=True, timeout=100)
                    self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                    self.assertIn(flag, done.stderr)

    def test_what_is_at_the_limit_passes_every_door(self):
        right = {"temperature": 100.0, "top_p": 1.0, "min_p": 1.0, "repetition_penalty": 1e30, "frequency_penalty": -100.0,
                 "presence_penalty": 100.0, "top_k": 2**31 - 1, "seed": 2**63 - 1}
        order = {"priority": -100, "deadline_ms": 86_400_000, "cache_salt": "s" * 256}

        self.assertEqual(self.zmq_answer({"sampling": right, "max_tokens": 1, **order, "tenant": "t" * 64})["type"], "ack")
        self.assertEqual(server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, **right, **order, "user": "t" * 64})[0], 200)
        flags = ["--temp=100", "--top-p=1", "--min-p=1", "--repeat-penalty=1e30", "--frequency-penalty=-100", "--presence-penalty=100",
                 f"--top-k={2**31 - 1}", f"--seed={2**63 - 1}", "--max-tokens=1"]
        self.assertEqual(subprocess.run([MILLRACE, "generate", *flags, "x"], capture_output=True, timeout=100).returncode, 0)


if __name__ == "__main__":
    unittest.main()
