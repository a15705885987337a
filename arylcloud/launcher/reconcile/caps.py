"""A job's limits at run time, the budget and ``max_runtime``: told when most is used up, kept in time."""

from __future__ import annotations

from typing import Final

from arylcloud.core import events as ev
from arylcloud.core.units import say_duration, say_usd, say_usd_limit
from arylcloud.launcher.limits import burn_usd_per_hour, reserve_usd, running, trained_market_s
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.spent import unpriced

WARN_SHARE: Final = 0.8
"""Of the budget: once so much is spent, the user is told."""
RUNTIME_SLACK: Final = 0.02
"""Of ``max_runtime``: what is left of it, once nothing runs any more, that is worth no machine."""
BUDGET_SLACK: Final = 0.02
"""Of the budget, likewise."""


def reached(d: Draft) -> tuple[str, str, None] | None:
    """(code, text, no exit code) of the limit that ends the job now; journals what else there is to say."""
    if d.desired.late is not None and "deadline" not in d.state.limits_near:
        d.note(ev.LimitNear(limit="deadline", text=d.desired.late))
        d.notify("near:deadline", f"{d.state.job_id}: deadline: {d.desired.late}")
    return _budget(d) or _runtime(d)


def _budget(d: Draft) -> tuple[str, str, None] | None:
    """All that is owed: machines, egress, storage. It ends while the last save can still be paid."""
    budget_usd, spent = d.state.spec.constraints.budget_usd, d.desired.spent_usd
    if budget_usd is None:
        return None
    if spent is None:
        if "budget" not in d.state.limits_unknown:
            text = "some machine has neither a price nor a quote: what has been spent is not known"
            d.note(ev.LimitUnknown(limit="budget", text=text))
            d.notify("limit:budget", f"{d.state.job_id}: the budget cannot be watched: {text}")
        return None
    vague = unpriced(d.state)
    if vague and "budget" not in d.state.limits_unknown:
        text = f"no price is known of {'; '.join(vague.values())}: the budget is judged by what is known"
        d.note(ev.LimitUnknown(limit="budget", text=text))
        d.notify("limit:budget", f"{d.state.job_id}: the budget may be exceeded: {text}")
    burn = burn_usd_per_hour(d.state)
    kept = reserve_usd(d.state, burn, save_s=_save_s(d))
    # a machine ends itself at its limit, too, a moment before or after us: nobody starts another for that
    slack = 0.0 if running(d.state) or not d.state.epochs else BUDGET_SLACK * budget_usd
    if spent >= budget_usd - max(kept, slack):
        rest = f"; ${kept:.2f} is kept for the last save" if kept >= 0.005 and spent < budget_usd else ""
        text = f"{say_usd(spent)} of a budget of {say_usd_limit(budget_usd)} is spent{rest}"
        return "over_budget", text, None
    if spent >= WARN_SHARE * budget_usd and "budget" not in d.state.limits_near:
        left_h = (budget_usd - kept - spent) / burn if burn else None
        lasts = "" if left_h is None else f"; at ${burn:.2f}/h the rest lasts {_hours(left_h)}"
        text = f"{say_usd(spent)} of {say_usd_limit(budget_usd)} is spent{lasts}; then it saves and stops"
        d.note(ev.LimitNear(limit="budget", text=text))
        d.notify("near:budget", f"{d.state.job_id}: budget: {text}")
    return None


def _runtime(d: Draft) -> tuple[str, str, None] | None:
    longest_s = d.state.spec.constraints.max_runtime_s
    if longest_s is None:
        return None
    ran_s = trained_market_s(d.state, d.now_s)
    if ran_s >= longest_s * (1.0 if running(d.state) else 1.0 - RUNTIME_SLACK):
        return "max_runtime", f"it has run for {say_duration(ran_s)}, the longest that is allowed", None
    return None


def _save_s(d: Draft) -> float | None:
    """The longest that saving and uploading took, of those that have told."""
    told = [(beat.save_s or 0.0) + beat.upload_s for beat in d.observed.beats.values() if beat.upload_s]
    return max(told, default=None)


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1.0 else f"{max(0.0, hours) * 60:.0f} min"
