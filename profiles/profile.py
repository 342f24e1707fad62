"""Capability profiles: what a worker process can do, signed with SHA-256 over one canonical encoding of its parts.

The encoding is length-prefixed: two different inputs never share their bytes. It depends on no serialisation library,
so that a signature in a status report or a state file keeps its meaning across upgrades.

- ``None`` is ``n``;
- a text is ``s<length>:<bytes>``, the length in decimal, the bytes UTF-8 (lone surrogates as ``surrogatepass`` does);
- a list is ``l<count>:<items>``.

The digest is of the list ``[tag, part, part, ...]``; the tag carries the version of this description. Two spellings of
one path become one text, so that they share their workers.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from errors import UsageError
from wire.redaction import secret_values

SIGNATURE_TAG = "profile/1"
HARD_TAG = "profile-hard/1"

T = TypeVar("T")
Encodable = str | None | Sequence["Encodable"]


def digest(tag: str, *parts: Encodable) -> str:
    """64 hex digits that stand for ``parts`` under ``tag``."""
    return sha256(canonical((tag, *parts))).hexdigest()


def canonical(value: Encodable) -> bytes:
    """The canonical encoding of one value; see the module docstring."""
    return b"".join(_pieces(value))


def _pieces(value: Encodable) -> Iterator[bytes]:
    if value is None:
        yield b"n"
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        yield b"s%d:" % len(data)
        yield data
    else:
        yield b"l%d:" % len(value)
        for item in value:
            yield from _pieces(item)


class SoftArgs(msgspec.Struct, frozen=True):
    """What can be changed on a live worker; None leaves the worker's own default.

    ``mode`` and ``options`` (a JSON object, its names sorted) are the program's own, of dialect ``acp``.
    """

    provider: str | None = None
    model: str | None = None
    thinking: str | None = None
    mode: str | None = None
    options: str | None = None


class Resources(msgspec.Struct, frozen=True):
    """What a worker may have more of than a session asks for. Order is the order of preference."""

    skills: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    prompt_templates: tuple[str, ...] = ()

    def count(self) -> int:
        """How many resources there are in all."""
        return len(self.skills) + len(self.extensions) + len(self.prompt_templates)

    def contains(self, other: "Resources") -> bool:
        """Whether every resource of ``other`` is here too, of the same kind."""
        return (
            set(other.skills) <= set(self.skills)
            and set(other.extensions) <= set(self.extensions)
            and set(other.prompt_templates) <= set(self.prompt_templates)
        )


class CapabilityProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen description of one kind of worker; two workers with equal ``signature`` are interchangeable.

    Build it with ``profiles.build_profile`` (or ``profiles.make_profile`` for the bare parts); both compute the
    signatures, SHA-256 in hex. ``env`` holds the profile's own variables sorted by name; their values may be secret:
    they enter the signature and the worker's environment, never a repr or a status. ``secret_env``: names of those that
    are secret although they do not look so. ``declared``: what the program learns over its protocol instead of by
    arguments, and what the pool does for it (``resume``, ``group``), each a name and a JSON text, sorted by name.
    """

    agent: str
    role: str
    dialect: str
    command: tuple[str, ...]
    cwd: str
    hard_args: tuple[str, ...] = ()
    soft: SoftArgs = SoftArgs()
    resources: Resources = Resources()
    declared: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    secret_env: tuple[str, ...] = ()
    signature: str
    hard_signature: str

    @property
    def short(self) -> str:
        """First 8 digits of the signature: enough to distinguish profiles in a table."""
        return self.signature[:8]

    @property
    def is_dedicated(self) -> bool:
        """Whether a worker keeps the conversation that it has as long as it lives."""
        return self._declared_value("resume", str) == "pin"

    @property
    def group(self) -> str:
        """The group of nodes that its workers run on; "" is this machine."""
        found: str = msgspec.json.decode(dict(self.declared).get("group", '""'), type=str)
        return found

    @property
    def prepare(self) -> tuple[str, ...]:
        """The command that fills its working directory where none of its workers has been."""
        return tuple(self._declared_value("prepare", list[str]) or ())

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that nothing may show that the worker says."""
        return (*secret_values(self.env, self.secret_env), *server_secrets(self._mcp_servers))

    @property
    def _mcp_servers(self) -> list[dict[str, Any]]:
        return self._declared_value("mcp_servers", list[dict[str, Any]]) or []

    def _declared_value(self, name: str, kind: type[T]) -> T | None:
        found = dict(self.declared).get(name)
        return None if found is None else msgspec.json.decode(found, type=kind)

    def __repr__(self) -> str:
        names = ",".join(name for name, _ in self.env)
        return f"CapabilityProfile({self.agent}/{self.role} {self.short} cwd={self.cwd} env=[{names}])"

    def __rich_repr__(self) -> Iterator[str]:  # type: ignore[override]  # rich takes any tuples or values; msgspec's own would print env
        yield repr(self)


def server_secrets(servers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Variables and headers of MCP servers that are secret by their names."""
    for server in servers:
        for kind in ("env", "headers"):
            pairs = server.get(kind)
            named = [(each["name"], each["value"]) for each in pairs or () if {"name", "value"} <= set(each)]
            yield from secret_values(named, ())


def make_profile(
    *,
    command: Iterable[str],
    cwd: str,
    agent: str = "main",
    role: str = "default",
    dialect: str = "native",
    hard_args: Iterable[str] = (),
    soft: SoftArgs = SoftArgs(),  # noqa: B008  # frozen: the one instance can be shared
    resources: Resources = Resources(),  # noqa: B008  # the same
    declared: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    secret_env: Iterable[str] = (),
) -> CapabilityProfile:
    """A profile from its bare parts, signed. Resources are de-duplicated, the first one stays; ``env`` is sorted.

    The agent's name is not signed: two agent definitions of the same content share their workers.

    Raises UsageError where no process could be started from the parts: an empty command, a relative ``cwd``, a NUL
    in a text, a name in ``env`` that is none.
    """
    command, hard_args = tuple(command), tuple(hard_args)
    resources = _without_duplicates(resources)
    variables = tuple(sorted((env or {}).items()))
    _check(command, cwd, (*hard_args, *_texts(soft), *_resource_names(resources)), variables)
    marked, facts = tuple(sorted(set(secret_env))), tuple(sorted((declared or {}).items()))
    hard_parts = (role, cwd, dialect, command, hard_args, variables, *filter(None, (marked, facts)))
    own_soft = (soft.mode, soft.options) if soft.mode or soft.options else None
    soft_parts = ((soft.provider, soft.model, soft.thinking), _lists(resources), *filter(None, (own_soft,)))
    return CapabilityProfile(
        agent=agent,
        role=role,
        dialect=dialect,
        command=command,
        cwd=cwd,
        hard_args=hard_args,
        soft=soft,
        resources=resources,
        declared=facts,
        env=variables,
        secret_env=marked,
        signature=digest(SIGNATURE_TAG, *hard_parts, *soft_parts),
        hard_signature=digest(HARD_TAG, *hard_parts),
    )


def with_soft(
    profile: CapabilityProfile, *, provider: str | None = None, model: str | None = None, thinking: str | None = None
) -> CapabilityProfile:
    """The same worker with other soft arguments; None leaves one as it is. Raises UsageError for a NUL."""
    had = profile.soft
    soft = msgspec.structs.replace(
        had, provider=provider or had.provider, model=model or had.model, thinking=thinking or had.thinking
    )
    return _with(profile, soft=soft)


def with_arguments(profile: CapabilityProfile, arguments: Sequence[str]) -> CapabilityProfile:
    """The same worker with further arguments of its program. Raises UsageError for a NUL."""
    return _with(profile, hard_args=(*profile.hard_args, *arguments))


def _with(profile: CapabilityProfile, **changes: Any) -> CapabilityProfile:
    parts = msgspec.structs.asdict(profile) | {"env": dict(profile.env), "declared": dict(profile.declared)} | changes
    return make_profile(**{name: value for name, value in parts.items() if not name.endswith("signature")})


def _lists(resources: Resources) -> tuple[tuple[str, ...], ...]:
    return (resources.skills, resources.extensions, resources.prompt_templates)


def _resource_names(resources: Resources) -> list[str]:
    return [name for names in _lists(resources) for name in names]


def _texts(soft: SoftArgs) -> list[str]:
    return [text for text in msgspec.structs.astuple(soft) if text is not None]


def _without_duplicates(resources: Resources) -> Resources:
    return Resources(*(tuple(dict.fromkeys(names)) for names in _lists(resources)))


def _check(
    command: tuple[str, ...], cwd: str, arguments: tuple[str, ...], variables: tuple[tuple[str, str], ...]
) -> None:
    if not command or not command[0]:
        raise UsageError("an agent's command is empty; it needs at least the program's name")
    if not cwd.startswith("/"):
        raise UsageError(f"the working directory {cwd!r} is not an absolute path")
    for text in (*command, cwd, *arguments):
        if "\0" in text:
            raise UsageError(f"{text[:80]!r} holds a NUL character; no program can be given one")
    for name, value in variables:
        if not name or "=" in name or "\0" in name:
            raise UsageError(f"{name!r} is no name of an environment variable")
        if "\0" in value:
            raise UsageError(f"the environment variable {name!r} holds a NUL character")


def resolve_cwd(path: str) -> str:
    """The working directory absolute, ``~`` expanded, symbolic links resolved; it need not exist yet."""
    if "\0" in path:
        raise UsageError(f"{path[:80]!r} holds a NUL character; it is no path")
    return os.path.realpath(expand_home(path))


def resolve_resource(name: str, cwd: str) -> str:
    """A skill, extension, template or directory as an absolute path; a URI-like name is left alone.

    A relative path starts at ``cwd``, where the worker itself would look. Symbolic links stay: what a resource is
    called can be part of its meaning, and a link such as ``current`` must outlive a change of its target. ``..`` stays
    for the same reason: behind a link it is not the parent that the text shows.
    """
    return name if is_uri_like(name) else str(Path(cwd) / expand_home(name))


def is_uri_like(name: str) -> bool:
    """Whether a resource is named otherwise than by path: ``npm:x``, ``git:host/x``, ``https://x``, ``git@host:x``."""
    head, colon, _ = name.partition(":")
    return bool(colon and head) and "/" not in head and not head.startswith(("~", "."))


def expand_home(path: str) -> str:
    """The path with a leading ``~`` or ``~user`` replaced, where that home is known."""
    return os.path.expanduser(path)  # noqa: PTH111  # Path.expanduser raises where HOME is unknown; this leaves the text
