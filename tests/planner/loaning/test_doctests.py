"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
from types import ModuleType

import numpy as np
import pytest

from arylcloud.planner.kernels import steps
from arylcloud.planner.loaning import displace, growth, reclaim, servers, waiting
from arylcloud.planner.templates import shrink, stages


@pytest.mark.parametrize(
    "module", [steps, displace, growth, reclaim, servers, waiting, shrink, stages], ids=lambda m: m.__name__
)
def test_docstring_examples(module: ModuleType) -> None:
    result = doctest.testmod(module, extraglobs={"np": np})
    assert result.attempted > 0
    assert result.failed == 0
