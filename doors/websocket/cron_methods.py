"""``cron.list``: scheduled tasks in the shape of the protocol."""

from datetime import UTC, datetime
from typing import Annotated, Any, assert_never

import msgspec

from doors.websocket.frames import milliseconds
from doors.websocket.method_request import MethodRequest, Params
from heartbeat.cron.jobs import CronRunStatus
from heartbeat.cron.requests import CronJobPage, CronJobView
from heartbeat.cron.schedule import At, Cron, Every, Schedule
from heartbeat.cron.settings import JobMode
from wire.messages import omit_none

_PAGE_SIZE = 1000
_STATUS = {CronRunStatus.OK: "ok", CronRunStatus.REFUSED: "skipped"}
_MOST_PAGES = 20
"""Jobs beyond these pages are not listed."""


class CronParams(msgspec.Struct, rename="camel"):
    """``cron.list``: jobs by name, ``limit`` of them after the first ``offset``."""

    include_disabled: bool = False
    agent_id: str | None = None
    query: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0


async def list_jobs(request: MethodRequest, params: CronParams) -> Params:
    """Jobs that are enabled, unless all are asked for."""
    wanted = [job for job in await _load_jobs(request) if _is_wanted(job, params)]
    end = params.offset + params.limit
    has_more = end < len(wanted)
    return {
        "jobs": [_row(job) for job in wanted[params.offset : end]],
        "total": len(wanted),
        "offset": params.offset,
        "limit": params.limit,
        "hasMore": has_more,
        "nextOffset": end if has_more else None,
    }


async def _load_jobs(request: MethodRequest) -> list[CronJobView]:
    jobs: list[CronJobView] = []
    for _ in range(_MOST_PAGES):
        after = jobs[-1].id if jobs else ""
        page: CronJobPage = await request.call("cron.list", {"limit": _PAGE_SIZE, "after": after})
        jobs += page.jobs
        if not page.more:
            break
    return jobs


def _is_wanted(job: CronJobView, params: CronParams) -> bool:
    if not (job.enabled or params.include_disabled):
        return False
    if params.agent_id is not None and job.agent != params.agent_id.lower():
        return False
    return params.query is None or params.query.lower() in f"{job.id}\n{job.text}".lower()


def _row(job: CronJobView) -> dict[str, Any]:
    is_main = job.mode is JobMode.MAIN
    payload = {"kind": "systemEvent", "text": job.text} if is_main else {"kind": "agentTurn", "message": job.text}
    return {
        "id": job.id,
        "name": job.id,
        "agentId": job.agent,
        "sessionKey": job.session,
        "enabled": job.enabled,
        "deleteAfterRun": job.delete_after_run,
        "schedule": _schedule(job.schedule),
        "scheduleText": job.when,
        "sessionTarget": "main" if is_main else "isolated",
        "wakeMode": "now",
        "payload": payload,
        "state": omit_none(
            nextRunAtMs=milliseconds(job.next_due),
            runningAtMs=milliseconds(job.running_since),
            consecutiveErrors=job.failures or None,
            **_last_run_fields(job),
        ),
    }


def _schedule(schedule: Schedule) -> dict[str, Any]:
    match schedule:
        case Cron(expression, tz):
            return {"kind": "cron", "expr": expression, **omit_none(tz=tz or None)}
        case Every(period, anchor):
            return {"kind": "every", "everyMs": milliseconds(period), "anchorMs": milliseconds(anchor)}
        case At(when):
            return {"kind": "at", "at": datetime.fromtimestamp(when, UTC).isoformat()}
        case _:
            assert_never(schedule)


def _last_run_fields(job: CronJobView) -> dict[str, Any]:
    last = job.last
    if last is None:
        return {}
    return {
        "lastRunAtMs": milliseconds(last.started_at),
        "lastRunStatus": _STATUS.get(last.status, "error"),
        "lastError": last.error or None,
        "lastDurationMs": milliseconds(last.ended_at - last.started_at),
    }
