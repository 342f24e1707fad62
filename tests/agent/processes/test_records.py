"""What is left of a background command when its worker is gone: how it ended, and the end of what it said."""

from typing import Any

import pytest
import trio

from agent.processes.output import OutputLimits
from agent.processes.registry import RegistryLimits
from agent.processes.session import TAIL_CHARS
from agent.tools.exec import ExecTool
from agent.tools.process import ProcessTool
from tests.agent.processes.helpers import Bench, bench_of
from wire.entries import ExecRecord

pytestmark = pytest.mark.process

EXEC, PROCESS = ExecTool(), ProcessTool()


class Kept(dict[str, ExecRecord]):
    """The latest record of each command of the scope ``mine``, as a transcript has them."""

    def __call__(self, scope: str, record: ExecRecord) -> None:
        assert scope == "mine"
        self[record.id] = record


async def ended(bench: Bench, command: str, **arguments: Any) -> str:
    """The name of a background command that has ended."""
    output = await bench.use(EXEC, command=command, background=True, **arguments)
    name = str(output.details["session_id"])
    await bench.ended(name)
    return name


async def asked(bench: Bench, action: str, name: str) -> str:
    return await bench.text(PROCESS, action=action, session_id=name)


async def test_another_registry_tells_the_same_of_a_command_that_has_ended(workspace: object) -> None:
    kept = Kept()
    async with bench_of() as first:
        first.registry.save_record = kept
        name = await ended(first, "echo one; echo two >&2; exit 3")
        log = await asked(first, "log", name)
        listed = await first.text(PROCESS, action="list")
    async with bench_of() as second:
        second.registry.restore(kept.values(), scope_key="mine", session_key="key of mine")
        assert await second.text(PROCESS, action="list") == listed
        assert await asked(second, "log", name) == log == "one\ntwo\n[lines 1 to 2 of 2]"
        polled = await asked(second, "poll", name)
        assert polled == f"one\ntwo\n\n(Session {name} has ended: completed, code 3.)"
        assert second.notices == []
        written = await second.use(PROCESS, action="write", session_id=name, data="x")
        assert written.text == "Failed: the command has ended."


async def test_what_a_poll_has_shown_is_not_new_in_another_registry(workspace: object) -> None:
    kept = Kept()
    async with bench_of() as first, bench_of() as second, bench_of() as third:
        first.registry.save_record = second.registry.save_record = kept
        name = str((await first.use(EXEC, command="echo one; read x; echo two", background=True)).details["session_id"])
        session = first.registry.get(name, "mine")
        assert session is not None
        with trio.fail_after(20):
            while not session.output.size:
                session.has_output = trio.Event()
                await session.has_output.wait()
        assert (await asked(first, "poll", name)).startswith("one\n\n")
        await first.use(PROCESS, action="submit", session_id=name)
        await first.ended(name)
        second.registry.restore(kept.values(), scope_key="mine", session_key="")
        assert (await asked(second, "poll", name)).startswith("two\n\n")
        third.registry.restore(kept.values(), scope_key="mine", session_key="")
        assert (await asked(third, "poll", name)).startswith("(no new output)\n\n")


async def test_of_a_long_output_the_end_is_left_and_it_is_said_that_there_was_more(workspace: object) -> None:
    kept = Kept()
    limits = RegistryLimits(output=OutputLimits(kept=5_000))
    async with bench_of(limits=limits) as first, bench_of() as second:
        first.registry.save_record = kept
        name = await ended(first, "seq 3000")
        assert len(kept[name].tail) == TAIL_CHARS
        second.registry.restore(kept.values(), scope_key="mine", session_key="")
        assert (await asked(second, "poll", name)).startswith("[the beginning is no longer kept]\n")
        log = await asked(second, "log", name)
        assert log.endswith("\n3000\n[lines 201 to 400 of 400] [the beginning of the output is no longer kept]")


async def test_a_command_that_died_with_its_worker_is_lost_and_stays_so(workspace: object) -> None:
    kept = Kept()
    async with bench_of() as first, bench_of() as second, bench_of() as third:
        first.registry.save_record = second.registry.save_record = kept
        name = str((await first.use(EXEC, command="sleep 60", background=True)).details["session_id"])
        second.registry.restore(kept.values(), scope_key="mine", session_key="")
        end = f"(Session {name} has ended: failed, lost with its worker.)"
        assert await asked(second, "poll", name) == f"(no new output)\n\n{end}"
        assert kept[name].lost
        third.registry.restore(kept.values(), scope_key="mine", session_key="")
        assert (await asked(third, "poll", name)).endswith(end)
        assert third.registry.get(name, "mine").ended_at == second.registry.get(name, "mine").ended_at  # type: ignore[union-attr]


async def test_what_was_cleared_or_is_known_already_is_not_restored(workspace: object) -> None:
    kept = Kept()
    async with bench_of() as first:
        first.registry.save_record = kept
        name = await ended(first, "seq 3000")
        first.registry.restore(kept.values(), scope_key="mine", session_key="")
        assert (await asked(first, "log", name)).endswith("[lines 2801 to 3000 of 3000]")
        await asked(first, "clear", name)
        assert (kept[name].cleared, kept[name].tail) == (True, "")
