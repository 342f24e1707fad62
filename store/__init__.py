"""Sessions, runs, events and documents in one SQLite file, written in batches by one thread.

The names below are imported when they are first used: reading the store's settings must not cost the import of trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.records import EventRow, Loaded, RunRow, RunState, SessionRow, StoreStatistics
    from store.settings import StoreSettings
    from store.store import Store, open_store, set_switch_interval

__all__ = [
    "EventRow",
    "Loaded",
    "RunRow",
    "RunState",
    "SessionRow",
    "Store",
    "StoreSettings",
    "StoreStatistics",
    "open_store",
    "set_switch_interval",
]

_EXPORT_MODULES = {
    "EventRow": "store.records",
    "Loaded": "store.records",
    "RunRow": "store.records",
    "RunState": "store.records",
    "SessionRow": "store.records",
    "Store": "store.store",
    "StoreSettings": "store.settings",
    "StoreStatistics": "store.records",
    "open_store": "store.store",
    "set_switch_interval": "store.store",
}


def __getattr__(name: str) -> Any:
    home = _EXPORT_MODULES.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(home), name)
