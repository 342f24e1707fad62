"""Which worker serves whom: a pure machine that decides, an async shell that acts.

The names below are imported when they are first used: reading the pool's settings must not cost the import of trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wire.version import VERSION

if TYPE_CHECKING:
    from pool.launcher import LocalLauncher
    from pool.lease import Lease, PromptStream
    from pool.settings import PoolSettings, Prewarm
    from pool.shell import Pool
    from pool.statistics import PoolStatistics

__version__ = VERSION

__all__ = [
    "Lease",
    "LocalLauncher",
    "Pool",
    "PoolSettings",
    "PoolStatistics",
    "Prewarm",
    "PromptStream",
    "__version__",
]

_EXPORT_MODULES = {
    "Lease": "pool.lease",
    "LocalLauncher": "pool.launcher",
    "Pool": "pool.shell",
    "PoolSettings": "pool.settings",
    "PoolStatistics": "pool.statistics",
    "Prewarm": "pool.settings",
    "PromptStream": "pool.lease",
}


def __getattr__(name: str) -> Any:
    home = _EXPORT_MODULES.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(home), name)
