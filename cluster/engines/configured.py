"""The engines that the settings ask for."""

from cluster.engines.engine import Engine
from cluster.engines.ray import RayEngine
from cluster.engines.ssh import SshEngine
from cluster.settings import ClusterSettings


def configured_engines(settings: ClusterSettings) -> list[Engine]:
    """One of each kind; nodes that dial with the cluster's token need none."""
    ssh: list[Engine] = [SshEngine(settings.nodes)] if settings.nodes else []
    ray: list[Engine] = [RayEngine(settings.ray, settings.groups)] if settings.ray.address else []
    return ssh + ray
