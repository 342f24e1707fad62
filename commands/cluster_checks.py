"""``pool doctor``: judges what was found of the other machines. Pure."""

import re
from collections.abc import Iterator

import msgspec

from commands.checks import Check, missing, ok, warn
from wire.terminal import format_count, format_size
from wire.version import VERSION


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node over ssh has answered, or the ``problem`` and its ``fix``. ``memory``: bytes. ``group`` "": none."""

    name: str
    host: str
    version: str = ""
    slots: int = 0
    cores: int = 0
    memory: int = 0
    group: str = ""
    seconds: float = 0.0
    problem: str = ""
    fix: str = ""


class ListenFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where nodes dial. The problems: why none can, None = they can. ``token_file``: as the settings name it."""

    address: str
    port_problem: str | None = None
    token_file: str = ""
    token_problem: str | None = None
    has_openssl: bool = True


class RayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The Ray of a cluster, as this machine sees it.

    ``version``: that of the Python of the driver, None = it has none; ``problem``: why that Python does not run.
    ``auth_mode``: RAY_AUTH_MODE. ``token``: where Ray's token is, in words; "" = there is none.
    """

    address: str
    python: str
    version: str | None = None
    problem: str = ""
    auth_mode: str = ""
    token: str = ""


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The other machines of the settings, and this one's ``data_dir``."""

    data_dir: str
    nodes: tuple[NodeFacts, ...] = ()
    listen: ListenFacts | None = None
    ray: RayFacts | None = None


def cluster_checks(facts: ClusterFacts | None) -> Iterator[Check]:
    """Judge them; nothing where there is no other machine."""
    if facts is None:
        return
    if facts.listen is not None:
        yield _listen(facts.listen)
    for node in facts.nodes:
        yield _node(node, facts.data_dir)
    if facts.ray is not None:
        yield from _ray(facts.ray)


def _listen(listen: ListenFacts) -> Check:
    if listen.port_problem is not None:
        fix = "choose another port in cluster.listen, or end what listens there"
        return missing("nodes dial", f"{listen.address}: {listen.port_problem}", fix)
    if not listen.has_openssl:
        fix = "install openssl, which makes the certificate"
        return missing("nodes dial", f"{listen.address}: there is no program openssl", fix)
    if listen.token_problem is not None:
        fix = "mend the token, or name another in cluster.token_file"
        return missing("nodes dial", f"{listen.address}: {listen.token_problem}", fix)
    token = f"with the token in {listen.token_file}" if listen.token_file else "for nodes that an engine starts"
    return ok("nodes dial", f"{listen.address} (TLS), {token}")


def _node(node: NodeFacts, data_dir: str) -> Check:
    name = f"node {node.name}"
    if node.problem:
        is_about_paths = re.search(r"the directory .* cannot be made", node.problem)
        where = f"let its user make {data_dir} there, or set data_dir to what can be made on all machines"
        fix = node.fix or (where if is_about_paths else f"see what it says: ssh {node.host}")
        return missing(name, node.problem, fix)
    found = (
        f"ssh {node.host}: pool {node.version}, {format_count(node.slots)} slots, {node.cores} cores, "
        f"{format_size(node.memory)}{f', group {node.group}' if node.group else ''}, ready in {node.seconds:.1f} s"
    )
    if node.version != VERSION:
        return warn(name, f"{found}; here it is pool {VERSION}", "install the same version of pool on both")
    return ok(name, found)


def _ray(ray: RayFacts) -> Iterator[Check]:
    if ray.problem or ray.version is None:
        found = ray.problem or f"{ray.python} has no Ray"
        yield missing("ray", found, "set cluster.ray.python to a Python that has the cluster's version of Ray")
    else:
        yield ok("ray", f"{ray.address}, by {ray.python} with Ray {ray.version}")
    if ray.auth_mode != "token":
        found = "what reaches its port may run code on every machine: RAY_AUTH_MODE is not set to token here"
        yield warn("ray auth", found, "set RAY_AUTH_MODE=token and the same token on every node, and for pool run")
    elif not ray.token:
        found = "RAY_AUTH_MODE is token, and there is none"
        yield missing("ray auth", found, "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, or make ~/.ray/auth_token")
    else:
        yield ok("ray auth", f"token: {ray.token}")
