"""A request that an agent may refuse for want of a login, which it is then asked for once."""

from errors import WorkerRefused
from rpc.acp.agent_record import AcpAgentRecord, login_message, wants_login
from rpc.acp.link import AcpProcedure, AcpRequest
from rpc.acp.messages import AcpAnswer


def with_login(
    request: AcpRequest, name: str, record: AcpAgentRecord, auth_method: str | None
) -> AcpProcedure[AcpAnswer]:
    """The answer to a request, after the login ``auth_method`` where the agent wants one.

    Raises WorkerRefused: ``auth_required``, which says what to do, and any other refusal.
    """
    try:
        return (yield request)
    except WorkerRefused as error:
        if not wants_login(error):
            raise
        yield from _log_in(error, name, record, auth_method)
    try:
        return (yield request)
    except WorkerRefused as error:
        raise (login_error(name, record, error.message) if wants_login(error) else error) from error


def _log_in(refused: WorkerRefused, name: str, record: AcpAgentRecord, auth_method: str | None) -> AcpProcedure[None]:
    """Ask for the login that was chosen; no other one, which might open a browser."""
    offered = next((method for method in record.auth_methods if method.id == auth_method), None)
    if auth_method is None or offered is None or offered.type == "terminal":
        raise login_error(name, record, refused.message)
    try:
        yield AcpRequest("authenticate", {"methodId": auth_method})
    except WorkerRefused as error:
        raise login_error(name, record, error.message) from error


def login_error(name: str, record: AcpAgentRecord, said: str) -> WorkerRefused:
    """The error that says what to do about a missing login."""
    return WorkerRefused(login_message(name, record.auth_methods, said), worker_code="auth_required")
