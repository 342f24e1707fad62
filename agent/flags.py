"""The flags of ``agent``, in groups, and the text of ``--help``. Names are pi's where pi has the same flag."""

from collections.abc import Mapping
from typing import Literal

import msgspec


class Flag(msgspec.Struct, frozen=True):
    """``names``: a list with commas; ``list``: may be given again. ``field`` is of ``Options``."""

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
            "run one prompt (- reads it from stdin), stream its answer to stdout, exit (also --print)",
        ),
        "--max-steps": Flag("max_steps", "value", "N", "model calls in one run (default 50)"),
        "--timeout": Flag("timeout", "value", "SECONDS", "how long one run may take (default 600)"),
    },
    "model": {
        "--provider": Flag("provider", "value", "NAME", "scripted (default, offline) or openai"),
        "--model": Flag("model", "value", "NAME", "model, or PROVIDER/MODEL"),
        "--base-url": Flag("base_url", "value", "URL", "of the provider openai (default OPENAI_BASE_URL)"),
        "--thinking": Flag("thinking", "value", "LEVEL", "off|minimal|low|medium|high|xhigh"),
        "--context-tokens": Flag("context_tokens", "value", "N", "the model's window (default 200000); see compact"),
        "--history-turns": Flag("history_turns", "value", "N", "show the model at most N user messages"),
        "--offline": Flag("offline", "switch", "", "use no network: refuse models that need it"),
    },
    "tools and permissions": {
        "--tools": Flag("tools", "names", "A,B", "have only these tools"),
        "--no-tools": Flag("no_tools", "switch", "", "no tools at all"),
        "--no-builtin-tools": Flag("no_builtin_tools", "switch", "", "no tools but those of extensions"),
        "--deny-tools": Flag("deny_tools", "names", "A,B", "deny every call of these"),
        "--require-approval": Flag("require_approval", "names", "A,B", "ask a person about every call of these"),
        "--permission-mode": Flag(
            "permission_mode", "value", "MODE", "auto (default), approval (ask about every call), readonly"
        ),
        "--allow-outside": Flag("allow_outside", "switch", "", "let tools use files outside the working directory"),
        "--no-background": Flag("no_background", "switch", "", "wait for the end of every command"),
        "--tool-env": Flag("tool_env", "names", "A,B", "let commands see these, though they hold a model's key"),
        "--hooks": Flag("hooks", "list", "FILE", "a Python file with hooks"),
        "--no-hooks": Flag("no_hooks", "switch", "", "no hooks, also not those of installed packages"),
    },
    "what it knows": {
        "--system-prompt": Flag("system_prompt", "value", "TEXT|@FILE", "replace the base system prompt"),
        "--append-system-prompt": Flag("append_system_prompt", "list", "TEXT|@FILE", "add to the system prompt"),
        "--skill": Flag("skill", "list", "DIR", "a directory with a SKILL.md, named in the system prompt"),
        "--no-skills": Flag("no_skills", "switch", "", "take no skills"),
        "--prompt-template": Flag("prompt_template", "list", "FILE", "a Markdown file that /NAME stands for"),
        "--no-prompt-templates": Flag("no_prompt_templates", "switch", "", "take no prompt templates"),
        "--no-context-files": Flag("no_context_files", "switch", "", "do not read AGENTS.md"),
        "--without-context": Flag("without_context", "list", "FILE", "do not read this AGENTS.md"),
        "--extension": Flag("extension", "list", "PATH", "refused: this agent has hooks, and no extensions"),
        "--no-extensions": Flag("no_extensions", "switch", "", "take none, also not those named by --extension"),
    },
    "sessions": {
        "--session-dir": Flag("session_dir", "value", "DIR", "for transcripts (default ~/.local/state/agent/sessions)"),
        "--session": Flag("session", "value", "FILE|ID", "go on with this conversation"),
        "--continue": Flag("resume_latest", "switch", "", "go on with the latest conversation of this directory"),
        "--no-session": Flag("no_session", "switch", "", "keep no transcript"),
    },
    "about": {
        "--help": Flag("help", "switch", "", "show this text"),
        "--version": Flag("version", "switch", "", "show the version"),
    },
}

FLAGS: Mapping[str, Flag] = {name: flag for group in _GROUPS.values() for name, flag in group.items()}
ALIASES: Mapping[str, str] = {"--print": "-p", "-h": "--help", "-t": "--tools"}

_USAGE = """\
usage: agent --mode rpc [options]
       agent -p TEXT [options]
"""
_EXIT_CODES = """\
exit code of -p: 0 answered; 1 failed or could not start; 2 usage;
  4 cut short at --max-steps; 5 cut short at the model's limit; 124 timeout;
  128 + n ended by signal n
With -p the answer goes to stdout, what happens beside it to stderr. Ctrl-C
aborts the run and the commands that it waits for, Ctrl-C again at once.
"""
_COLUMNS = 80
_HELP_COLUMN = 28


def help_text(models: str) -> str:
    """The text of ``--help``; ``models`` describes what models there are."""
    groups = [f"{title}:\n{_rows(group)}" for title, group in _GROUPS.items()]
    return "\n".join([_USAGE, *groups, _EXIT_CODES, f"{models.strip()}\n"])


def _rows(group: Mapping[str, Flag]) -> str:
    return "".join(_row(f"  {name} {flag.metavar}".rstrip(), flag.help) for name, flag in group.items())


def _row(left: str, text: str) -> str:
    """What it does stands beside it, and below it where that is too long."""
    from textwrap import fill  # noqa: PLC0415 - only the help needs it

    indent = " " * _HELP_COLUMN
    first = f"{left:<{_HELP_COLUMN - 1}} " if len(left) < _HELP_COLUMN else f"{left}\n{indent}"
    return first + fill(text, _COLUMNS - _HELP_COLUMN).replace("\n", f"\n{indent}") + "\n"
