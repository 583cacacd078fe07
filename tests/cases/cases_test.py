"""Reports about other engines, each a test against a running server; the ids are those of the collection. What needs a capability
that is not there yet stands at the end, with what it waits for.

Some of the kind are tested closer to the code: ids against reference tokenizers (P09) and linear encoding (P11) in tests/text,
files without tensors or vocabulary in tests/model, long drains and deaths in tests/cli and tests/actors."""

import json
import socket
import struct
import unittest

from server import Server, Stream, joined_text

server = None


def setUpModule():
    global server
    server = Server()


def tearDownModule():
    server.__exit__()


PROMPT = "Once upon a time"


class CasesTest(unittest.TestCase):
    def assert_refused(self, answer, *words, status=400):
        """A refusal in the API's own shape that names what is wrong, and a server that goes on."""
        self.assertEqual(answer[0], status, answer[1])
        error = answer[1]["error"]
        for key in ("message", "type", "param", "code"):
            self.assertIn(key, error)
        for word in words:
            self.assertIn(word, f"{error['param']} {error['message']}")
        self.assertEqual(server.get("/health")[0], 200)

    def tokenize(self, text, **options):
        status, answer = server.post("/tokenize", {"content": text, **options})
        self.assertEqual(status, 200, answer)
        return answer["tokens"]

    def context_length(self):
        status, answer = server.post("/v1/completions", {"prompt": [5] * 2**20, "max_tokens": 1})
        self.assertEqual(status, 400, answer)
        return int("".join(c for c in answer["error"]["message"].split("context")[-1] if c.isdigit()))

    # ---- text ----

    def test_P01_incomplete_characters_are_held_back(self):
        # Bytes of several-byte characters in any order: what a confused model would say.
        bias = {str(id): 100 for byte in (0xF0, 0x9F, 0x98, 0x80, 0xC3, 0xA9, 0xE4) for id in self.byte_token(byte)}
        self.assertTrue(bias)
        for seed in range(8):
            body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 1.5, "seed": seed, "logit_bias": bias}

            whole = server.complete(**body)
            events = server.stream("/v1/completions", body)

            self.assertEqual(joined_text(events)[0], whole["choices"][0]["text"])

    def byte_token(self, byte):
        """Ids of the token for one byte, if the vocabulary has it."""
        name = f"<0x{byte:02X}>"
        return [id for id in range(3, 3 + 256) if self.piece(id) == name or self.piece_bytes(id) == [byte]][:1]

    def pieces(self):
        if not hasattr(CasesTest, "known_pieces"):
            status, answer = server.post("/detokenize", {"tokens": list(range(0, 300)), "with_pieces": True})
            self.assertEqual(status, 200, answer)
            CasesTest.known_pieces = answer.get("pieces", [])
        return CasesTest.known_pieces

    def piece(self, id):
        return self.pieces()[id].get("piece") if id < len(self.pieces()) else None

    def piece_bytes(self, id):
        return self.pieces()[id].get("bytes") if id < len(self.pieces()) else None

    def test_P03_answers_and_errors_are_json_whatever_the_bytes(self):
        bias = {str(id): 100 for id in self.byte_token(0xFF)}
        whole = server.complete(prompt=PROMPT, logit_bias=bias, logprobs=2)  # parsed, so it was JSON and UTF-8
        self.assertEqual(len(whole["choices"]), 1)
        for body in (b'{"prompt":"\xc4\xe3"}', b'{"\xff":1}', b'{"prompt":"x","stop":"\xff\xfe"}', b'{"model":"\xe9","prompt":"x"}'):
            answer = server.post("/v1/completions", body)
            self.assert_refused(answer)
            self.assertNotIn("\ufffd", answer[1]["error"]["message"])

    def test_P04_a_body_that_is_not_utf8_is_refused(self):
        self.assert_refused(server.post("/v1/completions", b'{"prompt":"\xc4\xe3"}'), "UTF-8")
        self.assert_refused(server.post("/v1/chat/completions", b'{"messages":[{"role":"user","content":"\xc4\xe3"}]}'), "UTF-8")

    def test_P05_lone_surrogates_are_refused_and_pairs_work(self):
        for path, body in (("/v1/completions", b'{"prompt":"%s","max_tokens":1}'), ("/tokenize", b'{"content":"%s"}'),
                           ("/v1/chat/completions", b'{"messages":[{"role":"user","content":"%s"}],"max_tokens":1}')):
            for stream in (b"", b',"stream":true'):
                for lone in (rb"x \ud83d", rb"\ude00 y", rb"\ud83d\ud83d"):
                    self.assert_refused(server.post(path, (body % lone).replace(b"}", stream + b"}", 1) if b"messages" not in body else
                                                    (body % lone)[:-1] + stream + b"}"))
            self.assertEqual(server.post(path, body % rb"\ud83d\ude00")[0], 200)

    def test_P07_spaces_between_words_survive_token_by_token(self):
        body = {"prompt": PROMPT, "max_tokens": 48, "temperature": 0}

        whole = server.complete(**body)["choices"][0]["text"]

        self.assertEqual(joined_text(server.stream("/v1/completions", body))[0], whole)
        self.assertRegex(whole, r"\w \w")

    def test_P08_detokenize_gives_the_text_back(self):
        for text in (" ...", " n't", "...", "a  b", " leading", "trailing ", "tab\there", "é 😀 𠮷"):
            tokens = self.tokenize(text, add_special=False)

            status, answer = server.post("/detokenize", {"tokens": tokens})

            self.assertEqual((status, answer["content"]), (200, text))

    def test_P10_text_of_a_user_is_never_a_control_token(self):
        for text in ("<s>", "</s>", "<unk>", "<|im_end|>", "<|endoftext|>"):
            plain = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": f"a {text} b"}], "max_tokens": 1})
            self.assertEqual(plain[0], 200)
            status, answer = server.post("/tokenize", {"messages": [{"role": "user", "content": text}], "with_pieces": True})
            self.assertEqual(status, 200, answer)
            inside = [t for t in answer["tokens"][1:] if t.get("piece") == text]
            self.assertEqual(inside, [])

    def test_P11_long_runs_of_one_letter_delay_nobody(self):
        with Stream(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 200, "stream": True}) as stream:
            for run in ("a" * 100_000, "_" * 100_000, " " * 100_000, "ab" * 50_000):
                self.assertGreater(len(self.tokenize(run)), 0)
            self.assertEqual(list(stream)[-1][2], "[DONE]")

    # ---- stops ----

    def text_and_tokens(self):
        answer = server.complete(prompt=PROMPT, max_tokens=24, logprobs=0)["choices"][0]
        return answer["text"], answer["logprobs"]["tokens"]

    def test_P13_a_stop_over_several_tokens_stops(self):
        text, tokens = self.text_and_tokens()
        stop = "".join(tokens[5:8])

        for stops in ([stop], stop):
            choice = server.complete(prompt=PROMPT, max_tokens=24, stop=stops)["choices"][0]

            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual(choice["text"], text[:text.index(stop)])

    def test_P14_no_part_of_a_stop_is_streamed(self):
        text, tokens = self.text_and_tokens()
        stop = "".join(tokens[4:9])

        events = server.stream("/v1/completions", {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "stop": [stop]})

        self.assertEqual(joined_text(events)[0], text[:text.index(stop)])

    def test_P17_a_stop_in_the_middle_of_a_token_cuts_it(self):
        text, tokens = self.text_and_tokens()
        word = next(token for token in tokens[3:] if len(token.strip()) >= 4)
        stop = word.strip()[1:3]

        choice = server.complete(prompt=PROMPT, max_tokens=24, stop=[stop], logprobs=1)["choices"][0]

        self.assertEqual(choice["text"], text[:text.index(stop)])
        self.assertEqual("".join(choice["logprobs"]["tokens"]), choice["text"])
        self.assertEqual(len(choice["logprobs"]["tokens"]), len(choice["logprobs"]["token_logprobs"]))

    def test_P18_empty_stops(self):
        whole = server.complete(prompt=PROMPT)["choices"][0]["text"]
        for stop in ([], None):
            self.assertEqual(server.complete(prompt=PROMPT, stop=stop)["choices"][0]["text"], whole)
        for stop in ([""], "", ["x", ""]):
            self.assert_refused(server.post("/v1/completions", {"prompt": PROMPT, "stop": stop}), "stop")

    # ---- sampling ----

    def test_P20_bad_keys_and_values_of_logit_bias(self):
        for bias in ({"191222": -100}, {"-1": 5}, {"AI": 1}, {"1e3": 1}, {"5": "x"}, {"5": 101}, {"5": None}, {" 5": 1}, {"5.0": 1}, [5]):
            self.assert_refused(server.post("/v1/completions", {"prompt": PROMPT, "logit_bias": bias}), "logit_bias")
        self.assert_refused(server.post("/v1/completions", b'{"prompt":"x","logit_bias":{"5":1e39}}'), "logit_bias")
        self.assertEqual(len(server.complete(prompt=PROMPT)["choices"]), 1)

    def test_P21_repetition_penalties_are_refused_or_give_finite_numbers(self):
        for penalty in (0, -1):
            self.assert_refused(server.post("/v1/completions", {"prompt": PROMPT, "repetition_penalty": penalty}), "repetition_penalty")
        for penalty in (1e-30, 1e30):
            choice = server.complete(prompt=PROMPT, repetition_penalty=penalty, logprobs=1)["choices"][0]
            self.assertTrue(all(isinstance(value, float) for value in choice["logprobs"]["token_logprobs"]))

    def test_P23_every_field_of_a_wrong_type_is_named(self):
        right = {"integer": 1, "number": 0.5, "boolean": True, "string": "x"}
        fields = {"max_tokens": "integer", "n": "integer", "seed": "integer", "top_k": "integer", "logprobs": "integer",
                  "temperature": "number", "top_p": "number", "min_p": "number", "frequency_penalty": "number",
                  "presence_penalty": "number", "repetition_penalty": "number", "stream": "boolean", "echo": "boolean",
                  "ignore_eos": "boolean", "user": "string"}
        for field, kind in fields.items():
            for value in ("true", 0.01, True, [], {}, [1], "1"):
                is_right = (type(value) is type(right[kind])) or (kind == "number" and type(value) is int)
                if is_right:
                    continue
                with self.subTest(field=field, value=value):
                    self.assert_refused(server.post("/v1/completions", {"prompt": PROMPT, field: value}), field)
            if kind in ("integer", "number"):
                self.assert_refused(server.post("/v1/completions", b'{"prompt":"x","%s":1e400}' % field.encode()))
        for stop in (1, True, {}, [1], [["x"]]):
            self.assert_refused(server.post("/v1/completions", {"prompt": PROMPT, "stop": stop}), "stop")
        for prompt in (1, True, {}, [1.5], [True], [["x"]], [[1.5]], ["x", 1]):
            self.assert_refused(server.post("/v1/completions", {"prompt": prompt}), "prompt")
        for messages in (1, "x", {}, [1], ["x"], [{}], [{"role": 1, "content": "x"}], [{"role": "user", "content": 1}]):
            self.assert_refused(server.post("/v1/chat/completions", {"messages": messages}), "messages")
        for body in (b"", b"[]", b"1", b'"x"', b"null", b"{", b'{"prompt":"x",}', b'{"prompt":"x"} {}', b'{"prompt":"x","prompt":"y"}',
                     b"{'prompt':'x'}", b'{"temperature":NaN,"prompt":"x"}'):
            self.assert_refused(server.post("/v1/completions", body))

    def test_P24_empty_prompts_give_bos_or_a_refusal(self):
        for prompt in ("", [""]):
            self.assertEqual(len(server.complete(prompt=prompt)["choices"]), 1)
        for body in ({"prompt": []}, {"prompt": [[]]}, {}):
            status, answer = server.post("/v1/completions", {**body, "max_tokens": 4})
            self.assertIn(status, (200, 400), answer)
        self.assert_refused(server.post("/v1/chat/completions", {"messages": []}), "messages")
        self.assertEqual(len(server.complete(prompt=PROMPT)["choices"]), 1)

    def test_P26_a_seed_leaves_the_temperature_alone(self):
        def text(seed):
            return server.complete(prompt=PROMPT, temperature=1, seed=seed, max_tokens=24)["choices"][0]["text"]

        self.assertEqual(len({text(seed) for seed in (1, 2, 3, 4)}), 4)
        self.assertEqual(text(1), text(1))

    def test_P28_ignore_eos_stays_with_its_request(self):
        plain = {"prompt": PROMPT, "temperature": 1, "max_tokens": 400}
        ended = None
        for plain["seed"] in range(50):  # the first that comes to an end by itself
            ended = server.complete(**plain)
            if ended["choices"][0]["finish_reason"] == "stop":
                break

        forced = server.complete(**plain, ignore_eos=True)
        after = server.complete(**plain)

        self.assertEqual(forced["usage"]["completion_tokens"], 400)
        self.assertEqual(after["choices"], ended["choices"])
        self.assertEqual(ended["choices"][0]["finish_reason"], "stop")

    # ---- limits ----

    def test_P29_prompts_around_the_context(self):
        context = self.context_length()
        for length, limit, status in ((context - 2, 1, 200), (context - 2, 100, 200), (context - 1, 1, 200), (context - 1, None, 200),
                                      (context, 1, 400), (context + 1, 100, 400)):
            status_of, answer = server.post("/v1/completions", {"prompt": [5] * length, "max_tokens": limit, "ignore_eos": True})
            with self.subTest(length=length, limit=limit):
                self.assertEqual(status_of, status, answer)
                if status == 200:
                    self.assertEqual(answer["usage"]["completion_tokens"], min(context - length, limit or 16))
                else:
                    self.assertIn(str(length), answer["error"]["message"])
                    self.assertIn(str(context), answer["error"]["message"])

    def test_P30_a_chat_that_is_too_long_is_refused_and_not_cut(self):
        text = "MARKER " + "once upon a time " * 20_000
        answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})
        self.assert_refused(answer, "context")
        self.assertEqual(answer[1]["error"]["code"], "context_length_exceeded")

    def test_P31_deep_json_is_refused(self):
        for depth in (3_000, 10_000, 1_000_000):
            deep = b"[" * depth + b"]" * depth
            self.assert_refused(server.post("/v1/chat/completions", b'{"messages":[{"role":"user","content":"x"}],"tools":' + deep + b"}"))
            self.assert_refused(server.post("/v1/completions", b'{"prompt":"x","unknown":' + deep + b"}"))
            self.assert_refused(server.post("/v1/completions", b'{"prompt":"x","unknown":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"))

    def test_P32_n_has_a_cap(self):
        for n in (512, 10**6, 2**63, 2**64, 0, -1):
            self.assert_refused(server.post("/v1/completions", {"prompt": PROMPT, "n": n}), "n")
        self.assertEqual(len(server.complete(prompt=PROMPT, n=16, max_tokens=1)["choices"]), 16)

    def test_P33_templates_of_a_request_are_refused(self):
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        loops = "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% endfor %}{% endfor %}{% endfor %}"
        self.assert_refused(server.post("/v1/chat/completions", {**body, "chat_template": loops}), "chat_template")

    # ---- framing ----

    def test_P34_no_number_is_infinite_in_json(self):
        for echo in (False, True):
            answer = server.complete(prompt=PROMPT, temperature=1, top_k=1, logprobs=1, echo=echo)["choices"][0]  # parsed strictly
            values = answer["logprobs"]["token_logprobs"]
            self.assertTrue(all(-9999 <= value <= 0 for value in values if value is not None))

    def test_P39_equal_request_ids_do_no_harm(self):
        with Stream(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 100, "stream": True}, {"X-Request-Id": "same"}) as first:
            answer = server.ask("POST", "/v1/completions", {"prompt": PROMPT, "request_id": "same"}, {"X-Request-Id": "same"})
            self.assertEqual(answer[0], 200)
            self.assertEqual(list(first)[-1][2], "[DONE]")
        status, _, answer = server.ask("POST", "/v1/completions", {"prompt": PROMPT, "request_id": "x" * 2**20})
        self.assertIn(status, (200, 400), answer)
        connection = server.raw()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: " + b"x" * 2**20 + b"\r\n\r\n")
        self.assertRegex(connection.recv(64), rb"HTTP/1.1 4\d\d ")
        connection.close()

    def test_P40_a_reader_that_leaves_ends_its_request(self):
        body = {"prompt": PROMPT, "ignore_eos": True, "n": 4}
        idle = lambda: server.gauge("vllm:num_requests_running") + server.gauge("vllm:num_requests_waiting") == 0

        with Stream(server, "/v1/completions", {**body, "stream": True, "max_tokens": 500}) as stream:
            next(iter(stream))
        server.wait_until(idle, "idle after a stream was left")

        connection = server.raw()
        payload = json.dumps({**body, "max_tokens": 500}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(payload), payload))
        server.wait_until(lambda: server.gauge("vllm:num_requests_running") > 0, "running")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        server.wait_until(idle, "idle after an answer was left")

    # ---- scheduling ----

    def test_a_deadline_ends_a_request(self):
        idle = lambda: server.gauge("vllm:num_requests_running") + server.gauge("vllm:num_requests_waiting") == 0
        expired = server.gauge("millrace:requests_expired_total")
        body = {"prompt": PROMPT, "max_tokens": 100_000, "ignore_eos": True, "deadline_ms": 150}
        status, answer = server.post("/v1/completions", body)
        if status == 200:
            self.assertEqual(answer["choices"][0]["finish_reason"], "deadline")
            self.assertGreater(answer["usage"]["completion_tokens"], 0)
        else:  # a machine that had not got to its first token by then
            self.assertEqual((status, answer["error"]["type"], answer["error"]["code"]), (504, "timeout_error", "deadline"))
        events = server.stream("/v1/completions", body)
        self.assertEqual(events[-1][2], "[DONE]")
        self.assertEqual(events[-2][2]["choices"][0]["finish_reason"], "deadline")
        server.wait_until(idle, "idle after a deadline")
        self.assertEqual(server.gauge("millrace:requests_expired_total"), expired + 2)

    def test_a_deadline_before_the_first_token_is_a_time_out(self):
        answer = server.post("/v1/completions", {"prompt": [5] * (self.context_length() - 2), "deadline_ms": 1})
        self.assert_refused(answer, "deadline_ms", status=504)
        self.assertEqual(answer[1]["error"]["type"], "timeout_error")

    def test_only_the_same_user_and_salt_share_cached_prompts(self):
        prompt = "The caching fox and the cached hen went to the market to buy a cache of corn. " * 3
        def cached(**who):
            return server.complete(prompt=prompt, max_tokens=1, **who)["usage"]["prompt_tokens_details"]["cached_tokens"]

        self.assertEqual(cached(user="ann", cache_salt="1"), 0)
        self.assertGreater(cached(user="ann", cache_salt="1"), 0)
        self.assertEqual(cached(user="bob", cache_salt="1"), 0)
        self.assertEqual(cached(user="ann", cache_salt="2"), 0)
        self.assertLessEqual(cached(), 1)  # BOS, of whoever has no name

    def test_the_scheduler_does_not_change_an_answer(self):
        plain = server.complete(prompt=PROMPT, max_tokens=24, seed=3, temperature=1)
        for fields in ({"priority": -7}, {"user": "ann"}, {"cache_salt": "x"}, {"deadline_ms": 60_000}):
            self.assertEqual(server.complete(prompt=PROMPT, max_tokens=24, seed=3, temperature=1, **fields)["choices"], plain["choices"])

    # ---- more ----

    def test_the_prompt_has_logprobs(self):
        answer = server.complete(prompt=PROMPT, echo=True, logprobs=2, max_tokens=0)["choices"][0]

        logprobs = answer["logprobs"]
        self.assertEqual(answer["text"], PROMPT)
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertTrue(all(value is not None and value <= 0 for value in logprobs["token_logprobs"][1:]))
        self.assertTrue(all(len(top) >= 2 for top in logprobs["top_logprobs"][1:]))

    def test_an_idle_connection_is_kept(self):
        connection = server.connect()
        for _ in range(3):
            connection.request("GET", "/v1/models")
            answer = connection.getresponse()
            answer.read()
            self.assertNotEqual((answer.getheader("Connection") or "").lower(), "close")
        connection.close()

    def test_a_description_of_a_tool_does_no_harm(self):
        tool = {"type": "function", "function": {"name": "f", "description": "</tools> {% raw %} \\d+ (((", "parameters": {"type": "object"}}}
        status, answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [tool], "max_tokens": 1})
        self.assertIn(status, (200, 400), answer)
        self.assertEqual(server.get("/health")[0], 200)

    def test_grammars_are_refused_while_there_are_none(self):
        for field in ({"response_format": {"type": "json_object"}}, {"grammar": "(" * 60_000}, {"guided_regex": "(a+)+$"}):
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **field}
            self.assert_refused(server.post("/v1/chat/completions", body), next(iter(field)))


class WaitingTest(unittest.TestCase):
    @unittest.skip("waits for a way to kill a worker of a running server")
    def test_P37_an_error_in_mid_stream_is_told_as_data(self):
        pass

    @unittest.skip("waits for a way to kill a worker of a running server")
    def test_health_fails_within_a_second_when_the_engine_is_dead(self):
        pass

    @unittest.skip("waits for Gemma")
    def test_gemma_with_a_system_message(self):
        pass

    @unittest.skip("waits for Qwen2 in half precision activations: they are float here")
    def test_overflowing_activations(self):
        pass


if __name__ == "__main__":
    unittest.main()
