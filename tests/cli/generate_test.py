import json
import os
import signal
import subprocess
import unittest

from program import GOLDEN, MILLRACE, ProgramTest

# 8-bit activations move a logit by up to this much (data README); a smaller gap between the best two decides nothing.
TOLERANCE = 0.3
FLOAT_TOLERANCE = 2e-3


def events(output):
    return [json.loads(line) for line in output.splitlines()]


def of_type(name, output):
    return [event for event in events(output) if event["type"] == name]


class GenerateTest(ProgramTest):
    def greedy_agrees(self, tolerance, *flags):
        with open(os.path.join(GOLDEN, "tales.json")) as file:
            cases = json.load(file)["files"]["tales-q8_0.gguf"]
        compared = 0
        for case in cases:
            n = len(case["greedy"])
            output = self.output("generate", "--json", "--temp", "0", "-n", str(n), "--ignore-eos", *flags, case["prompt"])
            for token, id, margin in zip(of_type("token", output), case["greedy"], case["greedy_margin"]):
                if token["id"] != id:
                    self.assertLess(margin, tolerance, f"{case['prompt']!r}, token {token['seq']}")
                    break  # what follows has another beginning
                compared += 1
        return compared

    def test_follows_the_golden_ids_of_the_built_in_model(self):
        self.assertGreater(self.greedy_agrees(TOLERANCE), 40)

    def test_follows_every_golden_id_with_float_activations(self):
        self.assertEqual(self.greedy_agrees(FLOAT_TOLERANCE, "--activations", "f32"), 4 * 48)

    def test_gives_the_same_text_for_the_same_seed(self):
        first = self.output("generate", "--seed", "7", "-n", "40", "Long ago")

        self.assertEqual(first, self.output("generate", "--seed", "7", "-n", "40", "Long ago"))
        self.assertNotEqual(first, self.output("generate", "--seed", "8", "-n", "40", "Long ago"))

    def test_gives_the_same_text_with_any_number_of_threads(self):
        texts = {self.output("generate", "--seed", "7", "-n", "24", "--threads", n, "Long ago") for n in ("1", "2", "3")}

        self.assertEqual(len(texts), 1)

    def test_prints_events_whose_texts_make_the_text(self):
        flags = ["--seed", "3", "-n", "30", "A fox"]
        text = self.output("generate", *flags).decode()

        output = self.output("generate", "--json", *flags)

        kinds = [event["type"] for event in events(output) if event["type"] != "progress"]
        self.assertEqual(kinds[0], "started")
        self.assertEqual(kinds[-2:], ["finished", "done"])
        tokens, finished = of_type("token", output), of_type("finished", output)[0]
        self.assertEqual("".join(token["text"] for token in tokens) + finished["text"], text)
        self.assertEqual([token["seq"] for token in tokens], list(range(30)))
        self.assertEqual(finished["seq"], 30)
        self.assertEqual(finished["reason"], "length")
        self.assertEqual(list(tokens[0])[:5], ["type", "request", "choice", "epoch", "seq"])
        self.assertRegex(tokens[0]["request"], r"\A[0-9a-f]{32}\Z")
        self.assertEqual(bytes(b for token in tokens for b in token["bytes"]).decode()[: len(text)], text)
        self.assertTrue(all(token["logprob"] <= 0 for token in tokens))
        self.assertEqual(of_type("started", output)[0]["seed"], 3)

    def test_tells_the_likeliest_tokens_with_their_log_probs(self):
        output = self.output("generate", "--json", "--temp", "0", "-n", "5", "--logprobs", "3", "Once upon a")

        for token in of_type("token", output):
            self.assertEqual(len(token["top"]), 3)
            self.assertEqual(token["top"][0]["id"], token["id"])
            self.assertEqual(token["top"][0]["logprob"], token["logprob"])
        table = self.output("generate", "--temp", "0", "-n", "5", "--logprobs", "3", "Once upon a").decode()
        self.assertEqual(len(table.splitlines()), 1 + 5)

    def test_ends_before_a_stop_string(self):
        flags = ["generate", "--temp", "0", "-n", "40", "Once upon a time"]
        whole = self.output(*flags).decode()
        stop = whole[10:16]

        stopped = self.output(*flags, "--stop", "never to be seen", "--stop", stop).decode()

        self.assertEqual(stopped, whole[: whole.index(stop)])

    def test_a_bias_can_force_and_forbid_a_token(self):
        flags = ["generate", "--json", "--temp", "0", "-n", "3", "--ignore-eos", "Once upon a time"]
        first = of_type("token", self.output(*flags))[0]["id"]

        forbidden = of_type("token", self.output(*flags, "--logit-bias", f"{first}=-100"))
        forced = of_type("token", self.output(*flags, "--logit-bias", "100=100"))

        self.assertNotIn(first, [token["id"] for token in forbidden])
        self.assertEqual([token["id"] for token in forced], [100] * 3)

    def test_reads_the_prompt_from_stdin_byte_for_byte(self):
        flags = ["--temp", "0", "-n", "8"]

        self.assertEqual(self.output("generate", *flags, "-", stdin=b"A fox\n"), self.output("generate", *flags, "A fox\n"))
        self.assertEqual(self.output("generate", *flags), self.output("generate", *flags, ""))

    def test_generates_at_most_256_tokens_unless_told(self):
        done = of_type("done", self.output("generate", "--json", "--ignore-eos", "--seed", "1", "x"))[0]

        self.assertEqual(done["generated_tokens"], 256)

    def test_refuses_a_prompt_that_does_not_fit_the_context(self):
        self.assert_refused(["generate", "--ctx", "16", "word " * 100], "16", code=1)

    def test_tells_statistics_on_stderr_if_asked(self):
        done = subprocess.run([MILLRACE, "generate", "--stats", "-n", "4", "--seed", "5", "x"], capture_output=True, timeout=100)

        self.assertRegex(done.stderr.decode(), r"\A\d+ prompt tokens in .*seed 5\n\Z")

    def test_ends_in_good_order_when_interrupted(self):
        with subprocess.Popen([MILLRACE, "generate", "--json", "--ignore-eos", "-n", "100000", "x"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            head = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            output = head + process.stdout.read()
            self.assertEqual(process.stderr.read(), b"")

        self.assertEqual(process.returncode, 130)
        self.assertEqual(of_type("finished", output)[0]["reason"], "cancelled")
        self.assertEqual(len(of_type("done", output)), 1)

    def test_ends_quietly_when_its_reader_goes(self):
        with subprocess.Popen([MILLRACE, "generate", "--json", "--ignore-eos", "-n", "100000", "x"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")
            process.wait(timeout=100)

        self.assertEqual(process.returncode, 141)


if __name__ == "__main__":
    unittest.main()
