"""The training of the network tests: data-parallel, over sockets, standard library alone.

It fails as a training over NCCL or Gloo does: a peer that dies resets its connections, one that falls silent
leaves the others waiting for it. Rank 0 adds up everybody's gradients at ``$MASTER_ADDR:$MASTER_PORT``, in
order of rank.

E2E_STEPS  E2E_STEP_S  E2E_SAVE_EVERY  E2E_SAVE_S  how many, how long each at least, how often saved, how
slow the disk E2E_TORCH  1: gradients by PyTorch's autograd, sums by its Gloo (``with_torch.py``)
E2E_HOLD   not beyond so many steps until there is ``go`` beside the log
E2E_LOG    a file that gets one line per fact: ``attempt epoch rank monotonic-seconds what …``
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import sys
import time
from pathlib import Path

from arylcloud import training as aryl

SIZE, BATCH, MICRO, WIDTH = 997, 24, 5, 12
STEPS = int(os.environ.get("E2E_STEPS", "100"))
STEP_S = float(os.environ.get("E2E_STEP_S", "0.01"))
SAVE_EVERY = int(os.environ.get("E2E_SAVE_EVERY", "20"))
SAVE_S = float(os.environ.get("E2E_SAVE_S", "0"))
LOG = os.environ.get("E2E_LOG")
HOLD = int(os.environ.get("E2E_HOLD", "0"))
TORCH = os.environ.get("E2E_TORCH") == "1"
if TORCH:
    import with_torch
ME = aryl.info()
WHO = f"{ME.attempt} {os.environ.get('ARYL_EPOCH', '0')} {ME.rank}"
CONNECT_S, LOOK_S = 30.0, 0.2


def say(what: str) -> None:
    if LOG:
        opened = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(opened, f"{WHO} {time.monotonic():.6f} {what}\n".encode())
        os.close(opened)


class Stopped(Exception):
    """Asked to stop while the others do not answer."""


class Peers:
    """Sums over all processes."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        if ME.world == 1:
            return
        where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if ME.rank == 0:
            with socket.create_server(where) as listener:
                listener.settimeout(LOOK_S)
                found: dict[int, socket.socket] = {}
                give_up_s = time.monotonic() + CONNECT_S
                while len(found) < ME.world - 1:
                    try:
                        peer, _ = listener.accept()
                    except TimeoutError:
                        self._look(give_up_s)
                        continue
                    peer.settimeout(LOOK_S)
                    epoch, rank = struct.unpack("!qq", self._read(peer, 16))
                    if epoch == int(os.environ["ARYL_EPOCH"]):
                        found[rank] = peer
            self._sockets = [found[rank] for rank in sorted(found)]
        else:
            give_up_s = time.monotonic() + CONNECT_S
            while True:
                try:
                    peer = socket.create_connection(where, timeout=1.0)
                    break
                except OSError:
                    self._look(give_up_s)
                    time.sleep(0.02)
            peer.settimeout(LOOK_S)
            peer.sendall(struct.pack("!qq", int(os.environ["ARYL_EPOCH"]), ME.rank))
            self._sockets = [peer]
        for peer in self._sockets:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def sum(self, values: list[float]) -> list[float]:
        form = f"!{len(values)}d"
        if ME.rank == 0:
            each = [struct.unpack(form, self._read(peer, 8 * len(values))) for peer in self._sockets]
            total = [math.fsum(column) for column in zip(values, *each, strict=True)]
            for peer in self._sockets:
                peer.sendall(struct.pack(form, *total))
            return total
        self._sockets[0].sendall(struct.pack(form, *values))
        return list(struct.unpack(form, self._read(self._sockets[0], 8 * len(values))))

    def _read(self, peer: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = peer.recv(count - len(data))
            except TimeoutError:
                self._look(math.inf)
                continue
            if not more:
                raise ConnectionResetError("a peer has closed its connection")
            data += more
        return data

    def _look(self, give_up_s: float) -> None:
        if aryl.should_stop():
            raise Stopped
        if time.monotonic() > give_up_s:
            raise TimeoutError("the others do not come")


def sample(index: int) -> tuple[list[float], float]:
    x = [math.sin(0.37 * (index + 1) * (k + 1)) for k in range(WIDTH)]
    return x, math.tanh(sum(x[::2]) - sum(x[1::3])) + 0.1 * math.cos(index)


def gradients(weights: list[float], samples: list[tuple[list[float], float]]) -> tuple[float, list[float]]:
    """Mean squared error over the samples, and its slope."""
    loss, slope = 0.0, [0.0] * WIDTH
    for x, y in samples:
        error = sum(w * v for w, v in zip(weights, x, strict=True)) - y
        loss += error * error / len(samples)
        for k in range(WIDTH):
            slope[k] += 2 * error * x[k] / len(samples)
    return loss, slope


def save(step: int, weights: list[float]) -> None:
    if ME.rank == 0:
        with aryl.save(step) as folder:
            time.sleep(SAVE_S)
            (folder / "state.json").write_text(
                json.dumps({"seen": step * BATCH, "weights": [w.hex() for w in weights]})
            )
        say(f"saved {step}")


def wait_for_leave(step: int) -> None:
    """Of the test, for the next step."""
    while HOLD and step >= HOLD and not (Path(str(LOG)).parent / "go").exists():
        if aryl.should_stop():
            raise Stopped
        time.sleep(0.02)


def main() -> int:
    aryl.install()
    peers_of, slopes_of = (with_torch.Peers, with_torch.gradients) if TORCH else (Peers, gradients)
    weights, step, seen = [0.0] * WIDTH, 0, 0
    if (resume := aryl.latest()) is not None:
        state = json.loads((Path(resume) / "state.json").read_text())
        weights, seen = [float.fromhex(w) for w in state["weights"]], state["seen"]
        step = seen // BATCH
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    say(f"start {step} of {ME.world} {'warm' if b'zygote' in parent else 'plain'}")
    saved = step
    try:
        peers = peers_of()
        steps = aryl.Steps(
            aryl.Order(SIZE, seed=3), global_batch=BATCH, micro_batch=MICRO, seen=seen, until=STEPS * BATCH
        )
        for one in steps:
            time.sleep(STEP_S)
            wait_for_leave(step)
            total = [0.0] * (WIDTH + 3)
            for micro in one.micro:
                loss, slope = slopes_of(weights, [sample(i) for i in micro.indices])
                found = [loss, *slope, sum(micro.indices) / len(micro.indices)]
                total = [a + micro.weight * b for a, b in zip(total, [*found, 0.0], strict=True)]
            total[-1] = float(aryl.should_stop())
            mean, *slopes, indices, stop = peers.sum(total)
            weights = [w - 0.05 * s for w, s in zip(weights, slopes, strict=True)]
            step, seen = one.number + 1, one.seen
            say(f"step {step} {seen} {mean.hex()} {round(indices * BATCH)}")
            aryl.progress(step, STEPS)
            if stop and step < STEPS:
                break
            if step % SAVE_EVERY == 0 and step < STEPS:
                save(step, weights)
                saved = step
    except Stopped:
        pass  # what has been done together is whole: rank 0 has it
    except (OSError, RuntimeError) as error:  # the latter is Gloo's
        say(f"failed {error}")
        print(f"rank {ME.rank}: {error}", file=sys.stderr)
        return 75
    if step > saved:
        save(step, weights)
    if step >= STEPS:
        aryl.finished()
    say(f"end {step}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
