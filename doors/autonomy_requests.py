"""What the commands about heartbeats and scheduled jobs ask the supervisor, and what they print of the answer."""

import sys
from typing import Any

from doors.autonomy_views import beat_text, begun_text
from doors.console import open_console, print_json
from doors.control_client import ControlClient
from doors.requests import given
from doors.texts import clean

__all__ = ["add_job", "beat_now", "remove_job", "run_job"]


def beat_now(client: ControlClient, agent: str | None, session: str | None, *, as_json: bool) -> bool:
    """Have an agent beat, and print what came of it; whether there was a beat and it went well."""
    report = client.call("heartbeat.run", given(agent=agent, session=session), timeout=None)
    if as_json:
        print_json(report)
    else:
        open_console().print(beat_text(report))
    return report["outcome"] not in ("skipped", "failed")


def add_job(client: ControlClient, said: dict[str, Any], *, as_json: bool) -> None:
    """Keep a job, and print when it is due, and why it would not run as things stand."""
    job = client.call("cron.add", given(**said))
    if as_json:
        print_json(job)
    else:
        sys.stdout.write(f"{clean(job['id'])}: {clean(job['when'])}\n")
        if job["problem"] is not None:
            sys.stderr.write(f"warning: {clean(job['problem'])}\n")


def remove_job(client: ControlClient, name: str, *, as_json: bool) -> None:
    """Drop a job, and say so."""
    job = client.call("cron.remove", {"id": name})
    if as_json:
        print_json(job)
    else:
        sys.stdout.write(f"{clean(job['id'])} is removed\n")


def run_job(client: ControlClient, name: str, *, as_json: bool) -> None:
    """Run a job, and say what happens."""
    job = client.call("cron.run", {"id": name})
    if as_json:
        print_json(job)
    else:
        sys.stdout.write(f"{begun_text(job)}\n")
