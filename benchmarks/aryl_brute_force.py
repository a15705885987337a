"""Reclaims of small pools against every choice: a table of ``aryl_results.py``, which runs it."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.loaning.reclaim import cheapest, least
from arylcloud.planner.loaning.servers import Servers


def brute_force() -> list[str]:
    """Reclaims of pools of 4 to 12 servers filled best fit, against every choice."""
    print("\n## Reclaim against every choice (400 pools of 4 to 12 servers)\n")
    print("| loss | Aryl's greedy ÷ least | with swaps ÷ least | exact |")
    print("|---|---|---|---|")
    missed = []
    for name in ("jobs", "dollars"):
        totals, exact = [0.0, 0.0, 0.0], 0
        for seed in range(400):
            hosts, loss, count = _pool(seed, dollars=name == "dollars")
            answers = (
                cheapest(hosts, count, loss, swaps=False),
                cheapest(hosts, count, loss),
                least(hosts, count, loss),
            )
            totals = [t + a.loss for t, a in zip(totals, answers, strict=True)]
            exact += answers[1].loss <= answers[2].loss + 1e-9
        greedy, ours = totals[0] / totals[2], totals[1] / totals[2]
        print(f"| {name} | {greedy:.4f} | {ours:.4f} | {exact / 400:.1%} |")
        if ours > 1.01:
            missed.append(f"reclaim by {name}: {ours:.4f} of brute force, wanted 1.01")
    return missed


def _pool(seed: int, *, dollars: bool) -> tuple[dict[int, dict[int, int]], dict[int, float], int]:
    """Fungible jobs as trace A has them (1, 2, 4, 8 GPUs, thrice that here), some ended again."""
    rng = np.random.default_rng(seed)
    pool = Servers(int(rng.integers(4, 13)))
    for job in range(200):
        places = pool.find(3 * int(rng.choice([1, 2, 4, 8], p=[0.8, 0.08, 0.06, 0.06])))
        if places is None:
            break
        pool.put(job, places)
    for job in list(pool.base_at)[1:]:
        if rng.random() < 0.3:
            pool.remove(job)
    hosts = {s: there for s, there in enumerate(pool.base_on) if there}
    loss = {
        job: float(rng.uniform(63, 1863)) * sum(g for _, g in places) / 3 if dollars else 1.0
        for job, places in pool.base_at.items()
    }
    return hosts, loss, int(rng.integers(1, len(hosts) + 1))
