"""The ``[cluster]`` table of the settings file: nodes, their groups, and what contradicts what. Pure."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from errors import UsageError
from wire.addresses import NODE_NAME, parse_bind
from wire.units import NonNegativeInt, PositiveFloat, PositiveSeconds, Seconds

Transcripts = Literal["ship", "shared"]
StrategyName = Literal["spread", "pack"]
SettingPath = tuple[str | int, ...]

_GROUP_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_MAX_SLOTS = 10_000
_MIN_SILENCE = Seconds(3)
_MIN_MARGIN = Seconds(2)  # the guard acts half a second after the end of the lease, and then has to sweep
Slots = Annotated[int, msgspec.Meta(ge=0, le=_MAX_SLOTS)]


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[cluster.groups.NAME]``: nodes with certain labels, for the agents that name the group."""

    labels: dict[str, str] = {}
    """What a node must have to be of this group; empty = any node. A node is of the first group that it fits."""
    strategy: StrategyName = "spread"
    """The node with the most free slots first (spread), or the one with the fewest (pack)."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[cluster.nodes.NAME]``: a machine that is reached over ssh."""

    ssh: str
    """Its address, as the program ``ssh`` takes it: ``user@host``, or a name of ``~/.ssh/config``."""
    options: list[str] = []
    """Further arguments of ``ssh``."""
    command: list[str] = msgspec.field(default_factory=lambda: ["pool", "node"])
    """The node program there, with its first arguments."""
    slots: Slots = 0
    """Workers that it may run; 0 = what it says of itself, else by its memory and cores."""
    labels: dict[str, str] = {}
    """Its labels, by which it belongs to a group; they come before those that it says of itself."""


class RaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[cluster.ray]``: nodes of a Ray cluster. Off unless ``address`` is set."""

    address: str = ""
    """Its head, as "10.0.0.1:6379"; empty = no Ray."""
    python: str = "python3"
    """The Python that has the cluster's own version of Ray; the supervisor needs none."""
    node_command: list[str] = msgspec.field(default_factory=lambda: ["pool", "node"])
    """The node program on the cluster's machines, with its first arguments."""
    resource: str = "pool_slot"
    """The resource of Ray that a machine offers to be a node: as many slots as it has of it."""
    reserve: dict[str, PositiveFloat] = {}
    """Resources of Ray that each node holds for its workers, as { GPU = 2 }."""
    scale: bool = False
    """Whether Ray is asked for further machines while requests wait for a slot."""
    scale_after: PositiveSeconds = Seconds(10)
    """How long they wait before it is asked."""
    max_nodes: NonNegativeInt = 0
    """Nodes that it is asked for at most; 0 = no limit of its own."""
    idle_node: PositiveSeconds = Seconds(600)
    """A node that was asked for and has had no worker for this long is given back."""


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Workers on other machines. Off unless ``listen``, a node or ``ray.address`` is set.

    ``pool.max`` counts the workers of all machines.
    """

    listen: str = ""
    """Where nodes dial, as "0.0.0.0:7645" (TLS); port 0 = any free one; empty = nowhere. Nodes over ssh need none."""
    local_slots: Slots = 4
    """Workers on this machine, once there may be others; it counts as a node of no group."""
    lease: PositiveSeconds = Seconds(15)
    """A node that hears nothing of the supervisor for this long has killed its workers."""
    silence: PositiveSeconds = Seconds(10)
    """A node of which nothing is heard for this long is lost: turns on it fail. At least 3 s."""
    fence_margin: PositiveSeconds = Seconds(3)
    """How long after the end of its lease the sessions of a lost node go on elsewhere, unless it says before that it
    has ended everything. At least 2 s."""
    start_rate: PositiveFloat = 100.0
    """Workers a second on all machines; ``pool.spawn_burst`` and ``pool.spawn_rate`` hold for each of them."""
    transcripts: Transcripts = "ship"
    """Nodes send what is written to transcripts (ship), or write to a file system that all machines share (shared)."""
    shared_dir: str = ""
    """Where that file system is, on all machines: the data directory must lie in it. Of ``transcripts = "shared"``."""
    token_file: str = ""
    """A file with the token of nodes that dial by themselves, readable by its owner only; empty = none may."""
    groups: dict[str, GroupSettings] = {}
    """The order counts: a node is of the first group whose labels it has, and of none where it fits none. Agents
    without a group run on this machine and on nodes of no group."""
    nodes: dict[str, NodeSettings] = {}
    """Machines that are reached over ssh, by name."""
    ray: RaySettings = RaySettings()

    def __post_init__(self) -> None:
        _check_names("group", self.groups, _GROUP_NAME, "1 to 64 of a-z, 0-9, _ and -")
        _check_names("node", self.nodes, NODE_NAME, "1 to 64 letters, digits, dots, dashes and underscores")

    @property
    def is_on(self) -> bool:
        """Whether there may be other machines."""
        return bool(self.listen or self.nodes or self.ray.address)

    @property
    def takes_any_node(self) -> bool:
        """Whether nodes may come that these settings do not name."""
        return bool(self.token_file or self.ray.address)

    def group_of(self, labels: Mapping[str, str]) -> str:
        """The group of a node with these labels; "" = of none."""
        fitting = (name for name, group in self.groups.items() if group.labels.items() <= labels.items())
        return next(fitting, "")


def _check_names(what: str, names: Collection[str], pattern: re.Pattern[str], text: str) -> None:
    for name in names:
        if not pattern.fullmatch(name):
            msg = f"{name[:80]!r} is no name for a {what}: {text}"
            raise ValueError(msg)


def local_limit(settings: ClusterSettings, most: int) -> int:
    """How many of ``most`` workers this machine may have to run."""
    return min(most, settings.local_slots) if settings.is_on else most


def cluster_problems(settings: ClusterSettings) -> Iterator[tuple[SettingPath, str]]:
    """What contradicts what: the path of the setting below ``cluster``, and the problem."""
    yield from _listen_problems(settings)
    if settings.lease <= settings.silence:
        text = f"is {settings.lease}, and must be more than silence = {settings.silence}"
        yield ("lease",), f"{text}: else its workers are killed before a node counts as lost"
    if settings.transcripts == "shared" and not settings.shared_dir:
        yield ("shared_dir",), 'must name the file system that transcripts = "shared" speaks of'
    if settings.silence < _MIN_SILENCE:
        yield ("silence",), f"is {settings.silence}, and must be at least {_MIN_SILENCE}: a node pings once a second"
    if settings.fence_margin < _MIN_MARGIN:
        text = f"is {settings.fence_margin}, and must be at least {_MIN_MARGIN}"
        yield ("fence_margin",), f"{text}: the guard of a node needs that to end what runs there after its lease"
    yield from _group_problems(settings)


def slots_problem(settings: ClusterSettings, most: int) -> str | None:
    """What is wrong with ``pool.max`` = ``most``, as far as these settings say how many slots there are."""
    slots = settings.local_slots + sum(node.slots for node in settings.nodes.values())
    if not settings.is_on or slots <= most:
        return None
    return f"is {most}, less than the {slots} slots of this machine and of cluster.nodes; raise it, or lower those"


def _listen_problems(settings: ClusterSettings) -> Iterator[tuple[SettingPath, str]]:
    if settings.listen:
        try:
            parse_bind(settings.listen)
        except UsageError as exc:
            yield ("listen",), exc.message
        return
    for name, value in (("token_file", settings.token_file), ("ray", settings.ray.address)):
        if value:
            yield ("listen",), f"must be set: the nodes of cluster.{name} dial it"


def _group_problems(settings: ClusterSettings) -> Iterator[tuple[SettingPath, str]]:
    """Groups that no node can be of."""
    earlier: dict[str, GroupSettings] = {}
    for name, group in settings.groups.items():
        first = next((each for each, other in earlier.items() if other.labels.items() <= group.labels.items()), None)
        if first is not None:
            yield ("groups", name), f"no node can be of it: what fits it is of the group {first}, which comes before"
        elif not can_serve(settings, name):
            wanted = ", ".join(f"{key} = {value}" for key, value in group.labels.items()) or "any labels"
            yield ("groups", name), f"no node can be of it: none of cluster.nodes has {wanted}"
        earlier[name] = group


def can_serve(settings: ClusterSettings, group: str) -> bool:
    """Whether the group ("" = none) may ever have a slot. A node without labels here may say some of itself."""
    if settings.takes_any_node or (not group and (settings.local_slots or not settings.is_on)):
        return True
    nodes = settings.nodes.values()
    return any(not node.labels or settings.group_of(node.labels) == group for node in nodes)


def agent_problem(
    settings: ClusterSettings, group: str, command: list[str], suggest: Callable[[str, Collection[str]], str]
) -> tuple[str, str] | None:
    """What keeps workers of an agent from running: its setting, and the problem; None: nothing."""
    if group and group not in settings.groups:
        known = suggest(group, settings.groups) if settings.groups else ", which is empty"
        return "group", f"there is no group {group!r} in [cluster.groups]{known}"
    if command[:1] and command[0].rpartition("/")[2] == "ssh":
        return "command", (
            "runs the agent over ssh, where a conversation is lost with its worker and tools are left running; name "
            "the machine in [cluster.nodes], and the agent's own program here"
        )
    if not can_serve(settings, group):
        return "group", "no machine can run it: cluster.local_slots is 0, and each node is of a group"
    return None
