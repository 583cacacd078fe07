# Sourced by ./start and ./test: the Debian 12 packages that they need, and how they build.

build_packages=(
  g++ cmake ninja-build ccache pkg-config
  libcaf-dev libzmq3-dev cppzmq-dev libmsgpack-cxx-dev
  nlohmann-json3-dev libcli11-dev libpcre2-dev libxxhash-dev libutf8proc-dev libedit-dev
  libboost-dev libssl-dev prometheus-cpp-dev libspdlog-dev libfmt-dev
  python3 python3-zmq python3-msgpack
)
test_packages=(libgtest-dev libgmock-dev librapidcheck-dev python3-jinja2)
fuzz_packages=(clang libclang-rt-14-dev)

say() { printf '%s\n' "$*" >&2; }

# Those of the arguments that are not installed, a line each.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

# Installs what is missing of the arguments; says what is missing and fails if it can't.
ensure_packages() {
  local missing root=()
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} > 0)) || return 0
  say "Missing Debian packages: ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    say "There is no apt-get here. Please install them (or what they contain) by hand."
    return 1
  fi
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      say "Neither root nor sudo. Please have them installed: apt-get install ${missing[*]}"
      return 1
    fi
    root=(sudo)
    [[ -t 0 ]] || root+=(-n) # nobody there to type a password
  fi
  say "Installing them with ${root[*]:+${root[*]} }apt-get …"
  mkdir -p build
  if ! { "${root[@]}" apt-get update &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
    </dev/null >build/apt.log 2>&1; then
    tail -n 20 build/apt.log >&2
    mapfile -t missing < <(missing_packages "$@")
    say "apt-get failed (all of its output: build/apt.log). Still missing: ${missing[*]}"
    return 1
  fi
}

# build PRESET [-DNAME=VALUE…] [-- TARGET…]: configures and builds, all targets if none is named. Quiet unless it fails or someone watches.
build() {
  local preset=$1 settings=() targets=()
  shift
  while (($# > 0)) && [[ $1 != -- ]]; do settings+=("$1"); shift; done
  (($# == 0)) || { shift; targets=(--target "$@"); }
  say "Building build/$preset …"
  mkdir -p "build/$preset"
  local log=build/$preset/build.log
  if ! cmake --preset "$preset" "${settings[@]}" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    return 1
  fi
  if [[ -t 2 ]]; then
    cmake --build --preset "$preset" "${targets[@]}" >&2
  elif ! cmake --build --preset "$preset" "${targets[@]}" >>"$log" 2>&1; then
    grep -A 20 -m 3 -E 'FAILED|error:' "$log" >&2 || tail -n 40 "$log" >&2
    return 1
  fi
}
