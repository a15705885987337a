"""Spot wherever it is to be had, cheapest zone first; else wait, as long as the deadline allows."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.deadline.guard import first_by, safe, untried
from arylcloud.planner.deadline.view import START, STAY, Choice, View


def decide(view: View) -> Choice:
    zone, found = first_by(view.spot_usd, untried(view))
    return safe(view, np.where(view.idle & found, START, STAY), zone)
