#!/usr/bin/env python3
"""Writes one frame of each message as hex, with Python's msgpack and from messages/PROTOCOL.md alone.
Usage: make_frames.py [FOLDER]"""
import pathlib, struct, sys
import msgpack

REQUEST = bytes(range(16))


class F32(float):
    pass


class F64(float):
    pass


def pack(value):
    """As msgpack.packb, but with a width for each float."""
    if isinstance(value, F32):
        return b"\xca" + struct.pack(">f", value)
    if isinstance(value, F64):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, dict):
        return msgpack.Packer().pack_map_header(len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    if isinstance(value, list):
        return msgpack.Packer().pack_array_header(len(value)) + b"".join(map(pack, value))
    return msgpack.packb(value)


SAMPLING = dict(temperature=F32(0.7), top_k=40, top_p=F32(0.9), min_p=F32(0.05), repetition_penalty=F32(1.1),
                frequency_penalty=F32(-0.5), presence_penalty=F32(0.0), logit_bias={7: F32(-100), 151935: F32(2.5)},
                seed=2**64 - 1)
TURNS = [dict(role="user", content="gr\u00fc\u00df", name="ann", tool_call_id=None, tool_calls=None),
         dict(role="assistant", content="", name=None, tool_call_id=None, tool_calls="[]")]
GENERATE = dict(request=REQUEST, prompt="Once upon a time, gr\u00fc\u00df \U0001f600", prompt_ids=None, messages=TURNS, tools="[]",
                template_arguments="{}", add_generation_prompt=False, time=1700000000, add_bos=True, parse_special=False, n=2,
                max_tokens=300, sampling=SAMPLING, stop=["\n\n", "END"], stop_ids=[2, 128009], ignore_eos=False, logprobs=5, prompt_logprobs=2,
                idempotency_key="order 66", readers=["0" * 40], priority=-7, deadline_ms=60000, expires_at=1700000060000, tenant="gr\u00fcn",
                cache_salt="salt")
SEQUENCE_ID = dict(request=REQUEST, choice=1, epoch=3)
TOP = [dict(id=262, bytes=b" the", logprob=F32(-0.25)), dict(id=-1, bytes=b"\xf0\x9f", logprob=F32(-9999))]
TOKEN = dict(id=262, bytes=b" \xf0\x9f", text=" ", logprob=F32(-0.25), top=TOP)
CHOICE = dict(request=REQUEST, choice=1, epoch=3)
SCHEDULER = dict(preempted=1, yielded=2, cancelled=3, expired=4, cache_queries=5000000000, cache_hits=128, cache_evictions=5, kv_blocks_cached=6,
                 prefill_passes=7, prefill_rows=1000, prefill_seconds=F64(0.1), decode_passes=8, decode_rows=300, decode_seconds=F64(12.5),
                 loop_seconds=F64(0.25), decode_bytes=F64(1e12), prefill_operations=F64(2.5e15), peak_bytes_per_second=F64(4e10),
                 peak_operations_per_second=F64(0.0), cancel_passes=[9, 70000, 0])

MESSAGES = dict(
    generate=GENERATE,
    cancel=dict(request=REQUEST),
    replay=dict(request=REQUEST, choice=1, from_seq=70000),
    follow=dict(request=REQUEST, from_seq=[0, 5000000000], window=64),
    read=dict(request=REQUEST, next_seq=[12, 0]),
    look=dict(request=REQUEST),
    stats=dict(max_requests=8),
    ack=dict(request=REQUEST, of="replay", joined=False, from_seq=70000, next_seq=70010),
    welcome=dict(request=REQUEST, version=1, live=True, next_seq=[0, 5000000000]),
    started=dict(CHOICE, prompt_tokens=1000, cached_tokens=128, seed=42),
    progress=dict(CHOICE, processed=512, total=1000),
    prompt_logprobs=dict(CHOICE, position=512, tokens=[dict(id=1, bytes=b"", logprob=None, top=[]), dict(id=262, bytes=b" the", logprob=F32(-0.25), top=TOP)]),
    token=dict(CHOICE, seq=129, **TOKEN),
    finished=dict(CHOICE, seq=130, reason="error", text="\ufffd", error="device_lost"),
    done=dict(request=REQUEST, prompt_tokens=1000, generated_tokens=300, queue_ms=F64(0.1), prefill_ms=F64(12.5), decode_ms=F64(-0.0)),
    rejected=dict(request=REQUEST, error="busy", field="", message="the queue is full", retry_after_ms=500),
    heartbeat=dict(request=REQUEST, next_seq=[12, 0]),
    lagging=dict(request=REQUEST, choice=1, wanted_seq=12, held_seq=70000),
    snapshot=dict(request=REQUEST, live=True, prompt_tokens=1000,
                  choices=[dict(first_seq=0, next_seq=131, text="gr\u00fc\u00df", reason="length"), dict(first_seq=12, next_seq=70000, text="", reason="")]),
    server_stats=dict(version="0.1.0", model="tales", device="cpu:0 avx2", uptime_seconds=F64(12.5), state="serving", running=1, waiting=2,
                      queued_tokens=300, kv_blocks_used=4, kv_blocks_total=5, prompt_tokens=6, generated_tokens=7, finished=8, rejected=9,
                      restarts=10, passes=11, device_busy_seconds=F64(0.1), scheduler=SCHEDULER, log_streams=12, log_bytes=70000, subscriptions=13,
                      http_connections=14, replays=15, lagging=16,
                      requests=[dict(stream="00010203", phase="decode", choices=2, prompt_tokens=1000, processed_tokens=1000,
                                     generated_tokens=129, age_ms=F64(12.5), tokens_per_second=F64(0.1))]),
    prompt=dict(generate=dict(GENERATE, prompt=None), token_ids=[1, 300, 70000]),
    sequence=dict(id=SEQUENCE_ID, prompt_ids=[1, 300], emitted_ids=[70000], max_tokens=300, sampling=SAMPLING,
                  stop=["\n\n"], stop_ids=[2], ignore_eos=True, logprobs=None, prompt_logprobs=2, scored=129, rank=2**40 + 1, salt="5:gr\u00fcnsalt", ahead=True),
    sampled_token=dict(sequence=SEQUENCE_ID, index=129, **TOKEN),
)

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
for name, fields in MESSAGES.items():
    text = pack(dict(type=name, **fields)).hex()
    lines = [text[i:i + 96] for i in range(0, len(text), 96)]
    (folder / f"{name}.hex").write_text("\n".join(lines) + "\n")
