"""The environment of the user's processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from arylcloud.agent.config import PRIVATE, Config
from arylcloud.core.errors import IntegrityError
from arylcloud.core.job import JobSpec
from arylcloud.core.pipeline import Pipelines
from arylcloud.core.protocol import EpochDoc


def library_folder() -> Path | None:
    """A folder that holds ``arylcloud.training`` and nothing else importable: the boot stub's
    runtime lays it beside our own (``lib/``, ``user/``). None when run from a source tree."""
    user = Path(__file__).resolve().parents[2].with_name("user")
    return user if (user / "arylcloud" / "training").is_dir() else None


def base(config: Config, spec: JobSpec, secrets: Mapping[str, str]) -> dict[str, str]:
    """For ``setup``, ``exec`` and ``run`` alike: the machine's, the job's, then the secrets.

    ``arylcloud.training`` can be imported, from the end of PYTHONPATH: whatever the user's own
    path or code is called comes first.
    """
    env = {k: v for k, v in config.environ.items() if k not in PRIVATE}
    env.update(spec.envs)
    env.update(secrets)
    paths = [spec.envs.get("PYTHONPATH") or config.environ.get("ARYL_USER_PYTHONPATH", "")]
    if (library := library_folder()) is not None:
        paths.append(str(library))
    elif "PYTHONPATH" in config.environ and not paths[0]:
        paths.append(config.environ["PYTHONPATH"])  # run from a source tree
    joined = os.pathsep.join(p for p in paths if p)
    if joined:
        env["PYTHONPATH"] = joined
    env.setdefault("PYTHONUNBUFFERED", "1")  # else lines reach the log when a buffer is full
    env["ARYL_JOB_ID"] = config.job_id
    env["ARYL_LEASE_ID"] = config.lease_id
    env["ARYL_CHECKPOINT_DIR"] = str(config.checkpoints)
    env["ARYL_NOTICE_FILE"] = str(config.notice_file)
    env["ARYL_WARNING_FILE"] = str(config.warning_file)
    env["ARYL_ADVICE_FILE"] = str(config.advice_file)
    env["ARYL_WARM_DIR"] = str(config.warm_dir)
    env["SKYPILOT_TASK_ID"] = config.job_id
    env["SKYPILOT_NUM_GPUS_PER_NODE"] = str(config.gpus or 0)
    return env


def of_rank(env: Mapping[str, str], epoch: EpochDoc, rank: int, progress_file: Path) -> dict[str, str]:
    """``env`` with this epoch's membership; addresses are in order of rank, one a line. Of a job that trains
    by pipeline templates, where :func:`pipeline_document` lies."""
    members = sorted(epoch.members, key=lambda m: m.rank)
    addresses = "\n".join(m.address for m in members)
    found = {
        **env,
        "ARYL_EPOCH": str(epoch.number),
        "ARYL_ATTEMPT": str(epoch.attempt),
        "ARYL_NODE_RANK": str(rank),
        "ARYL_NUM_NODES": str(len(members)),
        "ARYL_NODE_IPS": addresses,
        "ARYL_PROGRESS_FILE": str(progress_file),
        "MASTER_ADDR": members[0].address,
        "MASTER_PORT": str(epoch.master_port),
        "SKYPILOT_NODE_RANK": str(rank),
        "SKYPILOT_NODE_IPS": addresses,
        "SKYPILOT_NUM_NODES": str(len(members)),
    }
    if epoch.checkpoint_interval_s is not None:
        found["ARYL_CHECKPOINT_INTERVAL_S"] = repr(epoch.checkpoint_interval_s)
    if epoch.pipelines is not None:
        found["ARYL_PIPELINE_FILE"] = str(pipeline_file(progress_file))
    return found


def pipeline_file(progress_file: Path) -> Path:
    """One per epoch, beside its progress file."""
    return progress_file.with_name(f"pipeline-{progress_file.name.removeprefix('progress-')}")


def pipeline_document(pipelines: Pipelines, rank: int) -> dict[str, object]:
    """What ``arylcloud.training.info().pipeline`` reads: what this rank holds, and who holds the rest.

    Layers from 0, runs as ``[first, last)``. IntegrityError if the rank holds nothing."""
    for i, replica in enumerate(pipelines.replicas):
        for j, stage in enumerate(replica.stages):
            if stage.rank == rank:
                return {
                    "layers": pipelines.layers,
                    "replica": i,
                    "stage": j,
                    "first": stage.first,
                    "last": stage.last,
                    "fetch": [list(run) for run in stage.fetch],
                    "replicas": [
                        {
                            "ranks": list(r.ranks),
                            "stages": [[s.first, s.last] for s in r.stages],
                            "microbatches": r.microbatches,
                        }
                        for r in pipelines.replicas
                    ],
                }
    raise IntegrityError(f"no replica of this epoch has rank {rank}")
