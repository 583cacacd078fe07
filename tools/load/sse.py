"""A client of streamed /v1/completions, for servers that speak OpenAI's API: what a load generator needs of it, no more."""
import asyncio
import json
import time
from dataclasses import dataclass, field


@dataclass
class Answer:
    """What a client saw of a request; times are time.monotonic()."""
    sent: float
    status: int = 0                             # 0: the connection failed
    tokens: list = field(default_factory=list)  # when each event with output came
    reason: str = ""
    cached: int = 0
    ended: float = 0

    @property
    def completed(self):
        return self.status == 200 and self.reason in ("length", "stop")

    @property
    def first_token(self):
        return self.tokens[0] - self.sent

    @property
    def gaps(self):
        return [after - before for before, after in zip(self.tokens, self.tokens[1:])]


class Client:
    def __init__(self, port):
        self.port = port

    async def complete(self, body, leave_after=None):
        """Sends the request and reads the stream, or its first `leave_after` tokens: then the connection is closed. With 0 it is
        closed as soon as the request is sent."""
        answer = Answer(time.monotonic())
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            text = json.dumps({"stream": True, "stream_options": {"include_usage": True}, **body}).encode()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            await writer.drain()
            if leave_after != 0:
                await self._read(reader, answer, leave_after)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            answer.ended = time.monotonic()
            if writer:
                writer.close()
        return answer

    async def _read(self, reader, answer, leave_after):
        head = await reader.readuntil(b"\r\n\r\n")
        answer.status = int(head.split(None, 2)[1])
        while line := await reader.readline():  # the sizes of chunks are lines, too, and not "data"
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or {}
            answer.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", answer.cached)
            for choice in event.get("choices", []):
                answer.reason = choice.get("finish_reason") or answer.reason
                # A token whose text waits for the next one's has an event, too, where the server says so.
                if choice.get("text") or not choice.get("finish_reason"):
                    answer.tokens.append(time.monotonic())
            if leave_after and len(answer.tokens) >= leave_after:
                return

    async def get(self, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split(None, 2)[1]), body.decode()
