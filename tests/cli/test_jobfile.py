"""Job files: ours, SkyPilot's, and every kind of mistake with its line, key and exit code."""

from pathlib import Path
from typing import Any

import pytest

from arylcloud.cli.jobfile import _ARYL, _RESOURCES, Overrides, load_job, read_secrets
from arylcloud.core.codec import decode, encode
from arylcloud.core.errors import UsageError
from arylcloud.core.job import Accelerator, InlineRate, JobSpec, Resources

OURS = """\
name: my-gpt
workdir: .
resources: {accelerators: [A100:8, H100:8, V100:8, L4:8]}
run: python train.py --out $ARYL_CHECKPOINT_DIR
aryl:
  profile: mpt-125m
  work: 40000 steps
  objective: {cost: 1, usd_per_hour_of_waiting: 20}
  deadline: 36h
  budget: $500
  max_runtime: 40h
  max_usd_per_hour: 12
  market: auto
  nodes: 1..4
  data: [{uri: s3://bucket/set, size_gb: 500}]
  checkpoint: {size_gb: 1.5, interval: auto}
  on_node_loss: shrink
  recovery: none
  migrate: {min_saving: 5%, at_most_every: 24h}
  unattended: 12h
  notify: https://example.com/x
"""
SKY = """\
name: sky
num_nodes: 2
resources:
  cloud: aws
  region: us-east-1
  accelerators: {V100: 8}
  use_spot: true
  max_hourly_cost: 9.5
  disk_size: 256
  cpus: 8+
  memory: 64+
envs:
  MODEL: gpt2
  DEBUG: yes
  RATE: 1.50
setup: |
  pip install torch
run: |
  torchrun train.py
"""


def load(tmp_path: Path, text: str, flags: Overrides | None = None, **kw: Any) -> JobSpec:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return load_job(path, flags, environ=kw.pop("environ", {}), **kw)[0]


def test_our_own_file(tmp_path: Path) -> None:
    spec = load(tmp_path, OURS)
    assert spec.name == "my-gpt"
    assert spec.workdir == str(tmp_path.resolve())
    assert spec.resources.accelerators[0] == Accelerator(gpu="A100", count=8)
    assert spec.profile is not None
    assert spec.work is not None
    assert (spec.profile.name, spec.work.amount, spec.work.unit) == ("mpt-125m", 40000, "steps")
    assert (spec.objective.name, spec.objective.usd_per_hour_of_waiting) == ("mixed", 20)
    limits = spec.constraints
    assert (limits.deadline_s, limits.budget_usd, limits.max_runtime_s, limits.max_usd_per_hour) == (
        129600, 500, 144000, 12,
    )  # fmt: skip
    assert (spec.nodes_min, spec.nodes_max, spec.on_node_loss, spec.recovery) == (1, 4, "shrink", "none")
    assert (spec.data[0].uri, spec.data[0].size_gb, spec.checkpoint.size_gb) == ("s3://bucket/set", 500, 1.5)
    assert (spec.migrate.min_saving, spec.migrate.at_most_every_s, spec.unattended_s) == (0.05, 86400, 43200)
    assert decode(JobSpec, encode(spec)) == spec


def test_a_plain_skypilot_file(tmp_path: Path) -> None:
    spec = load(tmp_path, SKY)
    assert (spec.nodes_min, spec.nodes_max, spec.market) == (2, 2, "spot")
    assert (spec.resources.clouds, spec.resources.regions) == (("aws",), ("aws/us-east-1",))
    assert spec.resources.accelerators == (Accelerator(gpu="V100", count=8),)
    assert (spec.resources.disk_gb, spec.resources.min_vcpus, spec.resources.min_mem_gib) == (256, 8, 64)
    assert spec.constraints.max_usd_per_hour == 9.5
    # as written, not as YAML 1.1 would have it
    assert spec.envs == {"MODEL": "gpt2", "DEBUG": "yes", "RATE": "1.50"}
    assert spec.setup == "pip install torch\n"
    assert (spec.profile, spec.work) == (None, None)


@pytest.mark.parametrize(
    "text",
    ["A100:8", "{A100: 8}", "{A100:8}", "[A100:8]", "'a100:8'", "NVIDIA-A100:8"],
)
def test_accelerators_as_people_write_them(tmp_path: Path, text: str) -> None:
    spec = load(tmp_path, f"run: x\nresources: {{accelerators: {text}}}\n")
    assert spec.resources.accelerators == (Accelerator(gpu="A100", count=8),)


def test_any_of_and_ordered(tmp_path: Path) -> None:
    simple = load(
        tmp_path, "run: x\nresources: {ordered: [{accelerators: A100:8}, {accelerators: V100:8}]}\n"
    )
    assert simple.resources.ordered
    assert [a.gpu for a in simple.resources.accelerators] == ["A100", "V100"]
    assert simple.resources.any_of == ()
    mixed = load(
        tmp_path,
        "run: x\nresources:\n  accelerators: A100:8\n  any_of:\n"
        "  - {infra: aws/us-east-1, use_spot: true}\n  - {infra: gcp, use_spot: false}\n",
    )
    first, second = mixed.resources.any_of
    assert (first.clouds, first.market, second.clouds, second.market) == (
        ("aws",),
        "spot",
        ("gcp",),
        "on_demand",
    )
    assert first.accelerators == second.accelerators == (Accelerator(gpu="A100", count=8),)
    assert mixed.resources.clouds == ("aws", "gcp")
    assert mixed.market == "auto"
    assert decode(JobSpec, encode(mixed)) == mixed


def test_profiles_inline(tmp_path: Path) -> None:
    own = load(
        tmp_path, "run: x\naryl: {profile: {V100:1: 3.1, A100:8: 40, unit: steps/s, batch: 64}}\n"
    ).profile
    assert own is not None
    assert own.rates == (InlineRate(gpu="V100", count=1, rate=3.1), InlineRate(gpu="A100", count=8, rate=40))
    assert (own.unit, own.batch) == ("steps/s", 64)
    shape = load(
        tmp_path, "run: x\naryl: {profile: {params: 124e6, layers: 12, hidden: 768, seq_len: 1024}}\n"
    ).profile
    assert shape is not None
    assert shape.shape is not None
    assert (shape.shape.params, shape.shape.layers) == (124e6, 12)


def test_aryl_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "job.aryl.yaml").write_text("deadline: 36h\nwork: 10 steps\n")
    spec = load(tmp_path, SKY)
    assert spec.constraints.deadline_s == 129600
    (tmp_path / "job.aryl.yaml").write_text("aryl: {deadline: 2h}\n")
    assert load(tmp_path, SKY).constraints.deadline_s == 7200
    with pytest.raises(UsageError, match=r"job\.aryl\.yaml"):
        load(tmp_path, SKY + "aryl: {budget: $5}\n")
    (tmp_path / "job.aryl.yaml").write_text("deadlin: 36h\n")
    with pytest.raises(UsageError, match="unknown key deadlin") as found:
        load(tmp_path, SKY)
    assert found.value.hint == "did you mean deadline?"


def test_flags_win_over_aryl_wins_over_resources(tmp_path: Path) -> None:
    text = SKY + "aryl: {market: on_demand, nodes: 1..3, max_usd_per_hour: 5, deadline: 9h}\n"
    spec = load(tmp_path, text)
    assert (spec.market, spec.nodes_max, spec.constraints.max_usd_per_hour) == ("on_demand", 3, 5)
    flags = Overrides(
        name="n", env=("MODEL=llama", "NEW=1=2"), gpus="4", infra=("gcp",), use_spot=True, nodes="2",
        deadline="1h", budget="$9", max_usd_per_hour="$1/h", objective="time",
    )  # fmt: skip
    spec = load(tmp_path, text, flags)
    assert (spec.name, spec.envs["MODEL"], spec.envs["NEW"]) == ("n", "llama", "1=2")
    assert spec.resources.accelerators == (Accelerator(gpu="V100", count=4),)
    assert (spec.resources.clouds, spec.resources.regions) == (("gcp",), ())
    assert (spec.market, spec.nodes_min, spec.nodes_max) == ("spot", 2, 2)
    assert (spec.constraints.deadline_s, spec.constraints.budget_usd, spec.constraints.max_usd_per_hour) == (
        3600,
        9,
        1,
    )
    assert spec.objective.name == "time"
    assert load(tmp_path, text, Overrides(infra=("local",))).resources.clouds == ("local",)
    assert load(tmp_path, text, Overrides(gpus="H100:2")).resources.accelerators[0].gpu == "H100"


def test_infra_given_several_times(tmp_path: Path) -> None:
    """Any of the places will do; those of the file are gone."""

    def places(*infra: str) -> Resources:
        return load(tmp_path, SKY, Overrides(infra=infra)).resources

    assert (places("gcp", "aws").clouds, places("gcp", "aws").any_of) == (("gcp", "aws"), ())
    regions = places("gcp/us-central1", "azure/eastus", "gcp/us-central1")
    assert (regions.clouds, regions.regions) == (("gcp", "azure"), ("gcp/us-central1", "azure/eastus"))
    mixed = places("gcp", "aws/us-east-1")
    assert (mixed.clouds, mixed.regions) == (("gcp", "aws"), ())
    assert [(o.clouds, o.regions) for o in mixed.any_of] == [(("gcp",), ()), (("aws",), ("aws/us-east-1",))]
    assert all(option.accelerators == mixed.accelerators for option in mixed.any_of)


ALTERNATIVES = """\
run: x
resources:
  accelerators: A100:8
  any_of:
  - {infra: aws/us-east-1, use_spot: true}
  - {infra: gcp, use_spot: false}
"""


@pytest.mark.parametrize("market", ["auto", "spot", "on_demand"])
def test_a_market_under_aryl_is_that_of_every_alternative(tmp_path: Path, market: str) -> None:
    spec = load(tmp_path, f"{ALTERNATIVES}aryl: {{market: {market}}}\n")
    assert spec.market == market
    assert [option.market for option in spec.resources.any_of] == [None, None]
    kept = load(tmp_path, f"{ALTERNATIVES}aryl: {{nodes: 2}}\n").resources.any_of
    assert [option.market for option in kept] == ["spot", "on_demand"]
    flag = load(tmp_path, f"{ALTERNATIVES}aryl: {{market: {market}}}\n", Overrides(use_spot=True))
    assert flag.market == "spot"


@pytest.mark.parametrize(
    ("text", "gib"),
    [("64", 64), ("64+", 64), ("64GiB", 64), ("64 GiB+", 64), ("64GB", 64e9 / 2**30), ("1TiB", 1024)],
)
def test_memory_with_and_without_its_unit(tmp_path: Path, text: str, gib: float) -> None:
    spec = load(tmp_path, f"run: x\nresources: {{memory: {text}}}\n")
    assert spec.resources.min_mem_gib == pytest.approx(gib)


@pytest.mark.parametrize(
    "unit", ["steps/s", "steps/second", "step/sec", "Steps per second", "steps / s", "steps per sec"]
)
def test_a_rate_in_the_words_that_people_use(tmp_path: Path, unit: str) -> None:
    profile = load(tmp_path, f"run: x\naryl: {{profile: {{V100:1: 3.1, unit: {unit}}}}}\n").profile
    assert profile is not None
    assert profile.unit == "steps/s"


def test_secrets_never_enter_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("run: x\nsecrets: {TOKEN: null, KEY: abc123}\n")
    spec, secrets = load_job(path, environ={"TOKEN": "t0p"})
    assert secrets == {"TOKEN": "t0p", "KEY": "abc123"}
    assert spec.secret_names == ("TOKEN", "KEY")
    assert "t0p" not in str(encode(spec))
    assert "abc123" not in str(encode(spec))
    with pytest.raises(UsageError, match="TOKEN is not set"):
        load_job(path, environ={})
    assert load_job(path, environ={}, need_secrets=False)[1] == {"KEY": "abc123"}
    with pytest.raises(UsageError, match="TOKEN"):
        read_secrets(spec, {"KEY": "1"})


BAD = {
    "run: x\nresorces: {}": (":2: unknown key resorces", "did you mean resources?"),
    "run: x\naryl:\n  deadlin: 3h": (":3: unknown key aryl.deadlin", "deadline"),
    "run: x\nresources: {acelerators: V100}": ("unknown key resources.acelerators", "accelerators"),
    "run: x\naryl: {deadline: 36}": ("aryl.deadline: 36 has no unit", "36h"),
    "run: x\naryl: {deadline: 1:30}": ("aryl.deadline: 90 has no unit", "unit"),
    "run: x\naryl: {budget: -5}": ("aryl.budget: -5 is not more than zero", ""),
    "run: x\naryl: {work: 40000}": ("aryl.work: 40000 has no unit", "steps"),
    "run: x\naryl: {nodes: 0}": ("aryl.nodes: 0 is too few", ""),
    "run: x\nnum_nodes: 0": ("num_nodes: 0 is too few", ""),
    "run: x\naryl: {market: spott}": ("aryl.market: 'spott' is none of", "did you mean spot?"),
    "run: x\naryl: {profile: {V100:1: 3.1}}": ("aryl.profile has no unit", "steps/s"),
    "run: x\naryl: {profile: {V100:1: -3, unit: steps/s}}": ("a rate must be more than zero", ""),
    "run: x\naryl: {profile: {Z9:1: 3, unit: steps/s}}": ("'Z9'", ""),
    "run: x\naryl: {data: [{uri: s3://b}]}": ("needs uri and size_gb", ""),
    "run: x\naryl: {profile: {V100:1: 3, unit: steps/minute}}": ("'steps/minute' is no unit", "steps/s"),
    "run: x\naryl: {profile: {V100:1: 3, unit: steps}}": ("'steps' is no unit", "steps/s"),
    "run: x\nresources: {memory: 64G}": ("'64G' is not a number", "64GiB"),
    "run: x\nresources: {memory: lots}": ("'lots' is not a number", "GiB"),
    "run: x\nresources: {memory: much B}": ("'much B' is not a size", "GiB"),
    "run: x\nresources: {cpus: many}": ("'many' is not a number", "vCPUs"),
    "run: x\nconfig: {docker: {}}": ("config is not supported: it has no meaning here", "remove config"),
    "run: x\naryl: {objective: fast}": ("'fast' is no objective", "cost, time"),
    "run: x\nresources: {accelerators: V1000:8}": ("'V1000'", "V100"),
    "run: x\nresources: {accelerators: V100:0}": ("V100:0", ""),
    "run: x\nresources: {image_id: docker:ubuntu}": ("docker images", "setup"),
    "run: x\nresources: {ports: 8080}": ("resources.ports is not supported", "remove ports"),
    "run: x\nresources: {infra: k8s}": ("Kubernetes is not supported", ""),
    "run: x\nresources: {infra: aws/us-east-1/us-east-1a}": ("name the zone's id", "use1-az4"),
    "run: x\nresources: {use_spot: maybe}": ("true or false", ""),
    "run: x\nfile_mounts: {/data: {source: s3://b, mode: MOUNT}}": (
        "file_mounts is not supported",
        "file_mounts",
    ),
    "run: x\nservice: {port: 1}": ("service is not supported", ""),
    "run: x\nrun: y": (":2: run stands twice (first in line 1)", ""),
    "run: x\nenvs: {A: }": ("envs.A has no value", "--env A=VALUE"),
    "run: x\nenvs: {ARYL_JOB_ID: 1}": ("set by arylcloud itself", ""),
    "run: x\nenvs: {1A: 1}": ("no name of an environment variable", ""),
    "run: x\nworkdir: nowhere": ("is no folder", "relative"),
    "name: a": ("run is missing", "run:"),
    "": ("is empty", "init"),
    "run: [x\nname: y": ("not valid YAML", ""),
    "run: x\n\tname: y": (":2:1: not valid YAML", ""),
    "a: b: c": (":1:5: not valid YAML", ""),
    "run: x\n---\nrun: y": ("one job per file", ""),
    "- run: x": ("a mapping (key: value) is expected", ""),
    "run: {a: 1}": ("text is expected, not a mapping", ""),
    "run: &a [*a]": ("run", ""),
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_every_mistake_is_one_line_with_its_place(tmp_path: Path, text: str) -> None:
    message, hint = BAD[text]
    with pytest.raises(UsageError) as found:
        load(tmp_path, text)
    assert message in found.value.message
    assert "job.yaml" in found.value.message
    assert "\n" not in found.value.message
    assert hint in str(found.value.hint or "")
    assert found.value.exit_code == 2


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_job(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        load_job(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"run: \xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        load_job(tmp_path / "b.yaml")


@pytest.mark.parametrize("text", ["H100:8", "8xH100", "h100x8", "8 x h100", "H100 × 8"])
def test_a_number_of_gpus_is_read_as_people_write_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "j.yaml"
    path.write_text(f"run: x\nresources: {{accelerators: '{text}'}}\n")
    (found,) = load_job(path)[0].resources.accelerators
    assert (found.gpu, found.count) == ("H100", 8)
    path.write_text("run: x\n")
    assert load_job(path, Overrides(gpus=text))[0].resources.accelerators == (found,)
    path.write_text("run: x\nresources: {accelerators: 8xH100x2}\n")
    with pytest.raises(UsageError, match="no GPU is known"):
        load_job(path)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ports: 8080", "in SkyPilot it stands under `resources:`; here machines open no ports"),
        ("accelerators: A100:8", "it belongs under `resources:`, as accelerators there"),
        ("deadline: 36h", "it belongs under `aryl:`, as deadline there"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_where_it_belongs(tmp_path: Path, line: str, hint: str) -> None:
    path = tmp_path / "j.yaml"
    path.write_text(f"run: x\n{line}\n")
    with pytest.raises(UsageError, match=r"j\.yaml:2: .* has no place here") as caught:
        load_job(path)
    assert caught.value.hint == hint


def test_the_keys_that_are_looked_for_elsewhere_are_read_there(tmp_path: Path) -> None:
    """None of them is unknown in its place."""
    path = tmp_path / "j.yaml"
    for section, keys in (("aryl", _ARYL), ("resources", _RESOURCES)):
        for key in keys:
            path.write_text(f"run: x\n{section}: {{{key}: {{no: 1}}}}\n")
            said = ""
            try:
                load_job(path)
            except UsageError as error:
                said = error.message
            assert not said.endswith(f"unknown key {section}.{key}")


def test_an_address_that_is_none_is_told_of_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "j.yaml"
    path.write_text("run: x\naryl:\n  notify: me@example.com\n")
    with pytest.raises(UsageError, match=r"j\.yaml:3: aryl\.notify is no http or https address"):
        load_job(path)
