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
GENERATE = dict(request=REQUEST, prompt="Once upon a time, gr\u00fc\u00df \U0001f600", prompt_ids=None, add_bos=True,
                parse_special=False, n=2, max_tokens=300, sampling=SAMPLING, stop=["\n\n", "END"], stop_ids=[2, 128009],
                ignore_eos=False, logprobs=5)
SEQUENCE_ID = dict(request=REQUEST, choice=1, epoch=3)
TOP = [dict(id=262, bytes=b" the", logprob=F32(-0.25)), dict(id=-1, bytes=b"\xf0\x9f", logprob=F32(-9999))]
TOKEN = dict(id=262, bytes=b" \xf0\x9f", text=" ", logprob=F32(-0.25), top=TOP)
CHOICE = dict(request=REQUEST, choice=1, epoch=3)

MESSAGES = dict(
    generate=GENERATE,
    cancel=dict(request=REQUEST),
    replay=dict(request=REQUEST, choice=1, from_seq=70000),
    ack=dict(request=REQUEST, of="replay", from_seq=70000, next_seq=70010),
    welcome=dict(request=REQUEST, version=1, live=True, next_seq=[0, 5000000000]),
    started=dict(CHOICE, prompt_tokens=1000, cached_tokens=128, seed=42),
    progress=dict(CHOICE, processed=512, total=1000),
    token=dict(CHOICE, seq=129, **TOKEN),
    finished=dict(CHOICE, seq=130, reason="error", text="\ufffd", error="device_lost"),
    done=dict(request=REQUEST, prompt_tokens=1000, generated_tokens=300, queue_ms=F64(0.1), prefill_ms=F64(12.5), decode_ms=F64(-0.0)),
    rejected=dict(request=REQUEST, error="busy", field="", message="the queue is full", retry_after_ms=500),
    heartbeat=dict(request=REQUEST, next_seq=[12, 0]),
    prompt=dict(generate=dict(GENERATE, prompt=None), token_ids=[1, 300, 70000]),
    sequence=dict(id=SEQUENCE_ID, prompt_ids=[1, 300], emitted_ids=[70000], max_tokens=300, sampling=SAMPLING,
                  stop=["\n\n"], stop_ids=[2], ignore_eos=True, logprobs=None),
    sampled_token=dict(sequence=SEQUENCE_ID, index=129, **TOKEN),
)

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
for name, fields in MESSAGES.items():
    text = pack(dict(type=name, **fields)).hex()
    lines = [text[i:i + 96] for i in range(0, len(text), 96)]
    (folder / f"{name}.hex").write_text("\n".join(lines) + "\n")
