"""Hooks: loading them from files and packages, and calling them, each bounded in time.

A hook that fails (raises, takes too long, gives an invalid answer) is a warning and never ends a run; one about a tool
call makes that call fail, since it may exist to prevent it. Plain functions run in a thread, async ones as trio tasks.
Hooks get copies: changes to their arguments have no effect.
"""

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec
import trio

from agent.hooks import (
    HOOK_NAMES,
    AgentEnd,
    AgentStart,
    Ask,
    Change,
    CompactionInfo,
    Deny,
    Hook,
    HookFailed,
    SessionInfo,
    SystemPrompt,
    ToolVerdict,
    UseResult,
)
from agent.results import CallResult, is_json
from wire.entries import ToolUseBlock


def hooks_of_file(path: str) -> list[Hook]:
    """The hooks that a Python file defines; runs the file. Raises HookFailed."""
    if not Path(path).is_file():
        raise HookFailed(f"there is no file {path}")
    try:
        with redirect_stdout(sys.stderr):  # stdout may be the pipe that carries the protocol
            return list(_hooks_in(_import(path), path))
    except (Exception, SystemExit) as exc:  # foreign code may raise anything
        raise HookFailed(f"{path} cannot be used: {type(exc).__name__}: {exc}") from exc


def _import(path: str) -> ModuleType:
    name = f"agent_hooks:{path}"  # no import statement can name it, so it hides nothing
    spec = spec_from_loader(name, SourceFileLoader(name, path))
    assert spec is not None  # noqa: S101 - a loader always makes one
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the like look their module up
    SourceFileLoader(name, path).exec_module(module)
    return module


def hooks_of_packages() -> list[Hook]:
    """The hooks of installed packages, by the names of their entry points; each names a module or an object with hooks.

    One that cannot be loaded is no reason to do without its checks: each tool call fails in its place.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms that the start has no use for

    hooks: list[Hook] = []
    for entry in sorted(entry_points(group="agent.hooks"), key=lambda entry: entry.name):
        try:
            with redirect_stdout(sys.stderr):
                hooks.extend(_hooks_in(entry.load(), entry.name))
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - foreign code may raise anything
            hooks.append(_failing_hook(entry.name, f"{type(exc).__name__}: {exc}"))
    return hooks


def _hooks_in(place: object, source: str) -> Iterator[Hook]:
    for name in HOOK_NAMES:
        function = getattr(place, name, None)
        if callable(function):
            yield Hook(name, function, source)
        elif function is not None:
            raise HookFailed(f"{name} is no function")


def _failing_hook(source: str, why: str) -> Hook:
    def before_tool_call(_call: object) -> NoReturn:
        raise HookFailed(f"the hooks of {source} cannot be loaded: {why}")

    return Hook("before_tool_call", before_tool_call, source)


_MAX_THREADS = 8
"""Plain functions at once. Those that hang for ever stay in their threads: once all are taken, plain hooks fail."""

HookEvent: TypeAlias = Literal["session_start", "session_end", "agent_end", "before_compaction", "after_compaction"]

Warn: TypeAlias = Callable[[str, str], None]
"""Tells a warning: the phase it belongs to (``tool`` or ``lifecycle``), and a sentence."""


def load_hooks(paths: Iterable[str], warn: Warn) -> "Hooks":
    """The hooks of these files now, those of installed packages when the first hook is due. Raises HookFailed."""
    return Hooks([hook for path in paths for hook in hooks_of_file(path)], warn, discover=hooks_of_packages)


class Hooks:
    """All hooks of a worker: those of packages first, then those of files, each in their order.

    ``timeout``: seconds that one hook may take.
    """

    def __init__(
        self,
        hooks: Sequence[Hook] = (),
        warn: Warn = lambda _phase, _message: None,
        *,
        discover: Callable[[], Sequence[Hook]] | None = None,
        timeout: float = 5.0,
    ) -> None:
        self._hooks = list(hooks)
        self._warn = warn
        self._discover = discover
        self._timeout = timeout
        self._discovery_lock = trio.Lock()
        self._threads = trio.CapacityLimiter(_MAX_THREADS)

    async def notify(self, name: HookEvent, info: SessionInfo | AgentEnd | CompactionInfo) -> None:
        """Call the hooks that can change nothing."""
        for hook in await self._named(name):
            try:
                await self._call(hook, info)
            except HookFailed as exc:
                self._warn("lifecycle", str(exc))

    async def before_agent_start(self, start: AgentStart) -> AgentStart:
        """What to begin a run with: texts of hooks before the prompt, joined by blank lines; the last system prompt."""
        texts: list[str] = []
        system_prompt = start.system_prompt
        for hook in await self._named("before_agent_start"):
            try:
                match await self._call(hook, msgspec.structs.replace(start, system_prompt=system_prompt)):
                    case None:
                        pass
                    case str() as text:
                        texts.append(text)
                    case SystemPrompt(str() as text):
                        system_prompt = text
                    case other:
                        raise _invalid_answer(hook, other)
            except HookFailed as exc:
                self._warn("lifecycle", str(exc))
        return AgentStart("\n\n".join([*texts, start.text]), system_prompt)

    async def before_tool_call(self, call: ToolUseBlock) -> ToolVerdict:
        """The strictest answer of all: deny, else ask, else the first result. Raises HookFailed, having warned.

        A hook sees the changes of earlier ones; a changed call is returned as ``Change``, with the verdict in ``then``.
        """
        verdict: Deny | Ask | UseResult | None = None
        asked = call
        for hook in await self._named("before_tool_call"):
            answer = await self._call_for_tool(hook, call)
            match answer:
                case Change(dict() as given, then) if is_json(given):
                    call, answer = msgspec.structs.replace(call, input=given), then
            match answer:
                case None:
                    pass
                case Deny(str()):
                    return answer
                case Ask(str()):
                    verdict = verdict if isinstance(verdict, Ask) else answer
                case UseResult(data) if is_json(data):
                    verdict = verdict or answer
                case other:
                    raise self._warn_and_return(_invalid_answer(hook, other))
        return verdict if call is asked else Change(call.input, verdict)

    async def after_tool_call(self, call: ToolUseBlock, result: CallResult) -> None:
        """The tool has run. Raises HookFailed, having warned."""
        for hook in await self._named("after_tool_call"):
            await self._call_for_tool(hook, call, result)

    async def tool_result_persist(self, call: ToolUseBlock, result: CallResult) -> CallResult:
        """The result to keep and emit: each hook may replace it by one of the same ``ok``.

        Raises HookFailed, having warned.
        """
        for hook in await self._named("tool_result_persist"):
            answer = await self._call_for_tool(hook, call, result)
            if answer is not None:
                if not _is_result(answer, ok=result["ok"]):
                    raise self._warn_and_return(_invalid_answer(hook, answer))
                result = answer
        return result

    async def has(self, name: str) -> bool:
        """Whether there is a hook of this name: without one, its argument need not be built."""
        return bool(await self._named(name))

    async def _named(self, name: str) -> list[Hook]:
        if self._discover is not None:
            await self._load_packages()
        return [hook for hook in self._hooks if hook.name == name]

    async def _load_packages(self) -> None:
        async with self._discovery_lock:
            if self._discover is not None:
                found = await trio.to_thread.run_sync(self._discover, abandon_on_cancel=True)
                self._hooks[:0] = found
                self._discover = None

    async def _call_for_tool(self, hook: Hook, *given: Any) -> Any:
        try:
            return await self._call(hook, *given)
        except HookFailed as exc:
            raise self._warn_and_return(exc) from exc

    def _warn_and_return(self, failed: HookFailed) -> HookFailed:
        self._warn("tool", str(failed))
        return failed

    async def _call(self, hook: Hook, *given: Any) -> Any:
        given = copy.deepcopy(given)
        try:
            with trio.move_on_after(self._timeout):
                if inspect.iscoroutinefunction(hook.function):
                    return await hook.function(*given)
                return await trio.to_thread.run_sync(
                    functools.partial(hook.function, *given), abandon_on_cancel=True, limiter=self._threads
                )
        except HookFailed:
            raise
        except (Exception, SystemExit) as exc:  # foreign code may raise anything
            words = str(exc)[:2_000].encode(errors="replace").decode()
            raise HookFailed(f"the hook {hook.name} of {hook.source} raised {type(exc).__name__}: {words}") from exc
        raise HookFailed(f"the hook {hook.name} of {hook.source} took longer than {self._timeout:g} s")


def _invalid_answer(hook: Hook, answer: object) -> HookFailed:
    return HookFailed(f"the hook {hook.name} of {hook.source} answered what it may not: {repr(answer)[:200]}")


def _is_result(answer: object, *, ok: bool) -> bool:
    if not isinstance(answer, dict) or answer.get("ok") is not ok:
        return False
    return (ok or isinstance(answer.get("error"), str)) and is_json(answer)
