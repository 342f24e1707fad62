"""What concerns the gateway as a whole: how it is, its agents, models, settings and jobs, waking it, approvals."""

import hashlib
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, assert_never

import msgspec

from doors.websocket.frames import milliseconds
from doors.websocket.peer import MethodRequest, NoMethodParams, Params
from gateway.methods.operator import StatusDocument
from heartbeat.cron.jobs import CronRunStatus
from heartbeat.cron.requests import CronJobPage, CronJobView
from heartbeat.cron.schedule import At, Cron, Every, Schedule
from heartbeat.cron.settings import JobMode
from router.keys import main_session_key
from wire.messages import omit_none


class ModelsParams(msgspec.Struct):
    """``models.list``. There is one view: the models that are configured."""

    view: str = "configured"


class WakeParams(msgspec.Struct, rename="camel"):
    """``wake``."""

    text: Annotated[str, msgspec.Meta(min_length=1)]
    mode: Literal["now", "next-heartbeat"] = "now"
    session_key: str | None = None


class LogParams(msgspec.Struct, rename="camel"):
    """``logs.tail``: at most ``limit`` lines and ``maxBytes``, the latest of those after ``cursor``."""

    cursor: Annotated[int, msgspec.Meta(ge=0)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 500
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 250_000


class ApprovalResolveParams(msgspec.Struct):
    """``exec.approval.resolve``; ``seen``: from the last page of a call whose question shows only its beginning."""

    id: str
    decision: Literal["allow-once", "deny"]
    seen: str | None = None


async def health(request: MethodRequest, _params: NoMethodParams) -> Params:
    """Whether runs are begun, and the pool in a few numbers; at most a second old."""
    return health_summary(await request.services.status())


def health_summary(document: StatusDocument) -> Params:
    """The same of a status that is there."""
    pool = document.pool
    return {
        "ok": pool.mode == "running",
        "ts": milliseconds(time.time()),
        "mode": pool.mode,
        "workers": {"total": pool.total, "idle": pool.idle, "leased": pool.leased, "max": pool.max},
        "waiting": pool.waiting,
        "runs": document.gateway.runs,
        "sessions": {"count": document.gateway.sessions},
    }


async def status(request: MethodRequest, _params: NoMethodParams) -> Any:
    """Everything at one moment, as ``pool status --json`` prints it."""
    return await request.call("status")


async def agents(request: MethodRequest, _params: NoMethodParams) -> Params:
    """Every agent."""
    found = await request.call("agents.list")
    default = next(agent.name for agent in found if agent.is_default)
    rows = [{"id": agent.name, "name": agent.name, "dialect": agent.dialect} for agent in found]
    return {"defaultId": default, "mainKey": "main", "scope": "per-sender", "agents": rows}


async def models(request: MethodRequest, _params: ModelsParams) -> Params:
    """The models that agents are set to use; what else a program offers only it knows."""
    settings = msgspec.json.decode((await request.call("config.get"))["config"])
    tables = [agent for agent in settings["agents"].values() if isinstance(agent, dict) and agent.get("model")]
    named = dict.fromkeys((table["model"], table.get("provider")) for table in tables)
    rows = [{"id": model, "name": model, **({"provider": provider} if provider else {})} for model, provider in named]
    return {"models": rows}


async def config(request: MethodRequest, _params: NoMethodParams) -> Params:
    """The settings that hold, secrets hidden; ``hash`` changes with what is shown of them."""
    shown = (await request.call("config.get"))["config"]
    return {"valid": True, "issues": [], "config": shown, "hash": hashlib.sha256(bytes(shown)).hexdigest()}


async def presence(request: MethodRequest, _params: NoMethodParams) -> list[Params]:
    """The supervisor and its connections."""
    return request.presence()


async def logs(request: MethodRequest, params: LogParams) -> Params:
    """The supervisor's log, from memory: ``file`` is always empty."""
    asked = {"cursor": params.cursor, "limit": params.limit, "max_bytes": params.max_bytes}
    return {"file": "", **msgspec.structs.asdict(await request.call("logs.tail", asked))}


async def wake(request: MethodRequest, params: WakeParams) -> Params:
    """Queue a system event for a session (default: the default agent's own).

    It wakes an agent whose heartbeat is on; another receives it with its next turn.
    """
    session = params.session_key or main_session_key(await request.default_agent())
    result = await request.call("events.inject", {"session": session, "text": params.text})
    if params.mode != "now":
        request.ignored.append("mode")
    return request.with_ignored({"ok": True, "sessionKey": result["session"], "queued": result["event"] is not None})


async def resolve(request: MethodRequest, params: ApprovalResolveParams) -> Params:
    """Decide about a tool call that waits for approval."""
    decision = "allow" if params.decision == "allow-once" else "deny"
    seen = {} if params.seen is None else {"seen": params.seen}
    await request.call("decide", {"call_id": params.id, "decision": decision, **seen})
    return {"ok": True}


# --- scheduled jobs ---------------------------------------------------------------------------------------------------

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
