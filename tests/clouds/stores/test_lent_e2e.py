"""A job whose machines are not in the bucket's cloud: what it needs is lent, renewed, and leaks nowhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clouds import leaks
from clouds.asking import DIGITS
from providers.contract import wait_for

from arylcloud.checkpoint.store import open_store, sub
from arylcloud.core.codec import loads
from arylcloud.core.protocol import (
    BOOT_PREFIX,
    EPOCHS_PREFIX,
    LAUNCHER_KEY,
    LENT_KEY,
    MANIFESTS_PREFIX,
    EpochDoc,
    LauncherBeat,
    Manifest,
)
from arylcloud.core.stores import address_of

TOKEN = "w4nd6-t0k3n-0f-th3-us3r"


@dataclass(frozen=True, kw_only=True)
class Place:
    root: str
    environ: dict[str, str]
    options: Mapping[str, Any]
    loans: Callable[[], int]
    secrets: Callable[[], list[str]]
    cleared: Callable[[], bool]
    """Whether nothing of the job's is left but its objects."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    pytest.importorskip("boto3", reason="needs arylcloud[aws]")
    pytest.importorskip("moto.server", reason="needs moto[server]")
    from clouds.aws.emulator import AwsEmulator

    from arylcloud.providers.aws import bucket

    with AwsEmulator() as aws:
        account = aws.account()
        environ = aws.environ(account)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        aws.sessions.hands_out_s = 30.0
        storage = bucket.create(Path(), {})
        root = "s3://arylcloud-elsewhere"
        storage.make(address_of(root), "us-east-1", "j1")
        sessions = aws.sessions.by_key
        yield Place(
            root=root,
            environ=environ,
            options=storage.options(address_of(root)),
            loans=lambda: sum(s.policy is not None for s in list(sessions.values())),
            secrets=lambda: [one for s in list(sessions.values()) for one in (s.secret, s.token)],
            cleared=lambda: account.called["CreateRole"] == account.called["DeleteRole"] == 1,
        )


@pytest.fixture
def gs() -> Iterator[Place]:
    pytest.importorskip("google.auth", reason="needs arylcloud[gcp]")
    pytest.importorskip("requests", reason="needs arylcloud[gcp]")
    from clouds.stores.gcs import Gcs

    from arylcloud.providers.gcp import bucket

    with Gcs(hands_out_s=30.0) as gcs:
        storage = bucket.create(Path(), gcs.settings)
        root = "gs://arylcloud-elsewhere"
        storage.make(address_of(root), "us-central1", "j1")
        yield Place(
            root=root,
            environ={f"ARYLCLOUD_GCP__{key.upper()}": value for key, value in gcs.settings.items()},
            options=storage.options(address_of(root)),
            loans=lambda: sum(who.rules is not None for who in list(gcs.tokens.values())),
            secrets=lambda: [token for token in list(gcs.tokens) if token != "anonymous"],
            cleared=lambda: not gcs.accounts and not gcs.buckets["arylcloud-elsewhere"].folders,
        )


@pytest.fixture
def az(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    pytest.importorskip("azure.identity", reason="needs arylcloud[azure]")
    pytest.importorskip("azure.mgmt.compute", reason="needs arylcloud[azure]")
    from clouds.stores.blob import Azure

    from arylcloud.providers.azure import bucket

    with Azure() as azure:
        for name, value in azure.environ.items():
            monkeypatch.setenv(name, value)
        for name in ("MADE_EVERY_S", "USABLE_EVERY_S"):
            monkeypatch.setattr(bucket, name, 0.01)
        storage = bucket.create(Path(), azure.settings)
        root = storage.usual("eastus")
        storage.make(address_of(root), "eastus", "j1")
        settings = {f"ARYLCLOUD_AZURE__{key.upper()}": value for key, value in azure.settings.items()}
        yield Place(
            root=root,
            environ={**azure.environ, **settings},
            options=storage.options(address_of(root)),
            loans=lambda: 2,  # one lasts half a day; that it is renewed is shown elsewhere
            secrets=lambda: [*azure.tokens, *azure.signatures],
            cleared=lambda: not [key for key in azure.things if "/userassignedidentities/" in key],
        )


@pytest.fixture
def job(tmp_path: Path) -> Path:
    text = (DIGITS / "job.yaml").read_text(encoding="utf-8").replace("workdir: .", f"workdir: {DIGITS}")
    path = tmp_path / "job.yaml"
    path.write_text(f"{text}\nsecrets: {{WANDB_TOKEN: null}}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "which", ["s3", pytest.param("gs", marks=pytest.mark.slow), pytest.param("az", marks=pytest.mark.slow)]
)
def test_a_machine_elsewhere(which: str, job: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(which)
    home, root = tmp_path / "home", place.root
    environ = {**os.environ, **place.environ, "ARYLCLOUD_HOME": str(home), "WANDB_TOKEN": TOKEN}
    args = ["launch", str(job), "--infra", "local", "--store", root, "--env", "DIGITS_STEP_S=0.03"]
    run = subprocess.Popen(
        [sys.executable, "-m", "arylcloud", *args, "-y", "--json"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    store = open_store(root, **place.options)
    watch = leaks.Watch()

    def trains() -> bool:
        watch.look()
        return place.loans() >= 2 and any("/ckpt/manifests/" in info.key for info in store.list("jobs/"))

    try:
        wait_for(trains, "a second loan, and a checkpoint", 180.0)
    except AssertionError:
        run.kill()
        raise
    stubs = [path.read_text(encoding="utf-8") for path in (home / "state").rglob(".user-data")]
    lent_now = [i.key for i in store.list("jobs/") if i.key.endswith(LENT_KEY) or f"/{BOOT_PREFIX}" in i.key]
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0, f"{out}\n{err}"
    prefix = json.loads(out)["prefix_uri"].removeprefix(root + "/")
    assert lent_now == [f"{prefix}/{LENT_KEY}"]  # the machine has been heard: its first document is gone
    known = [TOKEN, *place.secrets()]
    assert len(known) > 1
    assert len(stubs) == 1
    assert len(leaks.links(stubs[0])) == 1
    assert leaks.of_machine(stubs[0], known) == []
    # by the launcher, after the record that `launch` waits for
    wait_for(
        lambda: place.cleared() and not any(i.key.endswith(LENT_KEY) for i in store.list(prefix)),
        "the end of what was made for the job",
        60.0,
    )
    left = {info.key.removeprefix(prefix + "/"): store.get(info.key) or b"" for info in store.list(prefix)}
    assert not {LENT_KEY, "secrets.json"} & left.keys()
    texts = {key: data.decode(errors="replace") for key, data in left.items() if not key.startswith("ckpt/")}
    assert any(key.startswith("logs/") for key in texts)
    assert any(key.startswith("journal/") for key in texts)
    texts |= watch.seen
    texts["stdout"], texts["stderr"] = out, err
    assert leaks.in_texts(texts, known) == []
    assert leaks.in_files([home], known) == []


@pytest.mark.slow
def test_a_loan_that_nobody_renews(s3: Place, tmp_path: Path) -> None:
    """The launcher dies, the loan comes to its end: saved, uploaded, ended in time; and taken up again."""
    home, root = tmp_path / "home", s3.root
    environ = {**os.environ, "ARYLCLOUD_HOME": str(home)}
    args = ["launch", str(DIGITS / "job.yaml"), "--infra", "local", "--store", root]
    begun = subprocess.run(
        [sys.executable, "-m", "arylcloud", *args, "--env", "DIGITS_STEP_S=0.06", "-y", "-d", "--json"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    prefix = json.loads(begun.stdout)["prefix_uri"].removeprefix(root + "/")
    job_id = json.loads(begun.stdout)["job_id"]
    store = sub(open_store(root, **s3.options), prefix)

    def steps() -> list[int]:
        keys = [info.key for info in store.list(MANIFESTS_PREFIX)]
        return [loads(Manifest, store.get(key) or b"").step for key in keys]

    wait_for(lambda: s3.loans() >= 2 and steps(), "a second loan, and a checkpoint", 180.0)
    beat = loads(LauncherBeat, store.get(LAUNCHER_KEY) or b"")
    os.kill(beat.pid, signal.SIGKILL)
    ended = "nobody has renewed it"

    def said() -> bool:
        logs = [store.get(info.key) or b"" for info in store.list("logs/boot-")]
        return ended in b"".join(logs).decode(errors="replace")

    wait_for(said, "the machine's last words", 90.0)
    wait_for(lambda: not list((home / "state").rglob(".user-data")), "its end", 180.0)
    last = steps()[-1]
    done = subprocess.run(
        [sys.executable, "-m", "arylcloud", "resume", job_id, "--json"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert sorted(steps())[-1] == 1000
    first = [loads(EpochDoc, store.get(i.key) or b"") for i in store.list(EPOCHS_PREFIX)]
    resumed = [e.resume_from for e in first if e.members][-1]
    assert resumed is not None
    assert loads(Manifest, store.get(resumed) or b"").step == last
