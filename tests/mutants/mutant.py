"""One guard of the code, what it keeps, how to take it out, and the tests that must notice."""

import ast
from pathlib import Path

import msgspec

PROMISES = {
    "I1": "one outcome for each request, nothing sent twice",
    "I2": "no byte of one session reaches another",
    "I3": "never more processes than allowed",
    "I4": "nothing is left when the supervisor is gone",
    "I5": "order of service, and no starvation",
    "I6": "no wait without an end",
    "I7": "everything that grows is bounded",
    "I8": "a session is not moved in the middle of a turn",
    "I9": "lost capacity comes back, starts are paced",
    "I10": "status is what there is",
    "I11": "a process that is not ours is never signalled",
    "I12": "a fault of one session fails no other",
    "durable": "what was promised survives a crash",
    "access": "only who may, can",
    "private": "a secret stays one",
}
"""I1 to I12 are the invariants of the acceptance battery; the others belong to single rooms."""


class RottenListError(Exception):
    """The list does not fit the code any more."""


class Mutant(msgspec.Struct, frozen=True):
    """In the function ``at`` (``file.py:Class.method``) stands ``new`` for ``old``: then ``tests`` must fail.

    ``old`` occurs once in the source of the function; empty = its whole body. ``without``: what happens where the
    guard is missing. ``tests``: names of test functions as pytest takes them, without parameters.
    """

    keeps: str
    without: str
    at: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def file(self) -> str:
        """The path of the file, from the root."""
        return self.at.partition(":")[0]

    def apply(self, root: Path) -> str:
        """The text of the file without the guard. Raises RottenListError where the guard is not found exactly once."""
        path = root / self.file
        text = path.read_text() if path.is_file() else ""
        function = _find(ast.parse(text), self.at.partition(":")[2].split("."))
        if function is None:
            raise RottenListError(f"{self.at}: no such function ({self.without})")
        lines = text.splitlines(keepends=True)
        first = _first_statement(function).lineno if not self.old else function.lineno
        source = "".join(lines[first - 1 : function.end_lineno])
        if not self.old:
            mutated = " " * _first_statement(function).col_offset + self.new + "\n"
        elif (found := source.count(self.old)) != 1:
            raise RottenListError(f"{self.at}: {found} times, not once: {self.old!r} ({self.without})")
        else:
            mutated = source.replace(self.old, self.new)
        if mutated == source:
            raise RottenListError(f"{self.at}: the mutant changes nothing ({self.without})")
        return "".join([*lines[: first - 1], mutated, *lines[function.end_lineno :]])


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _find(scope: ast.AST, names: list[str]) -> _Function | None:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, _Function | ast.ClassDef) and node.name == names[0]:
            if names[1:]:
                return _find(node, names[1:])
            return node if isinstance(node, _Function) else None
    return None


def _first_statement(function: _Function) -> ast.stmt:
    """The first one after the docstring."""
    return function.body[1 if ast.get_docstring(function) is not None and function.body[1:] else 0]
