"""The flags of ``agent``, in groups, and the text of ``--help``. Names are pi's where pi has the same flag."""

from collections.abc import Mapping
from typing import Literal

import msgspec


class Flag(msgspec.Struct, frozen=True):
    """``names``: a comma-separated list; ``list``: may be repeated. ``field``: of ``Options``."""

    field: str
    kind: Literal["switch", "value", "list", "names"]
    metavar: str
    help: str


_GROUPS: Mapping[str, Mapping[str, Flag]] = {
    "how to run": {
        "--mode": Flag("mode", "value", "rpc|text", "rpc: JSON Lines on stdin and stdout; text: with -p"),
        "-p": Flag(
            "prompt",
            "value",
            "TEXT",
            "run one prompt (- reads it from stdin), stream the answer to stdout, exit (also --print)",
        ),
        "--max-steps": Flag("max_steps", "value", "N", "maximum model calls in one run (default 50)"),
        "--timeout": Flag("timeout", "value", "SECONDS", "maximum duration of one run (default 600)"),
    },
    "model": {
        "--provider": Flag("provider", "value", "NAME", "scripted (default, offline) or openai"),
        "--model": Flag("model", "value", "NAME", "model, or PROVIDER/MODEL"),
        "--base-url": Flag("base_url", "value", "URL", "server of the provider openai (default OPENAI_BASE_URL)"),
        "--thinking": Flag("thinking", "value", "LEVEL", "off|minimal|low|medium|high|xhigh"),
        "--context-tokens": Flag("context_tokens", "value", "N", "context window of the model (default 200000)"),
        "--history-turns": Flag("history_turns", "value", "N", "send the model at most N user messages"),
        "--offline": Flag("offline", "switch", "", "refuse models that need the network"),
    },
    "tools and permissions": {
        "--tools": Flag("tools", "names", "A,B", "allow only these tools"),
        "--no-tools": Flag("no_tools", "switch", "", "disable all tools"),
        "--no-builtin-tools": Flag("no_builtin_tools", "switch", "", "disable built-in tools"),
        "--deny-tools": Flag("deny_tools", "names", "A,B", "deny every call of these tools"),
        "--require-approval": Flag("require_approval", "names", "A,B", "require approval of every call of these tools"),
        "--permission-mode": Flag(
            "permission_mode", "value", "MODE", "auto (default), approval (of every call), readonly"
        ),
        "--allow-outside": Flag("allow_outside", "switch", "", "allow file tools outside the working directory"),
        "--no-background": Flag("no_background", "switch", "", "wait for every command to end"),
        "--tool-env": Flag("tool_env", "names", "A,B", "pass these provider keys to commands"),
        "--hooks": Flag("hooks", "list", "FILE", "a Python file with hooks"),
        "--no-hooks": Flag("no_hooks", "switch", "", "disable hooks, including those of installed packages"),
    },
    "context": {
        "--system-prompt": Flag("system_prompt", "value", "TEXT|@FILE", "replace the base system prompt"),
        "--append-system-prompt": Flag("append_system_prompt", "list", "TEXT|@FILE", "add to the system prompt"),
        "--skill": Flag("skill", "list", "DIR", "a directory with a SKILL.md, listed in the system prompt"),
        "--no-skills": Flag("no_skills", "switch", "", "ignore --skill"),
        "--prompt-template": Flag("prompt_template", "list", "FILE", "a Markdown file that /NAME expands to"),
        "--no-prompt-templates": Flag("no_prompt_templates", "switch", "", "ignore --prompt-template"),
        "--no-context-files": Flag("no_context_files", "switch", "", "do not read AGENTS.md"),
        "--without-context": Flag("without_context", "list", "FILE", "do not read this AGENTS.md"),
        "--extension": Flag("extension", "list", "PATH", "refused: this agent has hooks, no extensions"),
        "--no-extensions": Flag("no_extensions", "switch", "", "ignore --extension"),
    },
    "sessions": {
        "--session-dir": Flag(
            "session_dir", "value", "DIR", "directory of transcripts (default ~/.local/state/agent/sessions)"
        ),
        "--session": Flag("session", "value", "FILE|ID", "resume this conversation"),
        "--continue": Flag("resume_latest", "switch", "", "resume the latest conversation of this directory"),
        "--no-session": Flag("no_session", "switch", "", "write no transcript"),
    },
    "about": {
        "--help": Flag("help", "switch", "", "show this help"),
        "--version": Flag("version", "switch", "", "show the version"),
    },
}

FLAGS: Mapping[str, Flag] = {name: flag for group in _GROUPS.values() for name, flag in group.items()}
ALIASES: Mapping[str, str] = {"--print": "-p", "-h": "--help", "-t": "--tools"}

_USAGE = """\
usage: agent --mode rpc [options]
       agent -p TEXT [options]
       agent                      on a terminal: pool chat, with a supervisor
"""
_EXIT_CODES = """\
exit code of -p: 0 answered; 1 failed or could not start; 2 usage;
  4 timeout; 5 cut short at --max-steps, or at the model's limit;
  128 + n ended by signal n
With -p the answer goes to stdout, progress to stderr. Ctrl-C aborts the run
and waits for its commands to stop; a second Ctrl-C does not wait.
"""
_COLUMNS = 80
_HELP_COLUMN = 28


def help_text(models: str) -> str:
    """The text of ``--help``; ``models`` describes what models there are."""
    groups = []
    for title, group in _GROUPS.items():
        rows = [_row(f"  {name} {flag.metavar}".rstrip(), flag.help) for name, flag in group.items()]
        groups.append("".join([f"{title}:\n", *rows]))
    return "\n".join([_USAGE, *groups, _EXIT_CODES, f"{models.strip()}\n"])


def _row(left: str, text: str) -> str:
    from textwrap import fill  # noqa: PLC0415 - only the help needs it

    indent = " " * _HELP_COLUMN
    first = f"{left:<{_HELP_COLUMN - 1}} " if len(left) < _HELP_COLUMN else f"{left}\n{indent}"
    return first + fill(text, _COLUMNS - _HELP_COLUMN).replace("\n", f"\n{indent}") + "\n"
