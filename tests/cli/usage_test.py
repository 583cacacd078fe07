import os
import re
import subprocess
import unittest

from program import MILLRACE, ProgramTest, run

COMMANDS = ["generate", "serve", "tokenize", "score", "inspect", "bench", "keygen"]
SHARED_FLAGS = """--model --device --threads --ctx""".split()
GENERATION_FLAGS = """--max-tokens --temp --top-k --top-p --min-p --repeat-penalty --frequency-penalty
    --presence-penalty --logit-bias --seed --stop --ignore-eos --logprobs --json""".split()


class UsageTest(ProgramTest):
    def test_help_names_every_command(self):
        text = self.output("--help").decode()

        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")

    def test_help_of_each_command_fits_a_wide_terminal(self):
        for command in COMMANDS:
            text = self.output(command, "--help").decode()

            self.assertLessEqual(max(map(len, text.splitlines())), 120, command)

    def test_help_of_generate_names_every_flag(self):
        text = self.output("generate", "--help").decode()

        for flag in SHARED_FLAGS + GENERATION_FLAGS:
            self.assertRegex(text, rf"{flag}\b")

    def test_version_names_paths_and_libraries(self):
        text = self.output("--version").decode()

        self.assertRegex(text, r"\Amillrace \d+\.\d+\.\d+\n")
        self.assertRegex(text, r"(?m)^CPU paths: (\w+ )*scalar$")
        self.assertRegex(text, r"CAF \d+\.\d+\.\d+, ZeroMQ \d+\.\d+\.\d+, msgpack \d+\.\d+\.\d+")

    def test_refuses_what_is_no_command(self):
        self.assert_refused([], "--help")
        self.assert_refused(["fly"], "fly")
        self.assert_refused(["generate", "--fly"], "--fly")
        self.assert_refused(["generate", "one", "two"], "two")

    def test_refuses_values_out_of_range_and_names_flag_and_limit(self):
        for flag, value, limit in [
            ("--temp", "-1", "0 to 100"),
            ("--temp", "nan", "0 to 100"),
            ("--temp", "hot", "a number"),
            ("--temp", "1x", "a number"),
            ("--temp", "", "a number"),
            ("--top-k", "-1", "0 to"),
            ("--top-k", "1.5", "a whole number between 0 and 2147483647"),
            ("--top-k", "99999999999", "a whole number"),
            ("--top-p", "0", "above 0"),
            ("--top-p", "1.5", "at most 1"),
            ("--min-p", "2", "0 to 1"),
            ("--repeat-penalty", "0", "above 0"),
            ("--repeat-penalty", "inf", "finite"),
            ("--frequency-penalty", "1e9", "-100 to 100"),
            ("--presence-penalty", "-101", "-100 to 100"),
            ("--logit-bias", "5", "ID=BIAS"),
            ("--logit-bias", "=5", "a whole number"),
            ("--logit-bias", "-1=5", "a whole number"),
            ("--logit-bias", "1=", "a number"),
            ("--logit-bias", "1=101", "-100 to 100"),
            ("--seed", "-1", "a whole number"),
            ("--seed", "18446744073709551616", "18446744073709551615"),
            ("--max-tokens", "16777217", "0 to"),
            ("--max-tokens", "-5", "0 to"),
            ("--max-tokens", "many", "between 0 and 16777216"),
            ("--logprobs", "few", "between 0 and 20"),
            ("--logprobs", "-1", "0 to"),
            ("--logprobs", "1000000", "0 to"),
            ("--stop", "", "must not be empty"),
            ("--threads", "0", "between 1 and"),
            ("--ctx", "-1", "between 1 and"),
            ("--device", "cuda:7", "no CUDA devices; known: cpu, cpu:0"),
            ("--device", "cpu:1", "\"cpu:1\" is no device"),
            ("--activations", "q2", "q8"),
        ]:
            with self.subTest(flag=flag, value=value):
                self.assert_refused(["generate", flag, value, "x"], flag, limit)

    def test_refuses_an_id_beyond_the_vocabulary(self):
        self.assert_refused(["generate", "--logit-bias", "99999999=1", "x"], "--logit-bias", "token id")

    def test_refuses_a_prompt_that_is_not_utf8(self):
        self.assert_refused(["generate", "-"], "the prompt", "UTF-8", stdin=b"\xff")

    def test_says_which_model_file_is_missing_or_broken(self):
        for command in (["generate", "x"], ["tokenize", "x"], ["score", "x y"], ["inspect"], ["bench"]):
            with self.subTest(command=command[0]):
                self.assert_refused([*command, "-m", "/nowhere.gguf"], "/nowhere.gguf", "No such file", code=1)
                self.assert_refused([*command, "-m", MILLRACE], MILLRACE, code=1)

    def test_draws_no_progress_bar_into_a_pipe(self):
        self.assertEqual(run("score", "a b").stderr, b"")

    def test_ends_with_closed_standard_descriptors(self):
        for command, code, message in [
            ("generate - <&-", 1, b"stdin: Bad file descriptor"),
            ("generate -n 4 x >&-", 1, b"stdout: Bad file descriptor"),
            ("generate -n 4 x <&-", 0, b""),
            ("generate -n 4 x 2>&-", 0, b""),
            ("tokenize - <&- >&- 2>&-", 1, b""),
        ]:
            with self.subTest(command=command):
                done = subprocess.run(["/bin/sh", "-c", 'exec "$0" ' + command, MILLRACE], stdin=subprocess.DEVNULL,
                                      capture_output=True, timeout=100)

                self.assertEqual(done.returncode, code)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout != b"", code == 0)

    def test_says_why_it_cannot_write(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([MILLRACE, "tokenize", "x"], stdout=full, stderr=subprocess.PIPE, timeout=100)

        self.assertEqual(done.returncode, 1)
        self.assertIn(b"No space left", done.stderr)


if __name__ == "__main__":
    unittest.main()
