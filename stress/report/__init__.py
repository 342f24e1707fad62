"""The report of a run: a self-contained page that says at a glance whether every promise was kept."""

from stress.report.page import render_report

__all__ = ["render_report"]
