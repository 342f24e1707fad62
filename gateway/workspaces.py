"""Where an agent works: the directory of a role, of an agent, or one of our own."""

from pathlib import Path

from errors import UsageError
from profiles import ProfilesSettings, workspace_of

__all__ = ["workspace_for"]


def workspace_for(settings: ProfilesSettings, agent: str, role: str, data_dir: Path) -> str:
    """The working directory for an agent in a role: the role's workspace, else the agent's, else one of ours.

    Ours is ``{data_dir}/workspaces/{role}``, made with mode 0700 when missing. A configured one must exist.
    Raises UsageError for an unknown agent or role, and for a directory that is missing or cannot be made.
    """
    configured = workspace_of(settings, agent, role)
    if configured is not None:
        path = Path(configured).expanduser()
        if not path.is_dir():
            raise UsageError(
                f"the workspace {path} of agent {agent}, role {role} is no directory; create it or change it"
            )
        return str(path)
    path = data_dir / "workspaces" / role
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        raise UsageError(f"the workspace {path} of role {role} cannot be made: {exc.strerror}") from exc
    return str(path)
