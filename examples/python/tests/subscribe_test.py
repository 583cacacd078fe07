"""examples/subscribe.py, which needs no package: a request that is lost, and one whose answer is. Its gaps are tested in
tests/gateway/subscribe_test.py."""

import os
import subprocess
import sys
import unittest

from fake_gateway import FakeGateway

SUBSCRIBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "subscribe.py")


class SubscribeTest(unittest.TestCase):
    def follow(self, gateway):
        self.addCleanup(gateway.close)
        command = [sys.executable, SUBSCRIBE, "--requests", gateway.requests, "--events", gateway.events, "x"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def test_sends_a_lost_generate_again(self):
        gateway = FakeGateway(tokens=3)
        gateway.ignore = {"generate": 1}

        done = self.follow(gateway)

        self.assertEqual((done.stdout, done.returncode), (" 0.0 0.1 0.2!\n", 0), done.stderr)
        self.assertEqual(gateway.count("generate"), 2)

    def test_goes_on_when_the_first_one_had_arrived(self):
        gateway = FakeGateway(tokens=3)
        gateway.drop, gateway.drop_others = {(0, seq) for seq in range(4)}, {"started", "done"}
        gateway.lose_answers = {"generate": 1}

        done = self.follow(gateway)

        self.assertEqual((done.stdout, done.returncode), (" 0.0 0.1 0.2!\n", 0), done.stderr)
        self.assertEqual(gateway.count("generate"), 2)


if __name__ == "__main__":
    unittest.main()
