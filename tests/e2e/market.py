"""Markets of the local cloud and job files, written from a few words of Python."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

TRAIN = Path(__file__).with_name("job") / "train.py"


def spot(
    region: str,
    usd_per_hour: float,
    *interruptions: dict[str, float],
    steps: list[list[float]] | None = None,
    capacity: int = 4,
    zone: str | None = None,
) -> dict[str, Any]:
    """``steps``: later ``[t_market_s, usd_per_hour, capacity]``; the first is made of the arguments."""
    return {
        "region": region,
        "zone": zone,
        "instance_type": "g.small",
        "gpu": "T4",
        "gpu_count": 1,
        "gpu_mem_gib": 16,
        "vcpus": 4,
        "mem_gib": 16,
        "market": "spot",
        "steps": [[0, usd_per_hour, capacity], *(steps or [])],
        "interruptions": list(interruptions),
        "source": "test",
    }


def on_demand(region: str, usd_per_hour: float, *, capacity: int = 4) -> dict[str, Any]:
    return {**spot(region, usd_per_hour, capacity=capacity), "market": "on_demand"}


def strike(*, age_s: float, notice_s: float = 0.0, from_market_s: float = 0.0) -> dict[str, float]:
    """An interruption of the first machine that is ``age_s`` wall seconds old; ``notice_s`` 0: no notice."""
    return {"t_market_s": from_market_s, "notice_s": notice_s, "min_age_s": age_s}


def fault(
    op: str, kind: str, *, skip: int = 0, times: int | None = None, seconds: float = 0.0
) -> dict[str, Any]:
    """What goes wrong with calls ``skip`` … of ``op``: see ``providers/local/market.py``."""
    return {"op": op, "kind": kind, "skip": skip, "times": times, "seconds": seconds}


def market(
    *offers: dict[str, Any],
    time_scale: float = 600.0,
    boot_s: float = 0.05,
    notice_s: float = 3.0,
    faults: tuple[dict[str, Any], ...] = (),
    **changes: Any,
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "name": "e2e",
        "time_scale": time_scale,
        "boot_s": boot_s,
        "notice_s": notice_s,
        "minimum_s": 60,
        "until_grace_s": 60,
        "offers": list(offers),
        "faults": list(faults),
        **changes,
    }


def quiet(**changes: Any) -> dict[str, Any]:
    """One offer, nothing ever happens to it."""
    return market(spot("calm", 0.10), **changes)


def rough(*, age_s: float = 3.0, notice_s: float = 60.0, **changes: Any) -> dict[str, Any]:
    """The first machine is lost without notice, the second with one, the third is left alone. (However
    long a notice is, a machine that has handed over does not wait for its end.)"""
    return market(
        spot("rough-a", 0.10, strike(age_s=age_s)),
        spot("rough-b", 0.12, strike(age_s=age_s, notice_s=notice_s)),
        spot("rough-c", 0.14),
        notice_s=notice_s,
        **changes,
    )


def job(
    *,
    steps: int = 200,
    step_s: float = 0.01,
    save_every: int = 20,
    hold: int | None = None,
    envs: dict[str, str] | None = None,
    run: str = "python3 train.py",
    **aryl: Any,
) -> dict[str, Any]:
    """A job file that runs ``train.py``. ``hold``: it waits after so many steps until ``home.go()``, so that
    what the test does meanwhile may take any time, and the job is still there. Further arguments are keys of
    its ``aryl:`` part. A key of the file itself is ``top={…}``."""
    top = aryl.pop("top", {})
    return {
        "name": "chain",
        "workdir": str(TRAIN.parent),
        "resources": {"accelerators": "T4:1"},
        "run": run,
        "envs": {
            "E2E_STEPS": str(steps),
            "E2E_STEP_S": str(step_s),
            "E2E_SAVE_EVERY": str(save_every),
            **({} if hold is None else {"E2E_HOLD": str(hold)}),
            **(envs or {}),
        },
        "aryl": {
            "profile": {"T4:1": round(1 / step_s, 3), "unit": "steps/s"},
            "work": f"{steps} steps",
            "checkpoint": {"size_gb": 0.0001},
            **aryl,
        },
        **top,
    }


def wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    """The least that pip installs."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(
            f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return path
