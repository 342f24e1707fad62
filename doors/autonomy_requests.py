"""What the commands about heartbeats and scheduled jobs ask the supervisor, and what they print of the answer."""

import sys
from typing import Any

from doors.autonomy_views import beat_text
from doors.console import open_console, print_json
from doors.control_client import ControlClient
from doors.requests import given
from doors.texts import clean

__all__ = ["add_job", "beat_now", "change_job"]

_CHANGED = {"cron.remove": "{} is removed", "cron.run": "{} is begun; see: pool cron get {}"}


def beat_now(client: ControlClient, agent: str | None, session: str | None, *, as_json: bool) -> bool:
    """Have an agent beat, and print what came of it; whether there was a beat and it went well."""
    report = client.call("heartbeat.run", given(agent=agent, session=session), timeout=None)
    if as_json:
        print_json(report)
    else:
        open_console().print(beat_text(report))
    return report["outcome"] not in ("skipped", "failed")


def add_job(client: ControlClient, said: dict[str, Any], *, as_json: bool) -> None:
    """Keep a job, and print when it is due."""
    job = client.call("cron.add", given(**said))
    if as_json:
        print_json(job)
    else:
        sys.stdout.write(f"{clean(job['id'])}: {clean(job['when'])}\n")


def change_job(client: ControlClient, method: str, job: str, *, as_json: bool) -> None:
    """Call a method about one job, and say that it was done."""
    changed = client.call(method, {"id": job})
    if as_json:
        print_json(changed)
    else:
        name = clean(changed["id"])
        sys.stdout.write(f"{_CHANGED[method].format(name, name)}\n")
