"""The pi dialect and the private agent dir of each pi worker."""

from rpc.pi.dialect import PiDialect

__all__ = ["PiDialect", "make"]

make = PiDialect
