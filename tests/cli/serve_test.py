import os
import signal
import subprocess
import sys
import unittest

from program import MILLRACE, TOP, ProgramTest


class Server:
    """A server on free ports; knows its endpoints once it is ready."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([MILLRACE, "serve", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        self.lines = dict(line.rstrip().partition(" ")[::2] for line in iter(self.process.stdout.readline, "ready\n") if line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def endpoints(self):
        return ["--requests", self.lines["requests"], "--events", self.lines["events"]]

    def follow(self, *arguments):
        """examples/subscribe.py, running."""
        return subprocess.Popen([sys.executable, os.path.join(TOP, "examples", "subscribe.py"), *self.endpoints(), *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        self.process.communicate(timeout=60)
        return self.process.returncode


class ServeTest(ProgramTest):
    def test_says_where_it_listens_and_serves_there(self):
        with Server() as server:
            self.assertRegex(server.lines["requests"], r"^tcp://127\.0\.0\.1:[1-9]\d+$")
            self.assertRegex(server.lines["events"], r"^tcp://127\.0\.0\.1:[1-9]\d+$")

            output, errors = server.follow("Once upon a time").communicate(timeout=60)

            self.assertGreater(len(output), 20, errors)
            self.assertEqual(server.end(), 0)

    def test_ends_at_once_when_idle(self):
        for with_signal in (signal.SIGTERM, signal.SIGINT):
            with Server() as server:
                self.assertEqual(server.end(with_signal), 0)

    def test_lets_a_running_stream_end(self):
        with Server() as server:
            client = server.follow("Once upon a time")
            client.stdout.read(1)  # it runs

            self.assertEqual(server.end(), 0)

            output, errors = client.communicate(timeout=60)
            self.assertEqual(client.returncode, 0, errors)

    def test_cancels_what_runs_when_the_grace_is_over(self):
        with Server("--grace", "0") as server:
            client = server.follow("Once upon a time")
            client.stdout.read(1)

            self.assertEqual(server.end(), 0)

            client.communicate(timeout=60)

    def test_names_the_port_that_is_taken(self):
        with Server() as server:
            port = server.lines["requests"].rpartition(":")[2]

            self.assert_refused(["serve", "--port", port], port, code=1)

    def test_stays_on_loopback(self):
        self.assert_refused(["serve", "--requests-endpoint", "tcp://0.0.0.0:0"], "0.0.0.0", code=1)

    def test_refuses_a_port_beside_an_endpoint(self):
        self.assert_refused(["serve", "--port", "0", "--events-endpoint", "tcp://127.0.0.1:0"], "--port")


if __name__ == "__main__":
    unittest.main()
