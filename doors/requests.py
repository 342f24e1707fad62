"""What a command does with a supervisor beyond one call: stop it and wait, drain it and say how that went."""

from doors.control_client import ControlClient
from errors import RequestTimeout

__all__ = ["drain_supervisor", "stop_supervisor"]


def stop_supervisor(client: ControlClient, timeout: float | None) -> None:
    """Ask the supervisor to stop and wait for its end. Raises RequestTimeout when it takes longer than ``timeout``."""
    client.call("shutdown")
    if not client.wait_closed(timeout):
        raise RequestTimeout(f"the supervisor is still ending its turns after {timeout:g} s; it goes on stopping")


def drain_supervisor(client: ControlClient, timeout: float | None) -> None:
    """Drain the pool and wait for that. Raises RequestTimeout when turns are left at the end of ``timeout``."""
    if not client.call("drain", {"timeout": timeout}, timeout=None)["drained"]:
        raise RequestTimeout("turns are still running; the pool goes on draining")
