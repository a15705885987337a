"""Who sends and receives in bench_linerate.py: ours, plain obstore in two ways, boto3 and rclone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MIB = 1 << 20
PART = 8 * MIB
THREADS = 8
KEY, SECRET = "a" * 16, "b" * 16


def s3(url: str, **more: Any) -> Any:
    from obstore.store import S3Store

    return S3Store(
        "bucket",
        endpoint=url,
        region="us-east-1",
        access_key_id=KEY,
        secret_access_key=SECRET,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        **more,
    )


def ours(url: str) -> Any:
    from arylcloud.checkpoint.store import open_store

    if url.startswith("file:"):
        return open_store(url)
    return open_store(
        "s3://bucket/ours",
        endpoint=url,
        region="us-east-1",
        access_key_id=KEY,
        secret_access_key=SECRET,
        virtual_hosted_style_request=False,
    )


def commit(url: str, source: Path, numbers: tuple[int, ...]) -> list[int]:
    """Bytes of chunks sent for each."""
    from arylcloud.checkpoint.upload import Uploader
    from arylcloud.core.clock import SystemClock

    uploader, sent = Uploader(ours(url)), []
    for number in numbers:
        before = uploader.uploaded_bytes
        if number > 1:
            change_a_tenth(source)
        uploader.commit(
            source,
            job_id="bench",
            lease_id="bench-n0-a1",
            epoch=1,
            number=number,
            step=number,
            saved_at_s=time.time(),
            clock=SystemClock(),
        )
        sent.append(uploader.uploaded_bytes - before)
    return sent


def restore(url: str, target: Path) -> None:
    from arylcloud.checkpoint.manifest import read_manifest
    from arylcloud.checkpoint.restore import restore as bring

    store = ours(url)
    bring(store, read_manifest(store, "ckpt/manifests/e000001-000001.json"), target)


def parts(source: Path) -> list[tuple[Path, int]]:
    return [(path, at) for path in sorted(source.iterdir()) for at in range(0, path.stat().st_size, PART)]


def read(path: Path, at: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), PART, at)


def up(kind: str, url: str, source: Path) -> Callable[[], object]:
    if kind == "ours":
        return lambda: commit(url, source, (1,))
    if kind == "rclone":
        return lambda: subprocess.run(rclone(url, source, ":bucket/rclone"), check=True)
    if kind == "boto3":
        client, config = boto(url)
        return lambda: [
            client.upload_file(str(p), "bucket", f"boto3/{p.name}", Config=config) for p in source.iterdir()
        ]
    client = s3(url)
    if kind == "obstore":
        return lambda: [client.put(f"plain/{p.name}", p, chunk_size=PART) for p in source.iterdir()]

    def work() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            put = lambda one: client.put(  # noqa: E731
                f"parts/{one[0].name}-{one[1]}", read(*one), use_multipart=False
            )
            list(pool.map(put, parts(source)))

    return work


def down(kind: str, url: str, source: Path, target: Path) -> Callable[[], object]:
    if kind == "ours":
        return lambda: restore(url, target)
    target.mkdir()
    if kind == "rclone":
        return lambda: subprocess.run(rclone(url, ":bucket/rclone", target), check=True)
    names = {path.name: path.stat().st_size for path in source.iterdir()}
    if kind == "boto3":
        client, config = boto(url)
        return lambda: [
            client.download_file("bucket", f"boto3/{name}", str(target / name), Config=config)
            for name in names
        ]
    client = s3(url)
    if kind == "obstore":

        def whole(name: str) -> None:
            with (target / name).open("wb") as file:
                for piece in client.get(f"plain/{name}").stream(min_chunk_size=MIB):
                    file.write(piece)

        def every() -> None:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(whole, names))

        return every

    def fetch(one: tuple[Path, int]) -> None:
        path, at = one
        data = client.get(f"parts/{path.name}-{at}").bytes()
        with (target / path.name).open("r+b") as file:
            os.pwrite(file.fileno(), data, at)

    def work() -> None:
        for name in names:
            (target / name).touch()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(fetch, parts(source)))

    return work


def boto(url: str) -> tuple[Any, Any]:
    import boto3
    from boto3.s3.transfer import TransferConfig

    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    return client, TransferConfig(multipart_chunksize=PART, max_concurrency=THREADS)


def rclone(url: str, source: object, target: object) -> list[str]:
    remote = f":s3,provider=Other,access_key_id={KEY},secret_access_key={SECRET},endpoint='{url}'"
    ends = [f"{remote}{end}" if str(end).startswith(":") else str(end) for end in (source, target)]
    tuned = ["--s3-upload-concurrency", str(THREADS), "--s3-chunk-size", "8M", "--ignore-times", "-q"]
    return ["rclone", "copy", *ends, *tuned]


def change_a_tenth(source: Path) -> None:
    """A tenth of all bytes, at one place: some layers were trained, the others were not."""
    first = sorted(source.iterdir())[0]
    every = sum(path.stat().st_size for path in source.iterdir())
    with first.open("r+b") as file:
        file.seek(first.stat().st_size // 5)
        file.write(os.urandom(every // 10))
