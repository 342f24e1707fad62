"""The directives of the scripted model: words in a prompt that set its answer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

DIRECTIVES_HELP = """\
models of the provider scripted (offline, deterministic):
  scripted, scripted-small, scripted-large
  The answer repeats the prompt and names earlier ones. Words that change it:
  run X in the background [and tell me]
                    run X (a command `in backticks`; other words mean
                    stand-in tests of a second), follow it up, tell how it ended
  PIECES=n          answer with n pieces of text
  DELAY=ms          wait before each of these pieces (without: before it all)
  TOOL:name {json}  call a tool, then answer; several, one after the other;
                    without valid JSON the rest of the line is the input, and
                    fits no tool; "$SESSION" in it stands for the background
                    session that the last result names
  PARALLEL          call all of them in one step
  FOREVER           call them again and again, and never answer
  THINK             think aloud first
  TELL              answer with what the last tool said
  RECALL            answer with all earlier user texts, as a JSON list
  SYSTEM            answer with the system prompt
  WHOAMI            answer with model and thinking level
  ECHO:text         answer with exactly this text (the rest of the prompt)
  LENGTH            end the answer as one that was cut off at its length
  USAGE=in/out      count this many tokens at each model call (USAGE=in: no out)
  TRANSIENT=n       fail n times before this step, as an overloaded server
                    does; RETRY_AFTER=ms says when to try again
  OVERFLOW          fail: the conversation is too long, until it is compacted
  SUMMARY_HANG      never answer the question for a summary of this prompt;
                    SUMMARY_ERROR: fail at it
  ERROR             fail; HANG: say nothing more; CRASH, CRASH=code: exit;
                    GARBAGE, GARBAGE=n: print n lines that are no messages,
                    then answer (with PIECES all these after half of them)
"""

AnswerMode = Literal["plain", "TELL", "RECALL", "SYSTEM", "WHOAMI", "ECHO", "OUTCOME"]
ScriptedFault = Literal["ERROR", "HANG", "CRASH", "GARBAGE"]

_NUMBERS: Mapping[str, tuple[str, int]] = {
    "PIECES": ("pieces", 1),
    "DELAY": ("delay", 1000),
    "TRANSIENT": ("transient", 1),
    "RETRY_AFTER": ("retry_after", 1000),
    "CRASH": ("fault_number", 1),
    "GARBAGE": ("fault_number", 1),
}
"""Words that take a number: the field of ``Script`` that it is for, and what it is divided by."""

_WORDS: Mapping[str, Mapping[str, Any]] = {
    "PARALLEL": {"parallel": True},
    "FOREVER": {"forever": True},
    "LENGTH": {"cut": True},
    "OVERFLOW": {"overflow": True},
    "THINK": {"think": True},
    **{answer: {"answer": answer} for answer in ("TELL", "RECALL", "SYSTEM", "WHOAMI")},
    **{fault: {"fault": fault} for fault in ("ERROR", "HANG", "CRASH", "GARBAGE")},
}
"""Words, and the fields that they set; those of ``_NUMBERS`` that are here too may go without their number."""

_WORD = re.compile(
    rf"(?<!\S)(?:(?P<name>{'|'.join(_NUMBERS)})=(?P<number>\d{{1,9}})"
    rf"|(?P<word>{'|'.join(_WORDS)})(?!\S)"
    r"|USAGE=(?P<input>\d{1,9})(?:/(?P<output>\d{1,9}))?"
    r"|TOOL:(?P<tool>[A-Za-z_][A-Za-z0-9_]*)\s*"
    r"|(?P<run>[Rr]un)\s(?:`(?P<command>[^`]+)`|[^`\n]{1,80}?)\sin\sthe\sbackground\b(?:\sand\stell\sme\b)?"
    r"|(?P<echo>ECHO:))"
)
"""Linear: what a match can look at behind its first word is bounded, or ends where the next such match may begin."""

STILL_RUNNING = re.compile(r"still runs in the background \(session |\(Session \S+ still runs\.\)\Z")
"""How the tools ``exec`` and ``process`` say that a command goes on; both hold its session's name."""

_SAMPLE_COMMAND = 'for n in 1 2 3; do sleep 0.3; echo "test $n of 3: ok"; done; echo "3 passed"'


class ScriptedCall(msgspec.Struct, frozen=True):
    """One tool call. An input that is no JSON is passed on as the text it is.

    ``while_running``: made only where the call before it has said that its command still runs.
    """

    tool: str
    input: Any
    while_running: bool = False


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
    answer: AnswerMode = "plain"
    echo: str = ""
    fault: ScriptedFault | None = None
    fault_number: int | None = None

    def next_calls(self, results: Sequence[str]) -> list[ScriptedCall]:
        """The tool calls of the next step; empty: now it answers. ``results``: what the tools of each step said."""
        step = len(results)
        if not self.calls:
            return []
        if self.parallel:
            return self.calls if self.forever or step == 0 else []
        if self.forever:
            return [self.calls[step % len(self.calls)]]
        return self._next_in_order(results)

    def _next_in_order(self, results: Sequence[str]) -> list[ScriptedCall]:
        """The first call that has no result yet and is not passed over."""
        done, said = 0, ""
        for call in self.calls:
            if call.while_running and not STILL_RUNNING.search(said):
                continue
            if done == len(results):
                return [call]
            said = results[done]
            done += 1
        return []


def parse_script(prompt: str) -> Script:
    """Find the directives in a prompt; linear in its length."""
    script = Script()
    position = 0
    while match := _WORD.search(prompt, position):
        position = match.end()
        if match["tool"]:
            arguments, position = _read_json(prompt, position)
            script.calls.append(ScriptedCall(match["tool"], arguments))
        elif match["run"]:
            script.calls += _background_calls(match["command"] or _SAMPLE_COMMAND)
            script.answer = "OUTCOME"
        elif match["input"]:
            script.usage = int(match["input"]), int(match["output"] or 0)
        elif match["echo"]:
            script.answer, script.echo = "ECHO", prompt[position:]
            break
        else:
            _apply(script, match["name"] or match["word"], match["number"])
    return script


def _apply(script: Script, word: str, number: str | None) -> None:
    for field, value in _WORDS.get(word, {}).items():
        setattr(script, field, value)
    if number is not None:
        field, divisor = _NUMBERS[word]
        setattr(script, field, int(number) if divisor == 1 else int(number) / divisor)


def _background_calls(command: str) -> list[ScriptedCall]:
    """Run a command in the background, and ask for its end as long as it runs, but not for ever."""
    poll = {"action": "poll", "session_id": "$SESSION", "timeout": 30}
    polls = [ScriptedCall("process", poll, while_running=True)] * 20
    return [ScriptedCall("exec", {"command": command, "background": True}), *polls]


def _read_json(prompt: str, position: int) -> tuple[Any, int]:
    from json import JSONDecoder  # noqa: PLC0415 - not worth its time at the start

    try:
        value, end = JSONDecoder().raw_decode(prompt, position)
        msgspec.json.encode(value)  # half a character, as "\\udc00" names one, could not be kept
    except (ValueError, OverflowError, RecursionError):
        end = prompt.find("\n", position)
        end = len(prompt) if end < 0 else end
        return prompt[position:end], end
    return value, end
