"""The dialect of agents that speak the Agent Client Protocol (ACP) v1."""

from errors import UsageError
from rpc.acp.dialect import AcpDialect
from rpc.acp.options import AcpOptions
from rpc.settings import RpcSettings

__all__ = ["AcpDialect", "AcpOptions", "make"]


def make(settings: RpcSettings, *, acp: AcpOptions | None = None, **_of_others: object) -> AcpDialect:
    """The dialect of one worker, as ``rpc.dialect.make_dialect`` asks for it. Raises UsageError without options."""
    if acp is None:
        raise UsageError("a worker of the acp dialect needs to know its directory and where transcripts lie")
    return AcpDialect(settings, acp)
