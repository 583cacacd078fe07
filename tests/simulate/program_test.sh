#!/bin/sh
# The program as a user meets it: program_test.sh simulate
set -eu
simulate=$1
fail() { echo "$1"; exit 1; }

first=$("$simulate" --trace greedy-tenant --duration 60 --seed 7 --json)
second=$("$simulate" --trace greedy-tenant --duration 60 --seed 7 --json)
[ "$first" = "$second" ] || fail "the same seed gives two outputs"
case $first in *'"trace":"greedy-tenant","seed":7'*) ;; *) fail "the JSON lacks its trace: $first" ;; esac
"$simulate" --duration 20 | grep -q "not measured" || fail "the defaults are not called defaults"

bench=$(mktemp)
trap 'rm -f "$bench"' EXIT
echo '{"cpu":"C","threads":2,"model":"M","prefill":{"tokens":512,"tokens_s":250},"decode":{"tokens":128,"tokens_s":40},"loop_overhead_us":85}' >"$bench"
"$simulate" --duration 20 --fit "$bench" | grep -q "bench: M on C, 2 threads" || fail "--fit is not told"
echo 'no bench' >"$bench"

refuses() { # what the message has to name, then the arguments
  expected=$1
  shift
  message=$("$simulate" "$@" 2>&1) && fail "accepts $*" || [ $? -eq 2 ] || fail "$*: another exit code than 2"
  case $message in *"$expected"*) ;; *) fail "$*: $message" ;; esac
}
refuses "--trace" --trace nonsense
refuses "--rate" --rate -1
refuses "--cancel-fraction" --cancel-fraction 2
refuses "tokens/s of prefill" --fit "$bench"
refuses "context's 4096" --prompt-tokens 5000 --duration 60 --rate 1
refuses "--fit" --fit "$bench" --decode-row-ms 3
