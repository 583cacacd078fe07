"""The synchronous client against a gateway that loses, reorders, keeps silent and restarts."""

import threading
import unittest

import msgpack
import zmq
from fake_gateway import FakeGateway

from millrace import Busy, Client, EventsLost, InvalidRequest, MillraceError, Silence, UnknownRequest
from millrace.protocol import ProtocolError, SchedulerStats, decode

PATIENCE = 0.3
NEVER = 60.0  # asks nothing again
TIMEOUT = 20.0


def text_of(tokens, choice=0, begin=0):
    return "".join(f" {choice}.{seq}" for seq in range(begin, tokens)) + "!"


class ClientTest(unittest.TestCase):
    def gateway(self, **options):
        gateway = FakeGateway(**options)
        self.addCleanup(gateway.close)
        return gateway

    def client(self, gateway, patience=PATIENCE, timeout=TIMEOUT):
        client = Client(gateway.requests, gateway.events, patience=patience, timeout=timeout)
        self.addCleanup(client.close)
        return client

    def both(self, patience=PATIENCE, **options):
        gateway = self.gateway(**options)
        return gateway, self.client(gateway, patience)

    # ---- the way it should go ----

    def test_gives_each_event_once_and_in_order(self):
        gateway, client = self.both(NEVER, tokens=20)

        stream = client.generate("x", max_tokens=20, temperature=0.5, stop="end")
        events = list(stream)

        self.assertEqual([event.seq for event in events], list(range(21)))
        self.assertEqual("".join(event.text for event in events), text_of(20))
        self.assertEqual((stream.reasons, stream.started.seed, stream.done.prompt_tokens), (["length"], 7, 3))
        self.assertEqual(stream.next_seq, [21])
        sent = gateway.received[0]
        self.assertEqual((sent["max_tokens"], sent["stop"]), (20, ["end"]))
        self.assertEqual(sent["sampling"], {"temperature": 0.5})
        self.assertEqual(gateway.count("replay"), 0)

    def test_gives_a_whole_text(self):
        _, client = self.both(tokens=5)

        self.assertEqual(client.complete("x"), text_of(5))
        self.assertRaises(ValueError, client.complete, "x", n=2)

    def test_sends_the_turns_of_a_conversation(self):
        gateway, client = self.both(tokens=1)

        client.complete(messages=[{"role": "user", "content": "Hi", "tool_calls": [{"a": 1}]}], tools=[{"b": 2}])

        sent = gateway.received[0]
        self.assertNotIn("prompt", sent)
        self.assertEqual(sent["messages"], [{"role": "user", "content": "Hi", "tool_calls": '[{"a": 1}]'}])
        self.assertEqual(sent["tools"], '[{"b": 2}]')

    def test_sends_how_urgent_a_request_is_and_for_whom(self):
        gateway, client = self.both(tokens=1)

        client.complete("x", priority=-3, deadline_ms=5000, tenant="a", cache_salt="s")
        client.complete("x")

        names = "priority", "deadline_ms", "tenant", "cache_salt"
        given, absent = ([sent.get(name) for name in names] for sent in gateway.received)
        self.assertEqual(given, [-3, 5000, "a", "s"])
        self.assertEqual(absent, [0, None, "", ""])

    def test_reads_several_streams_and_choices_at_once(self):
        _, client = self.both(tokens=30)

        streams = [client.generate("x", n=3) for _ in range(5)]
        first = [next(stream) for stream in streams]

        self.assertEqual([event.seq for event in first], [0] * 5)
        for stream, event in zip(streams, first):
            texts = stream.texts()
            texts[event.choice] = event.text + texts[event.choice]
            self.assertEqual(texts, [text_of(30, choice) for choice in range(3)])

    def test_a_stream_can_be_left_and_rejoined(self):
        gateway, client = self.both(tokens=20)
        with client.generate("x", n=2) as stream:
            taken = ["", ""]
            for _ in range(7):
                event = next(stream)
                taken[event.choice] += event.text

        rest = client.stream(stream.id.hex(), from_seq=stream.next_seq).texts()

        self.assertEqual([a + b for a, b in zip(taken, rest)], [text_of(20, choice) for choice in range(2)])

    def test_a_stream_that_was_read_to_its_end_is_empty(self):
        _, client = self.both(tokens=4)
        stream = client.generate("x")
        stream.text()

        self.assertEqual(list(client.stream(stream.id, from_seq=stream.next_seq)), [])
        self.assertEqual(list(client.follow(stream.id, from_seq=stream.next_seq)), [])

    def test_two_readers_of_one_stream_get_all(self):
        gateway, client = self.both(tokens=10, pause_at=5)
        first = client.generate("x")
        for _ in range(5):
            next(first)
        second, third = client.stream(first.id), client.follow(first.id)
        next(second), next(third)

        gateway.resume()

        self.assertEqual(first.text(), text_of(10, begin=5))
        self.assertEqual(second.text(), text_of(10, begin=1))
        self.assertEqual(third.text(), text_of(10, begin=1))

    def test_asks_and_tells(self):
        gateway, client = self.both(NEVER, tokens=3, pause_at=2)
        id = client.submit("x")

        snapshot = client.look(id)
        client.cancel(id)

        self.assertEqual((snapshot.live, snapshot.choices[0].text), (True, " 0.0 0.1"))
        self.assertEqual(client.stats().requests[0].stream, id.hex()[:8])
        stats = client.stats(max_requests=0)
        self.assertEqual(stats.requests, [])
        self.assertEqual(stats.scheduler, SchedulerStats(expired=2, cancel_passes=[5, 1]))
        self.assertEqual(gateway.count("cancel"), 1)

    def test_tells_the_log_probs_of_the_prompt(self):
        gateway, client = self.both(tokens=2)

        stream = client.generate("x", prompt_logprobs=0)
        stream.text()

        self.assertEqual([token.logprob for token in stream.prompt], [None, -1.0, -1.0])

    # ---- what gets lost ----

    def test_repairs_a_gap(self):
        gateway, client = self.both(tokens=50)
        gateway.drop = {(0, seq) for seq in (0, 3, 4, 17, 49)}

        self.assertEqual(client.complete("x"), text_of(50))
        self.assertGreaterEqual(gateway.count("replay"), 1)

    def test_repairs_gaps_of_all_choices(self):
        gateway, client = self.both(tokens=50)
        gateway.drop = {(choice, seq) for choice in range(3) for seq in range(choice, 50, 7)}

        self.assertEqual(client.generate("x", n=3).texts(), [text_of(50, choice) for choice in range(3)])

    def test_repairs_a_lost_end(self):
        gateway, client = self.both(tokens=8)
        gateway.drop = {(0, 7), (0, 8)}

        self.assertEqual(client.complete("x"), text_of(8))

    def test_sees_a_gap_in_a_heartbeat(self):
        gateway, client = self.both(NEVER, tokens=8, pause_at=8)
        gateway.drop = {(0, seq) for seq in range(8)}
        stream = client.generate("x")
        while stream.started is None:
            client.stats()
        gateway.heartbeat()

        self.assertEqual([next(stream).seq for _ in range(8)], list(range(8)))

    def test_puts_reordered_events_in_order(self):
        gateway, client = self.both(tokens=40)
        gateway.reversed = True

        self.assertEqual([event.seq for event in client.generate("x")], list(range(41)))

    def test_repairs_a_lost_piece_of_the_prompt(self):
        gateway, client = self.both(tokens=2)
        gateway.drop_others = {"prompt_logprobs", "started"}

        stream = client.generate("x", prompt_logprobs=0)
        stream.text()

        self.assertEqual([token.id for token in stream.prompt], [0, 1, 2])

    def test_sends_a_lost_generate_again(self):
        gateway, client = self.both(tokens=4)
        gateway.ignore = {"generate": 2}

        self.assertEqual(client.complete("x"), text_of(4))
        self.assertEqual(len({message["request"] for message in gateway.received if message["type"] == "generate"}), 1)

    def test_takes_a_conflict_of_a_repeated_generate_as_its_own(self):
        gateway, client = self.both(tokens=4)
        gateway.drop, gateway.drop_others = {(0, seq) for seq in range(5)}, {"started", "done"}
        gateway.lose_answers = {"generate": 1}

        self.assertEqual(client.complete("x"), text_of(4))
        self.assertGreaterEqual(gateway.count("generate"), 2)

    def test_a_conflict_of_a_first_generate_is_an_error(self):
        gateway, client = self.both()
        gateway.refusal = {"error": "conflict", "field": "request", "message": "in use"}

        with self.assertRaises(MillraceError) as caught:
            client.complete("x")
        self.assertEqual(caught.exception.code, "conflict")

    def test_repeats_a_lost_replay_and_a_lost_question(self):
        gateway, client = self.both(tokens=9)
        gateway.drop = {(0, 4)}
        gateway.ignore = {"replay": 1, "look": 1, "stats": 1, "cancel": 1}

        stream = client.generate("x")

        self.assertEqual(stream.text(), text_of(9))
        self.assertEqual(client.look(stream.id).choices[0].text, text_of(9))
        self.assertEqual(client.stats().model, "fake")
        client.cancel(stream.id)

    def test_subscribes_again_without_a_welcome(self):
        gateway, client = self.both(tokens=4)
        gateway.welcomes_to_lose = 2

        self.assertEqual(client.complete("x"), text_of(4))

    def test_tells_what_the_log_has_dropped_and_goes_on(self):
        gateway, client = self.both(tokens=20)
        gateway.log_begins = 10
        id = client.submit("x")

        for stream in client.stream(id, from_seq=4), client.follow(id, from_seq=4):
            with self.assertRaises(EventsLost) as caught:
                next(stream)

            self.assertEqual((caught.exception.choice, caught.exception.first, caught.exception.next), (0, 4, 10))
            self.assertEqual(stream.text(), text_of(20, begin=10))

    def test_a_reader_that_forgets_to_read_gets_all_later(self):
        gateway, client = self.both(tokens=40_000)  # more than is held anywhere
        slow, fast = client.generate("x"), client.generate("x")

        self.assertEqual(sum(1 for _ in fast), 40_001)
        self.assertEqual([event.seq for event in slow], list(range(40_001)))

    # ---- at the reader's pace ----

    def test_a_follower_is_never_sent_more_than_its_window(self):
        gateway, client = self.both(tokens=100)
        id = client.submit("x")
        stream = client.follow(id, window=10)

        for seq in range(100):
            self.assertEqual(next(stream).seq, seq)
            follow = gateway._follows[id]
            self.assertLessEqual(sum(follow["sent"]) - sum(follow["read"]), 10)
        self.assertEqual(stream.text(), "!")
        self.assertGreaterEqual(gateway.count("read"), 10)

    def test_a_follower_gets_all_choices_with_a_window_of_one(self):
        _, client = self.both(tokens=10)

        stream = client.follow(client.submit("x", n=3), window=1)

        self.assertEqual(stream.texts(), [text_of(10, choice) for choice in range(3)])

    def test_a_follower_asks_again_after_silence(self):
        gateway, client = self.both(tokens=10)
        gateway.ignore = {"follow": 1}

        self.assertEqual(client.follow(client.submit("x")).text(), text_of(10))

    # ---- restarts ----

    def test_goes_on_after_a_restart_that_kept_the_log(self):
        gateway, client = self.both(tokens=10, pause_at=4)
        stream = client.generate("x")
        taken = ["".join(next(stream).text for _ in range(4))]
        follower = client.follow(stream.id)
        taken += ["".join(next(follower).text for _ in range(4))]
        gateway.stop()
        gateway.start()
        gateway.resume()  # before they are back

        self.assertEqual(taken[0] + stream.text(), text_of(10))
        self.assertEqual(taken[1] + follower.text(), text_of(10))

    def test_tells_of_a_restart_that_lost_the_log(self):
        gateway, client = self.both(tokens=10, pause_at=4)
        stream = client.generate("x")
        next(stream)
        follower = client.follow(stream.id)
        next(follower)
        gateway.stop()
        gateway.start(keep_log=False)

        self.assertRaises(UnknownRequest, lambda: list(stream))
        self.assertRaises(UnknownRequest, lambda: list(follower))

    def test_submits_to_a_server_that_comes_later(self):
        gateway = self.gateway(tokens=4)
        gateway.stop()
        stream = self.client(gateway).generate("x")
        threading.Timer(PATIENCE * 2, gateway.start).start()

        self.assertEqual(stream.text(), text_of(4))

    # ---- idempotency ----

    def test_joins_the_stream_of_the_same_key(self):
        gateway, client = self.both(tokens=6)

        streams = [client.generate("x", idempotency_key="a") for _ in range(3)]
        texts = [stream.text() for stream in streams]

        self.assertEqual(texts, [text_of(6)] * 3)
        self.assertEqual(len({stream.id for stream in streams}), 1)
        self.assertEqual(client.submit("x", idempotency_key="a"), streams[0].id)

    # ---- other versions ----

    def test_reads_statistics_of_a_server_that_tells_nothing_of_its_scheduler(self):
        self.assertEqual(decode(msgpack.packb({"type": "server_stats", "model": "old"})).scheduler, SchedulerStats())

    def test_statistics_of_the_wrong_shape_are_no_message(self):
        for fields in {"scheduler": 1}, {"scheduler": []}, {"scheduler": "x"}, {"requests": [1]}:
            with self.subTest(fields=fields):
                self.assertRaises(ProtocolError, decode, msgpack.packb({"type": "server_stats", **fields}))

    # ---- errors ----

    def test_refusals_are_exceptions_with_all_they_say(self):
        gateway, client = self.both()
        for error, kind in ("invalid_field", InvalidRequest), ("prompt_too_long", InvalidRequest), ("busy", Busy):
            gateway.refusal = {"error": error, "field": "n", "message": "too many", "retry_after_ms": 250}
            for call in client.complete, client.submit:
                with self.subTest(error=error), self.assertRaises(kind) as caught:
                    call("x")
                self.assertEqual((caught.exception.code, caught.exception.field), (error, "n"))
                self.assertEqual((caught.exception.message, caught.exception.retry_after), ("too many", 0.25))

    def test_a_name_that_is_no_option_is_refused_here(self):
        _, client = self.both()

        self.assertRaises(TypeError, client.generate, "x", temprature=1)
        self.assertRaises(TypeError, client.generate, "x", expires_at=1)  # the server's own
        self.assertRaises(ValueError, client.stream, "00")

    def test_unknown_streams_are_errors(self):
        _, client = self.both()
        for ask in (client.cancel, client.look, lambda id: client.stream(id).text(), lambda id: client.follow(id).text()):
            self.assertRaises(UnknownRequest, ask, bytes(16))

    def test_a_server_that_is_not_there_is_told_in_time(self):
        gateway = self.gateway()
        gateway.stop()
        client = self.client(gateway, timeout=2 * PATIENCE)

        self.assertRaises(Silence, client.complete, "x")
        self.assertRaises(Silence, client.stats)

    def test_a_bad_endpoint_is_an_error(self):
        self.assertRaises(MillraceError, Client, "nonsense")

    def test_a_closed_client_says_so(self):
        gateway, client = self.both(tokens=4, pause_at=1)
        stream = client.generate("x")
        next(stream)
        client.close()

        for call in (lambda: next(stream), client.stats, lambda: client.generate("x")):
            with self.assertRaises(MillraceError) as caught:
                call()
            self.assertEqual(caught.exception.code, "closed")

    def test_keys_come_as_a_set(self):
        public, secret = (key.decode() for key in zmq.curve_keypair())

        self.assertRaises(ValueError, Client, public_key=public, secret_key=secret)
        self.assertRaises(ValueError, Client, server_key=public, secret_key=secret)
        self.assertRaises(MillraceError, Client, server_key="short")


if __name__ == "__main__":
    unittest.main()
