"""The laws that a policy may declare and that the property suite then tests (tests/planner/test_laws.py).

``GREEDY`` and the like are what whole families of policies obey; the registry adds what one obeys beyond.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Law(StrEnum):
    PERMUTATION = (
        "permuting jobs or worker types permutes the answer, or leaves the objective where there is one"
    )
    TYPE_ORDER = "permuting worker types permutes the answer (jobs stand in order of arrival)"
    MORE_NEVER_HURTS = "one more worker never makes the optimum worse, for the same jobs that can run"
    PRICE_SCALES = "scaling all prices by c leaves the answer optimal and scales its cost by c"
    TIGHTER_NEVER_HELPS = "a tighter deadline or budget never makes the optimum better"
    EQUAL_SHARES = "equal jobs get equal rates"
    SHARING_INCENTIVE = (
        "of jobs of one GPU and equal weight that begin together, none is worse off than with an equal part"
    )
    TRUTHFUL = "a job that says that it is faster or slower on some types than it is gets no more by it"
    WORK_CONSERVING = "no job waits while workers that it could use are free"
    CAPACITY = "no type is used beyond its workers, no job beyond its time"
    STEADY = "asked again with what it remembers, the same problem has the same answer or objective"


ALWAYS: Final = frozenset({Law.CAPACITY, Law.PRICE_SCALES})
"""Of every policy whose answer can be carried out."""
GREEDY: Final = ALWAYS | {Law.PERMUTATION, Law.WORK_CONSERVING, Law.STEADY}
"""Jobs in some order of their own, each on whole workers."""
FRACTIONS: Final = ALWAYS | {Law.PERMUTATION, Law.EQUAL_SHARES, Law.STEADY}
"""Fractions of time, by a formula or as the optimum of a program."""
