"""A training by pipeline templates, for the end-to-end tests: each rank holds layers as it is told.

A layer is a chain of digests, one link a step, so that one which was kept, fetched or saved wrongly shows.
Every rank saves the layers that it holds (a sharded checkpoint), and begins by reading its own of the last.

E2E_STEP_S  E2E_SAVE_EVERY  how long a step takes, how often it saves
E2E_HOLD    not beyond so many steps until ``go``, beside the log, names a greater number
E2E_LOG     gets one line of JSON per start
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from arylcloud import training as aryl

STEP_S = float(os.environ["E2E_STEP_S"])
SAVE_EVERY = int(os.environ["E2E_SAVE_EVERY"])
HOLD = int(os.environ["E2E_HOLD"])
GO = Path(os.environ["E2E_LOG"]).with_name("go")


def link(layer: int, step: int, state: str) -> str:
    return hashlib.sha256(f"{layer} {step} {state}".encode()).hexdigest()


def say(**what: object) -> None:
    opened = os.open(os.environ["E2E_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(opened, f"{json.dumps(what)}\n".encode())
    os.close(opened)


def may_go_on(step: int) -> bool:
    """Waits for the test's leave to go beyond ``step``; False = asked to stop."""
    while not aryl.should_stop():
        allowed = HOLD
        with contextlib.suppress(FileNotFoundError):
            allowed = max(allowed, int(GO.read_text()))
        if step < allowed:
            return True
        time.sleep(0.02)
    return False


def main() -> None:
    aryl.install()
    me = aryl.info()
    mine = me.pipeline
    assert mine is not None
    layers = range(mine.first, mine.last)
    found = aryl.latest()
    step, state = 0, dict.fromkeys(layers, "")
    if found is not None:
        step = int(found.name.removeprefix("step-"))
        state = {layer: (found / f"layer-{layer}").read_text() for layer in layers}
    say(
        what="start",
        epoch=int(os.environ["ARYL_EPOCH"]),
        rank=me.rank,
        world=me.world,
        step=step,
        replica=mine.replica,
        first=mine.first,
        last=mine.last,
        fetch=mine.fetch,
        microbatches=mine.microbatches,
        holders=[mine.holders(layer) for layer in layers],
        state=state,
    )
    while may_go_on(step):
        time.sleep(STEP_S)
        step += 1
        state = {layer: link(layer, step, was) for layer, was in state.items()}
        aryl.progress(step, None)
        if step % SAVE_EVERY == 0:
            with aryl.save(step, sharded=True) as folder:
                for layer, text in state.items():
                    (folder / f"layer-{layer}").write_text(text)


if __name__ == "__main__":
    main()
