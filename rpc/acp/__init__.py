"""The dialect of agents that speak the Agent Client Protocol (ACP) v1; its modules are imported when one is made."""

from typing import TYPE_CHECKING

from errors import UsageError

if TYPE_CHECKING:
    from rpc.acp.dialect import AcpDialect
    from rpc.acp.options import AcpOptions
    from rpc.settings import RpcSettings


def make(settings: "RpcSettings", *, acp: "AcpOptions | None" = None, **_of_others: object) -> "AcpDialect":
    """The dialect of one worker, as ``rpc.dialect.make_dialect`` asks for it. Raises UsageError without options."""
    if acp is None:
        raise UsageError("a worker of the acp dialect needs to know its directory and where transcripts lie")
    from rpc.acp.dialect import AcpDialect  # noqa: PLC0415  # words of the package are read by short commands

    return AcpDialect(settings, acp)
