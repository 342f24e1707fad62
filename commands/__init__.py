"""The commands of ``pool``, one module a group, with what they print."""
