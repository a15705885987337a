"""The PyTorch adapter, where torch is installed: what it sends, and from where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
dist = pytest.importorskip("torch.distributed", reason="torch is not installed")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """This process is one of two; what the other would add is nothing. (dtype, device) of each message."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    found: list[Any] = []
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, **_: found.append((tensor.dtype, tensor.device)))
    yield found
    dist.destroy_process_group()


def test_a_question_travels_by_what_the_backend_takes(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from arylcloud.training import pytorch

    assert pytorch.together(True)
    assert not pytorch.together(False)
    assert [device.type for _, device in sent] == ["cpu", "cpu"]
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    asked: list[Any] = []
    real = torch.tensor

    def tensor(data: object, *, device: Any) -> Any:
        asked.append(device)
        return real(data)

    monkeypatch.setattr(torch, "tensor", tensor)
    assert pytorch.together(True)
    assert pytorch.together(True, "cpu")
    assert asked == [torch.device("cuda", 3), "cpu"]


def test_gradients_keep_their_types_one_message_for_each(sent: list[Any]) -> None:
    from arylcloud.training import pytorch

    kinds = (torch.float32, torch.bfloat16, torch.float32)
    parameters = [torch.nn.Parameter(torch.ones(n + 1, dtype=kind)) for n, kind in enumerate(kinds)]
    parameters[0].grad = torch.full((1,), 2.0)
    parameters[1].grad = torch.full((2,), 3.0, dtype=torch.bfloat16)
    frozen = torch.nn.Parameter(torch.ones(1), requires_grad=False)
    pytorch.sum_gradients(iter([*parameters, frozen]))
    assert [kind for kind, _ in sent] == [torch.float32, torch.bfloat16]
    assert [(p.grad.dtype, p.grad.tolist()) for p in parameters] == [
        (torch.float32, [2.0]),
        (torch.bfloat16, [3.0, 3.0]),
        (torch.float32, [0.0, 0.0, 0.0]),
    ]
    assert frozen.grad is None
    pytorch.sum_gradients([])
    assert len(sent) == 2
