"""What commands answer when there is nothing to do or to show: the reason, and the next step."""

from __future__ import annotations

from collections.abc import Callable

from e2e.market import job, quiet
from e2e.support import Home

NewHome = Callable[..., Home]


def test_a_place_that_is_none_is_a_usage_error_with_the_nearest(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.submit(job(steps=10))
    done = home.cli("migrate", job_id, "--to", "local/callm-b", "--json", no_launcher=True, code=2)
    assert done.json["error"]["message"].startswith("local/callm-b is no offer that ")
    assert "such as local/calm" in done.json["error"]["hint"]
    assert not list((home.prefix(job_id) / "requests").glob("*")), "nothing was asked of the job"


def test_logs_of_a_failed_setup_say_where_to_look(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.submit({**job(steps=10), "setup": "echo no such package; exit 3"})
    assert home.serve(job_id).wait() == 0
    said = home.cli("logs", job_id, code=0).err
    assert "setup failed with exit code 3: no such package" in said
    assert f"arylcloud logs {job_id} --provision" in said
    assert "no such package" in home.cli("logs", job_id, "--provision", code=0).out
