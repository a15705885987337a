"""Asking something of a running job: a numbered document in its mailbox, from any machine."""

from __future__ import annotations

import getpass
import socket
import time
from typing import Any, Literal

from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps
from arylcloud.core.ports import ObjectStore


def asker() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def write_request(
    store: ObjectStore, verb: Literal["stop", "migrate", "scale", "check"], args: dict[str, Any]
) -> int:
    """Returns its number; two users at once get two numbers."""
    number = 1 + sum(1 for _ in store.list(mail.REQUESTS_PREFIX))
    while True:
        document = mail.RequestDoc(
            number=number,
            verb=verb,
            args=args,
            at_s=time.time(),
            by=asker(),
        )
        if store.create(mail.request_key(number), dumps(document)):
            return number
        number += 1
