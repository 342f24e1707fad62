"""Checks answers against what the client asked for: a JSON schema, a tool call, stop texts; words the correction.

Some model servers enforce these; the answers of all are checked. Clients' schemas, and answers against them, are
checked each in a process of its own with a time limit.
"""

import hashlib
import re
import sys
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from errors import UsageError
from gateway.runs.run import DoneReason, RunOutcome
from wire.framing import DECODE_ERRORS
from wire.messages import AnswerOptions, TokenUsage


def cut_at_stop(stops: Sequence[str], text: str) -> str:
    """The text up to the first stop."""
    cutter = StopFilter(stops)
    return cutter.push(text) + cutter.end()


class StopFilter:
    """The same for a stream: text that may be the beginning of a stop is held back until it is not."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self._has_stopped = False

    def push(self, piece: str) -> str:
        """The part of the text that can be shown now."""
        if not self._stops or self._has_stopped:
            return "" if self._has_stopped else piece
        text = self._held + piece
        begun = len(text) - max(_partial_stop_length(stop, text) for stop in self._stops)
        first = self._first(text)
        if first is not None and first <= begun:  # else a stop that has begun before this one may still become whole
            self._has_stopped, self._held = True, ""
            return text[:first]
        self._held = text[begun:]
        return text[:begun]

    def end(self) -> str:
        """The rest at the end of the stream, up to the first stop: what has only begun is none."""
        held, self._held = self._held, ""
        return held[: self._first(held)]

    def _first(self, text: str) -> int | None:
        """Where the first whole stop begins."""
        return min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=None)


def _partial_stop_length(stop: str, text: str) -> int:
    """The length of the longest end of ``text`` that is a beginning of ``stop``."""
    longest = min(len(stop) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)


_CHECK_PROGRAM = str(Path(__file__).with_name("schema_check.py"))
_CHECK_TIMEOUT = 20.0
"""Wall time; the program's own limit is 2 s of CPU time, which a loaded machine may not grant it."""
_MAX_PARALLEL_CHECKS = 2
_CACHED_SCHEMAS = 256


class SchemaChecker:
    """One for the server's life. Caches the digests of valid schemas."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(_MAX_PARALLEL_CHECKS)
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    async def check(self, schema: dict[str, Any], param: str) -> None:
        """Raises UsageError for an invalid schema, or one that cannot be checked within the limits."""
        encoded = msgspec.json.encode(schema)
        digest = hashlib.sha256(encoded).digest()
        if digest in self._valid:
            self._valid.move_to_end(digest)
            return
        try:
            problem = await self._run_check(b'{"schema":%b}' % encoded)
        except UsageError as exc:
            problem = exc.message
        if problem is not None:
            raise UsageError(f"{param}: this JSON schema cannot be used: {problem}", param=param)
        self._valid[digest] = None
        if len(self._valid) > _CACHED_SCHEMAS:
            self._valid.popitem(last=False)

    async def find_mismatch(self, schema: dict[str, Any], value: bytes) -> str | None:
        """Why a JSON value does not fit, or None. Raises UsageError where checking it exceeds the limits."""
        return await self._run_check(b'{"schema":%b,"value":%b}' % (msgspec.json.encode(schema), value))

    async def _run_check(self, question: bytes) -> str | None:
        async with self._limiter:
            with trio.move_on_after(_CHECK_TIMEOUT):
                ended = await trio.run_process(
                    [sys.executable, "-I", _CHECK_PROGRAM],
                    stdin=question,
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                    env={},
                )
                if ended.returncode == 0:
                    problem: str | None = msgspec.json.decode(ended.stdout, type=str | None)
                    return problem
        raise UsageError("checking against this JSON schema takes too much time or memory")


_FENCED = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL)


def trim_answer(outcome: RunOutcome, wanted: AnswerOptions) -> RunOutcome:
    """The outcome as the client is shown it: cut at the first stop, JSON without a Markdown fence."""
    text = cut_at_stop(wanted.stop, outcome.text)
    if wanted.json is not None and (fenced := _FENCED.fullmatch(text)):
        text = fenced[1]
    return msgspec.structs.replace(outcome, text=text) if text != outcome.text else outcome


async def find_mismatch(outcome: RunOutcome, wanted: AnswerOptions, schemas: SchemaChecker) -> str | None:
    """Why the answer does not fit; None if it fits, failed, or was cut off at its length."""
    if outcome.error is not None or outcome.reason is DoneReason.LENGTH:
        return None
    if wanted.must_call and not any(call.get("name") in wanted.must_call for call in outcome.calls):
        return f"there is no call of {' or '.join(wanted.must_call)}"[:500]
    if wanted.json is None or outcome.calls:
        return None
    text = outcome.text.encode()
    try:
        value = msgspec.json.decode(text)
    except DECODE_ERRORS as exc:
        return f"it is no JSON: {exc}"
    if wanted.json.schema is None:
        return None if isinstance(value, dict) else "it is no JSON object"
    return await schemas.find_mismatch(wanted.json.schema, text)


def correction_prompt(wanted: AnswerOptions, problem: str) -> str:
    """The prompt of the second run."""
    if wanted.must_call:
        return f"That is not what was asked for: {problem}. Make that call now instead of answering in text."
    return f"That is not the JSON that was asked for: {problem}. Answer again, with that JSON value and nothing else."


def merge_usage(first: RunOutcome, second: RunOutcome) -> RunOutcome:
    """The second outcome, with the tokens of both."""
    usage = (first.usage or TokenUsage()).plus(second.usage or TokenUsage())
    return msgspec.structs.replace(second, usage=usage)
