"""Methods about the conversation itself: another one, a shorter one."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from agent.compactor import CompactionFailed
from agent.lane import Lane
from agent.output import RequestId
from agent.requests import CompactParams, NewSessionParams, Refusal, SwitchSessionParams
from agent.worker import Worker
from wire.messages import SessionResult

__all__ = ["SessionMethods"]


class SessionMethods:
    """Each needs the conversation to itself: refused while a run is in progress."""

    def __init__(self, worker: Worker, lane: Lane) -> None:
        self._worker = worker
        self._lane = lane
        self.by_name: dict[str, Callable[[Any, RequestId], Any]] = {
            "new_session": self._new_session,
            "switch_session": self._switch_session,
            "compact": self._compact,
        }

    def _new_session(self, params: NewSessionParams, request_id: RequestId) -> Any:
        async def work() -> SessionResult:
            fresh = self._worker.store.fresh(params.parent_session)
            fresh.make_file()  # a small write that waits for no disk: less work than asking a thread
            return self._held(await self._worker.hold(fresh, "new"))

        return self._exclusively(request_id, work)

    def _switch_session(self, params: SwitchSessionParams, request_id: RequestId) -> Any:
        async def work() -> SessionResult:
            worker = self._worker
            wanted = worker.conversation
            if params.session_file != wanted.session_file:
                wanted = await trio.to_thread.run_sync(worker.store.open, params.session_file)
            return self._held(await worker.hold(wanted, "switch"))

        return self._exclusively(request_id, work)

    def _compact(self, params: CompactParams, request_id: RequestId) -> Any:
        async def work() -> dict[str, Any]:
            worker = self._worker
            conversation = worker.conversation
            try:
                summary = await worker.compactor.compact(
                    conversation, worker.output.event, "manual", instructions=params.instructions
                )
            except CompactionFailed as exc:
                raise Refusal("compaction_failed", str(exc)) from exc
            if summary is None:
                return {"compacted": False, "reason": "nothing to compact: there are no old turns"}
            return {"compacted": True, "summary": summary, "messages": len(conversation.messages)}

        return self._exclusively(request_id, work)

    def _held(self, sealed: list[str]) -> SessionResult:
        conversation = self._worker.conversation
        return SessionResult(conversation.header.id, conversation.session_file, sealed or msgspec.UNSET)

    def _exclusively(self, request_id: RequestId, work: Callable[[], Awaitable[Any]]) -> Any:
        if self._worker.runs.busy:
            raise Refusal("busy", "a run is in progress; abort it first")
        return self._lane.put(request_id, work)
