#!/usr/bin/env python3
"""Puts a server of its own on this machine under load and prints what came of it, as text for the README.

    tools/load/load.py                      streams, idle connections, readers, publishing: a few minutes
    tools/load/load.py --soak 30            and half an hour of clients that come and go
    tools/load/load.py -m model.gguf        with a model of your own; else the built-in one
    tools/load/load.py --only publish

Builds build/load (Release, MILLRACE_TOOLS=ON) first. Everything stays on loopback and is bounded."""
import argparse
import pathlib
import os
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "load"
SCENARIOS = ("streams", "readers", "idle", "publish")


def build():
    for command in (["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DMILLRACE_TOOLS=ON",
                     "-DMILLRACE_TESTS=OFF"],
                    ["cmake", "--build", BUILD, "--target", "millrace", "millrace_load"]):
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


class Server:
    def __init__(self, model):
        command = [BUILD / "millrace", "serve", "--port", "0", "--log-level", "warning"] + (["-m", model] if model else [])
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        self.url = None
        for line in self.process.stdout:
            if line.startswith("http "):
                self.url = line.split()[1]
            if line.strip() == "ready":
                break
        if not self.url or self.process.poll() is not None:
            sys.exit("the server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def load(*arguments):
    print(f"\n$ millrace_load {' '.join(arguments)}", flush=True)
    return subprocess.run([str(BUILD / "tools" / "load" / "millrace_load"), *arguments]).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a GGUF file; else the built-in model")
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES")
    parser.add_argument("--only", choices=SCENARIOS + ("soak",), action="append")
    options = parser.parse_args()
    chosen = options.only or [*SCENARIOS, *(["soak"] if options.soak else [])]

    build()
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores")
    good = True
    for name in chosen:
        if name == "publish":
            for subscribers in ("1", "10"):
                events = "1000000" if subscribers == "1" else "200000"
                good = load("publish", "--subscribers", subscribers, "--events", events) and good
            continue
        with Server(options.model) as server:  # a fresh one each, so that no scenario pays for another
            extra = ["--minutes", str(options.soak or 30)] if name == "soak" else []
            good = load("--url", server.url, "--pid", str(server.process.pid), name, *extra) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
