"""Where an agent works: the directory of a role, of an agent, or one of our own."""

from pathlib import Path

from errors import UsageError
from profiles import ProfilesSettings

__all__ = ["workspace_for"]


def workspace_for(settings: ProfilesSettings, agent: str, role: str, data_dir: Path) -> str:
    """The working directory for an agent in a role: the role's workspace, else the agent's, else one of ours.

    Ours is ``{data_dir}/workspaces/{role}``, made with mode 0700 when missing. A configured one must exist.
    """
    configured = _configured(settings, agent, role)
    if configured is not None:
        path = Path(configured).expanduser()
        if not path.is_dir():
            raise UsageError(
                f"the workspace {path} of agent {agent}, role {role} is no directory; create it or change it"
            )
        return str(path)
    path = data_dir / "workspaces" / role
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(path)


def _configured(settings: ProfilesSettings, agent: str, role: str) -> str | None:
    role_settings = settings.roles.get(role)
    if role_settings is not None and role_settings.workspace:
        return role_settings.workspace
    agent_settings = settings.agents.get(agent)
    return agent_settings.workspace if agent_settings is not None else None
