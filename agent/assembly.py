"""Puts a worker's parts together from its options; whatever is wrong with them is found here, before ``ready``."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.context import Knowledge, gather
from agent.conversation import Conversation, SessionStore
from agent.models.base import Model
from agent.models.catalogue import UnknownModel, open_model
from agent.models.scripted import Faults
from agent.options import Options
from agent.output import Output
from agent.tools.base import Tool
from agent.tools.exec import ExecTool
from agent.tools.files import ReadTool, WriteTool
from agent.turn import Brain
from wire.transcript import TranscriptError

__all__ = ["BadStart", "Parts", "assemble"]


class BadStart(Exception):
    """The worker cannot start with these options; the message is one line for stderr, the exit code 1."""


class Parts(msgspec.Struct, frozen=True):
    """What a front (``agent.rpc``, ``agent.text``) needs."""

    brain: Brain
    conversation: Conversation
    store: SessionStore
    knowledge: Knowledge
    open_model: Callable[[str | None, str | None], Model]


def assemble(options: Options, output: Output, faults: Faults) -> Parts:
    """Build everything. Raises BadStart."""
    cwd = os.path.realpath(Path.cwd())
    try:
        knowledge = gather(options, cwd)
        model = open_model(options.provider, options.model, faults)
        store = SessionStore(_session_directory(options), cwd, output)
        conversation = _first_conversation(options, store)
    except UnknownModel as exc:
        raise BadStart(str(exc)) from exc
    except TranscriptError as exc:
        raise BadStart(f"cannot go on with the session: {exc}") from exc
    except OSError as exc:
        raise BadStart(f"cannot read {exc.filename}: {exc.strerror}") from exc
    if options.extension and not options.no_extensions:
        raise BadStart(f"cannot load the extension {options.extension[0]}: this agent has no extensions yet")
    output.go_on_above(conversation.last_seq)
    brain = Brain(model, knowledge.system_prompt, _tools(options), cwd, dict(os.environ), options.thinking)
    return Parts(brain, conversation, store, knowledge, lambda provider, name: open_model(provider, name, faults))


def _session_directory(options: Options) -> Path | None:
    if options.no_session:
        return None
    if options.session_dir is not None:
        return Path.cwd() / options.session_dir
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "agent", "sessions")


def _first_conversation(options: Options, store: SessionStore) -> Conversation:
    path = store.find(options.session) if options.session is not None else None
    if options.resume_latest:
        path = store.latest()
    return store.fresh() if path is None else store.open(path)


def _tools(options: Options) -> dict[str, Tool]:
    if options.no_tools or options.no_builtin_tools:
        return {}
    everything: list[Tool] = [ReadTool(), WriteTool(), ExecTool()]
    names = {tool.name for tool in everything}
    for name in options.tools or ():
        if name not in names:  # an allow-list may well name what this agent has not got: it allows nothing
            sys.stderr.write(f"agent: there is no tool {name!r} to allow\n")
    return {tool.name: tool for tool in everything if options.tools is None or tool.name in options.tools}
