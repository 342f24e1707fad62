"""A worker of the native dialect that costs next to nothing: it answers at once, and streams as many pieces as asked.

A prompt ``N`` streams N pieces of text, any other is answered with itself. Standard library only, so that it measures
the other side.
"""

import json
import os

_PIECE = '{"event":"assistant_message","data":{"partial":"word ","run_id":"%s","seq":%d}}\n'
_BLOCK = 10_000
_encode = json.JSONEncoder(separators=(",", ":")).encode


def main() -> None:
    _say({"event": "ready", "data": {"protocol": 1, "agent": "stream"}})
    blocks: dict[int, bytes] = {}
    sessions = 0
    rest = b""
    while data := os.read(0, 65536):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            match request["method"]:
                case "new_session":
                    sessions += 1
                    _answer(request, {"session_id": str(sessions), "session_file": None})
                case "get_state":
                    _answer(request, {"session_id": str(sessions), "session_file": None, "message_count": 0})
                case "prompt":
                    _prompt(request, blocks)
                case _:
                    _answer(request, {})


def _prompt(request: dict[str, object], blocks: dict[int, bytes]) -> None:
    text = str(request["params"]["text"])  # type: ignore[index]  # a prompt has parameters
    count = int(text) if text.isdecimal() else 0
    _say({"event": "run_start", "data": {}})
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        if size not in blocks:  # the numbers restart with each block; no reader here looks at them
            blocks[size] = "".join(_PIECE % ("r1", number) for number in range(size)).encode()
        _write(blocks[size])
    _answer(request, {"text": text if not count else "", "stop_reason": "stop"})


def _answer(request: dict[str, object], result: dict[str, object]) -> None:
    _say({"id": request["id"], "result": result})


def _say(message: dict[str, object]) -> None:
    _write(_encode(message).encode() + b"\n")


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
