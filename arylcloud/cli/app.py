"""The commands as one application: finds the one that is meant, runs it, turns errors into one line, a hint
and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import _click as click  # typer's own copy: the click package's classes are others
from typer.core import TyperCommand, TyperGroup

from arylcloud import __version__
from arylcloud.cli.lightparams import install
from arylcloud.cli.registry import COMMANDS


class ReaderLeftError(Exception):
    """Standard output goes to nobody any more."""


class LazyGroup(TyperGroup):
    """Lists commands from the registry without importing them; imports the one that is called."""

    def list_commands(self, _ctx: click.core.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.core.Context, cmd_name: str) -> click.core.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        stub = TyperCommand(cmd_name, help=entry.help)
        stub.rich_help_panel = entry.panel
        return stub

    def resolve_command(
        self, ctx: click.core.Context, args: list[str]
    ) -> tuple[str | None, click.core.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in COMMANDS:
            app = import_module(COMMANDS[name].module).app
            command = typer.main.get_command(app)
            command.name = name
        return name, command, rest

    def invoke(self, ctx: click.core.Context) -> Any:
        """Ctrl-C and a reader that has left, in words of ours: typer would end with 130 and 1, silently."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error
        except (BrokenPipeError, SystemExit) as error:  # rich makes the latter of the former
            raise ReaderLeftError from error

    def format_commands(self, _ctx: click.core.Context, formatter: click.formatting.HelpFormatter) -> None:
        """By panel, as plain text: importing rich for this would double the time that ``--help`` takes."""
        for panel in dict.fromkeys(entry.panel for entry in COMMANDS.values()):
            with formatter.section(panel):
                formatter.write_dl(
                    [(name, entry.help) for name, entry in COMMANDS.items() if entry.panel == panel],
                    col_max=12,
                )


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"arylcloud {__version__}\n")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here:  arylcloud init  ·  arylcloud plan job.yaml",
)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train on any cloud's GPU market at the lowest cost, on time, without losing work."""


def run(args: list[str]) -> int:
    """Run one command line; returns the exit code. Nothing escapes as a traceback but bugs."""
    from arylcloud.cli.output import FULL, print_error
    from arylcloud.core.errors import ArylError, Interrupted, LocalStateError, UsageError

    install()
    ours = args[: args.index("--")] if "--" in args else args  # behind it is the user's own command
    as_json = "--json" in ours
    try:
        result: Any = app(args, standalone_mode=False)
    except ArylError as error:
        print_error(error, as_json=as_json)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stdout.write(error.format_message() + "\n")
        return 2
    except click.exceptions.ClickException as error:
        print_error(UsageError(error.format_message().rstrip("."), hint=_help_hint(error)), as_json=as_json)
        return 2
    except (typer.Abort, KeyboardInterrupt):
        hint = "jobs that run are not affected: `arylcloud status` shows them"
        print_error(Interrupted("interrupted", hint=hint), as_json=as_json)
        return Interrupted.exit_code
    except (BrokenPipeError, ReaderLeftError):
        # the reader has left (`| head`): quiet, and no second error when Python flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in FULL:
            return _bug(error, as_json=as_json)
        print_error(LocalStateError(f"a disk is full, perhaps that of the output: {error}"), as_json=False)
        return LocalStateError.exit_code
    except Exception as error:  # noqa: BLE001 - the last line of defence, with everything a report needs
        return _bug(error, as_json=as_json)
    return int(result) if isinstance(result, int) else 0


def _bug(error: Exception, *, as_json: bool) -> int:
    import traceback

    from arylcloud.cli.output import note, print_error
    from arylcloud.core.errors import ArylError

    note("".join(traceback.format_exception(error)))
    bug = ArylError(
        f"this is a bug in arylcloud; the lines above say where ({type(error).__name__}: {error})",
        hint="running jobs are not affected: `arylcloud status` shows them",
        code=type(error).__name__,
    )
    print_error(bug, as_json=as_json)
    return ArylError.exit_code


def _help_hint(error: click.exceptions.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path} --help`" if context is not None else None
