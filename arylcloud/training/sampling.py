"""In which order samples are seen: a function of (seed, how many have been seen), whatever the processes.

The clock of an elastic training is *samples seen*: it means the same on any number of machines. ``Order``
says which sample comes at each tick of it; ``batches.Steps`` deals them out to the processes of the moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_ROUNDS = 6
_M = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Order:
    """``size`` samples, seen over and over; every pass (data epoch) in an order of its own.

    Nothing of the length of ``size`` is ever stored, and any place of the order is found at once, so that a
    resume costs nothing: a pass is a Feistel permutation of ``range(size)`` (six rounds over the next power
    of four, walked until it lands inside; Black and Rogaway, CT-RSA 2002), keyed by (seed, pass). It is the
    same on every machine and in every version of Python. Statistically random; no secret.

    >>> order = Order(5, seed=1)
    >>> sorted(order.at(n) for n in range(5)), sorted(order.at(n) for n in range(5, 10))
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    >>> Order(3, shuffle=False).take(2, 4)
    [2, 0, 1, 2]
    """

    size: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"an order of {self.size} samples: at least one is needed")

    def at(self, seen: int) -> int:
        """The sample that is seen after ``seen`` others."""
        times, place = divmod(seen, self.size)
        return self._place(place, self._keys(times)) if self.shuffle else place

    def take(self, seen: int, count: int) -> list[int]:
        """The next ``count`` samples after ``seen``; over the end of a pass, the next one begins."""
        return list(self._walk(seen, count))

    def _walk(self, seen: int, count: int) -> Iterator[int]:
        times, place = divmod(seen, self.size)
        keys = self._keys(times)
        for _ in range(count):
            if place == self.size:
                times, place = times + 1, 0
                keys = self._keys(times)
            yield self._place(place, keys) if self.shuffle else place
            place += 1

    def _keys(self, times: int) -> tuple[int, ...]:
        base = _mix(_mix(self.seed & _M) ^ (times & _M))
        return tuple(_mix(base + n) for n in range(_ROUNDS))

    def _place(self, place: int, keys: tuple[int, ...]) -> int:
        half = max(1, ((self.size - 1).bit_length() + 1) // 2)
        mask = (1 << half) - 1
        while True:
            left, right = place >> half, place & mask
            for key in keys:
                left, right = right, left ^ (_mix(right ^ key) & mask)
            place = left << half | right
            if place < self.size:
                return place


def _mix(x: int) -> int:
    """SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & _M
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _M
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _M
    return x ^ x >> 31
