"""Whoever asks a metadata service may hang up before its answer: machines are killed, threads are not."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from clouds.azure.metadata import AzureMetadata
from clouds.boots import ec2
from clouds.gcp.metadata import serve_for

from arylcloud.providers.local.metadata import MetadataService


def services(cloud: str) -> MetadataService:
    boots: Any = SimpleNamespace(lookup=lambda instance_id: None, credentials=lambda instance_id: None)
    made: Any = {
        "aws": lambda: ec2(boots),
        "gcp": lambda: serve_for(SimpleNamespace(server=SimpleNamespace(projects={})))(boots),  # type: ignore[arg-type]
        "azure": lambda: AzureMetadata(boots, lambda m: [], lambda m, e: None, lambda m, i: None),
    }[cloud]()
    assert isinstance(made, MetadataService)
    return made


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_caller_that_hangs_up(cloud: str) -> None:
    service = services(cloud)
    ours, theirs = socket.socketpair()
    theirs.sendall(b"GET /latest/meta-data/ HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    theirs.close()
    service._handle(ours, ("127.0.0.1", 1), "i-1")
    assert ours.fileno() == -1, "it is closed"


def test_a_fault_of_the_emulators_own_is_one_line(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody who sits in ``scripts/emulators`` is shown a traceback: it is in the log."""
    from clouds.broken import broken

    said = broken(NotImplementedError("The x action\nhas not been implemented"))
    assert said == "the emulator: NotImplementedError: The x action has not been implemented"
    assert capsys.readouterr() == ("", "")
    assert "of the emulator itself" in caplog.text
