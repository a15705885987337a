"""Ways to receive a checkpoint's parts, with SHA-256 and without: what bench_linerate.py's download could be.

    python benchmarks/receive_ways.py [--mib 512] [--rounds 3]

Server, parts and threads of bench_linerate.py; the client's CPU seconds per GiB, the least of the rounds.
*get*: obstore, 8 MiB at once; *stream*: obstore's pieces as they come; *socket*: Python's own, by a signed
address; *pages*: the same, into the mapped file.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from bench_linerate import MIB, PART, SHARDS, THREADS, parts, run, s3, server

PIECE = {"get": MIB // 2, "stream": MIB // 8, "socket": MIB, "pages": MIB}
Part = tuple[Path, int]


class Client:
    def __init__(self, url: str, target: Path, way: str) -> None:
        self.store, self.target, self.way = s3(url), target, way
        self.own = threading.local()

    def pieces(self, part: Part) -> Iterator[memoryview]:
        key = f"parts/{part[0].name}-{part[1]}"
        if self.way == "get":
            whole = memoryview(self.store.get(key).bytes())
            yield from (whole[at : at + PIECE["get"]] for at in range(0, PART, PIECE["get"]))
        elif self.way == "stream":
            yield from map(memoryview, self.store.get(key).stream(min_chunk_size=PIECE["stream"]))
        else:
            buffer = memoryview(bytearray(PIECE["socket"]))
            answer = self.asked(key)
            while size := answer.readinto(buffer):
                yield buffer[:size]

    def asked(self, key: str) -> http.client.HTTPResponse:
        import obstore

        address = urlsplit(obstore.sign(self.store, "GET", key, timedelta(minutes=15)))
        if not hasattr(self.own, "line"):
            self.own.line = http.client.HTTPConnection(address.netloc)
        self.own.line.request("GET", f"{address.path}?{address.query}")
        answer: http.client.HTTPResponse = self.own.line.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{key}: the server answers {answer.status}")
        return answer

    def written(self, part: Part, see: Callable[[memoryview], None]) -> None:
        file = os.open(self.target / part[0].name, os.O_RDWR)
        try:
            if self.way == "pages":
                answer, at = self.asked(f"parts/{part[0].name}-{part[1]}"), 0
                with mmap.mmap(file, PART, offset=part[1]) as mapped, memoryview(mapped) as pages:
                    while at < PART and (size := answer.readinto(pages[at : at + PIECE["pages"]])):
                        see(pages[at : at + size])
                        at += size
                answer.read()
                return
            at = part[1]
            for piece in self.pieces(part):
                see(piece)
                os.pwrite(file, piece, at)
                at += len(piece)
        finally:
            os.close(file)


def child(url: str, source: Path, way: str, digest: bool) -> float:
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        client = Client(url, Path(folder), way)
        for path in source.iterdir():
            (client.target / path.name).touch()
            os.truncate(client.target / path.name, path.stat().st_size)

        def receive(part: Part) -> None:
            client.written(part, hashlib.sha256().update if digest else lambda _: None)

        before = resource.getrusage(resource.RUSAGE_SELF)
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(receive, parts(source)))
        after = resource.getrusage(resource.RUSAGE_SELF)
        for path in source.iterdir():
            if (client.target / path.name).read_bytes() != path.read_bytes():
                raise SystemExit(f"{way}: what came is not what was sent")
    size = sum(path.stat().st_size for path in source.iterdir())
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / size * 1024 * MIB


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        url, source, way, digest = sys.argv[2:]
        print(json.dumps(child(url, Path(source), way, digest == "1")))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tmp = Path(folder)
        source = tmp / "step-1"
        source.mkdir()
        for number in range(SHARDS):
            (source / f"shard-{number}.bin").write_bytes(os.urandom(given.mib // SHARDS * MIB))
        with server(tmp / "s3") as url:
            run("up", "obstore, parts", url, tmp)
            print(f"{'':8}  without  SHA-256   CPU s per GiB; load {os.getloadavg()[0]:.1f}")
            for way in PIECE:
                least = []
                for digest in ("0", "1"):
                    command = [sys.executable, __file__, "--child", url, str(source), way, digest]
                    took = [float(subprocess.check_output(command)) for _ in range(given.rounds)]
                    least.append(min(took))
                print(f"{way:8}  {least[0]:7.2f}  {least[1]:7.2f}", flush=True)


if __name__ == "__main__":
    main()
