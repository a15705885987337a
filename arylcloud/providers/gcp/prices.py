"""Live prices of Google Cloud: the Cloud Billing Catalog's SKUs, by REST.

One list for all regions, without versions or conditional requests: an answer holds for a day. It is asked for
with an API key (``[gcp] api_key``) or the application default credentials; google-cloud-billing would take
seconds to import and add nothing. Which machines there are, and where, the catalogue knows; with
``[gcp] project`` set, Compute Engine says it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from arylcloud.core.errors import AccessError, CloudError, MissingExtraError
from arylcloud.core.live import Answer, Known, Memory, Meter, Part, PriceColumns, Shape
from arylcloud.core.net import is_loopback
from arylcloud.core.offer import Market
from arylcloud.providers.bounds import Paging
from arylcloud.providers.gcp.machines import machine_types
from arylcloud.providers.gcp.skus import Parts
from arylcloud.providers.patience import Patience
from arylcloud.providers.web import Web, endpoint

DEFAULT: Final = "https://cloudbilling.googleapis.com"
COMPUTE_ENGINE: Final = "6F81-5844-456A"
SOURCE: Final = "GCP Cloud Billing Catalog"
PAGE: Final = 5000
MAX_AGE_S: Final = 24 * 3600.0
COMPUTE: Final = "https://compute.googleapis.com"
_SCOPES: Final = tuple(
    f"https://www.googleapis.com/auth/{scope}" for scope in ("cloud-billing.readonly", "compute.readonly")
)
_UNPRICED: Final = "a machine without a price for one of its parts"


class GcpPrices:
    """``LiveSource`` of Google Cloud."""

    cloud = "gcp"

    def __init__(self, settings: Mapping[str, str], patience: Patience) -> None:
        self._settings = settings
        self._compute = endpoint(settings.get("api_endpoint"), COMPUTE, what="[gcp] api_endpoint")
        self._project = settings.get("project")
        self._web = Web("gcp", patience)
        _catalogue(settings)

    def parts(self, known: Known, regions: Sequence[str], meter: Meter) -> list[Part]:  # noqa: ARG002
        """One: the list cannot be asked for by region. ``regions`` narrows what is taken from it, and such a
        part is remembered apart."""
        name = "skus" if not regions else f"skus/{','.join(sorted(regions))}"
        both = (Market.ON_DEMAND, Market.SPOT)
        return [Part(name=name, regions=tuple(regions), markets=both, max_age_s=MAX_AGE_S)]

    def ask(self, part: Part, memory: Memory, known: Known, meter: Meter) -> Answer:  # noqa: ARG002
        prices_of = Parts()
        for page in pages(self._web, self._settings, meter):
            skus = page.get("skus") or ()
            meter.count(raw_rows=len(skus))
            for sku in skus:
                prices_of.read(sku)
        left_out = dict(prices_of.left_out)
        shapes, places = known.shapes, known.places
        if self._project:
            try:
                who = _identity(self._compute)
                offered, places = machine_types(self._web, self._compute, self._project, who, meter)
                shapes = {**offered, **{name: shapes[name] for name in offered.keys() & shapes.keys()}}
            except (AccessError, CloudError) as error:  # prices are worth more than zones
                left_out[f"new machine types, and zones: {error.message}"] = 1
        prices = _machines(prices_of, shapes, places, part.regions, left_out)
        return Answer(prices=prices, source=SOURCE, left_out=left_out, shapes=shapes)


def pages(web: Web, settings: Mapping[str, str], meter: Meter) -> Iterator[Any]:
    """Every page of Compute Engine's SKUs. Raises as ``Web.get_json``; AccessError without credentials."""
    base, key = _catalogue(settings), settings.get("api_key")
    headers = {"X-Goog-Api-Key": key} if key else _identity(base)
    token, paging = "", Paging("gcp: the price list")
    while True:
        query = {"pageSize": PAGE, "currencyCode": "USD"} | ({"pageToken": token} if token else {})
        page = web.get_json(f"{base}/v1/services/{COMPUTE_ENGINE}/skus?{urlencode(query)}", meter, headers)
        yield page
        token = page.get("nextPageToken") or ""
        if not token:
            return
        paging.turn(token)


def _catalogue(settings: Mapping[str, str]) -> str:
    return endpoint(settings.get("billing_endpoint"), DEFAULT, what="[gcp] billing_endpoint")


def _identity(base: str) -> dict[str, str]:
    """The headers that say who asks."""
    if base.startswith("http://") and is_loopback(urlsplit(base).hostname):
        return {}  # an emulator on this machine: there is nobody to prove anything to
    return {"Authorization": f"Bearer {_token()}"}


def _machines(
    prices_of: Parts,
    shapes: Mapping[str, Shape],
    places: Mapping[str, frozenset[tuple[str, str | None]]],
    regions: Sequence[str],
    left_out: dict[str, int],
) -> PriceColumns:
    """Every machine type, where it is sold, at the sum of its parts."""
    prices = PriceColumns()
    for name, shape in sorted(shapes.items()):
        for region, zone in sorted(places.get(name, ()), key=lambda place: (place[0], place[1] or "")):
            if regions and region not in regions:
                continue
            for market in (Market.ON_DEMAND, Market.SPOT):
                usd = prices_of.machine_usd(name, shape, region, market)
                if usd is None:
                    left_out[_UNPRICED] = left_out.get(_UNPRICED, 0) + 1
                else:
                    prices.add(region, zone, name, market, round(usd, 6))
    return prices


def _token() -> str:
    try:
        import google.auth
        import google.auth.exceptions
        from google.auth.transport.requests import Request
    except ImportError as error:
        raise MissingExtraError(
            "prices of Google Cloud need google-auth, or an API key",
            hint="pip install 'arylcloud[gcp]', or set ARYLCLOUD_GCP__API_KEY",
        ) from error
    try:
        credentials: Any = google.auth.default(scopes=_SCOPES)[0]
        credentials.refresh(Request())
    except google.auth.exceptions.GoogleAuthError as error:
        raise AccessError(
            f"gcp: no credentials: {str(error).splitlines()[0]}",
            hint="gcloud auth application-default login, or set ARYLCLOUD_GCP__API_KEY",
        ) from error
    return str(credentials.token)


def create(settings: Mapping[str, str], patience: Patience) -> GcpPrices:
    """``billing_endpoint`` is where the catalogue is, ``api_key`` the key for it (none: the application
    default credentials); ``project`` and ``api_endpoint``: who may tell of machine types, and where."""
    return GcpPrices(settings, patience)
