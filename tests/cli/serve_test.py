import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

from program import MILLRACE, TOP, ProgramTest


class Server:
    """A server on free ports; knows its endpoints once it is ready."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([MILLRACE, "serve", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        self.lines = {}
        for line in self.process.stdout:
            if line == "ready\n":
                return
            name, _, endpoint = line.rstrip().partition(" ")
            self.lines[name] = endpoint
        raise AssertionError("the server did not start: " + self.process.communicate()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def endpoints(self):
        return ["--requests", self.lines["requests"], "--events", self.lines["events"]]

    def http(self):
        return http.client.HTTPConnection(urllib.parse.urlsplit(self.lines["http"]).netloc, timeout=60)

    def ask(self, method, path, body=None, **headers):
        """Status and body of an answer."""
        with contextlib.closing(self.http()) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()

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

    def test_answers_over_http_beside_it(self):
        with Server() as server:
            self.assertRegex(server.lines["http"], r"^http://127\.0\.0\.1:[1-9]\d+$")

            self.assertEqual(server.ask("GET", "/health")[0], 200)
            status, body = server.ask("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})

            self.assertEqual(status, 200, body)
            self.assertGreater(len(json.loads(body)["choices"][0]["text"]), 5)
            self.assertEqual(server.end(), 0)

    def test_keeps_to_zeromq_when_told(self):
        with Server("--no-http") as server:
            self.assertEqual(set(server.lines), {"requests", "events"})

    def test_wants_a_key_over_http(self):
        with tempfile.NamedTemporaryFile("w") as keys:  # only its owner may read it
            keys.write("alice sk-alice-0123456789\n")
            keys.flush()
            with Server("--api-keys", keys.name) as server:
                self.assertEqual(server.ask("GET", "/v1/models")[0], 401)
                self.assertEqual(server.ask("GET", "/v1/models", Authorization="Bearer sk-alice-0123456789")[0], 200)
                self.assertEqual(server.ask("GET", "/health")[0], 200)

    def test_lets_a_running_http_stream_end(self):
        with Server() as server:
            connection = server.http()
            self.addCleanup(connection.close)
            request = {"prompt": "Once upon a time", "max_tokens": 300, "stream": True, "ignore_eos": True}
            connection.request("POST", "/v1/completions", json.dumps(request), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read(1)  # it runs

            server.process.send_signal(signal.SIGTERM)

            self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
            self.assertEqual(server.process.wait(60), 0)

    def test_takes_flags_from_a_file(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# ours\nmax-body-mib = 1\nno-http = false\ngrace = 5\n")
            file.flush()
            with Server("--config", file.name) as server:
                self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "x" * (1 << 20)})[0], 413)

    def test_names_what_a_file_of_flags_has_wrong(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("max-bodies = 1\n")
            file.flush()
            self.assert_refused(["serve", "--config", file.name], "max-bodies")
        with tempfile.NamedTemporaryFile("w") as file:
            file.write('grace = "long"\n')
            file.flush()
            self.assert_refused(["serve", "--config", file.name], "--grace")
        self.assert_refused(["serve", "--config", "/nonexistent"], "/nonexistent")

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

    def test_opens_http_to_others_only_with_keys_and_tls(self):
        for flags in (), ("--allow-remote",):
            self.assert_refused(["serve", "--port", "0", "--http-address", "0.0.0.0", *flags], "0.0.0.0", code=1)
        self.assert_refused(["serve", "--tls-cert", "cert.pem"], "--tls-key")

    def test_refuses_a_schedule_that_there_is_not(self):
        for flag, value, limit in [
            ("--prefill-stretch", "0", "above 0 and at most 1000"),
            ("--prefill-stretch", "nan", "above 0"),
            ("--prefill-stretch", "1x", "a number"),
            ("--kv-positions", "0", "between 1 and"),
            ("--kv-positions", "1073741824", "this machine holds"),
            ("--max-queue-wait", "-1", "between 0 and 86400"),
            ("--max-tenant-share", "1.01", "above 0 and at most 1"),
            ("--max-tenant-share", "0", "above 0"),
            ("--ageing", "0", "between 1 and 86400"),
        ]:
            with self.subTest(flag=flag, value=value):
                self.assert_refused(["serve", "--port", "0", flag, value], flag, limit)

    def test_keeps_beginnings_of_prompts_unless_told_not_to(self):
        body = {"prompt": "Once upon a time there was a small fox who lived in a deep forest. " * 4, "max_tokens": 1}
        for flags, cached in ((), True), (("--no-prefix-cache",), False):
            with Server("--kv-positions", "1024", *flags) as server:
                usages = [json.loads(server.ask("POST", "/v1/completions", body)[1])["usage"] for _ in range(2)]
                found = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
                self.assertEqual(found[0], 0)
                self.assertEqual(found[1] > 0, cached, usages)
                metrics = server.ask("GET", "/metrics")[1].decode()
                self.assertRegex(metrics, r"(?m)^vllm:prefix_cache_hits_total\{.*\} %d$" % found[1])
                self.assertRegex(metrics, r"(?m)^millrace:kv_blocks\{.*\} 64$")

    def test_tells_how_near_to_the_machines_peaks_it_runs_if_asked(self):
        body = {"prompt": "Once upon a time", "max_tokens": 8}
        for flags in (), ("--measure-peaks",):
            with Server(*flags) as server:
                server.ask("POST", "/v1/completions", body)
                metrics = server.ask("GET", "/metrics")[1].decode()
                ratios = re.findall(r"(?m)^millrace:(?:decode|prefill)_peak_ratio\{.*\} (\S+)$", metrics)
                self.assertEqual(len(ratios), 2 if flags else 0, metrics)
                for ratio in ratios:
                    self.assertGreater(float(ratio), 0)

    def test_refuses_a_port_beside_an_endpoint(self):
        self.assert_refused(["serve", "--port", "0", "--events-endpoint", "tcp://127.0.0.1:0"], "--port")


if __name__ == "__main__":
    unittest.main()
