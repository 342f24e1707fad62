"""What is imported only where the settings ask for it."""

import re
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from app.optional import opened_tracer, tracer_type
from errors import UsageError
from settings.schema import Settings
from tests.test_architecture import project

TRACED = msgspec.convert({"telemetry": {"traces": True}}, Settings)


def test_traces_without_their_packages_are_refused_with_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "app.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UsageError, match=r"again as '\.\[otel\]'") as refused:
        tracer_type(TRACED)
    packages = {re.split(r"[<>=]", one)[0] for one in project()["project"]["optional-dependencies"]["otel"]}
    assert all(f" {name}" in refused.value.message for name in packages)


async def test_an_export_that_does_not_end_holds_up_the_end_for_seconds(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async def end_later() -> None:
        await trio.sleep(100)
        ends.set()

    ends = threading.Event()
    tracer: Any = SimpleNamespace(close=ends.wait)
    nursery.start_soon(end_later)
    async with opened_tracer(lambda: tracer):
        began = trio.current_time()
    ends.set()
    assert trio.current_time() - began < 10


@pytest.mark.process
def test_a_supervisor_without_traces_imports_nothing_of_them() -> None:
    program = (
        "import sys; from app import supervisor, optional; from settings.schema import Settings; "
        "assert optional.tracer_type(Settings()) is None; "
        "print(*(name for name in sys.modules if name.partition('.')[0] in ('opentelemetry', 'requests')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.process
def test_a_supervisor_without_other_machines_imports_nothing_of_them_but_their_settings() -> None:
    program = (
        "import sys; from app import supervisor, optional; from settings.schema import Settings; "
        "assert optional.cluster_type(Settings()) is None; "
        "print(*sorted(name for name in sys.modules if name.partition('.')[0] == 'cluster'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["cluster", "cluster.settings"]
