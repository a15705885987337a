"""A job whose machines are not in the bucket's cloud: what it needs is lent, renewed, and leaks nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("boto3", reason="needs arylcloud[aws]")
pytest.importorskip("moto.server", reason="needs moto[server]")

from clouds import secrets
from clouds.aws.account import Account
from clouds.aws.emulator import AwsEmulator
from providers.contract import wait_for

from arylcloud.checkpoint.store import open_store
from arylcloud.core.protocol import BOOT_PREFIX, LENT_KEY
from arylcloud.core.stores import address_of
from arylcloud.providers.aws import bucket

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
TOKEN = "w4nd6-t0k3n-0f-th3-us3r"


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsEmulator]:
    with AwsEmulator() as emulator:
        yield emulator


@pytest.fixture
def account(aws: AwsEmulator, monkeypatch: pytest.MonkeyPatch) -> Account:
    made = aws.account()
    for name, value in aws.environ(made).items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    text = (DIGITS / "job.yaml").read_text(encoding="utf-8").replace("workdir: .", f"workdir: {DIGITS}")
    path = tmp_path / "job.yaml"
    path.write_text(f"{text}\nsecrets: {{WANDB_TOKEN: null}}\n", encoding="utf-8")
    return path


def test_a_machine_elsewhere(aws: AwsEmulator, account: Account, job: Path, tmp_path: Path) -> None:
    aws.sessions.hands_out_s = 30.0
    storage = bucket.create(Path(), {})
    root = "s3://arylcloud-elsewhere"
    storage.make(address_of(root), "us-east-1", "j1")
    home = tmp_path / "home"
    environ = {**os.environ, "ARYLCLOUD_HOME": str(home), "WANDB_TOKEN": TOKEN}
    args = ["launch", str(job), "--infra", "local", "--store", root, "--env", "DIGITS_STEP_S=0.05"]
    run = subprocess.Popen(
        [sys.executable, "-m", "arylcloud", *args, "-y", "--json"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    store = open_store(root, **storage.options(address_of(root)))
    watch = secrets.Watch()

    def renewed() -> bool:
        watch.look()
        return len([s for s in aws.sessions.by_key.values() if s.policy is not None]) >= 3

    wait_for(renewed, "a third loan", 120.0)
    machines = list((home / "state" / "local-cloud").rglob(".user-data"))
    stubs = [path.read_text(encoding="utf-8") for path in machines]
    lent_now = [i.key for i in store.list("jobs/") if i.key.endswith(LENT_KEY) or BOOT_PREFIX in i.key]
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0, f"{out}\n{err}"
    prefix = json.loads(out)["prefix_uri"].removeprefix(root + "/")
    assert lent_now == [f"{prefix}/{LENT_KEY}"]  # the machine has been heard: its first document is gone
    assert len(stubs) == 1
    known = [TOKEN]
    for session in aws.sessions.by_key.values():
        known += [session.secret, session.token]
    assert len(secrets.links(stubs[0])) == 1
    assert secrets.of_machine(stubs[0], known) == []
    wait_for(lambda: account.called["DeleteRole"] == 1, "the end of the role", 60.0)
    left = {info.key.removeprefix(prefix + "/"): store.get(info.key) or b"" for info in store.list(prefix)}
    assert not {LENT_KEY, "secrets.json"} & left.keys()
    texts = {key: data.decode(errors="replace") for key, data in left.items() if not key.startswith("ckpt/")}
    assert any(key.startswith("logs/") for key in texts)
    assert any(key.startswith("journal/") for key in texts)
    texts |= watch.seen
    texts["stdout"], texts["stderr"] = out, err
    assert secrets.in_texts(texts, known) == []
    assert secrets.in_files([home], known) == []
