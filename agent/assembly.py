"""Builds a worker.

Hooks and skills decide about the agent, or run with its rights: its own tools cannot replace them.

Hook files that tools could write without approval are refused when the agent starts, since the next worker would run
them. Skills may be in the working directory; ``write`` and ``edit`` do not change them.

Puts a worker's parts together from its options; whatever is wrong with them is found here, before ``ready``.
"""

import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agent.compactor import Compactor
from agent.context import BadSkill, Knowledge, Skill, environment_of, gather
from agent.conversation import Conversation, SessionStore
from agent.history.clean import Rules
from agent.hook_types import HookFailed
from agent.hooks import Hooks, load_hooks
from agent.limits import Limits
from agent.models.catalogue import ModelShelf, UnknownModel, open_model
from agent.models.scripted import Faults
from agent.options import Options
from agent.output import Output
from agent.policy import Policy, environment_of_tools, is_free
from agent.processes.registry import ProcessRegistry
from agent.runs import Inbox, RunRegistry
from agent.toolbox import Brain, Reach
from agent.tools.catalogue import TOOL_NAMES, open_tools
from agent.tools.todo import TodoList
from agent.worker import Worker
from wire.files import places_of
from wire.messages import ExecExit
from wire.transcript_repair import TranscriptError

_WRITERS = ("write", "edit", "exec")
"""Tools that can replace a file in the working directory."""


class Exposed(Exception):
    """Tools could replace what is to run as code; the message says what, why and what to do."""


def check_exposure(hooks: Iterable[str], skills: Iterable[Skill], cwd: str, free: list[str]) -> None:
    """``free``: the tools of ``_WRITERS`` that run without approval. Raises Exposed."""
    if not free:
        return
    tools = " and ".join(free)
    for path in hooks:
        if any(place.is_relative_to(cwd) for place in places_of(path)):
            raise Exposed(
                f"the hooks {path} lie in the working directory {cwd}, where {tools} could replace them; "
                "keep them elsewhere, such as in ~/.config/agent"
            )
    for skill in skills:
        if Path(cwd).is_relative_to(skill.directory):
            raise Exposed(
                f"the skill {skill.path} takes up the whole working directory {cwd}, where {tools} could replace its "
                "files; give it a directory of its own"
            )


def free_writers(tools: Iterable[str], policy: Policy) -> list[str]:
    """Those of ``_WRITERS`` among the tools that run without a person's approval."""
    return [name for name in _WRITERS if name in tools and is_free(name, policy)]


def protected_places(hooks: Iterable[str], skills: Iterable[Skill]) -> tuple[str, ...]:
    """Real paths of files and directories that no file tool may write."""
    files = [place for path in hooks for place in places_of(path)]
    caches = [place.parent / "__pycache__" for place in files]
    return tuple(dict.fromkeys([*map(str, [*files, *caches]), *(skill.directory for skill in skills)]))


class BadStart(Exception):
    """The worker cannot start with these options; the message is one line for stderr, the exit code 1."""


def assemble(options: Options, output: Output, faults: Faults, limits: Limits | None = None) -> Worker:
    """Build everything. Raises BadStart."""
    if options.extension and not options.no_extensions:
        raise BadStart(f"cannot load the extension {options.extension[0]}: this agent has no extensions")
    cwd = _working_directory()
    try:
        return _assembled(options, cwd, output, faults, _limits(options, limits or Limits()))
    except (UnknownModel, BadSkill, HookFailed, Exposed) as exc:
        raise BadStart(str(exc)) from exc
    except TranscriptError as exc:
        raise BadStart(f"cannot go on with the session: {exc}") from exc
    except OSError as exc:
        raise BadStart(f"cannot read {exc.filename}: {exc.strerror}") from exc


def _working_directory() -> str:
    """Where it works, without symbolic links. Raises BadStart."""
    try:
        return _text("the working directory", os.path.realpath(Path.cwd()))
    except FileNotFoundError:
        raise BadStart("the working directory does not exist any more") from None


def _text(what: str, path: str) -> str:
    """The path, for what stands in transcripts and messages. Raises BadStart for one that they cannot hold."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise BadStart(f"{what} has a name that is not UTF-8 text: {path!r}") from None
    return path


def _assembled(options: Options, cwd: str, output: Output, faults: Faults, limits: Limits) -> Worker:
    knowledge = gather(options, cwd)
    models = ModelShelf(partial(open_model, faults=faults, base_url=options.base_url, offline=options.offline))
    todos = TodoList(output.event)
    names = _tool_names(options)
    policy = _policy(options)
    hooks = () if options.no_hooks else tuple(os.path.expanduser(path) for path in options.hooks)  # noqa: PTH111 - raises
    check_exposure(hooks, knowledge.skills, cwd, free_writers(names, policy))
    brain = Brain(
        model=models.open(options.provider, options.model),
        system_prompt=knowledge.system_prompt,
        reach=_reach(options, cwd, knowledge, protected_places(hooks, knowledge.skills)),
        processes=_processes(
            output,
            allow_background=not options.no_background and "process" in names,
            yields=options.mode == "rpc",  # -p ends with its answer, and its commands with it
        ),
        open_tools=lambda: open_tools(names, todos.tool),
        thinking=options.thinking,
        policy=policy,
        hooks=Hooks() if options.no_hooks else _hooks(hooks, output),
        rules=Rules(turns=options.history_turns),
        context_tokens=options.context_tokens,
    )
    store = SessionStore(_session_directory(options), cwd, output)
    conversation = _first_conversation(options, store)
    output.go_on_above(conversation.last_seq)
    worker = Worker(
        brain=brain,
        conversation=conversation,
        store=store,
        knowledge=knowledge,
        models=models,
        todos=todos,
        output=output,
        limits=limits,
        inbox=Inbox(output, limits.queued_inputs),
        runs=RunRegistry(output.event),
        compactor=Compactor(brain, limits.compaction_timeout),
    )
    brain.processes.keep = worker.note_command
    return worker


def _reach(options: Options, cwd: str, knowledge: Knowledge, protected: tuple[str, ...]) -> Reach:
    return Reach(
        cwd=cwd,
        environment=environment_of_tools(os.environ, options.tool_env),
        readable=tuple(skill.directory for skill in knowledge.skills),
        protected=protected,
        skill_env=environment_of(knowledge.skills),
        allow_outside=options.allow_outside,
    )


def _processes(output: Output, *, allow_background: bool, yields: bool) -> ProcessRegistry:
    def tell_change(running: int) -> None:
        output.event("background", {"running": running, "names": registry.names_in_background()})

    def tell_exit(notice: ExecExit) -> None:
        output.event("exec_exit", msgspec.to_builtins(notice))

    registry = ProcessRegistry(
        on_change=tell_change, on_exit=tell_exit, allow_background=allow_background, yields=yields
    )
    return registry


def _hooks(files: Iterable[str], output: Output) -> Hooks:
    def warn(phase: str, message: str) -> None:
        output.event("error", {"severity": "warn", "phase": phase, "message": message})

    return load_hooks(files, warn)


def _policy(options: Options) -> Policy:
    _warn_of_unknown(options.deny_tools, "deny")
    _warn_of_unknown(options.require_approval, "ask about")
    return Policy(
        mode=options.permission_mode,
        deny=frozenset(options.deny_tools),
        require_approval=frozenset(options.require_approval),
    )


def _tool_names(options: Options) -> frozenset[str]:
    if options.no_tools or options.no_builtin_tools:
        return frozenset()
    _warn_of_unknown(options.tools or (), "allow")
    return frozenset(TOOL_NAMES if options.tools is None else options.tools) & frozenset(TOOL_NAMES)


def _warn_of_unknown(names: Iterable[str], verb: str) -> None:
    """A list of tools may well name what this agent has not got: that changes nothing."""
    for name in names:
        if name not in TOOL_NAMES:
            sys.stderr.write(f"agent: there is no tool {name!r} to {verb}\n")


def _limits(options: Options, limits: Limits) -> Limits:
    asked: dict[str, Any] = {"max_steps": options.max_steps, "run_timeout": options.timeout}
    return msgspec.structs.replace(limits, **{name: value for name, value in asked.items() if value is not None})


def _session_directory(options: Options) -> Path | None:
    if options.no_session:
        return None
    if options.session_dir is not None:
        return Path.cwd() / options.session_dir
    return _state_directory() / "sessions"


def _state_directory() -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "agent")
    return Path(_text("the directory for what it keeps (XDG_STATE_HOME, HOME)", str(state)))


def _first_conversation(options: Options, store: SessionStore) -> Conversation:
    path = store.find(options.session) if options.session is not None else None
    if options.resume_latest:
        path = store.latest()
    return store.fresh() if path is None else store.open(path)
