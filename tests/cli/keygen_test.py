import os
import stat
import tempfile
import unittest

import zmq.auth

from program import ProgramTest, run


class KeygenTest(ProgramTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_writes_certificates_that_zeromq_knows(self):
        line = self.output("keygen", self.path("alice")).decode()

        public, secret = zmq.auth.load_certificate(self.path("alice.key_secret"))
        self.assertEqual(zmq.auth.load_certificate(self.path("alice.key")), (public, None))
        self.assertEqual(zmq.curve_public(secret), public)
        self.assertEqual(line, public.decode() + " alice\n")

    def test_keeps_the_secret_from_others(self):
        self.output("keygen", self.path("alice"), umask=0)

        self.assertEqual(stat.S_IMODE(os.stat(self.path("alice.key_secret")).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("alice.key")).st_mode), 0o644)

    def test_makes_another_pair_each_time(self):
        self.assertNotEqual(self.output("keygen", self.path("a"))[:40], self.output("keygen", self.path("b"))[:40])

    def test_overwrites_nothing(self):
        self.output("keygen", self.path("alice"))
        before = open(self.path("alice.key_secret")).read()

        self.assert_refused(["keygen", self.path("alice")], "alice.key_secret", code=1)

        self.assertEqual(open(self.path("alice.key_secret")).read(), before)

    def test_refuses_what_is_no_name(self):
        self.assert_refused(["keygen"], "name")
        self.assert_refused(["keygen", self.folder.name + "/"], "name")
        self.assert_refused(["keygen", self.path("no/such/folder/alice")], "alice.key_secret", code=1)

    def test_says_nothing_secret(self):
        done = run("keygen", self.path("alice"))

        secret = zmq.auth.load_certificate(self.path("alice.key_secret"))[1]
        self.assertNotIn(secret, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
