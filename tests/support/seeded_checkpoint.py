"""Seeded bugs of retention and cadence."""

from __future__ import annotations

from support.seeded import Seeded

_R, _C = "checkpoint/retention", "core/cadence"

BUGS = (
    Seeded(
        name="the oldest checkpoints are kept",
        module=_R,
        old="sound[-keep:], *",
        new="sound[:keep], *",
        why="the newest checkpoint, the one that a loss needs, is deleted",
        killed_by="checkpoint/test_laws_retention.py::test_the_newest_are_kept",
    ),
    Seeded(
        name="the pin counts for nothing",
        module=_R,
        old="*(key for key in manifests if key in pins)",
        new="*()",
        why="what the running epoch resumes from is deleted under it",
        killed_by="checkpoint/test_laws_retention.py::test_a_pin_is_kept_with_its_chunks",
    ),
    Seeded(
        name="one checkpoint less is kept",
        module=_R,
        old="sound[-keep:], *",
        new="sound[1 - keep:], *",
        why="keep: 1 keeps everything, keep: 2 keeps one",
        killed_by="checkpoint/test_laws_retention.py::test_the_newest_are_kept",
    ),
    Seeded(
        name="a rejected checkpoint counts as one of the last",
        module=_R,
        old="if manifest is not None and key not in rejected)",
        new="if manifest is not None)",
        why="the last ones kept may all be damaged",
        killed_by="checkpoint/test_laws_retention.py::test_a_rejected_one_is_none_of_the_last",
    ),
    Seeded(
        name="what a newer writer left goes",
        module=_R,
        old="if key not in kept and key not in unreadable)",
        new="if key not in kept)",
        why="after a downgrade the newer version's checkpoints are deleted",
        killed_by="checkpoint/test_retention.py::test_what_a_newer_writer_left_stays_with_its_chunks",
    ),
    Seeded(
        name="chunks of a manifest that cannot be read go",
        module=_R,
        old="    if unreadable:\n",
        new="    if False:\n",
        why="the newer version's checkpoints lose their contents",
        killed_by="checkpoint/test_retention.py::test_what_a_newer_writer_left_stays_with_its_chunks",
    ),
    Seeded(
        name="young chunks go",
        module=_R,
        old="not in named and info.modified_s < before_s",
        new="not in named",
        why="an upload under way loses what it has sent",
        killed_by="checkpoint/test_laws_retention.py::test_the_age_at_which_a_chunk_may_go",
    ),
    Seeded(
        name="chunks that a manifest names go",
        module=_R,
        old='if info.key.rpartition("/")[2] not in named and info',
        new="if info",
        why="an old chunk that every checkpoint shares is deleted",
        killed_by="checkpoint/test_laws_retention.py::test_chunks_go_that_nobody_names",
    ),
    Seeded(
        name="chunks of pinned checkpoints go",
        module=_R,
        old="        for key in kept\n",
        new="        for key in sound[-keep:]\n",
        why="the manifest that the epoch resumes from stays, its contents go",
        killed_by="checkpoint/test_laws_retention.py::test_a_pin_is_kept_with_its_chunks",
    ),
    Seeded(
        name="the newest manifest's age does not count",
        module=_R,
        old="        before_s = min(before_s, newest_s)\n",
        new="        pass\n",
        why="an upload that takes longer than the grace loses its first chunks",
        killed_by="checkpoint/test_laws_retention.py::test_none_is_older_than_the_newest_manifest",
    ),
    Seeded(
        name="the grace does not grow with slow commits",
        module=_R,
        old="    return max([grace_s, *(3.0 * s for s in took)])",
        new="    return grace_s",
        why="where saving takes an hour, the next save's chunks are taken for garbage",
        killed_by="checkpoint/test_laws_retention.py::test_slow_commits_lengthen_the_grace",
    ),
    Seeded(
        name="manifests are listed before chunks",
        module=_R,
        old="""        chunks = tuple(store.list(prefix))  # before the manifests: rule 1
        sizes.update({info.key: info.size for info in chunks})
        newest_s = _read_manifests(store, read, unreadable)
""",
        new="""        newest_s = _read_manifests(store, read, unreadable)
        chunks = tuple(store.list(prefix))
        sizes.update({info.key: info.size for info in chunks})
""",
        why="a checkpoint committed between the two lists loses its chunks",
        killed_by="checkpoint/test_laws_retention.py::test_what_is_committed_between_two_lists_is_kept[ckpt/chunks/-2]",
    ),
    Seeded(
        name="what the first look found is deleted",
        module=_R,
        old="[key for key in look(folder).chunks if",
        new="[key for key in first.chunks if",
        why="content that has come back since is deleted",
        killed_by="checkpoint/test_laws_retention.py::test_what_came_back_since_the_first_look_is_kept",
    ),
    Seeded(
        name="a look of long ago is acted on",
        module=_R,
        old="        if not 0 <= watch.monotonic_s() - begun_s <= SETTLE_S / 2:\n",
        new="        if False:\n",
        why="a suspended laptop wakes up and deletes by a list of yesterday",
        killed_by="checkpoint/test_laws_retention.py::test_a_look_that_has_grown_old_is_not_acted_on[5.01-False]",
    ),
    Seeded(
        name="chunks go without their manifests",
        module=_R,
        old="    store.delete(first.manifests)\n",
        new="",
        why="checkpoints that can no longer be restored stay listed",
        killed_by="checkpoint/test_laws_retention.py::test_it_tells_what_it_has_deleted",
    ),
    Seeded(
        name="parts of a checkpoint under way go",
        module=_R,
        old=" < newest and info.modified_s < before_s",
        new=" <= newest",
        why="rank 0 finds that the other ranks' parts are missing, and commits nothing",
        killed_by="checkpoint/test_retention.py::test_parts_of_epochs_that_are_over_go",
    ),
    Seeded(
        name="the last of each hundred steps is kept for good",
        module=_R,
        old="step <= first[multiple][0]",
        new="step >= first[multiple][0]",
        why="what was kept goes with each new checkpoint",
        killed_by="checkpoint/test_laws_retention.py::test_one_per_so_many_steps",
    ),
    Seeded(
        name="the root of two is missing",
        module=_C,
        old="math.sqrt(2 * save_s * mtbf_s)",
        new="math.sqrt(save_s * mtbf_s)",
        why="it saves half as often again as pays",
        killed_by="core/test_laws_cadence.py::test_figures",
    ),
    Seeded(
        name="the interval counts the save twice",
        module=_C,
        old="x / 9) - save_s",
        new="x / 9)",
        why="Daly's interval is compute time; with the save in it, it is too long",
        killed_by="core/test_laws_cadence.py::test_figures",
    ),
    Seeded(
        name="a save may take all the time",
        module=_C,
        old="    return max(tau, save_s)",
        new="    return tau",
        why="with a slow disk and a high hazard it does nothing but save",
        killed_by="core/test_laws_cadence.py::test_figures",
    ),
    Seeded(
        name="an hour is a minute",
        module=_C,
        old="    x = save_s / (2 * mtbf_s)\n",
        new="    mtbf_s = mtbf_s / 60\n    x = save_s / (2 * mtbf_s)\n",
        why="a hazard in another unit: it saves eight times too often",
        killed_by="core/test_laws_cadence.py::test_figures",
    ),
)
