"""Loading hooks: what is decorated is found, in order; what cannot be used is refused with its line."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import gateway.hooks
from errors import UsageError
from gateway.hook_types import HOOK_NAMES, HookMessage, hook, names_of
from gateway.hooks import ENTRY_POINT_GROUP, installed_hooks, load_hooks

HEAD = "from gateway.hooks import Drop, hook\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "hooks.py"


def write(file: Path, text: str) -> Path:
    file.write_text(HEAD + text)
    return file


def names(file: Path) -> dict[str, list[str]]:
    return {name: [function.__name__ for function in functions] for name, functions in load_hooks(file).items()}


def test_decorated_functions_are_found_in_their_order(file: Path) -> None:
    write(
        file,
        "def helper(x): return x\n"
        "@hook('message:received')\ndef second(m): return helper(m.text)\n"
        "@hook('message:received', 'gateway:start')\nasync def first(m): ...\n"
        "alias = second\n",
    )
    assert names(file) == {"message:received": ["second", "first"], "gateway:start": ["first"]}


def test_a_function_may_be_decorated_twice() -> None:
    @hook("command:new")
    @hook("command:reset", "command:new")
    def function(event: object) -> None: ...

    assert names_of(function) == ("command:new", "command:reset")


def test_the_example_of_the_documentation_works(file: Path) -> None:
    documentation = gateway.hooks.__doc__ or ""
    example = documentation.partition("argument::\n")[2].partition("\nPlain functions")[0]
    file.write_text("\n".join(line.removeprefix("    ") for line in example.splitlines()))
    table = load_hooks(file)
    assert set(table) == {"message:received", "command:new", "command:reset"}
    (tidy,) = table["message:received"]
    assert tidy(HookMessage(session="s", text="colourful")) == "colorful"


def test_every_event_is_in_the_documentation() -> None:
    documentation = gateway.hooks.__doc__ or ""
    rows = [line.split("``")[1] for line in documentation.splitlines() if line.startswith("``")]
    told = [f"{row.split(':')[0]}:{word}" for row in rows for word in row.split(":")[1].split("|")]
    assert sorted(told) == sorted(HOOK_NAMES)


def test_an_edited_file_is_read_anew_however_fast_it_was_edited(file: Path) -> None:
    for name in ("one", "two"):
        write(file, f"@hook('gateway:start')\ndef {name}(e): ...\n")
        assert names(file) == {"gateway:start": [name]}
    assert not (file.parent / "__pycache__").exists()


def test_a_file_may_hold_what_looks_for_its_module(file: Path) -> None:
    write(
        file,
        "from dataclasses import KW_ONLY, dataclass\n@dataclass\nclass A:\n    _: 'KW_ONLY'\n    b: int = 1\n"
        "@hook('gateway:start')\ndef start(e): return A(b=2)\n",
    )
    assert "gateway:start" in load_hooks(file)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("def broken(:\n", 2, "invalid syntax"),
        ("\n\nx = 1 / 0\n", 4, "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", 3, "SystemExit: 3"),
        ("import no_such_module\n", 2, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("@hook('message:recieved')\ndef f(m): ...\n", 2, "there is no hook 'message:recieved'; there are: agent:boot"),
        ("@hook()\ndef f(m): ...\n", 2, "no event is named"),
        ("@hook('gateway:start')\ndef f(): ...\n", 2, "f must take one argument"),
        ("@hook('gateway:start')\ndef f(a, b): ...\n", 2, "f must take one argument"),
        ("@hook('gateway:start')\ndef f(a):\n    yield\n", 2, "f must return its answer, not yield it"),
        ("import json\ndef g():\n    json.loads('{')\ng()\n", 4, "JSONDecodeError"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(file: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_hooks(write(file, text))
    assert f"{file}:{line}: " in caught.value.message
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((None, r"hooks\.py: No such file"), (b"a = '\xff'\n", r"hooks\.py:1: .*utf-8")),
        *((b"\0", r"hooks\.py:1: .*null bytes"), (b"def f(m): ...\n", r"no hooks in .*hooks\.py; decorate functions")),
    ],
)
def test_a_file_that_is_missing_no_python_or_without_hooks_is_refused(
    file: Path, content: bytes | None, words: str
) -> None:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        load_hooks(file)


def test_a_refused_file_leaves_the_one_before_in_its_place(file: Path) -> None:
    load_hooks(write(file, "@hook('gateway:start')\ndef f(e): ...\n"))
    before = sys.modules["pool_gateway_hooks"]
    with pytest.raises(UsageError):
        load_hooks(write(file, "1 / 0\n"))
    with pytest.raises(UsageError):
        load_hooks(write(file, ""))
    assert sys.modules["pool_gateway_hooks"] is before


# --- packages ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "hooks_of_a_package"
    text = HEAD + "@hook('gateway:stop')\ndef bye(e): ...\n@hook('message:sent')\ndef seen(e): ...\nnumber = 5\n"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def point(value: str) -> EntryPoint:
    return EntryPoint("mine", value, ENTRY_POINT_GROUP)


def test_a_package_brings_a_module_or_one_function_and_comes_before_the_file(package: str, file: Path) -> None:
    write(file, "@hook('gateway:stop')\ndef own(e): ...\n")
    whole = load_hooks(file, [point(package)])
    assert [function.__name__ for function in whole["gateway:stop"]] == ["bye", "own"]
    one = load_hooks(None, [point(f"{package}:seen")])
    assert set(one) == {"message:sent"}
    twice = load_hooks(None, [point(package), point(f"{package}:seen")])
    assert len(twice["message:sent"]) == 1


def test_installed_packages_are_found_by_their_entry_points_in_the_order_of_their_names(
    package: str, tmp_path: Path
) -> None:
    assert installed_hooks() == []
    for name in ("beta", "alpha"):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = {package}:seen\n")
    assert [point.name for point in installed_hooks()] == ["alpha", "beta"]
    assert set(load_hooks(None, installed_hooks())) == {"message:sent"}


@pytest.mark.parametrize(
    ("what", "words"),
    [(":number", "no hooks in the entry point mine"), (":gone", "AttributeError"), ("_gone", "ModuleNotFoundError")],
)
def test_a_package_that_cannot_be_used_is_named(package: str, what: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_hooks(None, [point(package + what)])


def test_no_hooks_are_no_problem() -> None:
    assert load_hooks(None) == {}
    assert load_hooks(None, installed_hooks()) == {}
