"""What the routes of this door share: bodies, checks before a run begins, callers."""

import uuid
from collections.abc import Sequence
from http import HTTPStatus

from starlette.requests import Request

from doors.http.api import read_body
from doors.http.errors import HttpError
from doors.http.services import HttpCaller, HttpServices, identity_of
from doors.openai.answer_checks import SchemaChecker
from doors.openai.cleanup import EphemeralSessions
from doors.openai.completion import CompletionJob, CompletionRun, UnansweredRuns
from doors.openai.errors import ModelNotFound
from doors.openai.requests import ModelInput, reject_conversation_params
from doors.openai.session_ref import SessionRef


class OpenAIServices:
    """One for the server's life."""

    def __init__(self, services: HttpServices) -> None:
        self.http = services
        self.ephemeral_sessions = EphemeralSessions(services)
        self._schemas = SchemaChecker()
        self._unanswered = UnansweredRuns()

    def caller(self, request: Request) -> HttpCaller:
        """The caller of one method."""
        return HttpCaller(identity_of(request), uuid.uuid4().hex)

    async def agents(self, request: Request) -> list[str]:
        """The names of all agents."""
        return [agent.name for agent in await self.http.call("agents.list", {}, self.caller(request))]

    async def check_model(self, request: Request, name: str) -> None:
        """Raises ModelNotFound."""
        names = await self.agents(request)
        if name not in names:
            raise ModelNotFound(name, names)

    async def check(self, request: Request, asked: ModelInput, param: str) -> None:
        """Raises ModelNotFound; UsageError for an unusable schema, which the parameter ``param`` holds."""
        await self.check_model(request, asked.model)
        if asked.answer.json is not None and asked.answer.json.schema:
            await self._schemas.check(asked.answer.json.schema, param)

    async def read_body(self, request: Request) -> bytes:
        """The JSON of a request. Raises HttpError, UsageError for an address that names a conversation."""
        reject_conversation_params(request.query_params)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            text = "the body must be JSON, sent with content-type: application/json"
            raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        return await read_body(request, self.http)

    def completion_run(self, request: Request, asked: ModelInput, place: SessionRef) -> CompletionRun:
        """A request on its way through the pool."""
        question = CompletionJob(asked, place, identity_of(request))
        return CompletionRun(self.http, self.ephemeral_sessions, self._schemas, self._unanswered, question)

    def headers(self, place: SessionRef, ignored: Sequence[str]) -> dict[str, str]:
        """The headers of an answer: its run id, and the ignored parameters."""
        return {"x-request-id": place.run, **({"x-pool-ignored": ", ".join(ignored)} if ignored else {})}
