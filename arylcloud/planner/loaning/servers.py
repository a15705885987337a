"""What runs on the servers of one pool, and where the next gang would go.

A gang of n GPUs on servers of ``size`` GPUs takes ⌊n/size⌋ whole servers and the rest on one; best fit:
the server with the least room that is enough. Workers are of two kinds: *base* workers, which stay where they
are, and *flexible* ones of one GPU each, which give way at once, so that their GPUs count as room: by free
GPUs alone base workers would be strewn over servers that only flexible ones fill, and large gangs would wait
for ever. Of servers with equal room the one with most GPUs really free is taken.

Each set of servers is the bits of one integer, by free GPUs and by room: a look for the best fit is a few
operations whatever the number of servers, and the lowest index wins, so that the same calls give the same
places. What is refused now is refused until GPUs come free; what fits n GPUs fits fewer.
"""

from __future__ import annotations

from collections.abc import Iterable

Places = tuple[tuple[int, int], ...]
"""(server, GPUs) of one job's base workers."""


class Servers:
    """``count`` servers of ``size`` GPUs, none of them open yet if ``closed``.

    >>> pool = Servers(2)
    >>> pool.put(7, pool.find(6)); pool.find(3)
    []
    ((1, 3),)
    >>> pool.grow(7, 2); pool.find(10), pool.free, pool.room
    2
    (((1, 8), (0, 2)), 8, 10)
    >>> pool.put(8, ((0, 2),))
    [(7, 2)]
    """

    def __init__(self, count: int, *, size: int = 8, closed: bool = False) -> None:
        self.size = size
        self.count = count
        self.free_on = [size] * count
        self.room_on = [size] * count
        self.base_on: list[dict[int, int]] = [{} for _ in range(count)]
        """Base GPUs by job, per server."""
        self.flexible_on: list[dict[int, int]] = [{} for _ in range(count)]
        self.base_at: dict[int, Places] = {}
        self.flexible_at: dict[int, dict[int, int]] = {}
        self.flexible: dict[int, int] = {}
        """Flexible workers by job, of those that have one."""
        self.open = 0
        """The servers that may be used, as bits."""
        self.gpus = 0
        """Of open servers; ``free`` and ``room`` are those without a worker, and without a base worker."""
        self.free = 0
        self.room = 0
        self._by_free = [0] * (size + 1)
        self._by_room = [0] * (size + 1)
        if not closed:
            self.add(range(count))

    # ------------------------------------------------------------ servers come and go
    def add(self, servers: Iterable[int]) -> None:
        """Open servers (empty ones)."""
        for s in servers:
            bit = 1 << s
            self.open |= bit
            self._by_free[self.size] |= bit
            self._by_room[self.size] |= bit
            self.gpus += self.size
            self.free += self.size
            self.room += self.size

    def close(self, servers: Iterable[int]) -> None:
        """Close servers. ValueError where one still holds a worker."""
        for s in servers:
            bit = 1 << s
            if not self.open & bit or self.free_on[s] != self.size:
                raise ValueError(f"server {s} is not open and empty")
            self.open ^= bit
            self._by_free[self.size] ^= bit
            self._by_room[self.size] ^= bit
            self.gpus -= self.size
            self.free -= self.size
            self.room -= self.size

    def shut(self) -> int:
        """The servers that are not open, as bits."""
        return ~self.open & ((1 << self.count) - 1)

    # ------------------------------------------------------------ where
    def find(self, gpus: int) -> Places | None:
        """Best fit for a gang, None where it does not fit even if all flexible workers give way."""
        whole, rest = divmod(gpus, self.size)
        if not whole:
            s = self._least(rest, 0)
            return None if s < 0 else ((s, rest),)
        if self.room < gpus:
            return None
        empty, hosts = self._by_free[self.size], self._by_room[self.size]
        taken, places = 0, []
        while whole:
            left = (empty or hosts) & ~taken
            if not left:
                if not empty:
                    return None
                empty = 0
                continue
            bit = left & -left
            taken |= bit
            empty &= ~bit
            places.append((bit.bit_length() - 1, self.size))
            whole -= 1
        if rest:
            s = self._least(rest, taken)
            if s < 0:
                return None
            places.append((s, rest))
        return tuple(places)

    def _least(self, gpus: int, but: int) -> int:
        """The server with least room that is enough; of equal ones the one where fewest must give way."""
        for k in range(gpus, self.size + 1):
            found = self._by_room[k] & ~but
            if found:
                for free in range(k, -1, -1):
                    best = found & self._by_free[free]
                    if best:
                        return (best & -best).bit_length() - 1
        return -1

    # ------------------------------------------------------------ base workers
    def put(self, job: int, places: Places | None) -> list[tuple[int, int]]:
        """Place a job's base workers; the flexible workers that had to go, as (job, workers)."""
        if places is None:
            raise ValueError(f"job {job} has no place")
        gone: list[tuple[int, int]] = []
        self.base_at[job] = places
        for s, gpus in places:
            short = gpus - self.free_on[s]
            while short > 0:
                there = self.flexible_on[s]
                other = max(there, key=lambda j: (there[j], -j))
                k = min(short, there[other])
                self._take_flexible(other, s, k)
                gone.append((other, k))
                short -= k
            self.base_on[s][job] = gpus
            self._set(s, self.free_on[s] - gpus, self.room_on[s] - gpus)
        return gone

    def remove(self, job: int) -> None:
        """Take all workers of a job away."""
        self.shrink(job, None)
        for s, gpus in self.base_at.pop(job):
            del self.base_on[s][job]
            self._set(s, self.free_on[s] + gpus, self.room_on[s] + gpus)

    # ------------------------------------------------------------ flexible workers
    def grow(self, job: int, workers: int) -> int:
        """Up to so many more flexible workers, on the fullest servers first; how many there was room for."""
        want = workers
        for k in range(1, self.size + 1):
            while want and self._by_free[k]:
                found = self._by_free[k]
                s = (found & -found).bit_length() - 1
                step = min(want, k)
                self.flexible_on[s][job] = self.flexible_on[s].get(job, 0) + step
                mine = self.flexible_at.setdefault(job, {})
                mine[s] = mine.get(s, 0) + step
                self._set(s, self.free_on[s] - step, self.room_on[s])
                want -= step
        if want < workers:
            self.flexible[job] = self.flexible.get(job, 0) + workers - want
        return workers - want

    def shrink(self, job: int, workers: int | None) -> int:
        """Take flexible workers away (None = all), from the servers with most free GPUs first, so that whole
        servers come free; how many went."""
        mine = self.flexible_at.get(job)
        if not mine:
            return 0
        want = self.flexible[job] if workers is None else workers
        gone = 0
        for s in sorted(mine, key=lambda s: (-self.free_on[s], s)):
            k = min(want - gone, mine[s])
            self._take_flexible(job, s, k)
            gone += k
            if gone == want:
                break
        return gone

    def clear(self, server: int) -> list[tuple[int, int]]:
        """Take all flexible workers off one server: (job, workers)."""
        gone = list(self.flexible_on[server].items())
        for job, k in gone:
            self._take_flexible(job, server, k)
        return gone

    def _take_flexible(self, job: int, s: int, workers: int) -> None:
        there, mine = self.flexible_on[s], self.flexible_at[job]
        if there[job] == workers:
            del there[job], mine[s]
            if not mine:
                del self.flexible_at[job]
        else:
            there[job] -= workers
            mine[s] -= workers
        self.flexible[job] -= workers
        if not self.flexible[job]:
            del self.flexible[job]
        self._set(s, self.free_on[s] + workers, self.room_on[s])

    def _set(self, s: int, free: int, room: int) -> None:
        old, bit = self.free_on[s], 1 << s
        if free != old:
            self._by_free[old] ^= bit
            self._by_free[free] ^= bit
            self.free += free - old
            self.free_on[s] = free
        old = self.room_on[s]
        if room != old:
            self._by_room[old] ^= bit
            self._by_room[room] ^= bit
            self.room += room - old
            self.room_on[s] = room

    # ------------------------------------------------------------ what reclaims ask
    def idle(self) -> int:
        """Open servers without any worker, as bits."""
        return self._by_free[self.size]

    def without_base(self) -> int:
        """Open servers without a base worker, as bits."""
        return self._by_room[self.size]


def bits(mask: int, most: int | None = None) -> list[int]:
    """The positions of the ones, ascending; the first ``most`` of them.

    >>> bits(0b1010), bits(0b1010, 1)
    ([1, 3], [1])
    """
    found: list[int] = []
    while mask and len(found) != most:
        bit = mask & -mask
        found.append(bit.bit_length() - 1)
        mask ^= bit
    return found
