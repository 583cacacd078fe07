#!/usr/bin/env python3
"""Puts the scheduler of a server of its own under load and prints what came of it, as Markdown for docs/performance.md.

    tools/load/scheduler.py                     all scenarios, with what tools/fetch_models brings, else the built-in model
    tools/load/scheduler.py --only prefix       one of: cancels greedy long prefix overload queued
    tools/load/scheduler.py --fetch             and llama.cpp's server beside it, where a scenario has both
    tools/load/scheduler.py -m model.gguf       with a model of your own

Takes build/release/millrace, or --millrace FILE. Everything stays on loopback and is bounded."""
import argparse
import asyncio
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import llama_cpp
from sse import Client

BATCH = 16


# ---- servers ----

class Millrace:
    name = "Millrace"

    def __init__(self, options, *arguments):
        command = [options.millrace, "serve", "--port", "0", "--log-level", "warning", "--max-batch", BATCH, *arguments]
        if options.model:
            command += ["-m", options.model]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        port = None
        for line in self.process.stdout:
            if line.startswith("http "):
                port = int(line.rsplit(":", 1)[1])
            if line.strip() == "ready":
                break
        if not port:
            sys.exit("the server did not start")
        self.client = Client(port)

    async def metric(self, name, **labels):
        """The sum of the metric's values with these labels."""
        _, text = await self.client.get("/metrics")
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith(name + "{") and all(label in line for label in wanted))

    def resident_mib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0

    async def idle(self):
        while await self.metric("vllm:num_requests_running") + await self.metric("vllm:num_requests_waiting") > 0:
            await asyncio.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(120)


class LlamaServer:
    name = "llama.cpp"

    def __init__(self, program, options):
        port = 20000 + random.randrange(20000)
        command = [program, "-m", options.model, "--port", port, "-np", BATCH, "-c", BATCH * 1024,
                   "-t", len(os.sched_getaffinity(0)), "--no-webui"]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = Client(port)

    async def ready(self):
        for _ in range(600):
            try:
                if (await self.client.get("/health"))[0] == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.1)
        sys.exit("llama.cpp's server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(120)


# ---- requests and figures ----

class Prompts:
    """Prompts of exactly so many ids, each of its own, the same in each run."""

    def __init__(self, options):
        self.random = random.Random(1)
        self.ids = range(1000, 9000) if options.model else range(100, 400)

    def __call__(self, tokens):
        return [self.random.choice(self.ids) for _ in range(tokens)]


def request(prompt, tokens, **more):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


def quantile(values, share):
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)] if values else float("nan")


def ms(seconds):
    return f"{seconds * 1000:,.0f}" if seconds == seconds else "-"


def first_tokens(answers):
    return [answer.first_token for answer in answers if answer.tokens]


def gaps(answers):
    return [gap for answer in answers for gap in answer.gaps]


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |")


def head(*cells):
    print()
    row(*cells)
    row(*("---" for _ in cells))


def latencies(answers):
    return (ms(quantile(first_tokens(answers), 0.5)), ms(quantile(first_tokens(answers), 0.99)),
            ms(quantile(gaps(answers), 0.5)), ms(quantile(gaps(answers), 0.99)))


LATENCIES = ("first token p50, ms", "p99", "gap p50, ms", "p99")


async def closed_loop(clients, bodies, client, leave=lambda index: None):
    """So many clients, each of which sends its next request when it has the answer to the last."""
    numbered, answers = iter(list(enumerate(bodies))), []

    async def one():
        for index, body in numbered:
            answers.append(await client.complete(body, leave(index)))

    await asyncio.gather(*(one() for _ in range(clients)))
    return answers


# ---- scenarios ----

async def cancels(options, prompts):
    """120 requests by 24 clients, 64 tokens in and out; then the same, with 30 % that leave: before the first token or after up to 40"""
    chance = random.Random(2)
    leaves = {index: chance.choice([0, 1, chance.randrange(40)]) for index in range(120) if chance.random() < 0.3}
    head("", "complete", "left", *LATENCIES, "tokens/s", "KV blocks in use afterwards")
    for name, leave in (("nobody leaves", lambda index: None), ("30 % leave", leaves.get)):
        with Millrace(options) as server:
            began = time.monotonic()
            answers = await closed_loop(24, [request(prompts(64), 64) for _ in range(120)], server.client, leave)
            seconds = time.monotonic() - began
            await server.idle()
            complete = [answer for answer in answers if answer.completed]
            row(name, len(complete), len(answers) - len(complete), *latencies(complete),
                f"{sum(len(answer.tokens) for answer in answers) / seconds:.0f}",
                f"{await server.metric('millrace:kv_blocks_used'):.0f}")
            freed = {passes: await server.metric("millrace:sequences_freed_total", passes=passes)
                     for passes in ("0", "1", "2", "3+")}
            cancelled = await server.metric("millrace:requests_cancelled_total")
    print(f"\n{cancelled:.0f} of those that left had not ended; passes until the blocks of a sequence were free: "
          + ", ".join(f"{passes}: {count:.0f}" for passes, count in freed.items()) + ".")


async def greedy(options, prompts):
    """a light tenant asks 20 times, one at a time, 64 tokens in and 16 out: alone, then beside one that has 64 requests of 256 tokens in and 64 out open all the time"""
    head("", *LATENCIES)
    medians = []
    with Millrace(options) as server:
        async def light():
            return [await server.client.complete(request(prompts(64), 16, user="light")) for _ in range(20)]

        async def heavy():
            while True:
                await server.client.complete(request(prompts(256), 64, user="heavy"))

        for name in ("alone", "beside the greedy one"):
            flood = [asyncio.create_task(heavy()) for _ in range(64)] if medians else []
            if flood:
                await asyncio.sleep(10)
            answers = await light()
            row(name, *latencies(answers))
            medians.append(quantile(first_tokens(answers), 0.5))
            for task in flood:
                task.cancel()
    print(f"\nThe light one's median first token came {medians[1] / medians[0]:.1f} times as late as on an idle server.")


async def long(options, prompts):
    """8 streams, 32 tokens in and 400 out; a prompt of 2,000 tokens comes when all run"""
    size = 2000 if options.model else 800
    with Millrace(options) as server:
        streams = [asyncio.create_task(server.client.complete(request(prompts(32), 400))) for _ in range(8)]
        await asyncio.sleep(2)
        began = time.monotonic()
        reading = await server.client.complete(request(prompts(size), 1))
        ended = time.monotonic()
        answers = await asyncio.gather(*streams)
    meanwhile = [after - before for answer in answers for before, after in zip(answer.tokens, answer.tokens[1:])
                 if began <= before and after <= ended]
    other = [gap for answer in answers for gap in answer.gaps]
    median, p99 = quantile(other, 0.5), quantile(meanwhile, 0.99)
    head("gaps of the 8 streams", "p50, ms", "p99, ms", "longest, ms")
    row("all the time", ms(median), ms(quantile(other, 0.99)), ms(max(other)))
    row("while the prompt is read", ms(quantile(meanwhile, 0.5)), ms(p99), ms(max(meanwhile)))
    print(f"\nFirst token of the {size:,} tokens: {ms(reading.first_token)} ms. The p99 gap beside it is {p99 / median:.1f} times the"
          " median gap of all.")


async def prefix(options, prompts):
    """64 requests by 16 clients: a prefix of 500 tokens that all have, 12 of their own, 16 out"""
    shared = prompts(500)
    bodies = [request(shared + prompts(12), 16) for _ in range(64)]
    head("", *LATENCIES, "seconds for all")
    medians = {}

    async def measure(name, client, bodies):
        began = time.monotonic()
        answers = await closed_loop(16, bodies, client)
        seconds = time.monotonic() - began
        if not all(answer.completed for answer in answers):
            sys.exit(f"{name}: some requests failed")
        row(name, *latencies(answers), f"{seconds:.1f}")
        medians[name] = quantile(first_tokens(answers), 0.5)

    for name, arguments in (("Millrace", []), ("Millrace, no cache", ["--no-prefix-cache"])):
        with Millrace(options, *arguments) as server:
            await measure(name, server.client, bodies)
    print_ratio = lambda name: f"{medians[name + ', no cache'] / medians[name]:.1f}"
    if options.llama_server:
        for name, cache in (("llama.cpp", True), ("llama.cpp, no cache", False)):
            with LlamaServer(options.llama_server, options) as server:
                await server.ready()
                await measure(name, server.client, [{**body, "cache_prompt": cache} for body in bodies])
    names = ["Millrace"] + (["llama.cpp"] if options.llama_server else [])
    print("\nThe cache makes the median first token earlier: " + ", ".join(f"{name} {print_ratio(name)}x" for name in names) + ".")


async def overload(options, prompts):
    """requests of 64 tokens in and 32 out come at random, at 0.7 and then at 10 times what the server can do, for 40 s each; then 0.7 times again; waits of more than 5 s are refused"""
    def body():
        return request(prompts(64), 32)
    with Millrace(options, "--max-queue-wait", 5) as server:
        began = time.monotonic()
        await closed_loop(BATCH, [body() for _ in range(64)], server.client)
        capacity = 64 / (time.monotonic() - began)
        chance = random.Random(3)
        head(f"times capacity ({capacity:.1f} requests/s)", "sent", "complete", "refused", "refusal p99, ms", *LATENCIES, "memory, MiB")
        for load in (0.7, 10, 0.7):
            tasks, began = [], time.monotonic()
            while (now := time.monotonic()) - began < 40:
                tasks.append(asyncio.create_task(server.client.complete(body())))
                await asyncio.sleep(chance.expovariate(load * capacity))
            answers = await asyncio.gather(*tasks)
            complete = [answer for answer in answers if answer.completed]
            refused = [answer.ended - answer.sent for answer in answers if answer.status == 429]
            row(load, len(answers), len(complete), len(refused), ms(quantile(refused, 0.99)), *latencies(complete),
                f"{server.resident_mib():.0f}")
            if len(complete) + len(refused) != len(answers):
                print(f"\n{len(answers) - len(complete) - len(refused)} requests had neither an answer nor a refusal.")
            await server.idle()


async def queued(options, prompts):
    """1,000 requests at once, 32 tokens in and 8 out"""
    with Millrace(options, "--max-queue-wait", 0) as server:
        before = server.resident_mib()
        tasks = [asyncio.create_task(server.client.complete(request(prompts(32), 8))) for _ in range(1000)]
        deepest = 0
        while not all(task.done() for task in tasks):
            deepest = max(deepest, await server.metric("vllm:num_requests_waiting"))
            await asyncio.sleep(0.5)
        answers = [task.result() for task in tasks]
        seconds = max(answer.ended for answer in answers) - min(answer.sent for answer in answers)
        passes = await server.metric("millrace:phase_passes_total", phase="decode")
        loop = await server.metric("millrace:decode_loop_seconds_total")
        head("complete", "longest queue", "seconds", "tokens/s", *LATENCIES, "memory before, after, MiB", "loop, us a step")
        row(sum(answer.completed for answer in answers), f"{deepest:.0f}", f"{seconds:.0f}", f"{8000 / seconds:.0f}",
            *latencies(answers), f"{before:.0f}, {server.resident_mib():.0f}", f"{loop / passes * 1e6:.0f}")


SCENARIOS = {scenario.__name__: scenario for scenario in (cancels, greedy, long, prefix, overload, queued)}


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("MILLRACE_MODELS") or llama_cpp.CACHES / "models") / "qwen2.5-0.5b-q4_k_m.gguf"
    parser.add_argument("-m", "--model", type=Path, default=default if default.exists() else None)
    parser.add_argument("--millrace", type=Path, default=ROOT / "build/release/millrace", metavar="FILE")
    parser.add_argument("--only", choices=SCENARIOS, action="append")
    llama_cpp.add_arguments(parser, required=False)
    options = parser.parse_args()
    try:
        options.llama_server = llama_cpp.find("llama-server", options) if options.fetch or options.llama else None
    except llama_cpp.CompareError as error:
        sys.exit(f"scheduler.py: {error}")
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores, the clients on the same ones; "
          + (f"{options.model.name}" if options.model else "the built-in model (tools/fetch_models brings a larger one)"))
    for name in options.only or SCENARIOS:
        print(f"\n### {name}\n\n{SCENARIOS[name].__doc__[0].upper()}{SCENARIOS[name].__doc__[1:]}.", flush=True)
        asyncio.run(SCENARIOS[name](options, Prompts(options)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
