"""Every command: its name, one line of help, and the module to import when it is called.

Adding a command = a module with a ``typer.Typer`` called ``app`` and one line here. Nothing is
imported for ``--help``: start-up time is a feature.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    module: str
    help: str
    panel: str


COMMANDS: Final[dict[str, Entry]] = {
    "init": Entry("arylcloud.cli.init", "Write a commented job file", "Plan"),
    "prices": Entry(
        "arylcloud.cli.prices", "What every GPU offer costs, where, and how old the price is", "Plan"
    ),
    "profile": Entry(
        "arylcloud.cli.profile", "What a job gets out of a GPU: list, estimate, measure", "Plan"
    ),
    "plan": Entry("arylcloud.cli.plan", "Rank where and how to run a job, and say why", "Plan"),
    "simulate": Entry("arylcloud.cli.simulate", "Replay a trace of jobs on a cluster under a policy", "Plan"),
    "backtest": Entry(
        "arylcloud.cli.backtest", "Replay a job with a deadline on past spot capacity and prices", "Plan"
    ),
    "check": Entry("arylcloud.cli.check", "Ask a cloud, dry, all that a launch would ask", "Plan"),
    "launch": Entry("arylcloud.cli.launch", "Run a job to completion", "Run"),
    "serve": Entry("arylcloud.cli.serve", "The launcher for all jobs of this journal, until stopped", "Run"),
    "status": Entry("arylcloud.cli.status", "What runs where, since when, at what price", "Watch"),
    "logs": Entry("arylcloud.cli.logs", "The output of a job, or of its machines' boot", "Watch"),
    "events": Entry("arylcloud.cli.events", "What happened, and why", "Watch"),
    "exec": Entry("arylcloud.cli.exec", "Run a command on a machine of the job", "Run"),
    "migrate": Entry("arylcloud.cli.migrate", "Move a running job to another market", "Run"),
    "scale": Entry("arylcloud.cli.scale", "Change the number of machines of a running job", "Run"),
    "stop": Entry("arylcloud.cli.stop", "Stop with a final checkpoint, and release every machine", "Run"),
    "resume": Entry("arylcloud.cli.resume", "Go on from the last checkpoint", "Run"),
    "adopt": Entry("arylcloud.cli.adopt", "Take over a job whose launcher is lost", "Run"),
    "pool": Entry("arylcloud.cli.pool", "Machines of your own: add, list, lend, take back", "Run"),
    "report": Entry("arylcloud.cli.report", "What it cost, and what it would have cost elsewhere", "Account"),
    "gc": Entry("arylcloud.cli.gc", "Find and end machines that the journal does not know", "Account"),
}
