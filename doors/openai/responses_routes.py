"""``/v1/responses``, which newer clients of OpenAI's use instead of completions.

A kept response (``store``, the default) is the latest turn of a session of its own, which ``previous_response_id``
continues. So a response can be continued once, and deleting it deletes the whole conversation. It can be fetched while
the pool keeps the run's outcome.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request

from doors.http.errors import Refusal, json_response
from doors.http.services import Opening, identity_of
from doors.http.tokens import Scope
from doors.openai.completion import AnswerStream
from doors.openai.entry import Entry
from doors.openai.errors import UnknownResponse, render
from doors.openai.prompts import answered_calls
from doors.openai.responses_bodies import ResponseEvents, head_of, response
from doors.openai.responses_requests import input_of, read_response
from doors.openai.session_ref import (
    OWN_SESSION,
    Place,
    SessionRun,
    find_response_place,
    read_response_id,
    second_run_of,
)
from errors import UsageError, error_from_wire
from gateway.runs.run import RunOutcome


def routes(entry: Entry) -> Sequence[Opening]:
    """Making, fetching and deleting responses."""
    door = _Responses(entry)
    return [
        Opening("/v1/responses", door.create, Scope.WRITE, ("POST",), render=render),
        Opening("/v1/responses/{response}", door.retrieve, Scope.READ, render=render),
        Opening("/v1/responses/{response}", door.delete, Scope.WRITE, ("DELETE",), render=render),
    ]


class _Responses:
    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    async def create(self, request: Request) -> Any:
        body = read_response(await self._entry.body(request))
        asked = input_of(body)
        await self._entry.check(request, asked, "text.format")
        place = find_response_place(
            request.headers,
            body.user,
            answered_calls(asked),
            identity_of(request).principal,
            previous=body.previous_response_id,
            is_kept=body.store is not False,
        )
        asking = self._entry.asking(request, asked, place)
        headers = self._entry.headers(place, body.ignored)
        head = head_of(place, model=body.model, created=int(time.time()), request=body)
        if body.stream:
            return AnswerStream(asking, ResponseEvents(head), headers)
        outcome = await asking.answer(request.receive)
        answer = json_response(outcome and response(head, outcome, text=outcome.text))
        answer.headers.update(headers)
        return answer

    async def retrieve(self, request: Request) -> Any:
        named = _named(request)
        if request.query_params.get("stream", "false") != "false":
            raise UsageError("stream: an earlier response is not streamed again", param="stream")
        view = await self._call(request, "sessions.get", {"session": named.session})
        found = await self._outcome(request, named)
        place = Place(named.session, named.run, OWN_SESSION.fullmatch(named.session) is not None)
        head = head_of(place, model=view.agent, created=int(_accepted_at(found)))
        if not isinstance(found, RunOutcome):
            return json_response(response(head, None))
        if found.error is not None:
            error = error_from_wire(found.error.code, found.error.message, msgspec.to_builtins(found.error.data))
            return json_response(response(head, None, error=error))
        return json_response(response(head, found, text=found.text))

    async def delete(self, request: Request) -> Any:
        """Delete the whole conversation, which must be one of this door's own."""
        named, given = _named(request), request.path_params["response"]
        if OWN_SESSION.fullmatch(named.session) is None:
            text = f"it is part of session {named.session}, which was not made for it; delete that session instead"
            raise UsageError(f"this response cannot be deleted alone: {text}", param="response_id")
        await self._call(request, "sessions.get", {"session": named.session})
        await self._entry.forgetting.delete(named.session)
        return json_response({"id": given, "object": "response", "deleted": True})

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _outcome(self, request: Request, named: SessionRun) -> Any:
        """The outcome of the run, or of the second run where the agent was asked again; its state if it has not ended.

        Raises UnknownResponse.
        """
        for run in (second_run_of(named.run), named.run):
            params = {"session": named.session, "run_id": run, "timeout_ms": 0}
            try:
                return await self._entry.services.call("agent.wait", params, self._entry.caller(request))
            except UsageError:
                continue  # no such run, or it is no longer kept
        raise UnknownResponse(request.path_params["response"])

    async def _call(self, request: Request, method: str, params: dict[str, Any]) -> Any:
        """Raises UnknownResponse where there is no such session."""
        try:
            return await self._entry.services.call(method, params, self._entry.caller(request))
        except Refusal:
            raise
        except UsageError as exc:
            raise UnknownResponse(request.path_params["response"]) from exc


def _named(request: Request) -> SessionRun:
    given = str(request.path_params["response"])
    named = read_response_id(given)
    if named is None:
        raise UnknownResponse(given)
    return named


def _accepted_at(found: Any) -> float:
    return float(found.accepted_at if isinstance(found, RunOutcome) else found["accepted_at"])
