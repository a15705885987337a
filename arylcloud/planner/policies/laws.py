"""The laws that a policy may declare and that the property suite then tests (tests/planner/test_laws.py)."""

from __future__ import annotations

from enum import StrEnum


class Law(StrEnum):
    PERMUTATION = "permuting jobs or worker types permutes the answer and leaves the objective"
    MORE_NEVER_HURTS = "one more worker never makes the optimum worse"
    PRICE_SCALES = "scaling all prices by c leaves the answer optimal and scales its cost by c"
    TIGHTER_NEVER_HELPS = "a tighter deadline or budget never makes the optimum better"
    EQUAL_SHARES = "equal jobs get equal rates"
    SHARING_INCENTIVE = "no job is worse off than with an equal part of the cluster"
    WORK_CONSERVING = "no job waits while a worker that it could use is free"
    CAPACITY = "no type is used beyond its workers, no job beyond its time"
