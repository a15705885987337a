"""Seeded bugs of fencing: journal, claim, look before the act, one author per epoch."""

from __future__ import annotations

from support.seeded import Seeded

_J, _X, _F = "launcher/journal", "launcher/executor", "launcher/fence"

BUGS = (
    Seeded(
        name="launch before journaling",
        module=_X,
        old="""        if new:
            state = self.note(
                state,
                ev.LeaseIntended(
""",
        new="""        if new:
            self.providers[action.offer.cloud].create(
                MachineSpec(
                    token=action.token,
                    journal_id=state.journal_id,
                    job_id=state.job_id,
                    lease_id=action.lease_id,
                    offer=action.offer,
                    user_data="",
                    until_s=action.until_s,
                    max_usd_per_hour=None,
                )
            )
            state = self.note(
                state,
                ev.LeaseIntended(
""",
        why="a crash between the two leaves a machine that the journal does not know",
        killed_by="launcher/test_world_scenarios.py::test_scenario[crash_before_the_intent]",
        world=True,
    ),
    Seeded(
        name="released without terminate",
        module=_X,
        old="""        if action.machine is not None:
            last =""",
        new="""            now_s = state.market_clock.market_s(self.clock.now_s())
            released = ev.LeaseReleased(lease_id=action.lease_id, ended_s=now_s, cause="terminated")
            return self.note(state, released, strict=False)
        if action.machine is not None and False:
            last =""",
        why="the report says that it has ended; it runs on",
        killed_by="launcher/test_world_scenarios.py::test_scenario[plain_run]",
        world=True,
    ),
    Seeded(
        name="no look at the fence before a create",
        module=_X,
        old="        self.journal.check_fence(state.job_id, self.store, self.writer)  # whatever",
        new="        # whatever",
        why="a launcher that was away for an hour starts a machine for a job that is another's",
        killed_by="launcher/test_laws_fence.py::test_taken_over_between_the_decision_and_the_create",
    ),
    Seeded(
        name="what is decided is done without a look",
        module=_X,
        old="if _journaled_end(state, action) or self.fence.is_ours(state.job_id):",
        new="if True:",
        why="two launchers act on one job",
        killed_by="launcher/test_doubt.py::test_without_a_look_at_the_fence_nothing_is_ended[boot timeout]",
    ),
    Seeded(
        name="a look holds for ever",
        module=_F,
        old="self.clock.monotonic_s() - self._last[0] <= FRESH_S:",
        new="self.clock.monotonic_s() - self._last[0] <= 1e9 * FRESH_S:",
        why="one look at the start, and the fence is never read again",
        killed_by="launcher/test_laws_fence.py::test_a_look_is_good_for_so_long",
    ),
    Seeded(
        name="a fence that cannot be read is ours",
        module=_F,
        old="            self._last = (self.clock.monotonic_s(), False)\n            return False\n",
        new="            self._last = (self.clock.monotonic_s(), True)\n            return True\n",
        why="cut off from the mailbox it goes on as if it held the job",
        killed_by="launcher/test_laws_fence.py::test_a_look_is_good_for_so_long",
    ),
    Seeded(
        name="anybody's record is ours",
        module=_J,
        old="""        if found.writer != writer:
            raise _conflict(job_id, seq, f"launcher {found.writer}")

    def _mirror""",
        new="""        del found

    def _mirror""",
        why="a launcher that was taken over does not notice",
        killed_by="launcher/test_laws_fence.py::test_taken_over_between_the_decision_and_the_create",
    ),
    Seeded(
        name="another's record under our number is taken for ours",
        module=_J,
        old="        if found.writer != record.writer:\n            raise",
        new="        if found.job_id != record.job_id:\n            raise",
        why="two launchers append to one history in turns",
        killed_by="launcher/test_journal.py::test_two_launchers_cannot_both_be_right",
    ),
    Seeded(
        name="strict is not strict",
        module=_J,
        old="            except StoreError:\n                if strict:\n",
        new="            except StoreError:\n                if False:\n",
        why="a machine is made whose intent nobody else can read: adopt does not find it",
        killed_by="launcher/test_journal.py::test_strict_writes_nothing_before_the_mailbox_has_it",
    ),
    Seeded(
        name="the mailbox is written after the disk",
        module=_J,
        old="""            try:
                record = self._mirror(mirror, record)
                mirrored = True
""",
        new="""            try:
                self._db.insert(record, mirrored=False)
                record = self._mirror(mirror, record)
                mirrored = True
""",
        why="a record that lost the race is in the history all the same",
        killed_by="launcher/test_journal.py::test_two_launchers_cannot_both_be_right",
    ),
    Seeded(
        name="a damaged record is history",
        module=_J,
        old="or hashlib.sha256(body).digest() != digest:",
        new="or not digest:",
        why="a flipped bit is a price, a phase, an instance id",
        killed_by="launcher/test_journal.py::test_a_flipped_byte_is_never_a_history",
    ),
    Seeded(
        name="a mailbox with a gap is adopted",
        module=_J,
        old="            if key != journal_key(seq):\n",
        new="            if False:\n",
        why="the machine that the missing record speaks of is paid for by nobody's decision",
        killed_by="launcher/test_journal.py::test_a_gap_or_a_loss_in_the_mailbox_is_an_error",
    ),
    Seeded(
        name="the claim is shared",
        module="launcher/claims",
        old="""            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time""",
        new="""            return fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        time""",
        why="two launchers of one home run one job",
        killed_by="launcher/test_journal.py::test_one_launcher_per_job_and_home",
    ),
    Seeded(
        name="whoever is alive is taken for dead",
        module="launcher/holder",
        old="if age_s is not None and age_s < FRESH_S else None",
        new="if age_s is not None and age_s > FRESH_S else None",
        why="a job is taken from the launcher that runs it",
        killed_by="launcher/test_world_scenarios.py::test_scenario[two_launchers]",
    ),
    Seeded(
        name="an epoch may have two authors",
        module="launcher/epochdocs",
        old="    if not created and not _same_epoch(",
        new="    if not created and False and not _same_epoch(",
        why="the machines read one membership, the journal holds another",
        killed_by="launcher/test_laws_fence.py::test_an_epoch_has_one_author",
    ),
)
