"""The dialect of agents that speak the Agent Client Protocol (ACP) v1."""

from rpc.acp.dialect import AcpDialect
from rpc.acp.options import AcpOptions
from rpc.settings import RpcSettings

__all__ = ["AcpDialect", "AcpOptions", "make"]


def make(settings: RpcSettings, *, acp: AcpOptions, **_of_others: object) -> AcpDialect:
    """The dialect of one worker; see ``rpc.dialect.make_dialect``."""
    return AcpDialect(settings, acp)
