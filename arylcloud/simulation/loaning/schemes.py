"""The schedulers compared: the same two phases with parts of Aryl taken away, exchanged or added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What one scheduler does. The default is the baseline: FIFO with backfill, two clusters apart."""

    order: Literal["fifo", "sjf", "area"] = "fifo"
    """Of those who wait: by submission, by remaining time, by remaining GPU-time."""
    strict: bool = False
    """Head of line: nobody overtakes."""
    loans: Literal["none", "last", "first"] = "none"
    """Whether fungible jobs may use borrowed servers, and whether they look there last or first."""
    growth: Literal["none", "saved_s", "goodput", "speedup", "shortest", "even", "afs"] = "none"
    reclaim: Literal["random", "fewest", "servers", "dollars"] = "servers"
    """By whose order borrowed servers go back: at random, fewest jobs first, Aryl's cost, ours."""
    preempt: bool = False
    """Whether a waiting job may take the place of one with much more left to do."""


SCHEMES: dict[str, Scheme] = {
    "fifo": Scheme(),
    "fifo_strict": Scheme(strict=True),
    "sjf": Scheme(order="sjf"),
    "opportunistic": Scheme(loans="first", reclaim="random"),
    "loaning_only": Scheme(loans="last"),
    "elastic_only": Scheme(order="sjf", growth="saved_s"),
    "gandiva": Scheme(growth="even"),
    "afs": Scheme(order="sjf", growth="afs"),
    "pollux": Scheme(growth="speedup"),
    "aryl": Scheme(order="sjf", loans="last", growth="saved_s"),
    "default": Scheme(order="area", loans="first", growth="goodput", reclaim="dollars", preempt=True),
    "default_sjf": Scheme(order="sjf", loans="first", growth="goodput", reclaim="dollars", preempt=True),
    "reclaim_random": Scheme(order="sjf", loans="first", growth="saved_s", reclaim="random"),
    "reclaim_fewest": Scheme(order="sjf", loans="first", growth="saved_s", reclaim="fewest"),
    "reclaim_servers": Scheme(order="sjf", loans="first", growth="saved_s", reclaim="servers"),
    "reclaim_dollars": Scheme(order="sjf", loans="first", growth="saved_s", reclaim="dollars"),
}
