"""Lines of pi that many tests of its runs need, and a dialect that is inside a run."""

from typing import Any

from rpc.settings import RpcSettings
from tests.rpc.pi.replay import Replay

START: dict[str, Any] = {"type": "agent_start"}
RETRY = {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 2000, "errorMessage": "500"}


def assistant(text: str, stop_reason: str = "stop", error: str | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop_reason}
    return {"type": "message_end", "message": {**message, "errorMessage": error} if error else message}


def queue(*steering: str, follow_up: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"type": "queue_update", "steering": list(steering), "followUp": list(follow_up)}


def in_a_run(settings: RpcSettings | None = None) -> Replay:
    replay = Replay(settings)
    replay.ask("a", "prompt", text="go", run_id="run")
    replay.answer("prompt")
    replay.say(START)
    replay.answer_questions()
    assert replay.told == ["run_start run"]
    replay.told.clear()
    return replay


def sent(replay: Replay) -> list[str]:
    return [command["type"] for command in replay.written]
