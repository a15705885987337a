"""Job files: ours, and SkyPilot's task files as they are. Every complaint names file, line and key.

``load_job`` is the one way from a file and flags to a :class:`~arylcloud.core.job.JobSpec`; what a file
may say stands in docs/job-file.md. Precedence: flags › ``aryl:`` › ``resources:``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from arylcloud.cli.jobresources import UNSUPPORTED, one_market, override_gpus, override_infra, read_resources
from arylcloud.cli.jobsections import (
    checkpoint_of,
    dataset_of,
    hung_of,
    migrate_of,
    objective_of,
    pipeline_of,
    policy_of,
    profile_of,
    read_objective,
)
from arylcloud.cli.notify import checked, shown
from arylcloud.cli.yamltree import Section, Value, read_yaml
from arylcloud.core import units
from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import UsageError
from arylcloud.core.job import (
    Constraints,
    JobSpec,
    MarketChoice,
    OnNodeLoss,
    Recovery,
    Resources,
    Work,
)
from arylcloud.core.pipeline import problem

NOTIFY_ENV = "ARYL_NOTIFY"
"""Where the address to notify is looked for, if not in a job file; no secret of a user's has this name."""
MARKETS = ("auto", "spot", "on_demand")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED_ENV = ("ARYL_", "SKYPILOT_", "MASTER_ADDR", "MASTER_PORT")
_UNSUPPORTED_TOP = {
    "service": "serving is another product's work",
    "pool": "worker pools are not task files here",
    "volumes": "network volumes are not mounted",
    "config": "it has no meaning here: flags and ARYLCLOUD_HOME say what SkyPilot's config would",
    "inputs": "name data under aryl: data",
    "outputs": "write results below $ARYL_CHECKPOINT_DIR",
    "event_callback": "use aryl: notify",
    "experimental": "it has no meaning here",
    "file_mounts": "fetch data in setup, put files into workdir (name big data under aryl: data to price it)",
}


_ARYL = (
    "profile", "work", "objective", "deadline", "budget", "max_runtime", "max_usd_per_hour", "market",
    "nodes", "pipeline", "data", "checkpoint", "on_node_loss", "recovery", "migrate", "policy", "hung",
    "unattended", "notify", "stop_signal", "grace",
)  # fmt: skip
_RESOURCES = (
    "accelerators", "infra", "cloud", "region", "zone", "instance_type", "disk_size", "cpus", "memory",
    "image_id", "use_spot", "max_hourly_cost", "any_of", "ordered",
)  # fmt: skip
_ELSEWHERE = {
    **{key: f"it belongs under `aryl:`, as {key} there" for key in _ARYL},
    **{key: f"it belongs under `resources:`, as {key} there" for key in _RESOURCES},
    **{key: f"in SkyPilot it stands under `resources:`; here {why}" for key, why in UNSUPPORTED.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Flags, as typed; None = not given."""

    name: str | None = None
    env: tuple[str, ...] = ()
    """``K=V``, or ``K`` to take it from the environment."""
    gpus: str | None = None
    """``N`` or ``NAME:N``."""
    infra: tuple[str, ...] = ()
    """``CLOUD``, ``CLOUD/REGION`` or ``CLOUD/REGION/ZONE``: any of them."""
    use_spot: bool = False
    market: str | None = None
    nodes: str | None = None
    objective: str | None = None
    deadline: str | None = None
    budget: str | None = None
    max_usd_per_hour: str | None = None
    max_age: str | None = None
    """Of the prices that are planned on."""


@dataclass(slots=True, kw_only=True)
class _Draft:
    """JobSpec's fields as they are found; absent = JobSpec's default."""

    fields: dict[str, Any] = field(default_factory=dict)
    constraints: dict[str, float] = field(default_factory=dict)
    notify: str | None = None
    """The whole address; the spec shows its host alone."""

    def put(self, name: str, value: object) -> None:
        if value is not None:
            self.fields[name] = value

    def limit(self, name: str, value: float | None) -> None:
        if value is not None:
            self.constraints[name] = value


def load_job(
    path: Path,
    overrides: Overrides | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    need_secrets: bool = True,
) -> tuple[JobSpec, dict[str, str]]:
    """The job that ``path`` and the flags describe, and the values of its secrets by name; the address
    to notify is one of them, as ``ARYL_NOTIFY``.

    Secrets without a value come from ``environ``; with ``need_secrets`` False (``plan``) the missing
    ones are left out instead of refused. Raises UsageError, never anything else.
    """
    env = os.environ if environ is None else environ
    flags = overrides or Overrides()
    root = read_yaml(path)
    if root is None:
        raise UsageError(f"{path}: is empty", hint="`arylcloud init` writes a job file")
    top = root.section()
    draft = _Draft()
    named = top.text("name")
    draft.fields["name"] = flags.name or named or path.name.split(".")[0]
    if count := top.get("num_nodes", units.parse_count):
        draft.fields["nodes_min"] = draft.fields["nodes_max"] = count
    if workdir := top.take("workdir"):
        draft.fields["workdir"] = _workdir(workdir, path)
    draft.put("setup", top.text("setup"))
    run = top.text("run")
    envs = _envs(top.take("envs"), flags.env, env)
    secrets = _secrets(top.take("secrets"), env, need_secrets)
    resources, market, cap = read_resources(top.take("resources"))
    draft.put("market", market)
    draft.limit("max_usd_per_hour", cap)
    if _read_aryl(_aryl_section(top, path), draft):
        resources = one_market(resources)
    top.refuse(_UNSUPPORTED_TOP)
    top.finish(_ELSEWHERE)
    if run is None or not run.strip():
        raise UsageError(f"{path}: run is missing: there is nothing to run", hint="run: python train.py")
    resources = _apply_flags(flags, draft, resources)
    if draft.fields.get("nodes_min", 1) < draft.fields.get("nodes_max", 1):
        # a range says that fewer will do: a loss is then no reason to stand still
        draft.fields.setdefault("on_node_loss", "shrink")
    spec = JobSpec(
        run=run,
        envs=envs,
        secret_names=tuple(secrets),
        resources=resources,
        constraints=Constraints(**draft.constraints),
        **draft.fields,
    )
    if spec.pipeline is not None:
        wrong = problem(spec.pipeline, spec.nodes_min, spec.nodes_max)
        if wrong is not None:
            raise UsageError(f"{path}: aryl.pipeline: {wrong[0]}", hint=wrong[1])
    values = {name: value for name, value in secrets.items() if value is not None}
    return spec, values if draft.notify is None else {**values, NOTIFY_ENV: draft.notify}


def read_secrets(spec: JobSpec, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Values of the secrets that a plan names: a plan holds none, so the environment must."""
    env = os.environ if environ is None else environ
    for name in spec.secret_names:
        if name not in env:
            raise UsageError(f"secret {name} is not set in your environment", hint=f"export {name}=…")
    found = {name: env[name] for name in spec.secret_names}
    if spec.notify is None:
        return found
    hint = f"export {NOTIFY_ENV}=… with the address of {spec.notify}"
    if NOTIFY_ENV not in env:
        raise UsageError(
            f"the address to notify is a secret and not in your environment: {NOTIFY_ENV}", hint=hint
        )
    found[NOTIFY_ENV] = checked(env[NOTIFY_ENV], what=NOTIFY_ENV)
    if shown(found[NOTIFY_ENV]) != spec.notify:
        raise UsageError(f"{NOTIFY_ENV} is {shown(found[NOTIFY_ENV])}, the job's is {spec.notify}", hint=hint)
    return found


def _aryl_section(top: Section, path: Path) -> Section | None:
    """``aryl:`` of the file itself, or of NAME.aryl.yaml beside it; both at once are ambiguous."""
    inside = top.take("aryl")
    beside = path.with_name(f"{path.name.removesuffix('.yaml').removesuffix('.yml')}.aryl.yaml")
    if beside == path or not beside.is_file():
        return inside.section() if inside is not None else None
    if inside is not None:
        raise UsageError(f"{inside.what} stands here and in {beside.name}, too", hint="keep one of the two")
    root = read_yaml(beside)
    if root is None:
        return None
    section = root.section()
    if set(section.entries) == {"aryl"}:
        found = section.take("aryl")
        return found.section() if found is not None else None
    return section


def _read_aryl(aryl: Section | None, draft: _Draft) -> bool:
    """Whether it says a market, which then is that of all alternatives."""
    if aryl is None:
        return False
    if profile := aryl.take("profile"):
        draft.put("profile", profile_of(profile))
    if work := aryl.get("work", units.parse_work):
        draft.put("work", Work(amount=work[0], unit=work[1]))
    if objective := aryl.take("objective"):
        draft.put("objective", read_objective(objective))
    draft.limit("deadline_s", aryl.get("deadline", units.parse_duration_s))
    draft.limit("budget_usd", aryl.get("budget", units.parse_usd))
    draft.limit("max_runtime_s", aryl.get("max_runtime", units.parse_duration_s))
    draft.limit("max_usd_per_hour", aryl.get("max_usd_per_hour", units.parse_usd_per_hour))
    market = aryl.choice("market", MARKETS)
    draft.put("market", market)
    if nodes := aryl.get("nodes", units.parse_nodes):
        draft.fields["nodes_min"], draft.fields["nodes_max"] = nodes
    if pipeline := aryl.take("pipeline"):
        draft.put("pipeline", pipeline_of(pipeline.section()))
    if data := aryl.take("data"):
        draft.put("data", tuple(dataset_of(item.section()) for item in data.items()))
    if checkpoint := aryl.take("checkpoint"):
        draft.put("checkpoint", checkpoint_of(checkpoint.section()))
    draft.put(
        "on_node_loss",
        cast("OnNodeLoss", aryl.choice("on_node_loss", ("shrink", "replace", "restart", "fail"))),
    )
    draft.put("recovery", cast("Recovery", aryl.choice("recovery", ("auto", "none"))))
    if migrate := aryl.take("migrate"):
        draft.put("migrate", migrate_of(migrate))
    if policy := aryl.take("policy"):
        draft.put("policy", policy_of(policy))
    if hung := aryl.take("hung"):
        draft.put("hung", hung_of(hung))
    draft.put("unattended_s", aryl.get("unattended", units.parse_duration_s))
    if (notify := aryl.take("notify")) is not None:
        draft.notify = checked(notify.text, what=notify.what)
        draft.put("notify", shown(draft.notify))
    draft.put(
        "stop_signal", aryl.choice("stop_signal", ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP"))
    )
    draft.put("grace_s", aryl.get("grace", units.parse_duration_s))
    aryl.finish()
    return market is not None


def _workdir(value: Value, path: Path) -> str:
    if value.is_mapping:
        raise UsageError(
            f"{value.what}: a git repository as workdir is not supported", hint="clone it in setup"
        )
    folder = (path.absolute().parent / Path(value.text).expanduser()).resolve()
    if not folder.is_dir():
        raise UsageError(f"{value.what}: {folder} is no folder", hint="workdir is relative to the job file")
    return str(folder)


def _envs(value: Value | None, flags: tuple[str, ...], env: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    open_names: dict[str, Value] = {}
    for key, item in value.section().entries.items() if value is not None else ():
        _env_name(key, item.what)
        if item.is_null:
            open_names[key] = item
        else:
            found[key] = item.text
    for flag in flags:
        key, equals, text = flag.partition("=")
        _env_name(key, "--env")
        if not equals and key not in env:
            raise UsageError(f"--env {key}: not set in your environment", hint=f"--env {key}=VALUE")
        found[key] = text if equals else env[key]
        open_names.pop(key, None)
    for key, item in open_names.items():
        raise UsageError(f"{item.what} has no value", hint=f"--env {key}=VALUE")
    return found


def _env_name(key: str, what: str) -> None:
    if not _ENV_NAME.match(key):
        raise UsageError(f"{what}: {key!r} is no name of an environment variable")
    if key.startswith(_RESERVED_ENV):
        raise UsageError(f"{what}: {key} is set by arylcloud itself", hint="choose another name")


def _secrets(value: Value | None, env: Mapping[str, str], need: bool) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    if value is None:
        return found
    names: dict[str, Value] = (
        {item.text: item for item in value.items()} if value.is_list else value.section().entries
    )
    for key, item in names.items():
        _env_name(key, item.what)
        found[key] = env.get(key) if item.is_null or value.is_list else item.text
        if found[key] is None and need:
            raise UsageError(
                f"{item.what}: secret {key} is not set in your environment", hint=f"export {key}=…"
            )
    return found


def _apply_flags(flags: Overrides, draft: _Draft, resources: Resources) -> Resources:
    if flags.nodes:
        draft.fields["nodes_min"], draft.fields["nodes_max"] = units.parse_nodes(flags.nodes, what="--nodes")
    if flags.objective:
        draft.fields["objective"] = objective_of(flags.objective, what="--objective")
    if flags.deadline:
        draft.limit("deadline_s", units.parse_duration_s(flags.deadline, what="--deadline"))
    if flags.budget:
        draft.limit("budget_usd", units.parse_usd(flags.budget, what="--budget"))
    if flags.max_usd_per_hour:
        draft.limit(
            "max_usd_per_hour", units.parse_usd_per_hour(flags.max_usd_per_hour, what="--max-usd-per-hour")
        )
    if flags.max_age:
        max_age_s = units.parse_duration_s(flags.max_age, what="--max-age")
        draft.limit("priced_since_s", float(int(SystemClock().now_s() - max_age_s)))
    market: MarketChoice | None = None
    if flags.market is not None:
        if flags.market not in MARKETS:
            raise UsageError(f"--market: {flags.market!r} is no market", hint=f"one of {', '.join(MARKETS)}")
        market = cast("MarketChoice", flags.market)
    if flags.use_spot:
        market = "spot"
    if market is not None:
        draft.fields["market"] = market
        resources = one_market(resources)
    if flags.infra:
        resources = override_infra(resources, flags.infra)
    if flags.gpus:
        resources = override_gpus(resources, flags.gpus)
    return resources
