"""Lanes: when a session's next turn begins, and what becomes of the messages that arrive while one runs."""

from gateway.lanes.actions import AbortTurn, Action, RefusalReason, Refuse, StartTurn, Steer
from gateway.lanes.figures import LaneFigures, LanesSnapshot, SessionLaneFigures
from gateway.lanes.machine import LaneMachine
from gateway.lanes.stimuli import (
    Clear,
    Reconfigure,
    SteerRefused,
    Stimulus,
    Submit,
    Tick,
    TurnEnded,
    TurnSteerable,
    Withdraw,
)

__all__ = [
    "AbortTurn",
    "Action",
    "Clear",
    "LaneFigures",
    "LaneMachine",
    "LanesSnapshot",
    "Reconfigure",
    "RefusalReason",
    "Refuse",
    "SessionLaneFigures",
    "StartTurn",
    "Steer",
    "SteerRefused",
    "Stimulus",
    "Submit",
    "Tick",
    "TurnEnded",
    "TurnSteerable",
    "Withdraw",
]
