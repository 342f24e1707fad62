"""``/v1``: what an OpenAI client calls. ``model`` is an agent of the pool."""

import time
import uuid
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request

from doors.http.bodies import read_body
from doors.http.caller import HttpCaller
from doors.http.openings import Opening
from doors.http.refusals import Refusal, json_response
from doors.http.scopes import Scope
from doors.http.services import Services, identity_of
from doors.openai.answers import Chunks, completion
from doors.openai.asking import Asking, Question
from doors.openai.conversation import answered_calls
from doors.openai.forgetting import Forgetting
from doors.openai.model_input import ModelInput, of_chat
from doors.openai.places import Place, find_place
from doors.openai.refusals import UnknownModel, render
from doors.openai.requests import read_chat
from doors.openai.schemas import Schemas
from doors.openai.stream import AnswerStream

__all__ = ["routes"]

_ANY = ("GET", "POST", "PUT", "PATCH", "DELETE")


def routes(services: Services) -> Sequence[Opening]:
    """Models, completions, and a word about all else under ``/v1``."""
    door = _Door(services)
    services.chores.append(door.forgetting.run)
    return [
        Opening("/v1/models", door.models, Scope.READ, render=render),
        Opening("/v1/models/{model}", door.model, Scope.READ, render=render),
        Opening("/v1/chat/completions", door.complete, Scope.WRITE, ("POST",), render=render),
        Opening("/v1/{rest:path}", door.unknown, Scope.READ, _ANY, render=render),
    ]


class _Door:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.forgetting = Forgetting(services)
        self._schemas = Schemas()

    # --- models -----------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Any:
        names = await self._agents(request)
        return json_response({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, request: Request) -> Any:
        name = str(request.path_params["model"])
        await self._check_model(request, name)
        return json_response(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        created = int(self._services.started_at)
        return {"id": name, "object": "model", "created": created, "owned_by": "pool"}

    async def _agents(self, request: Request) -> list[str]:
        caller = HttpCaller(identity_of(request), uuid.uuid4().hex)
        return [agent.name for agent in await self._services.call("agents.list", {}, caller)]

    async def _check_model(self, request: Request, name: str) -> None:
        names = await self._agents(request)
        if name not in names:
            raise UnknownModel(name, names)

    # --- completions ------------------------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Any:
        chat = read_chat(await self._body(request))
        asked, identity = of_chat(chat), identity_of(request)
        await self._check(request, asked, "response_format")
        place = find_place(request.headers, chat.user, answered_calls(asked), identity.principal)
        asking = Asking(self._services, self.forgetting, self._schemas, Question(asked, place, identity))
        headers, created = _headers(place, chat.ignored), int(time.time())
        if chat.stream:
            chunks = Chunks(place, model=chat.model, created=created, includes_usage=chat.includes_usage)
            return AnswerStream(asking, chunks, headers)
        outcome = await asking.answer(request.receive)
        answer = json_response(outcome and completion(outcome, place, model=chat.model, created=created))
        answer.headers.update(headers)
        return answer

    async def _check(self, request: Request, asked: ModelInput, param: str) -> None:
        """What can be seen to be wrong before anything is begun; ``param`` is where the form of the answer stands."""
        await self._check_model(request, asked.model)
        if asked.answer.json is not None and asked.answer.json.schema:
            await self._schemas.check(asked.answer.json.schema, param)

    async def _body(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            text = "the body must be JSON, sent with content-type: application/json"
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        return await read_body(request, self._services)

    async def unknown(self, request: Request) -> Any:
        text = f"there is no {request.method} {request.url.path[:200]} here; there are: GET /v1/models, "
        raise Refusal(HTTPStatus.NOT_FOUND, text + "POST /v1/chat/completions")


def _headers(place: Place, ignored: Sequence[str]) -> dict[str, str]:
    return {"x-request-id": place.run, **({"x-pool-ignored": ", ".join(ignored)} if ignored else {})}
