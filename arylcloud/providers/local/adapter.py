"""``Provider`` and ``PriceSource`` over the local cloud's HTTP API."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arylcloud.core.clock import Clock, MarketClock, SystemClock
from arylcloud.core.codec import decode, encode
from arylcloud.core.errors import (
    AccessError,
    CapacityError,
    CloudError,
    OtherCloudError,
    QuotaError,
    ThrottledError,
    UsageError,
)
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Billing, Capabilities, Machine, MachineSpec, PricePoint
from arylcloud.providers.local.network import NAME as NAMESPACES
from arylcloud.providers.local.start import Endpoint, NotThere, ensure
from arylcloud.providers.local.wire import FOLDER

KNOWN: Final = frozenset({"market", "timeout_s", "idle_exit_s", "folder", "network"})

_ERRORS: Final[dict[str, type[CloudError] | type[AccessError]]] = {
    "capacity": CapacityError,
    "quota": QuotaError,
    "throttled": ThrottledError,
    "access": AccessError,
}
"""The API's error kinds; every other one is OtherCloudError."""


def create(state_dir: Path, settings: Mapping[str, str]) -> LocalProvider:
    """The factory that the registry names. ``settings``: ``market`` (a bundled name or a file; read at
    the cloud's first start in this folder), ``timeout_s``, ``idle_exit_s`` (wall seconds), ``folder``
    (the cloud's own, where it is not under ``state_dir``: so that two homes see the same cloud), ``network``
    (``namespaces``: each machine has one of its own; see ``network.py``; read when the cloud starts).

    Raises UsageError for a setting that there is not."""
    if unknown := sorted(set(settings) - KNOWN):
        raise UsageError(
            f"the local cloud has no setting {unknown[0]!r}", hint=f"known: {', '.join(sorted(KNOWN))}"
        )
    return LocalProvider(
        folder=Path(folder).expanduser().absolute()
        if (folder := settings.get("folder"))
        else state_dir / FOLDER,
        market=settings.get("market") or None,
        timeout_s=_seconds(settings, "timeout_s") or 30.0,
        idle_exit_s=_seconds(settings, "idle_exit_s"),
        clock=SystemClock(),
        network=_network(settings.get("network")),
    )


def _network(name: str | None) -> str | None:
    if name not in (None, "", "loopback", NAMESPACES):
        raise UsageError(f"the local cloud has no network {name!r}", hint=f"loopback or {NAMESPACES}")
    return name or None


def _seconds(settings: Mapping[str, str], key: str) -> float | None:
    text = settings.get(key)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise UsageError(f"the local cloud's {key} must be a number of seconds, not {text!r}")
    return value


class LocalProvider:
    """See ``core.ports`` for what each method promises. Safe to use from several threads."""

    def __init__(
        self,
        *,
        folder: Path,
        market: str | None,
        timeout_s: float,
        idle_exit_s: float | None,
        clock: Clock,
        network: str | None = None,
    ) -> None:
        self._folder = folder
        self._market = market
        self._timeout_s = timeout_s
        self._idle_exit_s = idle_exit_s
        self._clock = clock
        self._network = network
        self._endpoint: Endpoint | None = None
        self._capabilities: Capabilities | None = None

    @property
    def name(self) -> str:
        return "local"

    def capabilities(self) -> Capabilities:
        if self._capabilities is None:  # for good: a local cloud keeps its market and its clock
            health = self._call("health", {})
            self._capabilities = Capabilities(
                notice_s=health["notice_s"],
                billing=Billing(minimum_s=health["minimum_s"]),
                market_clock=MarketClock(origin_s=health["origin_s"], scale=health["scale"]),
                boot_s=health["boot_s"],
                renews_until=True,
                compressed=health["scale"] != 1.0,
            )
        return self._capabilities

    def quote(self, offer: Offer) -> Offer:
        return decode(Offer, self._call("quote", {"offer": encode(offer)})["offer"])

    def create(self, spec: MachineSpec) -> Machine:
        body = {"spec": encode(spec), "python": sys.executable}
        return decode(Machine, self._call("create", body)["machine"])

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        del offers  # one call shows every region
        answer = self._call("list", {"journal_id": journal_id})
        return tuple(decode(Machine, item) for item in answer["machines"])

    def terminate(self, machine: Machine) -> None:
        self._call("terminate", {"instance_id": machine.instance_id})

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        body = {"offer": encode(offer), "from_s": from_s, "to_s": to_s}
        return tuple(decode(PricePoint, item) for item in self._call("price_history", body)["points"])

    def offers(self) -> tuple[Offer, ...]:
        return tuple(decode(Offer, item) for item in self._call("offers", {})["offers"])

    def _call(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call, sent at most once. Only where nothing listened, and so nothing was received, is
        the daemon started and the call made."""
        try:
            if self._endpoint is None:
                status, document = self._first_call(op, body)
            else:
                try:
                    status, document = self._endpoint.call(op, body, self._timeout_s)
                except NotThere:
                    status, document = self._first_call(op, body)
        except (NotThere, OSError, http.client.HTTPException) as error:
            raise OtherCloudError(
                f"the local cloud did not answer to {op}: {str(error) or type(error).__name__}",
                code="NoAnswer",
            ) from error
        if status == http.client.UNAUTHORIZED:  # another daemon took the port, ours has another one
            self._endpoint = None
        if status != http.client.OK:
            error_body = document.get("error") or {}
            cls = _ERRORS.get(str(error_body.get("kind")), OtherCloudError)
            raise cls(str(error_body.get("message") or f"HTTP {status}"), code=error_body.get("code"))
        return document

    def _first_call(self, op: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self._endpoint = ensure(
            self._folder,
            market=self._market,
            idle_exit_s=self._idle_exit_s,
            clock=self._clock,
            network=self._network,
        )
        return self._endpoint.call(op, body, self._timeout_s)
