"""The models of the bundled worker, behind the interface of ``agent.models.base``."""
