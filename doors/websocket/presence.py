"""Who is connected, as ``system-presence`` lists it. Pure."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from doors.websocket.handshake import Admission
from doors.websocket.shapes import milliseconds, present

__all__ = ["MOST_ENTRIES", "entries", "entry_of"]

MOST_ENTRIES = 500


def entry_of(admission: Admission, connected_at: float) -> dict[str, Any]:
    """The entry of one connection. A client's facts about itself are unchecked, and bounded."""
    client = admission.client
    host = client.display_name or client.id or "a client"
    mode = client.mode or "operator"
    return {
        "host": host,
        "mode": mode,
        "reason": "connect",
        "text": f"{host} ({mode})",
        "ts": milliseconds(connected_at),
        "roles": [admission.role],
        "scopes": admission.scopes,
        **present(
            version=client.version,
            platform=client.platform,
            deviceFamily=client.device_family,
            modelIdentifier=client.model_identifier,
            instanceId=client.instance_id,
        ),
    }


def entries(host: str, version: str, started_at: float, connected: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The supervisor itself, then its connections, the oldest first."""
    ourselves = {
        "host": host,
        "mode": "gateway",
        "version": version,
        "reason": "self",
        "text": f"pool {version}",
        "ts": milliseconds(started_at),
    }
    return [ourselves, *islice(connected, MOST_ENTRIES)]
