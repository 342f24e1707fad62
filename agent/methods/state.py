"""Methods that look at a worker or set what holds from the next model call on: answered at once, also in a run."""

from collections.abc import Callable
from typing import Any

import msgspec

from agent.models.catalogue import UnknownModel
from agent.output import RequestId
from agent.requests import Refusal, SetModelParams, SetThinkingParams
from agent.worker import Worker
from wire.messages import StateResult

__all__ = ["StateMethods"]


class StateMethods:
    """See the module."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.by_name: dict[str, Callable[[Any, RequestId], Any]] = {
            "ping": lambda *_: {},
            "get_state": self._get_state,
            "get_messages": lambda *_: {"messages": worker.conversation.messages},
            "get_commands": self._get_commands,
            "set_model": self._set_model,
            "set_thinking": self._set_thinking,
        }

    def _get_state(self, _params: Any, _request_id: RequestId) -> StateResult:
        worker = self._worker
        conversation, brain = worker.conversation, worker.brain
        return StateResult(
            session_id=conversation.header.id,
            session_file=conversation.session_file,
            message_count=len(conversation.messages),
            is_streaming=worker.runs.active is not None,
            is_compacting=worker.compactor.running,
            provider=brain.model.provider,
            model=brain.model.name,
            thinking=brain.thinking,
            pending=len(worker.inbox),
            background=brain.processes.in_background,
            status=worker.status(),
        )

    def _get_commands(self, _params: Any, _request_id: RequestId) -> Any:
        knowledge = self._worker.knowledge
        templates = [{"name": name, "source": "prompt_template"} for name in knowledge.templates]
        skills = [{**msgspec.to_builtins(skill.view()), "source": "skill"} for skill in knowledge.skills]
        return {"commands": [*templates, *skills]}

    def _set_model(self, params: SetModelParams, _request_id: RequestId) -> Any:
        worker = self._worker
        try:
            worker.brain.model = worker.models.open(params.provider, params.model)
        except UnknownModel as exc:
            raise Refusal("invalid_params", str(exc)) from exc
        worker.output.event("state_changed", {"model": worker.brain.model.name})
        return {"provider": worker.brain.model.provider, "model": worker.brain.model.name}

    def _set_thinking(self, params: SetThinkingParams, _request_id: RequestId) -> Any:
        self._worker.brain.thinking = params.level
        self._worker.output.event("state_changed", {"thinking": params.level})
        return {"level": params.level}
