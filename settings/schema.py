"""The ``Settings`` struct, and the layout of its tables in the file."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cluster.settings import ClusterSettings
from doors.http.settings import HttpSettings
from gateway.settings import GatewayPrompts, GatewaySettings
from heartbeat.cron.settings import CronSettings
from heartbeat.delivery.settings import DeliverySettings
from heartbeat.settings import HeartbeatOverrides, HeartbeatSettings, effective_heartbeat
from pool.settings import PoolSettings
from profiles.settings import ProfilesSettings
from router.settings import RouterSettings
from rpc.settings import RpcSettings
from settings.problems import KeyPath
from store.settings import StoreSettings

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "human", "json"]


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[log]``: what ``pool run`` writes to stderr, one line an event."""

    level: LogLevel = "info"
    """The lowest level that is logged."""
    format: LogFormat = "auto"
    """Text (human), one JSON object a line (json), or human on a terminal and json elsewhere (auto)."""


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[telemetry]``: traces of runs. The standard variables OTEL_* say where they go and which."""

    traces: bool = False
    """Whether a span is exported for each step of a run (OpenTelemetry, OTLP over HTTP); needs the extra "otel"."""


class Settings(ProfilesSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set. ``[agents]``, ``[roles]`` and ``[skills]`` come from ``ProfilesSettings``.

    As ``load_settings`` returns it, ``data_dir`` is absolute; ``socket`` is empty when no file names one.
    """

    data_dir: str = ""
    """Where transcripts, logs and the lock live; empty = the user's state directory."""
    socket: str = ""
    """Path of the control socket; empty = in the runtime directory, else in ``data_dir``."""
    gateway_prompts: GatewayPrompts = msgspec.field(default=GatewayPrompts(), name="agents.gateway_prompts")
    heartbeat: HeartbeatSettings = msgspec.field(default=HeartbeatSettings(), name="agents.defaults.heartbeat")
    heartbeats: dict[str, HeartbeatOverrides] = msgspec.field(default={}, name="agents.*.heartbeat")
    cron: CronSettings = CronSettings()
    delivery: DeliverySettings = DeliverySettings()
    pool: PoolSettings = PoolSettings()
    cluster: ClusterSettings = ClusterSettings()
    rpc: RpcSettings = RpcSettings()
    router: RouterSettings = RouterSettings()
    gateway: GatewaySettings = GatewaySettings()
    store: StoreSettings = StoreSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    def heartbeat_of(self, agent: str) -> HeartbeatSettings:
        """The effective heartbeat settings of an agent."""
        return effective_heartbeat(self.heartbeat, self.heartbeats.get(agent))


DOTTED_TABLES = {
    name: tuple(name.split("."))
    for name in sorted((field.encode_name for field in msgspec.structs.fields(Settings)), key=len, reverse=True)
    if "." in name
}
"""Tables that stand inside another one, beside entries by name: ``agents.defaults`` among the agents, and
``agents.*.heartbeat`` in each of them. The longer ones come first: they stand inside the shorter ones."""
_EACH = "*"
_NO_ENTRIES = frozenset(path[1] for path in DOTTED_TABLES.values() if path[1] != _EACH)


def struct_shape(table: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says in the shape of the struct: a table inside another one under its dotted name.

    Inverse of ``file_shape``.
    """
    shaped, lifted = dict(table), {}
    for name, path in DOTTED_TABLES.items():
        shaped, found = _extract(shaped, path)
        if found is not None:
            lifted[name] = found
    return shaped | lifted


def _extract(table: Any, path: tuple[str, ...]) -> tuple[Any, Any]:
    """The table without what stands at the path, and that; None = nothing does. Of all entries it is by their names."""
    if not path or not isinstance(table, dict):
        return ({}, table) if not path else (table, None)
    first, *rest = path
    names = [name for name in table if name not in _NO_ENTRIES] if first == _EACH else [first] if first in table else []
    parts = {name: _extract(table[name], tuple(rest)) for name in names}
    found = {name: value for name, (_, value) in parts.items() if value is not None}
    left = {
        name: parts[name][0] if name in found else item for name, item in table.items() if rest or name not in found
    }
    return left, (found or None) if first == _EACH else found.get(first)


def file_shape(shaped: Mapping[str, Any]) -> dict[str, Any]:
    """The same the other way: each table where the file has it."""
    table = {key: value for key, value in shaped.items() if key not in DOTTED_TABLES}
    for name, path in reversed(DOTTED_TABLES.items()):
        if name in shaped:
            table = _insert(table, path, shaped[name])
    return table


def _insert(table: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The table with the value at the path; a new key stands before the entries by name."""
    first, *rest = path
    if first == _EACH:
        return {**table, **{name: _insert(table.get(name, {}), tuple(rest), item) for name, item in value.items()}}
    inner = _insert(table.get(first, {}), tuple(rest), value) if rest else value
    return {**table, first: inner} if first in table else {first: inner, **table}


def as_table(settings: Settings) -> dict[str, Any]:
    """Every value that holds, in the shape of the file: times as numbers of seconds, sizes of bytes, null = unset."""
    return file_shape(msgspec.to_builtins(settings, enc_hook=_number))


def _number(value: Any) -> float | int:
    return int(value) if isinstance(value, int) else float(value)


def file_key_path(path: KeyPath) -> KeyPath:
    """The path of a key of the struct's shape as the file has it."""
    if not (path and path[0] in DOTTED_TABLES):
        return path
    outer, *inner = DOTTED_TABLES[str(path[0])]
    if inner[0] != _EACH:
        return (outer, *inner, *path[1:])
    return (outer, path[1], *inner[1:], *path[2:]) if len(path) > 1 else (outer,)
