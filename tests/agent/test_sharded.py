"""Real agents: two ranks save their parts, and whoever comes after them finds both."""

from __future__ import annotations

from .conftest import Job, spec, wait_for

RUN = r"""
cd "$ARYL_CHECKPOINT_DIR"
echo finds: $(cat step-*/shard-* 2>/dev/null)
step=$((ARYL_ATTEMPT * 10))
mkdir .tmp
echo "$step-of-$ARYL_NODE_RANK" > .tmp/shard-$ARYL_NODE_RANK
touch .tmp/_SHARDED .tmp/_COMPLETE
mv .tmp step-$step
trap 'exit 0' TERM
sleep 60 & wait
"""


def test_the_world_changes_and_every_rank_finds_all_parts(job: Job) -> None:
    job.submit(spec(RUN))
    a, b = job.machine("lease-a"), job.machine("lease-b")
    job.open_epoch("lease-a", "lease-b")
    wait_for(job.manifests, why="the first commit")
    [first] = job.manifests()
    assert [file.path for file in first.files] == ["_COMPLETE", "_SHARDED", "shard-0", "shard-1"]
    assert (first.lease_id, first.step) == ("lease-a", 10)
    # the other machine alone: it is rank 0 now, and has its own part only until it restores
    job.open_epoch("lease-b", resume_from=first.key)
    a.until(lambda beat: beat.drained_epoch >= 1 or beat.phase == "drained")
    b.until(lambda beat: beat.epoch == 2 and beat.committed_step == 20)
    assert "finds: 10-of-0 10-of-1" in wait_for(lambda: job.log("e000002-r00"), why="its output")
    second = job.manifests()[-1]
    assert [file.path for file in second.files] == ["_COMPLETE", "_SHARDED", "shard-0"]
