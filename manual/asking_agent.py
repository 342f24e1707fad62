"""An agent whose prompt ends when the question that it asks is answered: for the example of ``ui.respond``."""

import json
import sys
from collections.abc import Mapping
from typing import Any

_HELD = {"session_id": "asking", "session_file": None, "message_count": 0}


def _write(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _serve() -> None:
    methods = ["ping", "get_state", "new_session", "prompt", "ui_respond"]
    _write(event="ready", data={"protocol": 1, "agent": "asking", "version": "1", "methods": methods})
    prompt = None
    for line in sys.stdin:
        request: Mapping[str, Any] = json.loads(line)
        match request["method"]:
            case "prompt":
                prompt = request["id"]
                question = {"title": "Deploy to the test machine?", "options": ["yes", "no"]}
                _write(event="ui_request", data={"id": "q1", "method": "select", "fields": question})
            case "ui_respond":
                _write(id=request["id"], result={})
                _write(id=prompt, result={"text": f"Answered: {request['params']['value']}", "stop_reason": "stop"})
            case "get_state" | "new_session":
                _write(id=request["id"], result=_HELD)
            case _:
                _write(id=request["id"], result={})


_serve()
