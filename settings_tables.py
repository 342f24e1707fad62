"""The settings as a whole: the rooms' own structs put together, and where each of them stands in the file."""

from collections.abc import Mapping
from typing import Any

import msgspec

from doors.http.settings import HttpSettings
from doors.log_settings import LogSettings
from gateway.prompts import GatewayPrompts
from gateway.settings import GatewaySettings
from pool.settings import PoolSettings
from profiles.settings import ProfilesSettings
from router.settings import RouterSettings
from rpc.settings import RpcSettings
from settings_text import KeyPath
from store.settings import StoreSettings

__all__ = ["DOTTED", "Settings", "as_table", "as_written", "file_shape", "struct_shape"]


class Settings(ProfilesSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set. ``[agents]``, ``[roles]`` and ``[skills]`` come from ``ProfilesSettings``.

    As ``load_settings`` returns it, ``data_dir`` is absolute; ``socket`` is empty when no file names one.
    """

    data_dir: str = ""
    """Where transcripts, logs and the lock live; empty = the user's state directory."""
    socket: str = ""
    """Path of the control socket; empty = in the runtime directory, else in ``data_dir``."""
    gateway_prompts: GatewayPrompts = msgspec.field(default=GatewayPrompts(), name="agents.gateway_prompts")
    pool: PoolSettings = PoolSettings()
    rpc: RpcSettings = RpcSettings()
    router: RouterSettings = RouterSettings()
    gateway: GatewaySettings = GatewaySettings()
    store: StoreSettings = StoreSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()


DOTTED = {
    name: (outer, inner)
    for name in (field.encode_name for field in msgspec.structs.fields(Settings))
    for outer, dot, inner in (name.partition("."),)
    if dot
}
"""Tables that stand inside another one, beside entries by name: ``agents.defaults`` among the agents."""


def struct_shape(table: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says in the shape of the struct: a table inside another one under its dotted name.

    Inverse of ``file_shape``.
    """
    shaped = dict(table)
    for name, (outer, inner) in DOTTED.items():
        around = shaped.get(outer)
        if isinstance(around, dict) and inner in around:
            shaped[name] = around[inner]
            shaped[outer] = {key: value for key, value in around.items() if key != inner}
    return shaped


def file_shape(shaped: Mapping[str, Any]) -> dict[str, Any]:
    """The same the other way: each table where the file has it."""
    table = {key: value for key, value in shaped.items() if key not in DOTTED}
    for name, (outer, inner) in DOTTED.items():
        if name in shaped:
            table[outer] = {inner: shaped[name], **table.get(outer, {})}
    return table


def as_table(settings: Settings) -> dict[str, Any]:
    """Every value that holds, in the shape of the file: times as numbers of seconds, sizes of bytes, null = unset."""
    return file_shape(msgspec.to_builtins(settings, enc_hook=_number))


def _number(value: Any) -> float | int:
    return int(value) if isinstance(value, int) else float(value)


def as_written(path: KeyPath) -> KeyPath:
    """The path of a key of the struct's shape as the file has it."""
    return (*DOTTED[str(path[0])], *path[1:]) if path and path[0] in DOTTED else path
