"""Workers of memory that do what a gateway's tests need: talk slowly, take steers, ask people, refuse, break."""

from pathlib import Path
from typing import Any, cast

from tests.pool.memory_workers import MemoryLauncher, MemoryWorker

_WORDS = {
    "hang",
    "stubborn",
    "mute",
    "ask",
    "dialog",
    "fail",
    "refuse",
    "wrong",
    "say",
    "think",
    "tool",
    "many",
    "context",
}

_ANSWERS = [{"id": "never", "name": "Never", "kind": "reject_always"}]


class GatewayWorker(MemoryWorker):
    """The first word of a prompt says what becomes of it; any other is answered as ``MemoryWorker`` does.

    It is that of the message, behind the events that a prompt tells first.

    ``hang`` runs until the test has it ``finish`` or it is aborted. ``stubborn`` does not heed an abort. ``mute`` is a
    ``hang`` that says nothing at all. ``ask`` wants an approval of call ``c1`` (or of the call it names), ``dialog`` an
    answer to dialog ``d1``, and both end with it. ``fail`` ends with the model's error, ``refuse`` is not taken,
    ``wrong`` has a result of another shape. ``say`` answers with what follows, ``think`` says it as a thought first.
    ``tool`` calls one that fails. ``many`` answers in as many pieces as it says. ``context``
    says how much of its context is used.
    """

    text = ""
    """Of the prompt that runs."""
    refuses_steers = False
    ignores_steers = False
    """They are not answered."""
    page: Any = None
    """What ``describe_call`` answers; None: it does not know the method."""
    tells_queue = True
    """Whether it says how many steers wait."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.steers: list[str] = []
        self.thinking: str | None = None

    @property
    def home(self) -> "GatewayLauncher":
        return cast("GatewayLauncher", self.launcher)

    def answer(self, request: dict[str, Any], result: dict[str, Any] | None) -> None:
        self.home.requests.append((request["method"], request["params"]))
        super().answer(request, result)

    # --- prompts ------------------------------------------------------------------------------------------------------

    def prompt(self, request: dict[str, Any]) -> dict[str, Any] | None:
        text = request["params"]["text"]
        message = text.rpartition("\n\n")[2] if text.startswith("[SYSTEM] ") else text
        word, _, rest = message.partition(" ")
        if not self.home.slow and word not in _WORDS:
            return super().prompt(request)
        self.home.prompts.append(text)
        self.running, self.text = request["id"], message
        self._begin("hang" if self.home.slow else word, rest)
        return None

    def _begin(self, word: str, rest: str) -> None:
        asked = {"id": rest or "c1", "name": "bash", "input_preview": "rm -rf"}
        failed = {"id": "t1", "name": "bash", "input_preview": rest, "state": "ERROR"}
        events: dict[str, list[tuple[str, dict[str, Any]]]] = {
            "hang": [("assistant_message", {"partial": "well "})],
            "ask": [
                ("permission_required", {"call": asked, "reason": "every call needs approval", "options": _ANSWERS})
            ],
            "dialog": [("ui_request", {"id": "d1", "method": "confirm", "fields": {"title": "Sure?"}})],
            "context": [("context_usage", {"used": 120, "size": 1000})],
            "think": [("thinking", {"partial": rest})],
            "tool": [
                ("tool", {"phase": "start", "call": {**failed, "state": "RUNNING"}}),
                ("tool", {"phase": "error", "call": failed, "error": "no such file"}),
            ],
        }
        results: dict[str, dict[str, Any]] = {
            "fail": {"text": "half", "stop_reason": "error", "error": "the model is ill"},
            "wrong": {"text": 7},
            "say": {"text": rest, "stop_reason": "stop"},
            "tool": {"text": "", "stop_reason": "stop"},
            "context": {"text": "", "stop_reason": "stop"},
        }
        if word in {"stubborn", *events}:
            self.tell("run_start")
        pieces = [f"{number}," for number in range(int(rest))] if word == "many" else []
        for event, data in events.get(word, [("assistant_message", {"partial": piece}) for piece in pieces]):
            self.tell(event, **data)
        if word == "refuse":
            self.refuse({"id": self.running}, "no_model", "there is no model")
        elif word in results:
            self.end_turn(results[word])
        elif word in {"think", "many"}:
            self.finish("thought" if word == "think" else "told")

    # --- what the test has it do --------------------------------------------------------------------------------------

    def tell(self, event: str, **data: Any) -> None:
        self.transport.say({"event": event, "data": data})

    def finish(self, text: str = "done", **more: Any) -> None:
        """End the running turn; its prompt and the steers it has consumed are part of the conversation."""
        self.launcher.transcripts[self.file].append(self.text)
        self.end_turn({"text": text, "stop_reason": "stop", **more})

    def end_turn(self, result: dict[str, Any]) -> None:
        request, self.running, self.text = self.running, None, ""
        self.transport.say({"id": request, "result": result})

    def refuse(self, request: dict[str, Any], code: str, message: str) -> None:
        self.transport.say({"id": request["id"], "error": {"code": code, "message": message}})

    def consume(self) -> None:
        """The model is told what was steered in."""
        self.launcher.transcripts[self.file] += self.steers
        self.steers.clear()
        if self.tells_queue:
            self.tell("queue_update", steers=0, follow_ups=0)

    def die(self) -> None:
        self.transport.exit(signal=9)

    # --- other requests -----------------------------------------------------------------------------------------------

    def describe_call(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if self.page is None:
            self.refuse(request, "unknown_method", "there is no method describe_call")
        page: dict[str, Any] | None = self.page
        return page

    def steer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if self.refuses_steers or self.running is None:
            self.refuse(request, "not_running", "no run takes a steer")
            return None
        self.steers.append(request["params"]["text"])
        if self.tells_queue:
            self.tell("queue_update", steers=len(self.steers), follow_ups=0)
        return None if self.ignores_steers else {"queued": "steer"}

    def abort(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.text.startswith("stubborn"):
            return {}
        self.steers.clear()
        if self.running is not None:
            self.end_turn({"text": "so far", "stop_reason": "aborted"})
        return super().abort(request)

    def decide(self, request: dict[str, Any]) -> dict[str, Any]:
        params = request["params"]
        self.tell("permission_decided", **params)
        self.finish(params["decision"])
        return {"decision": "deny"} if params.get("option_id") == "never" else {}

    def ui_respond(self, request: dict[str, Any]) -> dict[str, Any]:
        self.tell("ui_resolved", id=request["params"]["id"], reason="answered")
        self.finish("resolved")
        return {"resolved": True}

    def process(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"worker": self.id, **request["params"]}

    def compact(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if self.home.cannot_compact:
            self.refuse(request, "too_short", "there is nothing to summarise")
            return None
        return {"compacted": True}

    def new_session(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.home.directory is None:
            return super().new_session(request)
        file = self.home.directory / f"{len(self.launcher.transcripts)}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        self.file = str(file)
        self.launcher.transcripts[self.file] = []
        return self.state()

    def set_thinking(self, request: dict[str, Any]) -> dict[str, Any]:
        self.thinking = request["params"]["level"]
        return {}


class GatewayLauncher(MemoryLauncher):
    """``requests``: every request that any worker has answered or left, as ``(method, params)``.

    ``slow``: every prompt is a ``hang``, whatever it says. ``directory``: where transcripts become files.
    """

    kind = GatewayWorker

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.cannot_compact = False
        self.slow = False
        self.directory: Path | None = None

    @property
    def workers(self) -> list[GatewayWorker]:
        return [cast("GatewayWorker", worker) for worker in self.live.values()]

    def running(self, text: str) -> GatewayWorker:
        """The worker that has this prompt in its turn."""
        return next(worker for worker in self.workers if worker.running is not None and worker.text == text)

    def asked(self, method: str) -> list[dict[str, Any]]:
        """The parameters of every such request."""
        return [params for name, params in self.requests if name == method]
