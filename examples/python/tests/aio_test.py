"""The asyncio client: the same streams, many tasks. What is repaired and how is tested in client_test.py."""

import asyncio
import unittest

from fake_gateway import FakeGateway

from millrace import AsyncClient, EventsLost, MillraceError, Silence, UnknownRequest

PATIENCE = 0.3


def text_of(tokens, choice=0, begin=0):
    return "".join(f" {choice}.{seq}" for seq in range(begin, tokens)) + "!"


class AsyncClientTest(unittest.IsolatedAsyncioTestCase):
    def gateway(self, **options):
        gateway = FakeGateway(**options)
        self.addCleanup(gateway.close)
        return gateway

    def client(self, gateway, timeout=20.0):
        client = AsyncClient(gateway.requests, gateway.events, patience=PATIENCE, timeout=timeout)
        self.addAsyncCleanup(client.close)
        return client

    def both(self, **options):
        gateway = self.gateway(**options)
        return gateway, self.client(gateway)

    async def test_gives_each_event_once_and_in_order(self):
        gateway, client = self.both(tokens=20)
        gateway.drop = {(0, 2), (0, 11), (0, 20)}

        stream = await client.generate("x", max_tokens=20)

        self.assertEqual([event.seq async for event in stream], list(range(21)))
        self.assertEqual((stream.reasons, stream.done.prompt_tokens), (["length"], 3))

    async def test_serves_many_tasks_at_once(self):
        gateway, client = self.both(tokens=30)
        gateway.drop = {(0, seq) for seq in range(0, 30, 7)}

        texts = await asyncio.gather(*(client.complete("x") for _ in range(50)))

        self.assertEqual(texts, [text_of(30)] * 50)

    async def test_follows_at_the_pace_of_its_reader(self):
        gateway, client = self.both(tokens=100)
        id = await client.submit("x")
        stream = await client.follow(id, window=10)

        for seq in range(100):
            self.assertEqual((await stream.__anext__()).seq, seq)
            follow = gateway._follows[id]
            self.assertLessEqual(sum(follow["sent"]) - sum(follow["read"]), 10)
        self.assertEqual(await stream.text(), "!")

    async def test_asks_and_tells(self):
        gateway, client = self.both(tokens=3, pause_at=2)
        gateway.ignore = {"look": 1, "generate": 1}
        id = await client.submit("x")

        snapshot = await client.look(id)
        await client.cancel(id)

        self.assertEqual((snapshot.live, snapshot.choices[0].text), (True, " 0.0 0.1"))
        self.assertEqual((await client.stats()).model, "fake")

    async def test_goes_on_after_a_restart_that_kept_the_log(self):
        gateway, client = self.both(tokens=10, pause_at=4)
        stream = await client.generate("x", n=2)
        for _ in range(8):
            await stream.__anext__()
        gateway.stop()
        gateway.start()
        gateway.resume()  # before it is back

        self.assertEqual(await stream.texts(), [text_of(10, choice, 4) for choice in range(2)])

    async def test_tells_of_a_restart_that_lost_the_log(self):
        gateway, client = self.both(tokens=10, pause_at=4)
        stream = await client.generate("x")
        await stream.__anext__()
        gateway.stop()
        gateway.start(keep_log=False)

        with self.assertRaises(UnknownRequest):
            await stream.text()

    async def test_tells_what_the_log_has_dropped_and_goes_on(self):
        gateway, client = self.both(tokens=20)
        gateway.log_begins = 10
        stream = await client.stream(await client.submit("x"))

        with self.assertRaises(EventsLost):
            await stream.__anext__()
        self.assertEqual(await stream.text(), text_of(20, begin=10))

    async def test_joins_the_stream_of_the_same_key(self):
        _, client = self.both(tokens=6)

        texts = await asyncio.gather(*(client.complete("x", idempotency_key="a") for _ in range(5)))

        self.assertEqual(texts, [text_of(6)] * 5)

    async def test_a_server_that_is_not_there_is_told_in_time(self):
        gateway = self.gateway()
        gateway.stop()
        client = self.client(gateway, timeout=2 * PATIENCE)

        with self.assertRaises(Silence):
            await client.complete("x")
        with self.assertRaises(Silence):
            await client.stats()

    async def test_a_task_may_be_cancelled_while_it_waits(self):
        gateway, client = self.both(tokens=10, pause_at=1)
        stream = await client.generate("x")
        await stream.__anext__()
        waiting = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting

        gateway.resume()

        self.assertEqual(await stream.text(), text_of(10, begin=1))

    async def test_closing_wakes_who_waits(self):
        gateway, client = self.both(tokens=10, pause_at=1)
        stream = await client.generate("x")
        await stream.__anext__()
        waiting = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)

        await client.close()

        with self.assertRaises(MillraceError) as caught:
            await waiting
        self.assertEqual(caught.exception.code, "closed")
        with self.assertRaises(MillraceError):
            await client.stats()


if __name__ == "__main__":
    unittest.main()
