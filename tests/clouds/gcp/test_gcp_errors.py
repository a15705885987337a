"""Every code of Google Cloud, through the real SDK over HTTP: what it means for us, asked once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from clouds.asking import spec
from clouds.gcp.offers import connect, offer
from clouds.gcp.project import Fault, Project

from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    MissingExtraError,
    OtherCloudError,
    QuotaError,
    ThrottledError,
    UsageError,
)
from arylcloud.core.offer import Market
from arylcloud.providers import bounds
from arylcloud.providers.gcp.adapter import GcpProvider
from arylcloud.providers.gcp.client import Calls

ANSWERS: list[tuple[str, int, type[ArylError]]] = [
    ("quotaExceeded", 403, QuotaError),
    ("rateLimitExceeded", 403, ThrottledError),
    ("userRateLimitExceeded", 403, ThrottledError),
    ("RATE_LIMIT_EXCEEDED", 429, ThrottledError),
    ("forbidden", 403, AccessError),
    ("insufficientPermissions", 403, AccessError),
    ("accessNotConfigured", 403, AccessError),
    ("authError", 401, AccessError),
    ("required", 401, AccessError),
    ("invalid", 400, UsageError),
    ("badRequest", 400, UsageError),
    ("notFound", 404, OtherCloudError),  # perhaps of a network of ours: made again by the next try
    ("conditionNotMet", 412, UsageError),
    ("backendError", 503, OtherCloudError),
    ("internalError", 500, OtherCloudError),
    ("somethingNobodyHasSeen", 400, OtherCloudError),
]
INSIDE: list[tuple[str, type[ArylError]]] = [
    ("ZONE_RESOURCE_POOL_EXHAUSTED", CapacityError),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", CapacityError),
    ("UNSUPPORTED_OPERATION", CapacityError),
    ("IP_SPACE_EXHAUSTED", CapacityError),
    ("QUOTA_EXCEEDED", QuotaError),
    ("RESOURCE_OPERATION_RATE_EXCEEDED", ThrottledError),
    ("PERMISSIONS_ERROR", AccessError),
    ("RESOURCE_NOT_FOUND", UsageError),
    ("CONDITION_NOT_MET", UsageError),
    ("INTERNAL_ERROR", OtherCloudError),
    ("SOMETHING_NOBODY_HAS_SEEN", OtherCloudError),
]


def inserts(project: Project, **fault: Any) -> None:
    project.faults.append(Fault(method="instances.insert", **fault))


@pytest.mark.parametrize(("code", "status", "kind"), ANSWERS, ids=[c[0] for c in ANSWERS])
def test_code(project: Project, adapter: GcpProvider, code: str, status: int, kind: type[ArylError]) -> None:
    inserts(project, code=code, status=status, times=5)
    with pytest.raises(ArylError) as failed:
        adapter.create(spec(offer()))
    assert type(failed.value) is kind
    assert failed.value.code == code
    assert "\n" not in failed.value.message
    if status != 401:  # google-auth renews the token, and tries again: nothing was done before
        assert project.called["instances.insert"] == 1
    assert not project.lives


@pytest.mark.parametrize(("code", "kind"), INSIDE, ids=[c[0] for c in INSIDE])
def test_code_inside_an_operation(
    project: Project, adapter: GcpProvider, code: str, kind: type[ArylError]
) -> None:
    """A 200, and the error later; the machine was there meanwhile, and has vanished."""
    inserts(project, code=code, effect="operation", message="it\nfailed")
    wanted = spec(offer())
    with pytest.raises(ArylError) as failed:
        adapter.create(wanted)
    assert type(failed.value) is kind
    assert failed.value.code == code
    assert failed.value.message.endswith(f"{code}: it failed")
    assert project.called["instances.insert"] == 1
    assert [m for m in adapter.list_machines(journal_id=None) if m.ended_s is None] == []
    assert sum(project.bill().values()) == 0.0


def test_zones_that_have_it_are_named(project: Project, adapter: GcpProvider) -> None:
    project.capacity["us-central1-a", "g2-standard-4", "spot"] = 0
    project.capacity["us-central1-b", "g2-standard-4", "spot"] = 0
    with pytest.raises(CapacityError) as failed:
        adapter.create(spec(offer()))
    assert failed.value.elsewhere == ("us-central1-c",)
    assert failed.value.scope is None  # of the zone


def test_in_the_region_means_in_any_zone_of_it(project: Project, adapter: GcpProvider) -> None:
    anywhere = offer(zone=None)
    for zone in "ab":
        project.capacity[f"us-central1-{zone}", "g2-standard-4", "spot"] = 0
    wanted = spec(anywhere)
    machine = adapter.create(wanted)
    assert machine.zone == "us-central1-c"
    assert adapter.create(wanted).instance_id == machine.instance_id
    assert len(project.live()) == 1
    project.capacity["us-central1-c", "g2-standard-4", "spot"] = 0
    with pytest.raises(CapacityError) as failed:
        adapter.create(spec(anywhere))
    assert failed.value.scope == "region"
    zones = {zone for zone in ("a", "b", "c") if f"us-central1-{zone}" in failed.value.message}
    assert zones == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("metric", "scope"),
    [
        ("PREEMPTIBLE_NVIDIA_L4_GPUS", None),
        ("GPUS_ALL_REGIONS", "account"),
        ("CPUS", "market"),
        ("PREEMPTIBLE_CPUS", "market"),
    ],
)
def test_what_a_quota_speaks_of(
    project: Project, adapter: GcpProvider, metric: str, scope: str | None
) -> None:
    message = f"Quota '{metric}' exceeded.  Limit: 1.0 in region us-central1."
    inserts(project, code="QUOTA_EXCEEDED", effect="operation", message=message)
    with pytest.raises(QuotaError) as failed:
        adapter.create(spec(offer()))
    assert failed.value.scope == scope
    assert metric in (failed.value.hint or "")


def test_an_answer_that_is_no_document(project: Project, adapter: GcpProvider) -> None:
    inserts(project, code="", effect="html", status=502)
    with pytest.raises(OtherCloudError) as failed:
        adapter.create(spec(offer()))
    assert failed.value.code == "HTTP_502"
    assert project.called["instances.insert"] == 1


@pytest.mark.parametrize("market", [Market.SPOT, Market.ON_DEMAND])
def test_no_create_call_without_quota(project: Project, adapter: GcpProvider, market: Market) -> None:
    for metric in ("NVIDIA_L4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS"):
        project.quotas["us-central1", metric] = 0.0
    with pytest.raises(QuotaError) as failed:
        adapter.create(spec(offer(market=market)))
    name = "PREEMPTIBLE_NVIDIA_L4_GPUS" if market is Market.SPOT else "NVIDIA_L4_GPUS"
    assert failed.value.code == name
    assert name in (failed.value.hint or "")
    assert not [call for call in project.calls if call.endswith(".insert")]


def test_no_create_call_without_quota_in_all_regions(project: Project, adapter: GcpProvider) -> None:
    project.quotas["", "GPUS_ALL_REGIONS"] = 1.0
    with pytest.raises(QuotaError) as failed:
        adapter.create(spec(offer("g2-standard-24")))
    assert (failed.value.code, failed.value.scope) == ("GPUS_ALL_REGIONS", "account")
    assert not [call for call in project.calls if call.endswith(".insert")]
    adapter.create(spec(offer()))  # one GPU fits


def test_one_markets_quota_serves_the_other(project: Project, adapter: GcpProvider) -> None:
    project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 0.0
    project.quotas["us-central1", "NVIDIA_L4_GPUS"] = 1.0
    with pytest.raises(QuotaError, match="needs 2"):
        adapter.create(spec(offer("g2-standard-24")))
    assert project.called["instances.insert"] == 0


def test_a_raised_quota_is_seen_after_a_while(
    project: Project, adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.quotas["", "GPUS_ALL_REGIONS"] = 0.0
    with pytest.raises(QuotaError):
        adapter.create(spec(offer()))
    del project.quotas["", "GPUS_ALL_REGIONS"]
    with pytest.raises(QuotaError):
        adapter.create(spec(offer()))
    monkeypatch.setattr(bounds, "QUOTA_KEPT_S", 0.0)
    adapter.create(spec(offer()))


def test_a_quota_that_others_have_at_present(project: Project, adapter: GcpProvider) -> None:
    """Large enough for one of them: whoever waits may get it."""
    project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 1.0
    adapter.create(spec(offer()))
    with pytest.raises(QuotaError) as failed:
        adapter.create(spec(offer()))
    assert failed.value.code == "QUOTA_EXCEEDED"
    assert failed.value.in_use
    said = "Quota 'PREEMPTIBLE_CPUS' exceeded.  Limit: {} in region us-central1."
    for limit, busy in (("3.0", False), ("4.0", True)):  # it has four
        inserts(project, code="QUOTA_EXCEEDED", effect="operation", message=said.format(limit))
        with pytest.raises(QuotaError) as failed:
            adapter.create(spec(offer()))
        assert failed.value.in_use is busy


def test_quotas_that_may_not_be_read_are_googles_affair(project: Project, adapter: GcpProvider) -> None:
    project.denied |= {"compute.regions.get", "compute.projects.get"}
    project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 0.0
    with pytest.raises(QuotaError) as failed:
        adapter.create(spec(offer()))
    assert failed.value.code == "QUOTA_EXCEEDED"
    assert not failed.value.in_use


def test_a_dollar_never_buys_a_machine_for_more(project: Project, adapter: GcpProvider) -> None:
    wanted = offer("g2-standard-24", market=Market.ON_DEMAND, usd_per_hour=0.9)  # a price of last year
    with pytest.raises(CapacityError, match="more than"):
        adapter.create(spec(wanted, max_usd_per_hour=1.0))
    assert project.called["instances.insert"] == 0


def test_a_machine_that_is_not_as_asked_ends_at_once(
    project: Project, adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price of the *created* machine: here the list has been raised between question and creation."""
    answers = iter([0.9])
    monkeypatch.setattr(adapter._list, "now", lambda wanted: (next(answers, 1.52), 0.0))
    with pytest.raises(OtherCloudError) as failed:
        adapter.create(spec(offer(market=Market.ON_DEMAND), max_usd_per_hour=1.0))
    assert failed.value.code == "NotAsAsked"
    assert [life.cause for life in project.lives.values()] == ["delete"]


def test_an_end_that_is_forbidden_is_no_refusal_to_create(
    project: Project, adapter: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.denied.add("compute.instances.delete")
    answers = iter([0.9])
    monkeypatch.setattr(adapter._list, "now", lambda wanted: (next(answers, 1.52), 0.0))
    with pytest.raises(OtherCloudError, match="is not ended yet"):
        adapter.create(spec(offer(market=Market.ON_DEMAND), max_usd_per_hour=1.0))
    assert len(project.live()) == 1


def test_an_operation_that_may_not_be_looked_at(project: Project, adapter: GcpProvider) -> None:
    project.op_s = 0.3
    project.denied.add("compute.zoneOperations.get")
    with pytest.raises(OtherCloudError, match="not known") as failed:
        adapter.create(spec(offer()))
    assert failed.value.code == "forbidden"
    assert len(project.live()) == 1


def test_prices_that_cannot_be_read_hide_no_machine(
    project: Project, tmp_path: Path, settings: dict[str, str]
) -> None:
    adapter = connect(tmp_path, settings, billing_endpoint="http://127.0.0.1:1")
    adapter._list._web._patience = Calls(settings)._patience.__class__(tries=1)
    machine = adapter.create(spec(offer(market=Market.ON_DEMAND)))
    assert machine.usd_per_hour is None
    assert {m.instance_id for m in adapter.list_machines(journal_id=None)} == {machine.instance_id}
    priced = offer(usd_per_hour=0.5)
    assert adapter.quote(priced) == priced  # the catalogue's, with its age


def test_no_project(tmp_path: Path, settings: dict[str, str]) -> None:
    del settings["project"]
    with pytest.raises(UsageError, match="no project"):
        connect(tmp_path, settings).list_machines(journal_id=None)


def test_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(AccessError) as failed:
        connect(tmp_path, {"project": "p"}).list_machines(journal_id=None)
    assert failed.value.exit_code == 4
    assert "gcloud auth" in (failed.value.hint or "")


def test_no_sdk(tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.compute_v1", None)
    monkeypatch.delattr("google.cloud.compute_v1", raising=False)
    with pytest.raises(MissingExtraError) as failed:
        connect(tmp_path, settings).list_machines(journal_id=None)
    assert failed.value.hint == "pip install 'arylcloud[gcp]'"


def test_an_unknown_setting(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="porject"):
        connect(tmp_path, {"porject": "x"})


def test_plain_http_is_for_this_machine(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="https"):
        connect(tmp_path, {"project": "p", "api_endpoint": "http://compute.example.com"})
