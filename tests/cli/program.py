"""Runs the binary that the environment variable MILLRACE names."""

import os
import subprocess
import unittest

MILLRACE = os.environ["MILLRACE"]
FOLDER = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(FOLDER, "..", "golden")
TOP = os.path.join(FOLDER, "..", "..")


def run(*arguments, stdin=b"", **options):
    """The finished process; stdout and stderr are bytes."""
    return subprocess.run([MILLRACE, *arguments], input=stdin, capture_output=True, timeout=100, **options)


class ProgramTest(unittest.TestCase):
    def output(self, *arguments, **options):
        """stdout of a run that must succeed."""
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout

    def assert_refused(self, arguments, *words, code=2, **options):
        """Exit code, silence on stdout, and one line on stderr that has the words."""
        done = run(*arguments, **options)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, code, message)
        self.assertEqual(done.stdout, b"")
        self.assertTrue(message.startswith("millrace: "), message)
        for word in words:
            self.assertIn(word, message)
