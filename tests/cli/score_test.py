import json
import math
import unittest

from program import ProgramTest

TEXT = "Once upon a time there was a little fox who lived in the forest with her mother."


class ScoreTest(ProgramTest):
    def score(self, *flags, **options):
        return json.loads(self.output("score", "--json", *flags, **options))

    def test_sums_the_log_probs_of_the_tokens(self):
        told = self.score(TEXT)

        logprobs = [token["logprob"] for token in told["tokens"]]
        self.assertEqual(told["scored"], len(logprobs))
        self.assertEqual(told["scored"], told["n_tokens"] - 1)
        self.assertAlmostEqual(told["sum"], sum(logprobs), places=9)
        self.assertAlmostEqual(told["mean"], told["sum"] / told["scored"], places=12)
        self.assertAlmostEqual(told["perplexity"], math.exp(-told["mean"]), places=9)
        self.assertEqual([token["position"] for token in told["tokens"]], list(range(1, told["n_tokens"])))

    def test_obeys_the_chain_rule(self):
        whole, head = self.score(TEXT), self.score(TEXT[:28])

        # What comes later does not change what came before, to the bit.
        n = head["scored"]
        self.assertEqual(head["tokens"], whole["tokens"][:n])

    def test_scores_ids_like_their_text(self):
        ids = json.loads(self.output("tokenize", "--json", TEXT))["ids"]

        self.assertEqual(self.score("--ids", ",".join(map(str, ids))), self.score(TEXT))

    def test_agrees_with_what_generate_says_of_its_tokens(self):
        lines = self.output("generate", "--json", "--temp", "0", "-n", "12", "--ignore-eos", "Once upon a time").splitlines()
        tokens = [event for event in map(json.loads, lines) if event["type"] == "token"]
        prompt = json.loads(self.output("tokenize", "--json", "Once upon a time"))["ids"]

        told = self.score("--ids", json.dumps(prompt + [token["id"] for token in tokens]))

        for token, scored in zip(tokens, told["tokens"][-12:]):
            self.assertAlmostEqual(token["logprob"], scored["logprob"], places=5)

    def test_tells_the_likeliest_tokens(self):
        for token in self.score("--top-logprobs", "4", TEXT)["tokens"]:
            logprobs = [top["logprob"] for top in token["top"]]
            self.assertEqual(len(logprobs), 4)
            self.assertEqual(logprobs, sorted(logprobs, reverse=True))
            self.assertLessEqual(token["logprob"], logprobs[0] + 1e-6)

    def test_scores_the_second_half_of_each_whole_chunk(self):
        told = self.score("--chunk", "16", "--second-half", "-", stdin=(TEXT * 3).encode())

        self.assertEqual(len(told["chunks"]), told["n_tokens"] // 16)
        self.assertEqual([chunk["begin"] for chunk in told["chunks"]], [16 * i for i in range(len(told["chunks"]))])
        self.assertTrue(all(chunk["scored"] == 7 for chunk in told["chunks"]))
        self.assertEqual([token["position"] for token in told["tokens"][:7]], list(range(9, 16)))

    def test_begins_each_chunk_with_bos(self):
        ids = json.loads(self.output("tokenize", "--json", TEXT * 2))["ids"]
        second = [0] + ids[17:32]

        chunks = self.score("--chunk", "16", TEXT * 2)["chunks"]

        self.assertEqual(chunks[1]["sum"], self.score("--ids", json.dumps(second))["sum"])

    def test_prints_a_table_for_people(self):
        lines = self.output("score", "A fox").decode().splitlines()

        self.assertRegex(lines[0], "log-prob")
        self.assertRegex(lines[-1], r"^ln P = -\d+\.\d+, the sum over \d+ tokens; mean -\d+\.\d+; perplexity \d+\.\d+$")

    def test_refuses_what_it_cannot_score(self):
        self.assert_refused(["score", "--ids", "1"], "fewer than two")
        self.assert_refused(["score", "--no-bos", ""], "fewer than two")
        self.assert_refused(["score", "--ids", "1,99999999"], "--ids")
        self.assert_refused(["score", "--ids", "1,2", "text"], "--ids")
        self.assert_refused(["score", "--second-half", "text"], "--chunk")
        self.assert_refused(["score", "--chunk", "16", "short"], "--chunk")
        self.assert_refused(["score", "--ctx", "16", "word " * 50], "16", "--chunk")


if __name__ == "__main__":
    unittest.main()
