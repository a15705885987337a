"""The training of the end-to-end tests: a chain of digests, one link a step. Standard library only.

Deterministic: the state after step n is a function of n alone, so that a step which is left out, done
twice or done on the wrong state shows in the final weights. Settings, all from the environment:

E2E_STEPS  E2E_STEP_S  E2E_SAVE_EVERY  E2E_KB  how many, how long, how often saved, weights in KiB
E2E_LOG    a file that gets one line per step, ``attempt epoch rank step``, and ``start``/``end`` lines
E2E_EXIT   ``step:code``: leave with this code after this step
E2E_LATER_STEP_S  how long a step takes from the second attempt on
E2E_HOLD   not beyond so many steps until ``go``, beside the log, names a greater number
E2E_SAVE_S how long the save takes that it was asked to stop for (``saves STEP`` in the log): half of it
           is on disk meanwhile
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["ARYL_CHECKPOINT_DIR"])
STEPS = int(os.environ.get("E2E_STEPS", "200"))
STEP_S = float(os.environ.get("E2E_STEP_S", "0.01"))
SAVE_EVERY = int(os.environ.get("E2E_SAVE_EVERY", "20"))
KB = int(os.environ.get("E2E_KB", "64"))
SAVE_S = float(os.environ.get("E2E_SAVE_S", "0"))
LOG = os.environ.get("E2E_LOG")
HOLD = int(os.environ.get("E2E_HOLD", "0"))
PROGRESS = os.environ.get("ARYL_PROGRESS_FILE")
if int(os.environ.get("ARYL_ATTEMPT", "0")) > 1:
    STEP_S = float(os.environ.get("E2E_LATER_STEP_S", STEP_S))
RANK = int(os.environ.get("ARYL_NODE_RANK", "0"))
WHO = f"{os.environ.get('ARYL_ATTEMPT', '0')} {os.environ.get('ARYL_EPOCH', '0')} {RANK}"

asked_to_stop = False
allowed = HOLD


def on_signal(number: int, _frame: object) -> None:
    global asked_to_stop
    asked_to_stop = True
    say(f"signal {number}")


def say(what: object) -> None:
    """One write each: lines of several processes do not mix, and none is lost with its process."""
    if LOG:
        opened = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(opened, f"{WHO} {what}\n".encode())
        os.close(opened)


def weights(state: bytes) -> bytes:
    """KB KiB, of which most stay the same from one checkpoint to the next, as in a real one."""
    blocks = [hashlib.shake_256(b"frozen %d" % n).digest(1024) for n in range(KB - 1)]
    return b"".join([*blocks, hashlib.shake_256(state).digest(1024)])


def save(step: int, state: bytes, *, slowly: bool = False) -> None:
    final = FOLDER / f"step-{step}"
    if RANK != 0 or final.exists():
        return
    part = FOLDER / f".part-{step}"
    shutil.rmtree(part, ignore_errors=True)
    (part / "model").mkdir(parents=True)
    (part / "model" / "weights.bin").write_bytes(weights(state))
    if slowly:
        say(f"saves {step}")
        time.sleep(SAVE_S)
    (part / "state.json").write_text(json.dumps({"step": step, "state": state.hex()}))
    part.rename(final)


def load() -> tuple[int, bytes]:
    found = sorted((int(p.name.removeprefix("step-")) for p in FOLDER.glob("step-*")), reverse=True)
    if not found:
        return 0, b"\0" * 32
    document = json.loads((FOLDER / f"step-{found[0]}" / "state.json").read_text())
    assert (FOLDER / f"step-{found[0]}" / "model" / "weights.bin").read_bytes() == weights(
        bytes.fromhex(document["state"])
    )
    return document["step"], bytes.fromhex(document["state"])


def may_go_on(step: int) -> bool:
    """Waits for the test's leave, which the next step may need; False = asked to stop meanwhile."""
    global allowed
    while HOLD and step >= allowed and not asked_to_stop:
        with contextlib.suppress(FileNotFoundError):
            allowed = max(HOLD, int((Path(str(LOG)).parent / "go").read_text()))
        if step >= allowed:
            time.sleep(0.02)
    return bool(SAVE_S) or not asked_to_stop


def show(step: int, *, finished: bool = False) -> None:
    if PROGRESS:
        part = Path(PROGRESS + ".part")
        part.write_text(json.dumps({"step": step, "total_steps": STEPS, "finished": finished}))
        part.replace(PROGRESS)


def main() -> int:
    signal.signal(signal.SIGTERM, on_signal)
    FOLDER.mkdir(parents=True, exist_ok=True)
    step, state = load()
    say(f"start {step}")
    print(f"attempt {os.environ.get('ARYL_ATTEMPT')} starts at step {step}", flush=True)
    fail_at, _, code = os.environ.get("E2E_EXIT", "").partition(":")
    last = False
    while step < STEPS and not last and may_go_on(step):
        last = asked_to_stop  # the save that takes SAVE_S is of a step of its own, never a routine one
        time.sleep(STEP_S)
        step += 1
        state = hashlib.sha256(state + step.to_bytes(8, "big")).digest()
        say(step)
        if step % SAVE_EVERY == 0 or step == STEPS or last:
            save(step, state, slowly=last)
        if step % 5 == 0 or step == 1:
            show(step)
        if fail_at == str(step):
            print(f"leaving with {code}, as asked", flush=True)
            return int(code)
    save(step, state)
    show(step, finished=step >= STEPS)
    say(f"end {step}")
    print(f"ends at step {step}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
