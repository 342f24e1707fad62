"""``/v1``: what an OpenAI client calls. ``model`` is an agent of the pool."""

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request

from doors.http.errors import HttpError, json_response
from doors.http.services import HttpServices, RouteSpec, identity_of
from doors.http.tokens import Scope
from doors.openai import responses_routes
from doors.openai.completion import AnswerStreamResponse
from doors.openai.completion_bodies import Chunks, completion_body
from doors.openai.errors import render
from doors.openai.prompts import answered_call_ids
from doors.openai.requests import chat_input, read_chat
from doors.openai.services import OpenAIServices
from doors.openai.session_ref import find_session_ref

_ANY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE")
_ENDPOINTS_TEXT = (
    "GET /v1/models, POST /v1/chat/completions, POST /v1/responses, GET /v1/responses/{id}, DELETE /v1/responses/{id}"
)


def routes(services: HttpServices) -> Sequence[RouteSpec]:
    """Models, completions, responses, and a word about all else under ``/v1``."""
    entry = OpenAIServices(services)
    services.background_tasks.append(entry.ephemeral_sessions.run)
    door = _OpenAIRoutes(entry)
    return [
        RouteSpec("/v1/models", door.models, Scope.READ, render=render),
        RouteSpec("/v1/models/{model}", door.model, Scope.READ, render=render),
        RouteSpec("/v1/chat/completions", door.complete, Scope.WRITE, ("POST",), render=render),
        *responses_routes.routes(entry),
        RouteSpec("/v1/{rest:path}", door.unknown, Scope.READ, _ANY_METHOD, render=render),
    ]


class _OpenAIRoutes:
    def __init__(self, entry: OpenAIServices) -> None:
        self._services = entry

    # --- models -----------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Any:
        names = await self._services.agents(request)
        return json_response({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, request: Request) -> Any:
        name = str(request.path_params["model"])
        await self._services.check_model(request, name)
        return json_response(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        created = int(self._services.http.started_at)
        return {"id": name, "object": "model", "created": created, "owned_by": "pool"}

    # --- completions ------------------------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Any:
        chat = read_chat(await self._services.read_body(request))
        asked = chat_input(chat)
        await self._services.check(request, asked, "response_format")
        place = find_session_ref(request.headers, chat.user, answered_call_ids(asked), identity_of(request).principal)
        asking = self._services.completion_run(request, asked, place)
        headers, created = self._services.headers(place, chat.ignored), int(time.time())
        if chat.stream:
            chunks = Chunks(place, model=chat.model, created=created, includes_usage=chat.includes_usage)
            return AnswerStreamResponse(asking, chunks, headers)
        outcome = await asking.answer(request.receive)
        answer = json_response(outcome and completion_body(outcome, place, model=chat.model, created=created))
        answer.headers.update(headers)
        return answer

    async def unknown(self, request: Request) -> Any:
        text = f"there is no {request.method} {request.url.path[:200]} here; there are: {_ENDPOINTS_TEXT}"
        raise HttpError(HTTPStatus.NOT_FOUND, text)
