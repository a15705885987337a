"""``aryl: notify: https://…``: one JSON POST per topic, tried once per event, journaled either way.

The address is a secret where a service puts its token there: only :func:`shown` of it goes into specs,
events, logs and errors.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from arylcloud.core.errors import OtherCloudError, UsageError

DEADLINE_S = 5.0
"""From the first look-up to the last byte: a launcher has machines to watch."""


def checked(url: str, *, what: str) -> str:
    """``url`` if something can be posted to it. The error shows no more of it than :func:`shown`."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or any(c.isspace() or not c.isprintable() for c in url):
        raise UsageError(f"{what} is no http or https address", hint="notify: https://example.com/hook")
    return url


def shown(url: str) -> str:
    """``https://host/…``: enough to recognise it.

    >>> shown("https://me:pw@hooks.example.com:8443/T0/s3cret?k=1"), shown("http://localhost")
    ('https://hooks.example.com:8443/…', 'http://localhost/…')
    """
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port is not None else ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{port}/…"


def notifier(name: str | None, address: Callable[[], str | None], job_id: str) -> Callable[[str, str], str]:
    """(topic, text) → the text, once it is posted. ``name``: the address as it is shown, None = nobody
    is told. ``address`` gives the whole one. Raises OtherCloudError, StoreError."""

    def send(topic: str, text: str) -> str:
        if name is None:
            return text
        url = address()
        if url is None:
            raise OtherCloudError(f"notify {name}: the whole address is not in the mailbox")
        body = {"schema_version": 1, "job_id": job_id, "topic": topic, "text": text}
        problem = post(checked(url, what="notify"), json.dumps(body).encode())
        if problem is not None:
            raise OtherCloudError(f"notify {name}: {problem}")
        return text

    return send


def post(url: str, body: bytes) -> str | None:
    """What went wrong, without the address in it; None if the receiver took it. On a thread of its own:
    neither a name server nor a receiver that sends a byte now and then can hold the caller up."""
    answer: list[str | None] = []
    sender = threading.Thread(target=lambda: answer.append(_post(url, body)), daemon=True)
    sender.start()
    sender.join(DEADLINE_S)
    return answer[0] if answer else f"no answer within {DEADLINE_S:.0f} s"


def _post(url: str, body: bytes) -> str | None:
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        """An answer that points elsewhere (to an address of this network, say) is a failure."""

        def redirect_request(self, *_: object) -> None:
            return None

    request = Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")  # noqa: S310 - `checked` allows http(s) only
    try:
        with build_opener(Stay).open(request, timeout=DEADLINE_S) as response:
            response.read(1024)
    except HTTPError as error:
        error.close()
        return f"HTTP {error.code}" + (", and redirects are not followed" if 300 <= error.code < 400 else "")
    except URLError as error:
        return str(error.reason)
    except OSError as error:
        return error.strerror or type(error).__name__
    except Exception as error:  # noqa: BLE001 - what a strange receiver provokes; its text may hold the address
        return f"no proper answer ({type(error).__name__})"
    return None
