"""What is shown of the machines of a cluster."""

from typing import Any

import msgspec

from commands.nodes_view import nodes_view
from commands.tables import explanation_table, status_view, workers_table
from pool.group_figures import GroupFigures
from pool.nodes import NodeStatus
from tests.commands.documents import DOCUMENT, GROUPS, NODES, worker
from tests.commands.terminal import draw

NODE_LINES = """\
NODE    GROUP  ENGINE  STATE                  SLOTS  LOAD                MEM     RTT  NOTE
(here)  -      local   up                       1/4     -                  -       -  -
gpu-1   gpu    ssh     up                       2/8   3.2   16 GiB of 64 GiB  0.7 ms  -
gpu-2   gpu    ssh     draining, 40 s left      1/8   0.5  8.0 GiB of 64 GiB  1.2 ms  -
gpu-3   gpu    join    lost, fenced in 7.3 s      -     -                  -       -  silent for 10 s
old     -      ssh     refused                    -     -                  -       -  ssh old: Permission denied"""
NARROW_NODE_LINES = """\
NODE    GROUP  STATE                  SLOTS  NOTE
(here)  -      up                       1/4  -
gpu-1   gpu    up                       2/8  -
gpu-2   gpu    draining, 40 s left      1/8  -
gpu-3   gpu    lost, fenced in 7.3 s      -  silent for 10 s
old     -      refused                    -  ssh old: Permi…

old: ssh old: Permission denied"""
GROUP_LINES = """\
groups    (none)  1/4 slots  nodes: 1 up  1 refused
          gpu  3/9 slots  nodes: 1 up  1 draining  1 lost"""


def test_nodes_have_a_line_each_with_why_they_are_not_there() -> None:
    assert draw(nodes_view(NODES, 140), 140) == NODE_LINES
    assert draw(nodes_view(NODES, 60), 60) == NARROW_NODE_LINES
    assert draw(nodes_view([], 60)).startswith("no other machines; [cluster]")


def test_other_machines_are_shown_where_there_are_some() -> None:
    assert "NODE" not in draw(workers_table([worker("w1")], 140))
    shown = draw(workers_table([worker("w1"), worker("w2", node="gpu-1")], 140)).splitlines()
    assert [line[shown[0].index("NODE") :].split()[0] for line in shown] == ["NODE", "(here)", "gpu-1"]
    assert GROUP_LINES in draw(status_view({**DOCUMENT, "groups": GROUPS}, 140))
    explained: dict[str, Any] = {
        "profile": {"agent": "main", "role": "default", "signature": "a1b2c3d4"},
        "workers": [],
    }
    explained["group"] = "group gpu: 2 of 2 slots used, 1 node draining"
    assert "slots:  group gpu: 2 of 2 slots used, 1 node draining" in draw(explanation_table(explained, 140))


def test_the_documents_of_nodes_are_what_a_supervisor_sends() -> None:
    assert msgspec.to_builtins(msgspec.convert(NODES, list[NodeStatus])) == NODES
    assert msgspec.to_builtins(msgspec.convert(GROUPS, list[GroupFigures])) == GROUPS
