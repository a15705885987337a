"""On demand from the first minute to the last: what the others are measured against."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.deadline.guard import cheapest_on_demand
from arylcloud.planner.deadline.view import START, STAY, Choice, View


def decide(view: View) -> Choice:
    machine, _ = cheapest_on_demand(view)
    return Choice(np.where(view.idle, START, STAY), machine)
