"""``arylcloud exec``: a command on a machine of the job, through the mailbox: no port is open."""

from __future__ import annotations

import secrets
import sys
import time
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def exec_(
    job: Annotated[str, typer.Argument(help="Id, name or beginning of an id.")],
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after `--`.")],
    rank: Annotated[int, typer.Option("--rank", "-r", help="On which node.")] = 0,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds until it is given up.")] = 60.0,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Run a command in the job's folder and environment on one of its machines."""
    from arylcloud.cli.assemble import open_journal, open_prefix
    from arylcloud.cli.describe import spelled
    from arylcloud.cli.jobs import resolve_running
    from arylcloud.cli.output import emit_json
    from arylcloud.cli.settings import folders
    from arylcloud.core import protocol as mail
    from arylcloud.core.codec import dumps, loads
    from arylcloud.core.errors import NotFinished, UsageError, UserCommandFailed
    from arylcloud.launcher.fold import replay

    journal = open_journal(folders())
    job_id = resolve_running(journal, job)
    state = replay(journal.records(job_id))
    if not state.open_leases:
        raise UsageError(f"{job_id} has no machine ({state.phase}: {spelled(state.phase_text)})")
    store = open_prefix(state.prefix_uri)
    request = mail.ExecRequest(
        request_id=f"{time.time():.0f}-{secrets.token_hex(4)}",
        rank=rank,
        argv=tuple(command),
        timeout_s=timeout,
        at_s=time.time(),
    )
    store.create(mail.exec_key(request.request_id), dumps(request))
    key = mail.exec_result_key(request.request_id, rank)
    deadline = time.monotonic() + timeout + 15
    while (data := store.get(key)) is None:
        if time.monotonic() > deadline:
            raise NotFinished(
                f"rank {rank} of {job_id} has not answered in {timeout + 15:.0f} s",
                hint=f"`arylcloud status {job_id}` shows whether it is alive",
            )
        time.sleep(0.1)
    result = loads(mail.ExecResult, data, what=key)
    if json_:
        emit_json({"job_id": job_id, "rank": rank, "exit_code": result.exit_code, "output": result.output})
        return 0 if result.exit_code == 0 else UserCommandFailed.exit_code
    sys.stdout.write(result.output)
    if result.exit_code != 0:
        raise UserCommandFailed(f"the command exited {result.exit_code}")
    return 0
