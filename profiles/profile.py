"""The capability profile: what a worker process can do, and therefore which sessions it may serve."""

import msgspec

__all__ = ["CapabilityProfile", "Resources", "SoftArgs"]


class SoftArgs(msgspec.Struct, frozen=True):
    """What can be changed on a live worker; None leaves the worker's own default."""

    provider: str | None = None
    model: str | None = None
    thinking: str | None = None


class Resources(msgspec.Struct, frozen=True):
    """What a worker may have more of than a session asks for. Order is the order of preference."""

    skills: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    prompt_templates: tuple[str, ...] = ()

    def count(self) -> int:
        """How many resources there are in all."""
        return len(self.skills) + len(self.extensions) + len(self.prompt_templates)

    def contains(self, other: "Resources") -> bool:
        """Whether every resource of ``other`` is here too, of the same kind."""
        return (
            set(other.skills) <= set(self.skills)
            and set(other.extensions) <= set(self.extensions)
            and set(other.prompt_templates) <= set(self.prompt_templates)
        )


class CapabilityProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen description of one kind of worker; two workers with equal ``signature`` are interchangeable.

    Build it with ``profiles.build_profile`` (or ``profiles.make_profile`` for the bare parts); both compute the
    signatures, SHA-256 in hex. ``env`` holds the profile's own variables sorted by name; their values may be secret:
    they enter the signature and the worker's environment, never a log, a repr or a status.
    """

    agent: str
    role: str
    dialect: str
    command: tuple[str, ...]
    cwd: str
    hard_args: tuple[str, ...] = ()
    soft: SoftArgs = SoftArgs()
    resources: Resources = Resources()
    env: tuple[tuple[str, str], ...] = ()
    signature: str
    hard_signature: str

    @property
    def short(self) -> str:
        """First 8 digits of the signature: enough to tell profiles apart in a table."""
        return self.signature[:8]

    def __repr__(self) -> str:
        names = ",".join(name for name, _ in self.env)
        return f"CapabilityProfile({self.agent}/{self.role} {self.short} cwd={self.cwd} env=[{names}])"
