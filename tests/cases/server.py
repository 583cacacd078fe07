"""A `millrace serve` with the built-in model for the tests of this folder, and the least of an HTTP client."""

import http.client
import json
import os
import socket
import subprocess
import threading

MILLRACE = os.environ["MILLRACE"]


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen([MILLRACE, "serve", "--port", "0", "--http-port", "0", *flags], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.lines = {}
        for line in self.process.stdout:
            if line == "ready\n":
                break
            name, _, value = line.rstrip().partition(" ")
            self.lines[name] = value
        # What it says must be read, or it would block in the end.
        self.said = []
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True)
        self.reader.start()
        self.host, self.port = self.lines["http"].removeprefix("http://").split(":")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def connect(self):
        return http.client.HTTPConnection(self.host, int(self.port), timeout=120)

    def raw(self):
        return socket.create_connection((self.host, int(self.port)), timeout=120)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and the parsed body. A body of bytes is sent as it is."""
        connection = self.connect()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        try:
            content = json.loads(content, parse_constant=refuse_constant)
        except json.JSONDecodeError:
            content = content.decode()
        return answer.status, dict(answer.getheaders()), content

    def post(self, path, body, headers=None):
        status, _, content = self.ask("POST", path, body, headers)
        return status, content

    def get(self, path, headers=None):
        status, _, content = self.ask("GET", path, headers=headers)
        return status, content

    def complete(self, **body):
        """The answer to /v1/completions, which must succeed."""
        status, content = self.post("/v1/completions", {"temperature": 0, "max_tokens": 16, **body})
        assert status == 200, content
        return content

    def stream(self, path, body, headers=None):
        """All events of a streamed answer, as (id, name, data) with data parsed; [DONE] stays text."""
        with Stream(self, path, {**body, "stream": True}, headers) as stream:
            assert stream.status == 200, stream.answer.read()
            return list(stream)

    def stats(self):
        """What /metrics tells, by name and labels."""
        status, text = self.get("/metrics")
        assert status == 200
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line and line[0] != "#"}

    def gauge(self, name):
        return sum(value for key, value in self.stats().items() if key.partition("{")[0] == name)

    def wait_until(self, condition, what):
        """Asks again and again; only a broken server needs the whole minute."""
        end = threading.Event()
        for _ in range(3000):
            if condition():
                return
            end.wait(0.02)
        raise AssertionError(f"never came true: {what}")


class Stream:
    """A streamed answer that can be left in the middle."""

    def __init__(self, server, path, body, headers=None):
        self.connection = server.connect()
        method = "GET" if body is None else "POST"
        payload = None if body is None else json.dumps(body).encode()
        self.connection.request(method, path, payload, {"Content-Type": "application/json", "Accept": "text/event-stream", **(headers or {})})
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.answer.close()
        self.connection.close()

    def __iter__(self):
        event = {}
        for line in self.answer:
            line = line.decode().rstrip("\r\n")
            if not line:
                if event:
                    data = event.get("data", "")
                    yield event.get("id"), event.get("event"), data if data == "[DONE]" else json.loads(data, parse_constant=refuse_constant)
                event = {}
            elif not line.startswith(":"):
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                event[field] = event[field] + "\n" + value if field in event else value


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def joined_text(events):
    """The text of a streamed completion or chat, choice by choice."""
    texts = {}
    for _, _, data in events:
        if data == "[DONE]":
            continue
        for choice in data.get("choices", []):
            part = choice.get("text", choice.get("delta", {}).get("content")) or ""
            texts[choice["index"]] = texts.get(choice["index"], "") + part
    return texts
