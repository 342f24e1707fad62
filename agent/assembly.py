"""Builds a worker from its options; every error in them is found here, before ``ready``.

Hooks and skills decide about the agent or run with its rights, so its own tools must not replace them: hook files that
tools could write without approval are refused; ``write`` and ``edit`` do not change skills.
"""

import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agent.compactor import Compactor
from agent.context import Skill, SkillError, environment_of, load_context
from agent.conversation import Conversation, SessionStore
from agent.hook_runner import Hooks, load_hooks
from agent.hooks import HookFailed
from agent.limits import WorkerLimits
from agent.models.catalogue import ModelCache, ModelUnavailable, open_model
from agent.models.scripted import ProcessFaults
from agent.options import Options
from agent.output import WorkerOutput
from agent.policy import Policy, runs_unapproved, tool_environment
from agent.processes.registry import ProcessRegistry
from agent.runs import ActiveRunTracker, InputQueue
from agent.sanitize import SanitizeRules
from agent.toolbox import TOOL_NAMES, Toolbox, open_tools
from agent.tools.base import ToolContext
from agent.tools.todo import TodoTool
from agent.worker import AgentWorker
from wire.files import real_paths
from wire.transcript_repair import TranscriptError

_WRITING_TOOLS = ("write", "edit", "exec")
"""Tools that can replace a file in the working directory."""


class ExposureError(Exception):
    """Tools could replace what is to run as code; the message says what, why and what to do."""


def check_exposure(
    hooks: Iterable[str], skills: Iterable[Skill], cwd: str, tools: Iterable[str], policy: Policy
) -> None:
    """Raises ExposureError where a tool that writes runs without a person's approval."""
    free = [name for name in _WRITING_TOOLS if name in tools and runs_unapproved(name, policy)]
    if not free:
        return
    writers = " and ".join(free)
    for path in hooks:
        if any(place.is_relative_to(cwd) for place in real_paths(path)):
            raise ExposureError(
                f"the hooks {path} lie in the working directory {cwd}, where {writers} could replace them; "
                "keep them elsewhere, such as in ~/.config/agent"
            )
    for skill in skills:
        if Path(cwd).is_relative_to(skill.directory):
            raise ExposureError(
                f"the skill {skill.path} takes up the whole working directory {cwd}, where {writers} could replace its "
                "files; give it a directory of its own"
            )


def protected_paths(hooks: Iterable[str], skills: Iterable[Skill]) -> tuple[str, ...]:
    """Real paths of files and directories that no file tool may write."""
    files = [place for path in hooks for place in real_paths(path)]
    caches = [place.parent / "__pycache__" for place in files]
    return tuple(dict.fromkeys([*map(str, [*files, *caches]), *(skill.directory for skill in skills)]))


class StartupError(Exception):
    """The worker cannot start with these options; the message is one line for stderr, the exit code 1."""


def assemble(
    options: Options, output: WorkerOutput, faults: ProcessFaults, limits: WorkerLimits | None = None
) -> AgentWorker:
    """Build everything. Raises StartupError."""
    if options.extension and not options.no_extensions:
        raise StartupError(f"cannot load the extension {options.extension[0]}: this agent has no extensions")
    cwd = _working_directory()
    try:
        return _assemble(options, cwd, output, faults, _limits(options, limits or WorkerLimits()))
    except (ModelUnavailable, SkillError, HookFailed, ExposureError) as exc:
        raise StartupError(str(exc)) from exc
    except TranscriptError as exc:
        raise StartupError(f"cannot go on with the session: {exc}") from exc
    except OSError as exc:
        raise StartupError(f"cannot read {exc.filename}: {exc.strerror}") from exc


def _working_directory() -> str:
    try:
        return _checked_path("the working directory", os.path.realpath(Path.cwd()))
    except FileNotFoundError:
        raise StartupError("the working directory does not exist any more") from None


def _checked_path(what: str, path: str) -> str:
    """The path; raises StartupError for one that transcripts cannot hold."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise StartupError(f"{what} has a name that is not UTF-8 text: {path!r}") from None
    return path


def _assemble(
    options: Options, cwd: str, output: WorkerOutput, faults: ProcessFaults, limits: WorkerLimits
) -> AgentWorker:
    context = load_context(options, cwd)
    models = ModelCache(partial(open_model, faults=faults, base_url=options.base_url, offline=options.offline))
    todos = TodoTool(output.emit)
    names = _tool_names(options)
    policy = _policy(options)
    hooks = () if options.no_hooks else tuple(os.path.expanduser(path) for path in options.hooks)  # noqa: PTH111 - raises
    check_exposure(hooks, context.skills, cwd, names, policy)
    toolbox = Toolbox(
        model=models.open(options.provider, options.model),
        system_prompt=context.system_prompt,
        sandbox=ToolContext(
            cwd=cwd,
            environment={**environment_of(context.skills), **tool_environment(os.environ, options.tool_env)},
            processes=_process_registry(options, names, output),
            readable=tuple(skill.directory for skill in context.skills),
            protected=protected_paths(hooks, context.skills),
            allow_outside=options.allow_outside,
        ),
        open_tools=lambda: open_tools(names, todos),
        thinking=options.thinking,
        policy=policy,
        hooks=Hooks() if options.no_hooks else _hooks(hooks, output),
        sanitize_rules=SanitizeRules(turns=options.history_turns),
        context_tokens=options.context_tokens,
    )
    store = SessionStore(_session_directory(options), cwd, output)
    conversation = _first_conversation(options, store)
    output.continue_above(conversation.last_seq)
    worker = AgentWorker(
        toolbox=toolbox,
        conversation=conversation,
        store=store,
        project_context=context,
        models=models,
        todos=todos,
        output=output,
        limits=limits,
        input_queue=InputQueue(output, limits.queued_inputs),
        runs=ActiveRunTracker(output.emit),
        compactor=Compactor(toolbox, limits.compaction_timeout),
    )
    toolbox.sandbox.processes.save_record = worker.record_command
    return worker


def _process_registry(options: Options, names: frozenset[str], output: WorkerOutput) -> ProcessRegistry:
    return ProcessRegistry(
        on_change=lambda ids: output.emit("background", {"running": len(ids), "names": ids}),
        on_exit=lambda notice: output.emit("exec_exit", msgspec.to_builtins(notice)),
        allow_background=not options.no_background and "process" in names,
        yields=options.mode == "rpc",  # -p ends with its answer, and its commands with it
    )


def _hooks(files: Iterable[str], output: WorkerOutput) -> Hooks:
    def warn(phase: str, message: str) -> None:
        output.emit("error", {"severity": "warn", "phase": phase, "message": message})

    return load_hooks(files, warn)


def _policy(options: Options) -> Policy:
    _warn_unknown_tools(options.deny_tools, "deny")
    _warn_unknown_tools(options.require_approval, "ask about")
    return Policy(
        mode=options.permission_mode,
        deny=frozenset(options.deny_tools),
        require_approval=frozenset(options.require_approval),
    )


def _tool_names(options: Options) -> frozenset[str]:
    if options.no_tools or options.no_builtin_tools:
        return frozenset()
    _warn_unknown_tools(options.tools or (), "allow")
    return frozenset(TOOL_NAMES if options.tools is None else options.tools) & frozenset(TOOL_NAMES)


def _warn_unknown_tools(names: Iterable[str], verb: str) -> None:
    """Lists may name tools that this agent does not have."""
    for name in names:
        if name not in TOOL_NAMES:
            sys.stderr.write(f"agent: there is no tool {name!r} to {verb}\n")


def _limits(options: Options, limits: WorkerLimits) -> WorkerLimits:
    asked: dict[str, Any] = {"max_steps": options.max_steps, "run_timeout": options.timeout}
    return msgspec.structs.replace(limits, **{name: value for name, value in asked.items() if value is not None})


def _session_directory(options: Options) -> Path | None:
    if options.no_session:
        return None
    if options.session_dir is not None:
        return Path.cwd() / options.session_dir
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "agent")
    return Path(_checked_path("the directory for what it keeps (XDG_STATE_HOME, HOME)", str(state)), "sessions")


def _first_conversation(options: Options, store: SessionStore) -> Conversation:
    path = store.find(options.session) if options.session is not None else None
    if options.resume_latest:
        path = store.latest()
    return store.create() if path is None else store.open(path)
