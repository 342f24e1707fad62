"""The id by which an agent calls a new conversation: usable, and no other conversation's."""

from errors import WorkerRefused
from rpc.acp.messages import AcpAnswer, text_of

ID_REUSED = "id_reused"
"""The ``worker_code`` where an agent has called a new conversation by the id of another one."""
_MAX_SHOWN = 100
_MAX_SESSION_ID = 1_024


def read_new_id(answer: AcpAnswer) -> str:
    """The id in an answer to ``session/new``. Raises WorkerRefused ``bad_answer``."""
    session = text_of(answer.result.get("sessionId"))
    if not session or len(session) > _MAX_SESSION_ID:
        problem = f"with a sessionId of {len(session)} characters" if session else "without a sessionId"
        raise WorkerRefused(f"the agent has answered session/new {problem}", worker_code="bad_answer")
    return session


def id_reused(name: str, session: str) -> WorkerRefused:
    """Two conversations under one id could not be told apart, and the agent may have mixed them."""
    words = f"{name} has answered session/new with the id of an earlier conversation ({session[:_MAX_SHOWN]})"
    return WorkerRefused(f"{words}; an agent must give each conversation an id of its own", worker_code=ID_REUSED)
