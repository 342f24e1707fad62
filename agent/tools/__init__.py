"""The tools of the bundled worker, behind the interface of ``agent.tools.base``."""
