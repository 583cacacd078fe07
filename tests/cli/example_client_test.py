"""examples/client.cpp against a server; the server's log and metrics meanwhile."""

import os
import subprocess
import unittest
import urllib.request

from program import MILLRACE, ProgramTest


class ExampleClientTest(ProgramTest):
    def setUp(self):
        self.server = subprocess.Popen([MILLRACE, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True)
        self.doors = dict(line.split() for line in iter(self.server.stdout.readline, "ready\n") if line)

    def tearDown(self):
        self.server.kill()
        self.server.communicate()

    def client(self, *arguments):
        environment = {**os.environ, "MILLRACE_REQUESTS": self.doors["requests"], "MILLRACE_EVENTS": self.doors["events"]}
        return subprocess.run([os.environ["EXAMPLE_CLIENT"], *arguments], env=environment, capture_output=True, text=True,
                              timeout=60)

    def test_prints_a_story(self):
        done = self.client("Once upon a time", "12")

        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("\n[length]\n"), done.stdout)

    def test_tells_why_it_was_refused(self):
        done = self.client("Once upon a time", "-1")

        self.assertEqual(done.returncode, 1)
        self.assertIn("invalid_field: ", done.stderr)

    def test_is_seen_by_log_and_metrics(self):
        self.client("A secret", "5")
        self.client("A secret", "-1")
        with urllib.request.urlopen(self.doors["http"] + "/metrics", timeout=60) as answer:
            metrics = answer.read().decode()
        self.server.terminate()
        log = self.server.communicate(timeout=60)[1]

        self.assertRegex(metrics, r'vllm:generation_tokens_total\{[^}]*\} 5\n')
        self.assertRegex(metrics, r'vllm:request_success_total\{[^}]*finished_reason="length"\} 1\n')
        self.assertRegex(metrics, r'millrace:requests_refused_total\{[^}]*error="invalid_field"\} 1\n')
        self.assertRegex(log, r"info opened stream=[0-9a-f]{8} door=zmq choices=1 max_tokens=5\n")
        self.assertRegex(log, r"info finished stream=[0-9a-f]{8} door=zmq reason=length .*generated_tokens=5 ")
        self.assertRegex(log, r"info refused stream=[0-9a-f]{8} door=zmq code=invalid_field field=max_tokens\n")
        self.assertNotIn("secret", log)


if __name__ == "__main__":
    unittest.main()
