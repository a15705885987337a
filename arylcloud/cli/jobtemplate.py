"""The text of a new job file: what is known as keys, what else there is as comments."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """As typed; empty = leave it as a comment."""

    name: str
    run: str
    gpus: str
    """``A100:8, H100:8``."""
    profile: str
    work: str
    deadline: str
    budget: str


def render(a: Answers) -> str:
    """A job file with every key of ours in it, those without an answer as comments."""
    return f"""\
# A job for arylcloud. Next: `arylcloud plan FILE`, then `arylcloud launch FILE --infra aws` (or gcp, azure,
# local, pool: nothing is launched where nothing is named, here below `resources` or there).
# Plain SkyPilot task files work, too; everything below `aryl:` is ours.
name: {_text(a.name)}
workdir: .                      # sent to every machine; relative to this file

resources:
{_accelerators(a.gpus)}
  # infra: aws/us-east-1        # CLOUD, CLOUD/REGION, pool = your own machines, local = a cloud on this one
  # disk_size: 100              # GB per machine

# setup: pip install -r requirements.txt
run: {_text(a.run)}
# Write checkpoints to $ARYL_CHECKPOINT_DIR/step-N and resume from the newest one there.

aryl:
{_line("profile", a.profile, "mpt-125m", "`profile list`; or your own: {A100:8: 3.1, unit: steps/s}")}
{_line("work", a.work, "40000 steps", "for time, cost and ETA; also samples, images, tokens")}
  objective: cost               # cost | time | {{cost: 1, usd_per_hour_of_waiting: 20}}
{_line("deadline", a.deadline, "36h", "wall clock from launch; met by the pessimistic estimate (p90)")}
{_line("budget", a.budget, "$500", "all machines, all attempts")}
  # max_usd_per_hour: 12        # per machine
  market: auto                  # spot | on_demand | auto
  # nodes: 1..4                 # a range: it grows and shrinks while it runs (docs/elastic.md)
  # data: [{{uri: s3://bucket/set, size_gb: 500, region: aws/us-east-1}}]
  # checkpoint: {{size_gb: 1.5, interval: auto}}
  # migrate: {{min_saving: 5%, at_most_every: 24h}}   # or off
  # on_node_loss: replace       # shrink (of a range: the default) | replace | restart | fail
  # notify: https://example.com/hook
"""


def _accelerators(gpus: str) -> str:
    names = [part.strip() for part in gpus.split(",") if part.strip()]
    if not names:
        return "  # accelerators: [A100:8, H100:8]   # alternatives, NAME:N per machine; left out = any GPU"
    return f"  accelerators: [{', '.join(names)}]   # alternatives; order breaks ties only"


def _line(key: str, value: str, example: str, comment: str) -> str:
    text = f"{key}: {_text(value) if value else example}"
    return f"  {text:<30}# {comment}" if value else f"  # {text:<28}# {comment}"


def _text(value: str) -> str:
    """A YAML scalar: bare where that is safe, else in double quotes (JSON's are YAML's)."""
    safe = (
        value
        and all(c.isalnum() or c in " -_./$" for c in value)
        and value[0].isalnum()
        and value == value.strip()
    )
    if safe and value.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n"):
        return value if not value.replace(".", "").isdigit() else json.dumps(value)
    return json.dumps(value, ensure_ascii=False)
