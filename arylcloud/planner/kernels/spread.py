"""From what a class gets to what each of its members gets.

A part of a class holds units of time at several rates (its *segments*: alone on a type, beside some other
class, or idle); its members have needs. Members have one unit of time each, so the segments, fastest first,
and cut into unit pieces, are rates ``v_1 ≥ v_2 ≥ …``; needs ``r_1 ≥ r_2 ≥ …`` can be served if and only if

    Σ_{i ≤ k} r_i ≤ Σ_{i ≤ k} v_i     for every k

(majorisation: Hardy, Littlewood & Pólya 1934; as a schedule: Horvath, Lam & Sethi, JACM 24, 1977).
:func:`cuts` finds the k that fail; :func:`spread` serves: the neediest first, each by the window of unit
length, on what is left, whose mean rate is its need. :func:`joined` then says who sits beside whom.

Lengths: N members in all, sorted by (part, need descending); S parts, ``first`` (S,) where each begins; E
segments, sorted by (part, rate descending), idle ones among them, so that each part's times add up to its
size. Needs and rates of one part are in one unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arylcloud.planner.cluster import F, I

SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Segments:
    """(E,) each, sorted by (part, rate descending)."""

    part: I
    rate: F
    time: F
    label: I
    """The caller's: which column it comes from; −1 = idle."""


def segments(part: I, rate: F, time: F, label: I, size: F) -> Segments:
    """Sorted, with the idle rest of every part; ``time`` is made to fit where rounding left it too long."""
    time = np.maximum(time, 0.0)
    used = np.bincount(part, weights=time, minlength=len(size))
    time = time * np.minimum(1.0, np.divide(size, used, out=np.ones(len(size)), where=used > 0))[part]
    idle = np.maximum(size - np.bincount(part, weights=time, minlength=len(size)), 0.0)
    parts = np.arange(len(size))
    part = np.concatenate([part, parts])
    rate = np.concatenate([rate, np.zeros(len(size))])
    time = np.concatenate([time, idle])
    label = np.concatenate([label, np.full(len(size), -1)])
    kept = time > 1e-13
    part, rate, time, label = part[kept], rate[kept], time[kept], label[kept]
    order = np.lexsort((label, -rate, part))
    return Segments(part=part[order], rate=rate[order], time=time[order], label=label[order])


def cuts(need: F, first: I, held: Segments) -> I:
    """Positions in (0, N) at which a part must be cut because those before it need more than the part's best
    time gives: of every part that fails, where it fails most. Empty = everyone can be served."""
    n = len(need)
    size = np.diff(np.append(first, n))
    at = np.append(0.0, np.cumsum(held.time))
    given = np.append(0.0, np.cumsum(held.time * held.rate))
    # every part's segments fill exactly its members' places: one interpolation serves all parts
    at *= n / at[-1]
    have = np.interp(np.arange(1, n + 1), at, given) - np.repeat(np.interp(first, at, given), size)
    asked = np.cumsum(need)
    asked -= np.repeat(asked[first] - need[first], size)
    last = first + size - 1
    # what the whole part lacks is the solver's rounding; each member carries its part of it
    lack = np.maximum(asked[last] / np.maximum(have[last], 1e-300), 1.0)
    lack[(asked[last] <= 0) | (lack > 1 + 1e-6)] = 1.0
    short = asked - have * np.repeat(lack, size) - SLACK * np.abs(asked)
    short[last] = 0.0
    worst = np.maximum.reduceat(short, first)
    failing = np.flatnonzero(worst > 1e-12)
    found = [first[p] + int(short[first[p] : last[p] + 1].argmax()) + 1 for p in failing]
    return np.array(found, dtype=np.int64)


def raised(need: F, first: I, held: Segments) -> F:
    """Needs lifted to a common level per part until the part's whole time is used: ``max(need, level)``."""
    n = len(need)
    size = np.diff(np.append(first, n))
    total = np.bincount(held.part, weights=held.rate * held.time, minlength=len(size))
    asked = np.cumsum(need)
    asked -= np.repeat(asked[first] - need[first], size)
    place = np.arange(n) - np.repeat(first, size)
    # the level if members from this place on are lifted: right at the first place whose need it covers
    before = asked - need
    level = (np.repeat(total, size) - before) / (np.repeat(size, size) - place)
    place_of = np.where(level >= need, np.arange(n), n)
    begin = np.minimum.reduceat(place_of, first)
    lifted = begin < n
    part_level = np.full(len(size), -np.inf)
    part_level[lifted] = level[begin[lifted]]
    lifted_needs: F = np.maximum(need, np.repeat(part_level, size))
    return lifted_needs


def spread(need: F, first: I, held: Segments) -> tuple[I, I, F]:
    """(member, segment, time) of all that is handed out, the members' needs met, no need lifted above what
    :func:`raised` made of it; idle time included."""
    n = len(need)
    bound = np.append(first, n)
    count = np.bincount(held.part, minlength=len(first))
    begin = np.append(0, np.cumsum(count))
    member: list[I] = []
    segment: list[I] = []
    amount: list[F] = []
    top, low = need[first], need[bound[1:] - 1]
    flat = (top - low <= 1e-12 * np.abs(top)) | (count == 1)
    if flat.any():  # equals get equal parts of everything
        chosen = np.flatnonzero(flat[held.part])
        each = (bound[1:] - first)[held.part[chosen]]
        who = np.repeat(first[held.part[chosen]], each)
        member.append(who + np.arange(len(who)) - np.repeat(np.cumsum(each) - each, each))
        segment.append(np.repeat(chosen, each))
        amount.append(np.repeat(held.time[chosen] / each, each))
    for part in np.flatnonzero(~flat):
        own = slice(begin[part], begin[part + 1])
        m, s, x = _windows(need[bound[part] : bound[part + 1]], held.rate[own], held.time[own])
        member.append(np.array(m, dtype=np.int64) + bound[part])
        segment.append(np.array(s, dtype=np.int64) + begin[part])
        amount.append(np.array(x))
    if not member:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    return np.concatenate(member), np.concatenate(segment), np.concatenate(amount)


def _windows(need: F, rate: F, time: F) -> tuple[list[int], list[int], list[float]]:
    """One part, member by member, the neediest first. A need between two neighbouring rates takes both in the
    proportion that makes it; where one of the two does not suffice any more, a wider window is laid."""
    left, pace = time.tolist(), rate.tolist()
    alive = [s for s, amount in enumerate(left) if amount > 1e-12]
    member: list[int] = []
    segment: list[int] = []
    amount: list[float] = []
    k = 0  # of alive: the slowest that is as fast as the need, the fastest where none is
    for i, wanted in enumerate(need.tolist()):
        while k + 2 < len(alive) and pace[alive[k + 1]] >= wanted:
            k += 1
        if len(alive) < 2:
            if alive:
                share = min(1.0, left[alive[0]])
                member.append(i)
                segment.append(alive[0])
                amount.append(share)
                left[alive[0]] -= share
            continue
        upper, lower = alive[k], alive[k + 1]
        gap = pace[upper] - pace[lower]
        share = min(max((wanted - pace[lower]) / gap, 0.0), 1.0) if gap > 0 else 0.5
        if share <= left[upper] + 1e-12 and 1 - share <= left[lower] + 1e-12:
            taken: tuple[tuple[int, float], ...] = ((upper, share), (lower, 1 - share))
        else:
            taken = _window(wanted, [pace[s] for s in alive], [left[s] for s in alive], alive)
        for s, part in taken:
            if part > 1e-14:
                member.append(i)
                segment.append(s)
                amount.append(part)
                left[s] -= part
        before = len(alive)
        alive = [s for s in alive if left[s] > 1e-12]
        if len(alive) < before:
            k = max(0, min(k, len(alive) - 2))
            while k > 0 and pace[alive[k]] < wanted:
                k -= 1
    return member, segment, amount


def _window(
    need: float, pace: list[float], left: list[float], names: list[int]
) -> tuple[tuple[int, float], ...]:
    """(segment, time) of the window of unit length whose mean rate is ``need``; the fastest window where none
    is as fast, the slowest where all are faster."""
    at = np.append(0.0, np.cumsum(left))
    width = min(1.0, float(at[-1]))
    given = np.append(0.0, np.cumsum(np.multiply(pace, left)))
    starts = np.unique(np.clip(np.concatenate([at, at - width]), 0.0, at[-1] - width))
    mean = np.interp(starts + width, at, given) - np.interp(starts, at, given)
    # the mean falls with the start, linearly in between
    start = float(np.interp(-need, -mean, starts))
    taken = np.clip(np.minimum(at[1:], start + width) - np.maximum(at[:-1], start), 0.0, None)
    return tuple(zip(names, taken.tolist(), strict=True))


def joined(left: tuple[I, I, F], right: tuple[I, I, F], columns: int) -> tuple[I, I, I, F]:
    """Who shares with whom: (member, member, column, time) from each side's (member, column, time).

    Both sides of a column hold the same time. Laid along one line, column by column, the two sides' pieces
    overlap in at most (left + right) places: a transport by the northwest corner.
    """
    totals = [np.bincount(side[1], weights=side[2], minlength=columns) for side in (left, right)]
    total = np.minimum(*totals)
    ends: list[F] = []
    sides: list[tuple[I, I]] = []
    for (member, column, amount), own in zip((left, right), totals, strict=True):
        kept = np.flatnonzero(total[column] > 1e-12)
        kept = kept[np.argsort(column[kept], kind="stable")]
        member, column = member[kept], column[kept]
        # every column takes a unit of the line, so that the two sides meet at its ends
        line: F = np.cumsum(amount[kept] / own[column])
        last = np.flatnonzero(np.append(column[1:] != column[:-1], True)) if len(column) else column
        line[last] = np.arange(1, len(last) + 1)
        ends.append(line)
        sides.append((member, column))
    points = np.union1d(ends[0], ends[1])
    width = np.diff(np.append(0.0, points))
    one, two = np.searchsorted(ends[0], points), np.searchsorted(ends[1], points)
    column = sides[0][1][one]
    some = width * total[column] > 1e-13
    one, two, column = one[some], two[some], column[some]
    time: F = width[some] * total[column]
    return sides[0][0][one], sides[1][0][two], column, time


def folded(member: I, column: I, amount: F, columns: int) -> tuple[tuple[I, I, F], tuple[I, I, F], I]:
    """The two sides of columns that a part shares with itself, and the members that hold more than half of
    one: with such there is no way to share. A column's line, cut in the middle, faces itself."""
    many = int(member.max(initial=0)) + 1
    code, at = np.unique(column * many + member, return_inverse=True)  # a member may come in pieces
    amount = np.asarray(np.bincount(at.reshape(-1), weights=amount), dtype=np.float64)
    member, column = code % many, code // many
    total = np.bincount(column, weights=amount, minlength=columns)
    greedy = np.unique(member[amount > (0.5 + 1e-9) * total[column]])
    start = (
        np.flatnonzero(np.append(True, column[1:] != column[:-1])) if len(column) else np.zeros(0, np.int64)
    )
    upto = np.cumsum(amount)
    if len(start):
        upto -= np.repeat(upto[start] - amount[start], np.diff(np.append(start, len(column))))
    half = 0.5 * total[column]
    lower = np.clip(np.minimum(upto, half) - (upto - amount), 0.0, None)
    upper = amount - lower
    a, b = lower > 1e-14, upper > 1e-14
    return (member[a], column[a], lower[a]), (member[b], column[b], upper[b]), greedy
