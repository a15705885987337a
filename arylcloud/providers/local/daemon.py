"""The local cloud's process: ``python -m arylcloud.providers.local.daemon FOLDER [--market NAME]``.

One per folder (it holds ``daemon.lock`` while it lives), in a session of its own, so that no
launcher's end is its end. It goes by itself when it has had no machine and no request for a while,
and the next request starts it again; the market's clock goes on all the time.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import secrets
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from arylcloud.core.clock import Clock, MarketClock, SystemClock
from arylcloud.core.errors import ArylError, IntegrityError, LocalStateError
from arylcloud.providers.local import marketfile, network
from arylcloud.providers.local.book import Book
from arylcloud.providers.local.clockwork import Clockwork
from arylcloud.providers.local.cloud import Cloud
from arylcloud.providers.local.control import ControlServer
from arylcloud.providers.local.log import CloudLog
from arylcloud.providers.local.machines import Instance
from arylcloud.providers.local.metadata import MetadataService, Tokens
from arylcloud.providers.local.wire import API, KEY_FILE, LOCK_FILE, LOG_FILE, PORT_FILE

BUSY_TICK_S = 0.05
IDLE_TICK_S = 0.5
log = logging.getLogger("arylcloud.local")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="arylcloud-local-cloud", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--market", help="a bundled market's name, or a file; only the first start reads it")
    parser.add_argument("--idle-exit-s", type=float, default=20.0)
    parser.add_argument("--network", choices=("loopback", network.NAME), default="loopback")
    parser.add_argument("--foreground", action="store_true")
    args = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE):
        # machines inherit these; Python itself wants SIGPIPE ignored, and gives it back to children
        signal.signal(number, signal.SIG_IGN if number == signal.SIGPIPE else signal.SIG_DFL)
    if not args.foreground:
        if os.fork():
            os._exit(0)
        os.setsid()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        lock = _lock(args.folder)
    except BlockingIOError:
        log.info("another daemon serves %s", args.folder)
        return 0
    try:
        return _run(args.folder, args.market, args.network, args.idle_exit_s, SystemClock())
    except ArylError as error:
        log.error("%s: %s", error.kind, error.message)  # noqa: TRY400 - the starter shows this line
        return error.exit_code
    except Exception:
        log.exception("bug: the local cloud failed")
        return 1
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _run(folder: Path, setting: str | None, connected: str, idle_exit_s: float, clock: Clock) -> int:
    cloud_log = CloudLog(folder / LOG_FILE)
    opened = open_market(cloud_log, setting, clock)
    market = marketfile.parse(opened["text"], what=f"market {opened['market']}")
    market_clock = MarketClock(origin_s=opened["origin_s"], scale=opened["scale"])
    now_s = clock.now_s()
    cloud_log.append("daemon", wall_s=now_s, market_s=market_clock.market_s(now_s), pid=os.getpid())

    def lookup(instance_id: str) -> Instance | None:
        with book.lock:
            return book.machines.by_id.get(instance_id)

    service = MetadataService(
        lookup=lookup,
        renew=lambda instance_id, until_s: book.renew(instance_id, until_s),
        tokens=Tokens(metadata_key(folder), clock),
        own_addresses=sys.platform == "linux",
    )
    wires: network.Network = network.Loopback(service.bind, service.unbind)
    if connected == network.NAME:
        wires = network.Namespaces(
            adopt=service.adopt,
            stop=service.unbind,
            pid_of=lambda instance_id: book.machines.by_id[instance_id].pid,
            clock=clock,
        )
    book = Book(
        folder=folder,
        market=market,
        market_clock=market_clock,
        market_id={"market": opened["market"], "setting": opened["setting"], "digest": opened["digest"]},
        clock=clock,
        cloud_log=cloud_log,
        bind=wires.bind,
        unbind=wires.unbind,
    )
    clockwork = Clockwork(book, wires)
    clockwork.rebind()
    service.start()
    server = ControlServer(Cloud(book, clockwork.terminate), book, secrets.token_hex(32), clock)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="control", daemon=True
    ).start()
    write_private(
        folder / PORT_FILE,
        {"api": API, "pid": os.getpid(), "port": server.server_port, "token": server.secret},
    )
    log.info("market %s, port %d, %d records", opened["market"], server.server_port, len(cloud_log))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.wait(BUSY_TICK_S if clockwork.busy else IDLE_TICK_S):
        if not (folder / LOG_FILE).exists():
            log.warning("%s is gone: ending every machine", folder)
            clockwork.end_everything()
            break
        try:
            clockwork.tick()
        except LocalStateError as error:  # a full disk: what was due stays due
            log.error("%s", error.message)  # noqa: TRY400
        if not clockwork.busy and server.idle_s() > idle_exit_s:
            break
    server.shutdown()
    service.close()
    return 0


def open_market(cloud_log: CloudLog, setting: str | None, clock: Clock) -> dict[str, Any]:
    """The log's first record: the market of this folder for good. Written at the first start."""
    for record in cloud_log:
        if record["kind"] != "opened":
            raise IntegrityError(f"the local cloud's log begins with {record['kind']!r}")
        marketfile.check_same(setting, record)
        return record
    chosen = marketfile.read(setting or marketfile.DEFAULT)
    market = marketfile.parse(chosen.text, what=chosen.setting)
    now_s = clock.now_s()
    return cloud_log.append(
        "opened",
        wall_s=now_s,
        market_s=now_s,
        market=market.name,
        setting=chosen.setting,
        digest=chosen.digest,
        text=chosen.text,
        origin_s=now_s,
        scale=market.time_scale,
    )


def metadata_key(folder: Path) -> bytes:
    """What metadata tokens are signed with: kept, so that they are valid over restarts."""
    path = folder / KEY_FILE
    if not path.exists():
        write_private(path, {"key": secrets.token_hex(32)})
    return bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["key"])


def write_private(path: Path, document: dict[str, Any]) -> None:
    """Atomic, readable by this user only."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(document, stream)
        part.replace(path)
    except OSError as error:
        raise LocalStateError(f"cannot write {path}: {error.strerror or error}") from error


if __name__ == "__main__":
    sys.exit(main())
