import json
import os
import tempfile
import unittest

from program import GOLDEN, ProgramTest

TEXTS = ["Once upon a time", " leading  and   inner spaces ", "line\n\nbreaks\r\n\tand tabs", "naïve café — 你好 🦊", "<s>", "x"]


class TokenizeTest(ProgramTest):
    def test_ids_may_be_one_argument_or_many(self):
        expected = self.output("tokenize", "--detokenize", "443 309,259")
        self.assertEqual(self.output("tokenize", "--detokenize", "443", "309", "259"), expected)
        self.assertEqual(expected, b" there was a")

    def test_gives_back_the_text(self):
        for text in TEXTS:
            with self.subTest(text=text):
                ids = self.output("tokenize", "--ids-only", "-", stdin=text.encode())

                self.assertEqual(self.output("tokenize", "--detokenize", "-", stdin=ids), text.encode())

    def test_gives_back_bytes_that_are_no_text(self):
        ids = self.output("tokenize", "--ids-only", "-", stdin=b"a\xff\xfe\x00b")

        self.assertEqual(self.output("tokenize", "--detokenize", "-", stdin=ids), b"a\xff\xfe\x00b")
        told = json.loads(self.output("tokenize", "--detokenize", "--json", "-", stdin=ids))
        self.assertEqual(bytes(told["bytes"]), b"a\xff\xfe\x00b")

    def test_prints_ids_and_tokens_as_json(self):
        told = json.loads(self.output("tokenize", "--json", "Once upon a time"))

        self.assertEqual(list(told), ["ids", "tokens"])
        self.assertEqual(told["ids"], [0, 2916, 590, 259, 550])
        self.assertEqual("".join(told["tokens"][1:]).strip(), "Once upon a time")

    def test_prints_a_line_for_each_token(self):
        lines = self.output("tokenize", "Once upon a time\n").decode().splitlines()

        self.assertRegex(lines[1], r'^ +2916  ".*Once"$')
        self.assertIn(r"\n", lines[-1])

    def test_begins_with_bos_unless_told(self):
        with_bos = json.loads(self.output("tokenize", "--json", "x"))["ids"]
        without = json.loads(self.output("tokenize", "--json", "--no-bos", "x"))["ids"]

        self.assertEqual(with_bos[0], 0)
        self.assertEqual(with_bos[1:], without)

    def test_takes_control_tokens_only_if_told(self):
        bos = json.loads(self.output("tokenize", "--json", "")) ["tokens"][0]

        plain = json.loads(self.output("tokenize", "--json", "--no-bos", bos))["ids"]
        parsed = json.loads(self.output("tokenize", "--json", "--no-bos", "--parse-special", bos))["ids"]

        self.assertNotIn(0, plain)
        self.assertEqual(parsed, [0])

    def test_reads_a_file_byte_for_byte(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"two lines\nand an end\n")
            file.flush()

            self.assertEqual(self.output("tokenize", "--file", file.name),
                             self.output("tokenize", "two lines\nand an end\n"))

    def test_takes_a_vocabulary_without_a_model(self):
        path = os.path.join(GOLDEN, "vocab", "ggml-vocab-gpt-2.gguf")
        with open(path + ".inp", newline="", encoding="utf-8") as file:
            texts = file.read().split("\n__ggml_vocab_test__\n")
        with open(path + ".out") as file:
            lines = file.read().split("\n")
        self.assertGreater(len(texts), 40)

        for text, line in list(zip(texts, lines))[::5]:
            with self.subTest(text=text):
                told = json.loads(self.output("tokenize", "-m", path, "--no-bos", "--json", "-", stdin=text.encode()))

                self.assertEqual(told["ids"], [int(id) for id in line.split()])

    def test_refuses_ids_that_are_none(self):
        for ids in ("1,x", "-1", "99999999", "1.5"):
            with self.subTest(ids=ids):
                self.assert_refused(["tokenize", "--detokenize", "--", ids], "--detokenize", "token id between 0 and")

    def test_refuses_two_texts_and_a_file_that_is_missing(self):
        self.assert_refused(["tokenize", "x", "--file", "/dev/null"], "--file", "twice")
        self.assert_refused(["tokenize", "--file", "/nowhere.txt"], "/nowhere.txt", code=1)


if __name__ == "__main__":
    unittest.main()
