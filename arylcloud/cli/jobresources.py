"""The ``resources:`` section of a job file, SkyPilot's own words, into :class:`Resources`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arylcloud.cli.places import parse_accelerator, parse_infra, place
from arylcloud.cli.yamltree import Section, Value
from arylcloud.core import units
from arylcloud.core.errors import UsageError
from arylcloud.core.job import Accelerator, MarketChoice, Resources

UNSUPPORTED = {
    "ports": "machines open no ports",
    "disk_tier": "the disk is the cloud's standard one",
    "network_tier": "the network is the cloud's standard one",
    "local_disk": "use disk_size",
    "labels": "resources are tagged by arylcloud itself",
    "autostop": "machines end with the job",
    "job_recovery": "use aryl: recovery and on_node_loss",
    "spot_recovery": "use aryl: recovery and on_node_loss",
    "accelerator_args": "TPU runtime versions are not chosen here",
    "priority": "no job is put before others; `launch --queue` has `serve --policy` say whose turn it is",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _One:
    """One set of requirements, as a base or an alternative."""

    resources: Resources
    market: MarketChoice | None
    max_usd_per_hour: float | None


def read_resources(value: Value | None) -> tuple[Resources, MarketChoice | None, float | None]:
    """(resources, market of all of them, price cap per machine)."""
    if value is None:
        return Resources(), None, None
    section = value.section()
    any_of, ordered = section.take("any_of"), section.take("ordered")
    if any_of is not None and ordered is not None and ordered.is_list:
        raise UsageError(f"{ordered.what} and any_of stand together", hint="keep one of them")
    strict = False
    if ordered is not None and not ordered.is_list:
        strict = bool(ordered.plain)
    base = _read_one(section)
    listed = ordered if ordered is not None and ordered.is_list else any_of
    if listed is None:
        return replace(base.resources, ordered=strict), base.market, base.max_usd_per_hour
    strict = strict or listed is ordered
    options = [_read_one(item.section(), base) for item in listed.items()]
    if not options:
        raise UsageError(f"{listed.what} is empty")
    caps = {option.max_usd_per_hour for option in options}
    if len(caps) > 1:
        raise UsageError(
            f"{listed.what}: alternatives with different max_hourly_cost are not supported",
            hint="set max_hourly_cost once, under resources",
        )
    return _combine(options, strict), _common_market(options), caps.pop()


def _common_market(options: list[_One]) -> MarketChoice | None:
    markets = {option.market for option in options}
    return markets.pop() if len(markets) == 1 else None


def _combine(options: list[_One], strict: bool) -> Resources:
    """What all alternatives have in common at the top, each of them complete below it."""
    many = [option.resources for option in options]
    first = many[0]

    def union(name: str) -> tuple[str, ...]:
        lists = [getattr(one, name) for one in many]
        return tuple(dict.fromkeys(item for one in lists for item in one)) if all(lists) else ()

    accelerators: tuple[Accelerator, ...] = ()
    if all(one.accelerators for one in many):
        accelerators = tuple(dict.fromkeys(a for one in many for a in one.accelerators))
    common = Resources(
        accelerators=accelerators,
        ordered=strict,
        clouds=union("clouds"),
        regions=union("regions"),
        zones=union("zones"),
        instance_types=union("instance_types"),
        disk_gb=max((one.disk_gb for one in many if one.disk_gb is not None), default=None),
        image=first.image,
    )
    mixed = len({option.market for option in options}) > 1
    same = all(replace(one, accelerators=()) == replace(first, accelerators=()) for one in many)
    if same and accelerators and not mixed:
        return replace(first, accelerators=accelerators, ordered=strict)
    any_of = tuple(
        replace(option.resources, market=(option.market or "auto") if mixed else None) for option in options
    )
    return replace(common, any_of=any_of)


def _read_one(section: Section, base: _One | None = None) -> _One:
    found = base.resources if base is not None else Resources()
    accelerators = section.take("accelerators")
    if accelerators is not None:
        found = replace(found, accelerators=_accelerators(accelerators))
    found = _read_place(section, found)
    if instance_type := section.text("instance_type"):
        found = replace(found, instance_types=(instance_type,))
    if (disk := section.get("disk_size", units.parse_size_gb)) is not None:
        found = replace(found, disk_gb=disk)
    if (cpus := section.get("cpus", _vcpus)) is not None:
        found = replace(found, min_vcpus=cpus)
    if (memory := section.get("memory", _gib)) is not None:
        found = replace(found, min_mem_gib=memory)
    if image := section.take("image_id"):
        if image.is_mapping or image.text.startswith("docker:"):
            raise UsageError(
                f"{image.what} is not supported: docker images and images by region are not run yet",
                hint="install what the job needs in setup",
            )
        found = replace(found, image=image.text)
    use_spot = section.flag("use_spot")
    market: MarketChoice | None = base.market if base is not None else None
    if use_spot is not None:
        market = "spot" if use_spot else "on_demand"
    cap = section.get("max_hourly_cost", units.parse_usd_per_hour)
    if cap is None and base is not None:
        cap = base.max_usd_per_hour
    section.refuse(UNSUPPORTED)
    section.finish()
    return _One(resources=found, market=market, max_usd_per_hour=cap)


def _read_place(section: Section, found: Resources) -> Resources:
    infra, cloud = section.take("infra"), section.take("cloud")
    region, zone = section.take("region"), section.take("zone")
    if infra is not None:
        for other in (cloud, region, zone):
            if other is not None:
                raise UsageError(
                    f"{other.what} and infra stand together", hint="infra alone says all: aws/us-east-1"
                )
        return _at(found, [parse_infra(infra.text, what=infra.what)])
    if cloud is None and region is None and zone is None:
        return found
    known = cloud or region or zone
    what = known.what if known is not None else ""
    names = [None if value is None else value.text for value in (cloud, region, zone)]
    if cloud is None and len(found.clouds) == 1:
        names[0] = found.clouds[0]
    return _at(found, [place(names[0], names[1], names[2], what=what)])


def _accelerators(value: Value) -> tuple[Accelerator, ...]:
    """``A100:8``, ``[A100:8, H100:8]``, ``{A100: 8}`` or YAML's set ``{A100:8, H100:8}``."""
    if value.is_list:
        texts = [(item.text, item.what) for item in value.items()]
    elif value.is_mapping:
        entries = value.section().entries
        texts = [(key if item.is_null else f"{key}:{item.text}", item.what) for key, item in entries.items()]
    else:
        texts = [(value.text, value.what)]
    found = tuple(dict.fromkeys(parse_accelerator(text, what=what) for text, what in texts))
    if not found:
        raise UsageError(f"{value.what} names no GPU", hint="leave it out for any GPU")
    return found


def _vcpus(value: object, *, what: str) -> float:
    """SkyPilot's ``8+`` and ``8``: both are lower bounds here."""
    text = _bound(value)
    try:
        number = units.parse_number(text, what=what)
    except UsageError as error:
        raise UsageError(error.message, hint="write a number of vCPUs: 8 or 8+") from error
    if number <= 0:
        raise UsageError(f"{what}: {value} is not more than zero")
    return number


def _gib(value: object, *, what: str) -> float:
    """GiB of ``64``, ``64+``, ``64GiB``, ``64GB+`` (decimal): lower bounds, too."""
    text = _bound(value)
    if isinstance(text, str) and text[-1:] in "bB":
        return units.parse_size_gb(text, what=what) * 1e9 / 2**30
    try:
        number = units.parse_number(text, what=what)
    except UsageError as error:
        raise UsageError(error.message, hint="write it in GiB: 64, 64+ or 64GiB") from error
    if number <= 0:
        raise UsageError(f"{what}: {value} is not more than zero")
    return number


def _bound(value: object) -> object:
    return value.strip().removesuffix("+").strip() if isinstance(value, str) else value


def one_market(resources: Resources) -> Resources:
    """No alternative keeps a market of its own: the job's holds for all."""
    return replace(resources, any_of=tuple(replace(option, market=None) for option in resources.any_of))


def override_infra(resources: Resources, texts: Sequence[str]) -> Resources:
    """``--infra`` replaces every place that the file names; given several times, any of them will do."""
    places = list(dict.fromkeys(parse_infra(text, what="--infra") for text in texts))
    if len({sum(part is not None for part in named) for named in places}) == 1:  # all clouds, all regions…
        return replace(
            _at(resources, places), any_of=tuple(_at(option, places) for option in resources.any_of)
        )
    if resources.ordered:
        raise UsageError(
            "--infra: with `ordered` all places are of one kind", hint="clouds only, or CLOUD/REGION only"
        )
    options = resources.any_of or (replace(resources, any_of=()),)
    anywhere = any(cloud is None for cloud, _, _ in places)
    return replace(
        resources,
        clouds=() if anywhere else _at(resources, places).clouds,
        regions=(),
        zones=(),
        any_of=tuple(_at(option, [named]) for option in options for named in places),
    )


def _at(one: Resources, places: Sequence[tuple[str | None, str | None, str | None]]) -> Resources:
    clouds, regions, zones = (
        tuple(dict.fromkeys(part for part in column if part is not None))
        for column in zip(*places, strict=True)
    )
    return replace(one, clouds=clouds, regions=regions, zones=zones)


def override_gpus(resources: Resources, text: str) -> Resources:
    """``--gpus N`` changes the number of the GPUs that are named; ``NAME:N`` replaces them."""
    if text.strip().isdigit():
        count = units.parse_count(text, what="--gpus")
        if not resources.accelerators:
            raise UsageError(
                f"--gpus {text}: the file names no GPU whose number that could be", hint="--gpus A100:8"
            )

        def change(one: Resources) -> Resources:
            return replace(
                one, accelerators=tuple(dict.fromkeys(replace(a, count=count) for a in one.accelerators))
            )
    else:
        wanted = parse_accelerator(text, what="--gpus")

        def change(one: Resources) -> Resources:
            return replace(one, accelerators=(wanted,))

    return replace(change(resources), any_of=tuple(change(option) for option in resources.any_of))
