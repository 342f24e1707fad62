"""The directives of the scripted model: words in a prompt that say how it shall answer."""

import re
from math import inf
from typing import Any, Literal

import msgspec

__all__ = ["DIRECTIVES_HELP", "Script", "ScriptedCall", "parse_script"]

DIRECTIVES_HELP = """\
models of the provider scripted (offline, deterministic): scripted, scripted-small, scripted-large
  The answer repeats the prompt and names earlier ones. Words in a prompt that change it:
  PIECES=n            answer with n pieces of text
  DELAY=ms            wait before each of these pieces (without PIECES: before the answer)
  TOOL:name {json}    call a tool, then answer; several are called one after the other
                      without valid JSON the rest of the line is the input, and fits no tool;
                      "$SESSION" in it stands for the background session that the last result names
  PARALLEL            call all of them in one step
  FOREVER             call them again and again, and never answer
  THINK               think aloud first
  TELL                answer with what the last tool said
  RECALL              answer with all earlier user texts of the conversation, as a JSON list
  SYSTEM              answer with the system prompt
  WHOAMI              answer with model and thinking level
  ECHO:text           answer with exactly this text (the rest of the prompt)
  LENGTH              end the answer as one that was cut off at its length
  USAGE=in/out        count so many tokens at each model call (USAGE=in: and none of the answer)
  TRANSIENT=n         fail n times before this step, as a server does that is overloaded; RETRY_AFTER=ms says when
  OVERFLOW            fail because the conversation is too long, until it has been compacted
  SUMMARY_HANG        never answer the question for a summary of this prompt; SUMMARY_ERROR: fail at it
  ERROR               fail; HANG: say nothing more; CRASH or CRASH=code: exit at once;
                      GARBAGE or GARBAGE=n: print n lines that are no messages, then answer
                      (with PIECES these happen after half of the pieces)
"""

_WORD = re.compile(
    r"(?<!\S)(?:(?P<name>PIECES|DELAY|TRANSIENT|RETRY_AFTER|CRASH|GARBAGE)=(?P<number>\d{1,9})"
    r"|(?P<flag>PARALLEL|FOREVER|LENGTH|OVERFLOW|THINK|TELL|RECALL|SYSTEM|WHOAMI|ERROR|HANG|CRASH|GARBAGE)(?!\S)"
    r"|USAGE=(?P<input>\d{1,9})(?:/(?P<output>\d{1,9}))?"
    r"|TOOL:(?P<tool>[A-Za-z_][A-Za-z0-9_]*)\s*|ECHO:)"
)

_FLAGS = {"PARALLEL": "parallel", "FOREVER": "forever", "LENGTH": "cut", "OVERFLOW": "overflow", "THINK": "think"}

Answer = Literal["plain", "TELL", "RECALL", "SYSTEM", "WHOAMI", "ECHO"]
Fault = Literal["ERROR", "HANG", "CRASH", "GARBAGE"]


class ScriptedCall(msgspec.Struct, frozen=True):
    """One ``TOOL:`` directive. An input that is no JSON is passed on as the text it is."""

    tool: str
    input: Any


class Script(msgspec.Struct):
    """What a prompt asks for. ``delay`` and ``retry_after`` in seconds; ``pieces`` None: the answer's own words."""

    pieces: int | None = None
    delay: float = 0.0
    calls: list[ScriptedCall] = []
    parallel: bool = False
    forever: bool = False
    cut: bool = False
    usage: tuple[int, int] | None = None
    transient: int = 0
    retry_after: float | None = None
    overflow: bool = False
    think: bool = False
    answer: Answer = "plain"
    echo: str = ""
    fault: Fault | None = None
    fault_number: int | None = None

    @property
    def tool_steps(self) -> float:
        """Model calls that are nothing but tool calls."""
        if self.forever and self.calls:
            return inf
        return min(len(self.calls), 1) if self.parallel else len(self.calls)

    def calls_of(self, step: int) -> list[ScriptedCall]:
        """The tool calls of one of these steps."""
        if self.parallel:
            return self.calls
        step = step % len(self.calls) if self.forever else step
        return self.calls[step : step + 1]


def parse_script(prompt: str) -> Script:
    """Find the directives in a prompt; linear in its length."""
    script = Script()
    position = 0
    while match := _WORD.search(prompt, position):
        position = match.end()
        if match["tool"]:
            arguments, position = _read_json(prompt, position)
            script.calls.append(ScriptedCall(match["tool"], arguments))
        elif match["input"]:
            script.usage = int(match["input"]), int(match["output"] or 0)
        elif match["name"] or match["flag"]:
            _apply(script, match["name"] or match["flag"], match["number"])
        else:
            script.answer, script.echo = "ECHO", prompt[position:]
            break
    return script


def _apply(script: Script, word: str, number: str | None) -> None:
    count = int(number or 0)
    match word:
        case "PIECES":
            script.pieces = count
        case "DELAY":
            script.delay = count / 1000
        case "TRANSIENT":
            script.transient = count
        case "RETRY_AFTER":
            script.retry_after = count / 1000
        case "TELL" | "RECALL" | "SYSTEM" | "WHOAMI":
            script.answer = word
        case "ERROR" | "HANG" | "CRASH" | "GARBAGE":
            script.fault, script.fault_number = word, None if number is None else count
        case _:
            setattr(script, _FLAGS[word], True)


def _read_json(prompt: str, position: int) -> tuple[Any, int]:
    from json import JSONDecoder  # noqa: PLC0415 - not worth its time at the start

    try:
        return JSONDecoder().raw_decode(prompt, position)
    except (ValueError, RecursionError):
        end = prompt.find("\n", position)
        end = len(prompt) if end < 0 else end
        return prompt[position:end], end
