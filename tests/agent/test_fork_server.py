"""What the fork server has imported before it forks; ``tests/rpc`` has the rest."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

_LEFT_OUT = """
import pkgutil, sys
import agent
from agent import fork_server

fork_server._load(*fork_server._MODULES, *fork_server._LATER_MODULES)
names = {module.name for module in pkgutil.walk_packages(agent.__path__, "agent.") if "__main__" not in module.name}
print(*sorted(names - set(sys.modules)))
"""


def test_no_worker_has_to_import_a_module_of_its_own_room() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", _LEFT_OUT], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["agent.text", "agent.tools.search.child"]  # other programs
