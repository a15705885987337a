"""Composition root of the run side: names the concrete adapters and builds a job's launcher."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arylcloud.cli.settings import Folders, ensure
from arylcloud.core.clock import MarketClock
from arylcloud.core.errors import UsageError
from arylcloud.core.ports import Infrastructure, ObjectStore, Provider
from arylcloud.launcher.actions import Timing

if TYPE_CHECKING:
    from arylcloud.core.job import JobSpec
    from arylcloud.core.offer import Offer
    from arylcloud.launcher.actions import CreateLease
    from arylcloud.launcher.handout import Handout
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.loop import JobLauncher
    from arylcloud.launcher.state import JobState


LOCAL = "local"
NEAR = frozenset({LOCAL, "pool"})
"""Their offers come with their prices, and what they are asked is answered at once."""
ALL_OFFERS = 2000
"""Candidates that a launcher keeps to choose replacements from."""
LOCAL_TIMING = Timing(
    tick_s=0.2,
    boot_timeout_s=60.0,
    landing_s=10.0,
    list_lag_s=5.0,
    drain_timeout_s=120.0,
    end_retry_s=2.0,
    gather_s=20.0,
    grow_every_s=30.0,
    regain_s=5.0,
)
"""The local cloud answers in milliseconds: waiting there as for a real one helps nobody."""
POOL_TIMING = replace(
    Timing(),
    tick_s=LOCAL_TIMING.tick_s,
    landing_s=10.0,
    list_lag_s=5.0,
    end_retry_s=2.0,
    capacity_bar_market_s=15.0,
    region_cooldown_market_s=0.0,
    regain_s=15.0,
    gather_s=20.0,
)
"""One's own machines are free again whenever their owner says so, and are asked for nothing. What they are
given to boot and to save is what a cloud's are: their network is no faster."""
CALM_EVERY_S = 5.0
"""Between two lists of a bucket while a job simply runs (``launcher/observe``)."""
BEAT_EVERY_S = 6.0
"""Between two heartbeats of a launcher in a bucket: as often as agents look there (``Config.pace``)."""


def store_root_uri(folders: Folders, asked: str | None = None) -> str:
    """Where jobs' prefixes lie: ``--store``, ``ARYLCLOUD_STORE``, or a folder of this machine."""
    return (asked or os.environ.get("ARYLCLOUD_STORE") or folders.local_store.as_uri()).rstrip("/")


def open_root(uri: str) -> ObjectStore:
    """For ``launch`` alone: a folder that is missing is made. Durable: what the journal is sure of
    must not be gone from the mailbox after a power cut."""
    from arylcloud.cli.stores import open_uri

    return open_uri(uri, create=True, durable=True)


def open_prefix(uri: str) -> ObjectStore:
    """The prefix of a job that is there. Never made: an empty folder where a disk is not mounted would
    be taken for a job without a history. Raises StoreError if it is missing."""
    from arylcloud.cli.stores import open_uri

    return open_uri(uri, durable=True)


def prefix_uri(root_uri: str, job_id: str) -> str:
    return f"{root_uri}/jobs/{job_id}"


def root_of(prefix: str) -> str:
    """``…/jobs/<job_id>`` → ``…``."""
    root, sep, _job = prefix.rstrip("/").rpartition("/jobs/")
    if not sep:
        raise UsageError(f"{prefix} is no job prefix", hint="it looks like file:///…/jobs/NAME-1a2b3c4d")
    return root


def open_journal(folders: Folders) -> Journal:
    from arylcloud.launcher.journal import Journal

    ensure(folders.state)
    return Journal(folders.journal)


def providers_for(clouds: Iterable[str], folders: Folders) -> dict[str, Provider]:
    """Adapters of exactly these clouds: one that is not named gets no call at all."""
    from arylcloud.providers import registry

    return {
        cloud: registry.load(cloud, state_dir=folders.state, environ=os.environ, config_dir=folders.config)
        for cloud in clouds
    }


def infrastructure_for(cloud: str, folders: Folders) -> Infrastructure | None:
    """What the cloud holds for us beside machines; None where it holds nothing."""
    from arylcloud.providers import registry

    return registry.load_infrastructure(
        cloud, state_dir=folders.state, environ=os.environ, config_dir=folders.config
    )


def clouds_of(spec: JobSpec) -> tuple[str, ...]:
    """Clouds that a launch of this job may touch, and that this version can launch on."""
    from arylcloud.providers import registry

    named = spec.resources.clouds or tuple(sorted({r.partition("/")[0] for r in spec.resources.regions}))
    launchable = tuple(registry.PROVIDERS)
    missing = [cloud for cloud in named if cloud not in launchable]
    if missing or not named:
        first, *others = sorted(launchable, key=lambda cloud: cloud in (LOCAL, "pool"))
        what = f"no cloud is named to launch on; say where: --infra {first} (or {', '.join(others)})"
        if missing:
            every = ", ".join(launchable)
            what = f"cannot launch on {', '.join(missing)}: this version launches on {every} only"
        raise UsageError(
            what,
            hint="`--infra aws --infra gcp`: on either; `--infra local`: on this machine's own little cloud",
        )
    return named


def check_same_market(job_id: str, clock: MarketClock, providers: Mapping[str, Provider]) -> None:
    """A home has a local cloud of its own, which knows nothing of another home's machines: its list
    must never be taken for the word of the cloud that runs them. Each has its own clock, to the moment
    of its first start. UsageError (nothing has been done) where this home's is another one."""
    for name, provider in providers.items():
        if provider.capabilities().market_clock != clock:
            raise UsageError(
                f"{job_id} runs on another {name} cloud than this home's: from here its machines can be "
                "neither seen nor ended",
                hint="set ARYLCLOUD_LOCAL__FOLDER to that home's state/local-cloud, or go on from that home",
            )


def new_writer_id() -> str:
    return f"l-{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a launcher of one job is made of; kept together for tests and for ``gc``."""

    journal: Journal
    store: ObjectStore
    providers: dict[str, Provider]


def _handout(
    state: JobState, store: ObjectStore, root: str, runtime: str, folders: Folders
) -> Handout | None:
    """None: the store is a folder, which machines either see or do not."""
    from arylcloud.cli.stores import lending_of, storage_of
    from arylcloud.core.clock import SystemClock
    from arylcloud.core.stores import JobPrefix, address_of, cloud_of
    from arylcloud.launcher.handout import Handout

    cloud = cloud_of(store.uri)
    if cloud is None:
        return None
    address = address_of(store.uri)
    return Handout(
        job=JobPrefix(address=address, journal_id=state.journal_id, job_id=state.job_id),
        root=address_of(root),
        runtime_key=runtime,
        store=store,
        shared=open_prefix(root),
        storage=storage_of(cloud, folders),
        lending=lending_of(cloud, folders),
        clock=SystemClock(),
        for_s=state.spec.unattended_s,
    )


def _gpus(offer: Offer) -> dict[str, str]:
    """What its machine looks for before it begins. The local cloud's machines only play at having GPUs."""
    look = {LOCAL: "", "pool": "own"}.get(offer.cloud, "1")
    return {
        "ARYL_GPUS": str(offer.gpu_count or 0),
        **({"ARYL_GPU": offer.gpu, "ARYL_CHECK_GPUS": look} if offer.gpu and look else {}),
    }


def _checkpoints(state: JobState) -> dict[str, str]:
    return {"ARYL_CHECKPOINTS": "memory"} if state.spec.checkpoint.in_memory else {}


def _timing(clouds: Collection[str]) -> Timing:
    if set(clouds) == {"pool"}:
        return POOL_TIMING
    return LOCAL_TIMING if clouds and set(clouds) <= NEAR else Timing()


def build_launcher(
    job_id: str, state: JobState, parts: Parts, folders: Folders, *, adopted: bool = False
) -> JobLauncher:
    from arylcloud.agent.bootstrap import user_data
    from arylcloud.cli.compose import make_plan, profiles
    from arylcloud.cli.notify import notifier
    from arylcloud.core import protocol as mail
    from arylcloud.core.clock import SystemClock
    from arylcloud.core.codec import loads
    from arylcloud.core.errors import CapacityError, IntegrityError
    from arylcloud.launcher.charges import Charges
    from arylcloud.launcher.desire import Desires
    from arylcloud.launcher.executor import Boot, Executor
    from arylcloud.launcher.handout import Given
    from arylcloud.launcher.housekeeping import Housekeeper
    from arylcloud.launcher.lifesign import LifeSign
    from arylcloud.launcher.loop import JobLauncher
    from arylcloud.launcher.observe import Observer
    from arylcloud.launcher.probe import from_environment
    from arylcloud.launcher.quotes import Quotes
    from arylcloud.launcher.submit import runtime_key
    from arylcloud.launcher.wheels import machine_of
    from arylcloud.pricing.tariffs import load_tariffs

    data = parts.store.get(mail.JOB_KEY)
    if data is None:
        raise IntegrityError(f"{parts.store.uri} holds no {mail.JOB_KEY}: it is no job, or has been deleted")
    job = loads(mail.JobDoc, data, what=f"{parts.store.uri}/{mail.JOB_KEY}")
    root = root_of(parts.store.uri)

    handout = _handout(state, parts.store, root, runtime_key(job.runtime_sha256), folders)

    def boot(action: CreateLease) -> Boot:
        machine = machine_of(action.offer)
        if action.offer.cloud != LOCAL and machine not in job.machines:
            # barred like what is sold out: another type does
            raise CapacityError(
                f"{action.offer.instance_type} is {machine}, and this job's runtime is for"
                f" {', '.join(job.machines) or 'the local cloud'} only",
                code="NoRuntime",
                scope="region",
            )
        able = parts.providers[action.offer.cloud].capabilities()
        if handout is None:
            given = Given(runtime_url=f"{root}/{runtime_key(job.runtime_sha256)}")
        else:
            given = handout.given(action.offer.cloud, action.lease_id)
        stub = user_data(
            store_uri=root,
            prefix_uri=parts.store.uri,
            runtime_sha256=job.runtime_sha256,
            runtime_url=given.runtime_url,
            boot_url=given.boot_url,
            job_id=job_id,
            lease_id=action.lease_id,
            journal_id=state.journal_id,
            until_s=action.until_s,
            metadata=able.metadata,
            env={**able.machine_env, **given.env, **_gpus(action.offer), **_checkpoints(state)},
        )
        return Boot(user_data=stub, identity=given.identity)

    def address() -> str | None:
        secret = parts.store.get(mail.LAUNCHER_SECRETS_KEY)
        what = mail.LAUNCHER_SECRETS_KEY
        return None if secret is None else loads(mail.LauncherSecrets, secret, what=what).notify

    known = profiles(folders)  # once: they are asked again and again, and do not change while it runs
    clock = SystemClock()
    probe = from_environment()
    parts.journal.probe = probe
    near = set(state.spec.resources.clouds) <= NEAR and bool(state.spec.resources.clouds)
    on_disk = state.prefix_uri.startswith("file:")
    timing = _timing(state.spec.resources.clouds)
    writer = new_writer_id()
    sign = LifeSign(store=parts.store, writer=writer, clock=clock)
    executor = Executor(
        journal=parts.journal,
        store=parts.store,
        providers=parts.providers,
        writer=writer,
        clock=clock,
        timing=timing,
        boot=boot,
        notify=notifier(state.spec.notify, address, job_id),
        probe=probe,
        moved=sign.moved,
    )
    return JobLauncher(
        job_id=job_id,
        journal=parts.journal,
        executor=executor,
        observer=Observer(
            store=parts.store,
            providers=parts.providers,
            clouds=tuple(parts.providers),
            calm_every_s=0.0 if on_disk else CALM_EVERY_S,
        ),
        desire=Desires(
            providers=parts.providers,
            plan=lambda spec, *, quoted, also: make_plan(
                spec,
                folders,
                limit=ALL_OFFERS,
                known=known,
                quoted=quoted,
                also=also,
                store_place=state.store_place,
            ),
            timing=timing,
            quotes=Quotes({n: p for n, p in parts.providers.items() if n not in NEAR}, clock),
            refresh_s=1.0 if near else 60.0,
        ),
        clock=clock,
        timing=timing,
        housekeeper=Housekeeper(store=parts.store),
        handout=handout,
        sign=sign,
        charges=Charges(tariffs=load_tariffs()),
        beat_every_s=2.0 if on_disk else BEAT_EVERY_S,
        adopted=adopted,
        admit=lambda found: check_same_market(job_id, found.market_clock, parts.providers),
    )
