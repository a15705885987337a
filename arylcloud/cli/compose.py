"""Composition root of the planning side: which offers, profiles and assumptions a job is planned on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arylcloud.cli.settings import Folders
    from arylcloud.core.job import JobSpec
    from arylcloud.core.offer import Offer
    from arylcloud.core.plan import Plan
    from arylcloud.planner.profiles import Library
    from arylcloud.planner.upkeep import Assumptions
    from arylcloud.pricing.hazard import OwnHistory, SpotAdvisor
    from arylcloud.pricing.table import OfferTable
    from arylcloud.providers.registry import Adapter

LOCAL = "local"
POOL = "pool"
LOCAL_SAVE_S = 0.1
"""Wall seconds that a small checkpoint holds up the training here."""
LOCAL_START_S = 1.5
"""Wall seconds that the local cloud's agent takes from boot to the first step, beside ``boot_s``."""


def named_clouds(spec: JobSpec) -> frozenset[str]:
    return frozenset(cloud for one in (spec.resources, *spec.resources.any_of) for cloud in one.clouds)


def names_local(spec: JobSpec) -> bool:
    """The local cloud is used by a job that names it, and by no other."""
    return LOCAL in named_clouds(spec)


def offer_table(spec: JobSpec, folders: Folders) -> OfferTable:
    """The catalogue, as refreshed last, with the user's rows over it; the local cloud's offers, and one's
    own machines, where the job names them. Of a job for these alone nothing else is read."""
    from arylcloud.pricing.catalogue import load
    from arylcloud.pricing.table import concat, from_offers

    named = named_clouds(spec)
    own = [from_offers(_own(cloud, folders).offers()) for cloud in (LOCAL, POOL) if cloud in named]
    if own and set(spec.resources.clouds) <= {LOCAL, POOL} and spec.resources.clouds:
        return concat(*own) if len(own) > 1 else own[0]
    user = folders.user_catalogue if folders.user_catalogue.is_file() else None
    table = load(user, refreshed=folders.live_prices)
    for more in own:
        table = concat(table, more)
    return table


def assumptions(spec: JobSpec, folders: Folders, store_place: str | None = None) -> Assumptions:
    """Boot times by cloud, in seconds of each cloud's market clock; and where checkpoints go."""
    from dataclasses import replace

    from arylcloud.planner.upkeep import Assumptions

    if not names_local(spec):
        return Assumptions(store_place=store_place)
    able = _own(LOCAL, folders).capabilities()
    scale = able.market_clock.scale
    usual = Assumptions(store_place=store_place)
    return replace(
        usual,
        boot_s={LOCAL: (able.boot_s + LOCAL_START_S) * scale},
        market_scale={LOCAL: scale},
        # a copy on this machine's own disk, in market seconds as all else
        save_s=LOCAL_SAVE_S * scale,
        save_fixed_s=LOCAL_SAVE_S * scale,
        save_gb_per_s=usual.save_gb_per_s / scale,
        transfer_gb_per_s=usual.transfer_gb_per_s / scale,
    )


def profiles(folders: Folders) -> Library:
    """The bundled profiles with the user's own over them."""
    from arylcloud.planner.profiles import library

    return library(folders.user_profiles)


def own_history(folders: Folders) -> tuple[OwnHistory, ...]:
    """Lives of the machines that this home has had. A journal that cannot be read is no reason to plan
    nothing: a line says so, and the assumed lives stand."""
    if not folders.journal.is_file():
        return ()
    from arylcloud.cli.output import note
    from arylcloud.core.clock import SystemClock
    from arylcloud.core.errors import IntegrityError, LocalStateError
    from arylcloud.launcher.lifebook import read

    try:
        return read(folders.journal, SystemClock().now_s(), folders.lives)
    except (IntegrityError, LocalStateError) as error:
        note(f"own history is not used: {error.message}")
        return ()


def spot_advisor(folders: Folders) -> SpotAdvisor | None:
    """Interruption bands as AWS and Azure told them at the last refresh; None = the bundled ones, of AWS."""
    from dataclasses import replace

    from arylcloud.pricing.hazard import bundled_advisor

    aws, azure = (_bands(folders, cloud) for cloud in ("aws", "azure"))
    return aws if azure is None else replace(aws or bundled_advisor(), also=(azure,))


def _bands(folders: Folders, cloud: str) -> SpotAdvisor | None:
    from arylcloud.pricing.hazard import read_advisor

    path = (
        folders.live_prices / f"advisor-{cloud}.json"
    )  # pricing/livefile.advisor_file: not worth its import
    if not path.is_file():
        return None
    from arylcloud.cli.output import note
    from arylcloud.core.errors import IntegrityError

    try:
        return read_advisor(path)
    except (IntegrityError, ValueError, KeyError, TypeError, OSError) as error:
        note(f"{path} is not used: {error}; `arylcloud prices --refresh` writes it anew")
        return None


def store_of_plan() -> str | None:
    """``cloud/region`` of the store that ``ARYLCLOUD_STORE`` names, as far as its name tells: ``plan`` asks
    no cloud. What it does not tell is said."""
    uri = os.environ.get("ARYLCLOUD_STORE")
    if not uri:
        return None
    from arylcloud.core.stores import usual_place

    place = None if _leads_elsewhere(uri) else usual_place(uri)
    say_unpriced(uri, place)
    return place


def _leads_elsewhere(uri: str) -> bool:
    """As far as the environment tells: a profile of AWS's is not read for a plan."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3", "")
    return uri.startswith("s3:") and bool(endpoint) and ".amazonaws.com" not in endpoint


def say_unpriced(uri: str | None, place: str | None) -> None:
    """Where checkpoints go to a bucket that may be anywhere."""
    from arylcloud.core.stores import cloud_of

    if uri and place is None and cloud_of(uri) is not None:
        from arylcloud.cli.output import hanging, note

        text = f"where {uri} lies is not known here: egress is planned as if it were where the machines are"
        note(hanging(text, 2))


def make_plan(
    spec: JobSpec,
    folders: Folders,
    *,
    limit: int = 20,
    known: Library | None = None,
    quoted: Sequence[Offer] = (),
    also: Sequence[Offer] = (),
    store_place: str | None = None,
) -> Plan:
    """What ``plan`` shows and ``launch`` does: one road to a plan. ``known``: the profiles, where they
    have been read before (None: they are read). ``quoted``: offers newer than the catalogue's; one
    without a price is not to be had. ``also``: offers that are among the candidates in any case.
    ``store_place``: ``cloud/region`` of the job's store; None = it will be where the machines are, or nobody
    knows."""
    from arylcloud.planner.single import plan_job
    from arylcloud.pricing.table import from_offers, overlay

    table = offer_table(spec, folders)
    return plan_job(
        spec,
        overlay(table, from_offers(quoted)) if quoted else table,
        library=profiles(folders) if known is None else known,
        assumptions=assumptions(spec, folders, store_place),
        advisor=spot_advisor(folders),
        history=own_history(folders),
        limit=limit,
        also=also,
    )


def _own(cloud: str, folders: Folders) -> Adapter:
    """The local cloud or the pool: their offers are their own to tell."""
    from arylcloud.providers import registry

    found = registry.load(cloud, state_dir=folders.state, environ=os.environ, config_dir=folders.config)
    return cast("Adapter", found)
