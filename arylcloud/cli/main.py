"""Entry point. It imports next to nothing itself: from its first line on, Ctrl-C is one line and exit 130."""

from __future__ import annotations

import gc
import os
import sys


def main(argv: list[str] | None = None) -> None:
    # almost all that a short command makes lives until its end: looking through it for garbage again and
    # again, and once more at exit, would take a fifth of its time
    gc.set_threshold(100_000)
    code = _written(run(sys.argv[1:] if argv is None else argv))
    gc.freeze()
    sys.exit(code)


def _written(code: int) -> int:
    """The exit code, once all that was to be read has been written. What cannot be (its disk is full, its
    reader has left) is not tried again when Python ends, which would say so in words of its own."""
    for number, stream in ((2, sys.stderr), (1, sys.stdout)):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            if number == 1 and code == 0 and not isinstance(error, BrokenPipeError):
                os.write(2, f"error: the output cannot be written: {error.strerror}\n".encode())
                code = 2
    return code


def run(args: list[str]) -> int:
    """Run one command line; returns the exit code. Nothing escapes as a traceback but bugs."""
    try:
        from arylcloud.cli.app import run as run_command

        return run_command(args)
    except KeyboardInterrupt:  # while Python was still loading: no command has begun
        os.write(2, b"error: interrupted before anything was done\n")
        return 130


if __name__ == "__main__":
    main()
