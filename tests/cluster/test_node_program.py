"""Workers on real nodes: what was acknowledged survives the worker, its node program, and the link."""

import os
import signal
from pathlib import Path

import pytest
import trio

from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import ProfilesSettings, build_profile
from tests.cluster.nodes import cluster

pytestmark = pytest.mark.process


@pytest.mark.parametrize("over", ["stdio", "tls"])
async def test_a_conversation_goes_on_at_another_node_from_what_was_shipped(tmp_path: Path, over: str) -> None:
    profile = build_profile(ProfilesSettings(), "main", "default", "/")
    with trio.fail_after(60):
        async with cluster(tmp_path) as nodes:
            await nodes.add("a", over=over)
            await nodes.add("b", over=over)
            async with Pool(PoolSettings(min=0, max=1), launcher=nodes.launcher) as pool:
                async with pool.lease("s", profile) as lease:
                    assert (await lease.prompt("alpha").wait()).text
                    kept = (await lease.state()).session_file
                    assert kept is not None
                    assert "alpha" in await trio.Path(kept).read_text(), "an answer that is there is on the disk here"
                    assert lease.pid is not None
                    os.kill(lease.pid, signal.SIGKILL)
                    await lease.wait_ended()
                nodes.target = "b"
                async with pool.lease("s", profile) as lease:
                    assert (await lease.prompt("RECALL").wait()).text == 'Earlier you said: ["alpha"]'
