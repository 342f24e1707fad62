"""What goes wrong, in OpenAI's shape: statuses, codes, and whether it is wise to ask again."""

from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from doors.http.errors import HttpError
from doors.openai.errors import ModelNotFound, render
from doors.openai.requests import read_chat
from doors.openai.responses_requests import read_response
from errors import (
    AcquireTimeout,
    Conflict,
    InternalError,
    PoolClosed,
    PoolError,
    PoolSaturated,
    ProfileBroken,
    RequestTimeout,
    RunAborted,
    RunInterrupted,
    UsageError,
    WorkerExited,
    WorkerRefused,
)


@pytest.mark.parametrize(
    ("error", "status", "code", "again"),
    [
        (UsageError("x"), 400, "usage", "false"),
        (WorkerRefused("x", worker_code="invalid_params"), 400, "worker_refused", "false"),
        (WorkerRefused("x", worker_code="no_model"), 502, "worker_refused", "false"),
        (HttpError(HTTPStatus.UNAUTHORIZED, "x"), 401, "invalid_api_key", "false"),
        (HttpError(HTTPStatus.FORBIDDEN, "x"), 403, "forbidden", "false"),
        (ModelNotFound("x", []), 404, "model_not_found", "false"),
        (HttpError(HTTPStatus.REQUEST_TIMEOUT, "x"), 408, "request_timeout", "true"),
        (Conflict("x"), 409, "conflict", "false"),
        (RunAborted("x"), 409, "aborted", "false"),
        (RunInterrupted("x"), 409, "interrupted", "false"),
        (PoolSaturated("x"), 429, "saturated", "true"),
        (HttpError(HTTPStatus.TOO_MANY_REQUESTS, "x"), 429, "too_many_requests", "true"),
        (InternalError("x"), 500, "internal", "false"),
        (WorkerExited("x"), 502, "worker_exited", "false"),
        (PoolClosed("x"), 503, "pool_closed", "true"),
        (PoolClosed("x", cut_short=True), 503, "pool_closed", "false"),
        (ProfileBroken("x"), 503, "profile_broken", "true"),
        (AcquireTimeout("x"), 504, "acquire_timeout", "true"),
        (RequestTimeout("x"), 504, "request_timeout", "false"),
    ],
)
def test_each_kind_of_error_has_its_status(error: PoolError, status: int, code: str, again: str) -> None:
    answer = render(error)
    body = msgspec.json.decode(answer.body)["error"]
    assert (answer.status_code, body["code"], answer.headers["x-should-retry"]) == (status, code, again)
    assert body.keys() == {"message", "type", "param", "code"}
    assert (body["type"] == "server_error") == (status >= 500)


def test_a_saturated_pool_always_says_when_to_come_again() -> None:
    assert render(PoolSaturated("x")).headers["retry-after"] == "1"
    assert render(PoolSaturated("x", retry_after=2.5)).headers["retry-after"] == "3"


@pytest.mark.parametrize(
    "harmless",
    [
        {"n": 1, "stop": None, "logprobs": False, "modalities": ["text"], "response_format": {"type": "text"}},
        {"n": None, "stop": [], "tools": [], "tool_choice": "auto", "stream_options": None, "functions": None},
    ],
)
def test_what_asks_for_nothing_special_is_granted(harmless: dict[str, Any]) -> None:
    chat = {"model": "main", "messages": [{"role": "user", "content": "x"}], **harmless}
    assert read_chat(msgspec.json.encode(chat)).ignored == ()


@pytest.mark.parametrize("name", ["session", "session_id", "sessionKey", "conversation", "thread_id"])
@pytest.mark.parametrize("read", [read_chat, read_response])
def test_a_name_of_a_conversation_that_would_have_no_effect_is_refused(read: Any, name: str) -> None:
    body = {"model": "main", "messages": [{"role": "user", "content": "x"}], "input": "x", name: "mine"}
    with pytest.raises(UsageError, match="by the header X-Pool-Session") as caught:
        read(msgspec.json.encode(body))
    assert caught.value.details["param"] == name


def test_what_goes_back_in_a_header_looks_like_parameters_and_is_not_too_much() -> None:
    odd = {f"p_{chr(97 + number)}": 1 for number in range(26)} | {"x\r\ny: z": 1, "P": 1, "q" * 41: 1, "seed": None}
    chat = {"model": "main", "messages": [{"role": "user", "content": "x"}], **odd}
    assert read_chat(msgspec.json.encode(chat)).ignored == tuple(f"p_{chr(97 + number)}" for number in range(20))
