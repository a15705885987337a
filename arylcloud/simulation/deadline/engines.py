"""Where the parts of a sweep run: here, in processes, or on a Dask cluster.

The answer is the same to the last bit: the parts are cut the same way everywhere and come back in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from arylcloud.core.errors import CloudError, MissingExtraError, UsageError
from arylcloud.simulation.deadline.replay import Spread


@contextmanager
def engine(text: str | None) -> Iterator[Spread]:
    """``None`` (this process), ``processes:N`` or ``dask://HOST:PORT`` (the scheduler of a cluster whose
    workers have this package). UsageError: none of them. MissingExtraError: no ``distributed`` here."""
    if text is None:
        yield map
        return
    if found := re.fullmatch(r"processes:([1-9]\d{0,2})", text):
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        with ProcessPoolExecutor(int(found[1]), mp_context=get_context("spawn")) as pool:
            yield partial(pool.map, chunksize=1)
        return
    if found := re.fullmatch(r"dask://([^/\s]+:\d+)", text):
        with _dask(found[1]) as spread:
            yield spread
        return
    raise UsageError(f"no engine {text!r}", hint="--engine processes:4, or --engine dask://HOST:PORT")


@contextmanager
def _dask(address: str) -> Iterator[Spread]:
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise MissingExtraError(
            "an engine dask:// needs the package distributed", hint="pip install distributed"
        ) from error
    try:
        client = distributed.Client(f"tcp://{address}", timeout=20)
    except (OSError, TimeoutError) as error:
        raise CloudError(f"no Dask scheduler answers at {address}: {error}", hint="is it running?") from error
    with client:
        yield partial(_spread, client)


def _spread(client: Any, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """The function (with the trace in it) goes to every worker once."""
    held = client.scatter(function, broadcast=True)
    futures = [client.submit(_called, held, item, pure=False) for item in items]
    found: list[Any] = client.gather(futures)
    return found


def _called(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)
