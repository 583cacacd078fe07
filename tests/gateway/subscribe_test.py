"""examples/subscribe.py against a gateway whose stream the test controls: subscribe_test.py SUBSCRIBE FAKE_GATEWAY."""
import json
import os
import signal
import subprocess
import sys
import unittest

SUBSCRIBE, FAKE_GATEWAY = sys.argv[1:3]
BURST = 15_000  # tokens of 1,300 bytes: far beyond the queues of both sides and of the kernel


class FakeGateway:
    def __init__(self):
        self.process = subprocess.Popen([FAKE_GATEWAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoints = [self.process.stdout.readline().strip() for _ in range(2)]

    def do(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Subscriber:
    def __init__(self, gateway, *arguments):
        command = [sys.executable, SUBSCRIBE, "--requests", gateway.endpoints[0], "--events", gateway.endpoints[1]]
        self.process = subprocess.Popen(
            command + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.stream = self.process.stderr.readline().split()[-1]

    def read(self, count):
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def stop(self):
        """Returns when no thread of it runs any more."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self):
        """Exit code, what is left of standard output, and of standard error."""
        if not self.process.stdout.closed:
            with self.process:  # which closes the pipes
                self.out, self.errors = self.process.stdout.read(), self.process.stderr.read()
        return self.process.returncode, self.out, self.errors

    def rest(self):
        code, out, errors = self.end()
        assert code == 0, errors
        return [json.loads(line) for line in out.splitlines()]


class SubscribeTest(unittest.TestCase):
    def setUp(self):
        self.gateway = FakeGateway()
        self.addCleanup(self.gateway.close)

    def subscriber(self, *arguments):
        subscriber = Subscriber(self.gateway, *arguments)
        self.addCleanup(subscriber.end)
        self.addCleanup(subscriber.process.kill)
        return subscriber

    def assert_whole(self, events, tokens):
        self.assertEqual([event["type"] for event in events], ["token"] * tokens + ["finished", "done"])
        self.assertEqual([event["seq"] for event in events[:-1]], list(range(tokens + 1)))

    def test_prints_the_text_of_a_stream(self):
        subscriber = self.subscriber("a prompt", "-n", "3", "--temp", "0", "--seed", "7")
        self.gateway.do("tokens 3")
        self.gateway.do("finish")
        code, out, err = subscriber.end()
        self.assertEqual(code, 0, err)
        self.assertEqual(out.replace(".", ""), " token 0 token 1 token 2\n")
        self.assertIn("exactly once", err)

    def test_one_that_joins_late_gets_all(self):
        first = self.subscriber("a prompt", "--json")
        self.gateway.do("tokens 1000")
        late = self.subscriber("--stream", first.stream, "--json")
        late.read(1)
        self.gateway.do("tokens 1000")
        self.gateway.do("finish")
        self.assert_whole(first.rest(), 2000)
        self.assertEqual(late.rest()[0]["seq"], 1)

    def test_one_that_joins_after_the_end_gets_all(self):
        first = self.subscriber("a prompt", "--json")
        self.gateway.do("tokens 100")
        self.gateway.do("finish")
        first.end()
        late = self.subscriber("--stream", first.stream, "--json")
        self.assert_whole(late.rest(), 100)

    def test_one_that_stalls_and_resumes_gets_all(self):
        subscriber = self.subscriber("a prompt", "--json")
        self.gateway.do("tokens 10")
        events = subscriber.read(10)
        subscriber.stop()
        self.gateway.do(f"tokens {BURST}")
        subscriber.process.send_signal(signal.SIGCONT)
        self.gateway.do("finish")
        self.assert_whole(events + subscriber.rest(), 10 + BURST)
        self.assertNotIn(" 0 replays", subscriber.errors, "nothing was dropped: the test tests nothing")

    def test_one_that_is_killed_and_comes_back_gets_the_rest(self):
        subscriber = self.subscriber("a prompt", "--json")
        self.gateway.do("tokens 500")
        events = subscriber.read(200)
        subscriber.process.kill()
        self.gateway.do("tokens 500")
        again = self.subscriber("--stream", subscriber.stream, "--from-seq", "200", "--json")
        events += again.read(1)
        self.gateway.do("tokens 500")
        self.gateway.do("finish")
        self.assert_whole(events + again.rest(), 1500)

    def test_a_stream_that_nobody_knows_is_an_error(self):
        code, _, err = self.subscriber("--stream", "00" * 16).end()
        self.assertEqual(code, 1)
        self.assertIn("unknown_request", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
