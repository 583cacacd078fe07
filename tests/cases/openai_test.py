"""The `openai` package, unchanged, against a running server. It is not packaged by Debian: without it these tests are skipped, and
what it sends is tested with the standard library by the others of this folder."""

import unittest

from server import Server

try:
    import openai
except ImportError:
    openai = None


@unittest.skipUnless(openai, "the openai package is not installed")
class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.client = openai.OpenAI(base_url=f"http://{cls.server.host}:{cls.server.port}/v1", api_key="none", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.__exit__()

    def test_retrieves_the_model(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("another")

    def test_streams_a_completion_as_it_answers_it(self):
        body = {"model": self.model, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "logprobs": 2}
        whole = self.client.completions.create(**body)
        chunks = list(self.client.completions.create(**body, stream=True, stream_options={"include_usage": True}))

        self.assertEqual(whole.choices[0].text, "".join(c.choices[0].text for c in chunks if c.choices))
        self.assertEqual(whole.usage, chunks[-1].usage)
        self.assertEqual(len(whole.choices[0].logprobs.tokens), whole.usage.completion_tokens)

    def test_streams_a_chat_as_it_answers_it(self):
        body = {"model": self.model, "messages": [{"role": "user", "content": "Tell a tale."}], "max_tokens": 12, "seed": 1,
                "logprobs": True, "top_logprobs": 2, "n": 2}
        whole = self.client.chat.completions.create(**body)
        chunks = list(self.client.chat.completions.create(**body, stream=True))

        for choice in whole.choices:
            mine = [c.choices[0] for c in chunks if c.choices[0].index == choice.index]
            self.assertEqual(mine[0].delta.role, "assistant")
            self.assertEqual(mine[-1].finish_reason, choice.finish_reason)
            self.assertEqual(choice.message.content, "".join(c.delta.content or "" for c in mine))

    def test_raises_its_own_errors(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.completions.create(model=self.model, prompt="x", temperature=-1)
        self.assertEqual(raised.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="another", prompt="x")

    def test_scores_a_text(self):
        answer = self.client.completions.create(model=self.model, prompt="Once upon a time", max_tokens=0, echo=True, logprobs=1)
        self.assertEqual(answer.choices[0].text, "Once upon a time")
        self.assertIsNone(answer.choices[0].logprobs.token_logprobs[0])
        self.assertTrue(all(p < 0 for p in answer.choices[0].logprobs.token_logprobs[1:]))


if __name__ == "__main__":
    unittest.main()
