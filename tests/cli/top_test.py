"""millrace top against a server that this script plays."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
import unittest

import msgpack
import zmq

from program import MILLRACE, ProgramTest, run

STATS = {
    "type": "server_stats",
    "version": "0.1.0",
    "model": "tales",
    "device": "cpu:0 avx2",
    "uptime_seconds": 3723.0,
    "state": "serving",
    "running": 2,
    "waiting": 1,
    "queued_tokens": 40,
    "kv_blocks_used": 128,
    "kv_blocks_total": 512,
    "generated_tokens": 1000,
    "scheduler": {"preempted": 3, "yielded": 2, "cache_queries": 200, "cache_hits": 150, "cache_evictions": 4, "kv_blocks_cached": 99},
    "http_connections": 7,
    "requests": [
        {"stream": "ab12cd34", "phase": "decode", "prompt_tokens": 12, "processed_tokens": 12, "generated_tokens": 34,
         "age_ms": 2500.0, "tokens_per_second": 13.5}
    ],
}


class Server:
    """Answers Stats; each answer tells 100 tokens more."""

    def __init__(self, port=0, **changes):
        self.stats = {**STATS, **changes}
        self.asked = []
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(f"tcp://127.0.0.1:{port or '*'}")
        self.endpoint = self.socket.last_endpoint.decode()
        self.port = int(self.endpoint.rsplit(":")[-1])
        self.stopping = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while not self.stopping:
            if self.socket.poll(20):
                client, frame = self.socket.recv_multipart()
                self.asked.append(msgpack.unpackb(frame))
                self.stats["generated_tokens"] += 100
                self.socket.send_multipart([client, msgpack.packb(self.stats)])
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()


class Terminal:
    """top on a terminal of its own."""

    def __init__(self, *arguments, rows=24, columns=80):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen([MILLRACE, "top", *arguments], stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, pattern, within=30):
        """What came until the pattern; it is taken."""
        deadline = time.monotonic() + within
        while not (found := re.search(pattern, self.text)):
            if not select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"{pattern!r} did not come: {self.text!r}")
            self.text += os.read(self.master, 65536).decode()
        taken, self.text = self.text[: found.end()], self.text[found.end() :]
        return taken

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


class TopTest(ProgramTest):
    def test_shows_a_server_once(self):
        with Server() as server:
            text = self.output("top", "--once", "--requests-endpoint", server.endpoint).decode()

        self.assertIn("tales on cpu:0 avx2   serving   up 1h 02m", text)
        self.assertIn("running 2   waiting 1   prompt tokens queued 40", text)
        self.assertIn("128 of 512 blocks, 25 %", text)
        self.assertIn("99 blocks cached   hit rate 75 %   evicted 4   preempted 3   yielded 2", text)
        self.assertIn("HTTP connections 7", text)
        self.assertRegex(text, r"tokens/s  generated [1-9]\d+\.\d")
        self.assertRegex(text, r"ab12cd34  decode +1 +12/12 +34 +13\.5  2\.5s")
        self.assertNotIn("\x1b", text)

    def test_tells_no_hit_rate_of_nothing(self):
        with Server(scheduler={}) as server:
            text = self.output("top", "--once", "--port", str(server.port)).decode()

        self.assertIn("hit rate -", text)

    def test_tells_machines_in_json(self):
        with Server() as server:
            text = self.output("top", "--once", "--json", "--port", str(server.port), "--rows", "5")

        stats = json.loads(text)
        self.assertEqual(stats["kv_blocks_used"], 128)
        self.assertEqual(stats["scheduler"]["cache_hits"], 150)
        self.assertEqual(stats["requests"][0]["stream"], "ab12cd34")
        self.assertEqual(server.asked[0]["max_requests"], 5)

    def test_says_when_nobody_answers(self):
        with Server() as server:
            port = server.port
        self.assert_refused(["top", "--once", "--port", str(port)], "no answer", str(port), code=1)

    def test_lets_no_server_write_to_the_terminal(self):
        with Server(model="\x1b[2J\x9bx\nevil\u202e", state="\x07") as server:
            text = self.output("top", "--once", "--port", str(server.port)).decode()

        self.assertFalse(set(text) - {"\n"} - {chr(c) for c in range(32, 127)}, repr(text))

    def test_refuses_half_a_set_of_keys(self):
        self.assert_refused(["top", "--server-key", "x" * 40], "--curve-key")
        self.assert_refused(["top", "--interval", "0"], "--interval")
        self.assert_refused(["top", "--requests-endpoint", "nonsense", "--once"], "nonsense")

    def test_writes_plain_text_into_a_pipe(self):
        with Server() as server:
            process = subprocess.Popen([MILLRACE, "top", "--port", str(server.port)], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            lines = [process.stdout.readline().decode() for _ in range(20)]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)

        self.assertEqual(process.returncode, 0, errors)
        self.assertGreaterEqual(sum("tales on" in line for line in lines), 2)
        self.assertNotIn("\x1b", "".join(lines))

    def test_restores_the_terminal(self):
        with Server() as server, Terminal("--port", str(server.port)) as terminal:
            self.assertIn("\x1b[?1049h\x1b[?25l", terminal.read_until("tales on"))
            terminal.process.send_signal(signal.SIGINT)
            terminal.read_until(re.escape("\x1b[?25h\x1b[?1049l"))
            self.assertEqual(terminal.process.wait(30), 0)

    def test_fits_a_window_that_changes(self):
        with Server() as server, Terminal("--port", str(server.port), rows=40, columns=200) as terminal:
            terminal.read_until("ab12cd34")
            terminal.resize(3, 20)
            terminal.read_until(re.escape("\x1b[J"))
            screen = terminal.read_until(re.escape("\x1b[J"))
            lines = re.split(r"\r+\n", re.sub(r"\x1b\[[0-9?]*[a-zA-Z]", "", screen))

        self.assertEqual(len(lines), 3)
        self.assertLessEqual(max(map(len, lines)), 20)

    def test_waits_for_a_server_that_went(self):
        with Server() as server, Terminal("--port", str(server.port)) as terminal:
            terminal.read_until("tales on")
            port = server.port
            server.__exit__()
            terminal.read_until("no answer from")
            with Server(port, model="another"):
                terminal.read_until("another on")


if __name__ == "__main__":
    unittest.main()
