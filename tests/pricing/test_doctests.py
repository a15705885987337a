"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from arylcloud.core import gpus
from arylcloud.pricing import codes, doctor, ownrates, table


@pytest.mark.parametrize("module", [gpus, codes, doctor, ownrates, table])
def test_docstring_examples(module: ModuleType) -> None:
    result = doctest.testmod(module, extraglobs={"np": __import__("numpy")})
    assert result.attempted > 0
    assert result.failed == 0
