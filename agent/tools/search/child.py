r"""The child process of a search: a request on stdin, found lines and an end on stdout, each a line of JSON.

```
<- {"mode":"grep","pattern":"x","flags":2,"glob":null,"name":null,"prefix":"src/","above":[["","*.o\n"]],...}
-> {"lines":["src/a.c:7: x = 1"]}
-> {"end":{"matches":1,"files":3,...,"stopped_at":null}}          or {"bad":"what is wrong with the pattern"}
```
It works on a directory that it was given open, ends itself after ``seconds`` (in the middle of a match, if need be)
with what it has found until then, and may not use more than 1 GiB.
"""

import json
import os
import re
import resource
import signal
import stat
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from agent.tools.names import escape_name
from agent.tools.search.ignore import IgnoreStack, glob_matcher, parse_rules
from agent.tools.search.walk import Match, Walk, WalkEntry, format_matches, matches_in

_MEMORY = 1024 * 1024 * 1024
_LARGE_FILE = 32 * 1024 * 1024
_COUNTING_SECONDS = 1.0
"""Seconds to go on counting when enough has been shown."""
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _TimeExpired(Exception):
    """The time for the search is over."""


class _SearchRun:
    """One request, and what has come of it so far."""

    def __init__(self, request: dict[str, Any], root: int) -> None:
        self._request = request
        self._root = root
        self._limit: int = request["limit"]
        self._walk = Walk(request["outputs_suffix"])
        self._glob = glob_matcher(request["glob"]) if request["glob"] is not None else None
        self.matches = 0
        self.shown = 0
        self.files = 0
        self.binary = 0
        self.too_large = 0
        self.unreadable = 0
        self.at = ""

    def find(self) -> None:
        """Tell the paths that fit the glob."""
        for found in self._walk_tree():
            self.at = found.path
            if self._glob is None or self._glob.fullmatch(found.path):
                self.matches += 1
                if self.shown < self._limit:
                    self._count_shown(1)
                    _write_message(lines=[self._name(found.path) + ("/" if found.is_directory else "")])

    def grep(self) -> None:
        """Tell the lines that match the pattern."""
        pattern = re.compile(self._request["pattern"], self._request["flags"])
        for found in self._files():
            self.at = found.path
            lines = self._lines(found)
            if lines is not None:
                self._grep_lines(found, lines, pattern)

    def write_summary(self, *, in_time: bool) -> None:
        """Tell that it is over, and what was passed over."""
        walk = self._walk
        _write_message(
            end={
                "matches": self.matches,
                "shown": self.shown,
                "files": self.files,
                "ignored": walk.ignored,
                "unreadable": walk.unreadable + self.unreadable,
                "too_deep": walk.too_deep,
                "binary": self.binary,
                "too_large": self.too_large,
                "stopped_at": None if in_time else escape_name(self.at),
            }
        )

    def _grep_lines(self, found: WalkEntry, lines: list[str], pattern: "re.Pattern[str]") -> None:
        wanted: list[Match] = []
        before = self.matches
        try:
            for match in matches_in(lines, pattern):
                self.matches += 1
                if self.shown + len(wanted) < self._limit:
                    wanted.append(match)
        finally:
            self.files += self.matches > before
            self._count_shown(len(wanted))
            if wanted:
                _write_message(lines=format_matches(self._name(found.path), lines, wanted, self._request["context"]))

    def _count_shown(self, count: int) -> None:
        self.shown += count
        if self.shown == self._limit and signal.getitimer(signal.ITIMER_REAL)[0] > _COUNTING_SECONDS:
            signal.setitimer(signal.ITIMER_REAL, _COUNTING_SECONDS)

    def _lines(self, found: WalkEntry) -> list[str] | None:
        try:
            descriptor = os.open(found.name, _REGULAR, dir_fd=found.directory)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    return None
                if status.st_size > _LARGE_FILE:
                    self.too_large += 1
                    return None
                data = file.read(_LARGE_FILE)
        except OSError:
            self.unreadable += 1
            return None
        if b"\0" in data[:8192]:
            self.binary += 1
            return None
        try:
            lines = data.decode(errors="replace").removeprefix("\ufeff").split("\n")
        except MemoryError:  # nothing but line ends, or nothing but rare characters: the next file is another matter
            self.too_large += 1
            return None
        return lines if lines[-1] else lines[:-1]

    def _files(self) -> Iterator[WalkEntry]:
        only = self._request["name"]
        if only is not None:
            name = os.fsdecode(bytes.fromhex(only))
            yield WalkEntry(name, self._root, name, is_directory=False, is_file=True)
            return
        for found in self._walk_tree():
            if found.is_file and (self._glob is None or self._glob.fullmatch(found.path)):
                yield found

    def _walk_tree(self) -> Iterator[WalkEntry]:
        above = self._request["above"]
        ignoring = None if above is None else IgnoreStack()
        for path, text in above or ():
            assert ignoring is not None  # noqa: S101 - there is what it was made of
            ignoring = ignoring.with_rules_above(parse_rules(text), path)
        return self._walk.entries(self._root, ignoring)

    def _name(self, path: str) -> str:
        prefix: str = self._request["prefix"]
        return prefix + escape_name(path)


def _write_message(**message: Any) -> None:
    """Write one line whole: the time may be up in the middle of it, and is then up after it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    raise _TimeExpired


def _search(request: dict[str, Any], root: int) -> None:
    search = _SearchRun(request, root)
    try:
        signal.signal(signal.SIGALRM, _on_alarm)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        search.grep() if request["mode"] == "grep" else search.find()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except _TimeExpired:
        search.write_summary(in_time=False)
    else:
        search.write_summary(in_time=True)


def main(root: int) -> None:
    """Read one request, answer it, end."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        _search(json.loads(sys.stdin.read()), root)
    except re.error as exc:
        _write_message(bad=f"{exc.msg}" + ("" if exc.pos is None else f" at position {exc.pos}"))
    except (RecursionError, OverflowError, MemoryError) as exc:
        _write_message(bad=f"too much for a search: {type(exc).__name__}")
