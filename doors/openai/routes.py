"""``/v1``: what an OpenAI client calls. ``model`` is an agent of the pool."""

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request

from doors.http.errors import Refusal, json_response
from doors.http.services import Opening, Services, identity_of
from doors.http.tokens import Scope
from doors.openai import responses_routes
from doors.openai.completion import AnswerStream
from doors.openai.completion_bodies import Chunks, completion
from doors.openai.entry import Entry
from doors.openai.errors import render
from doors.openai.prompts import answered_calls
from doors.openai.requests import of_chat, read_chat
from doors.openai.session_ref import find_place

_ANY = ("GET", "POST", "PUT", "PATCH", "DELETE")
_THERE_ARE = (
    "GET /v1/models, POST /v1/chat/completions, POST /v1/responses, GET /v1/responses/{id}, DELETE /v1/responses/{id}"
)


def routes(services: Services) -> Sequence[Opening]:
    """Models, completions, responses, and a word about all else under ``/v1``."""
    entry = Entry(services)
    services.chores.append(entry.forgetting.run)
    door = _Door(entry)
    return [
        Opening("/v1/models", door.models, Scope.READ, render=render),
        Opening("/v1/models/{model}", door.model, Scope.READ, render=render),
        Opening("/v1/chat/completions", door.complete, Scope.WRITE, ("POST",), render=render),
        *responses_routes.routes(entry),
        Opening("/v1/{rest:path}", door.unknown, Scope.READ, _ANY, render=render),
    ]


class _Door:
    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    # --- models -----------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Any:
        names = await self._entry.agents(request)
        return json_response({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, request: Request) -> Any:
        name = str(request.path_params["model"])
        await self._entry.check_model(request, name)
        return json_response(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        created = int(self._entry.services.started_at)
        return {"id": name, "object": "model", "created": created, "owned_by": "pool"}

    # --- completions ------------------------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Any:
        chat = read_chat(await self._entry.body(request))
        asked = of_chat(chat)
        await self._entry.check(request, asked, "response_format")
        place = find_place(request.headers, chat.user, answered_calls(asked), identity_of(request).principal)
        asking = self._entry.asking(request, asked, place)
        headers, created = self._entry.headers(place, chat.ignored), int(time.time())
        if chat.stream:
            chunks = Chunks(place, model=chat.model, created=created, includes_usage=chat.includes_usage)
            return AnswerStream(asking, chunks, headers)
        outcome = await asking.answer(request.receive)
        answer = json_response(outcome and completion(outcome, place, model=chat.model, created=created))
        answer.headers.update(headers)
        return answer

    async def unknown(self, request: Request) -> Any:
        text = f"there is no {request.method} {request.url.path[:200]} here; there are: {_THERE_ARE}"
        raise Refusal(HTTPStatus.NOT_FOUND, text)
