"""IMDSv2 with the credentials of the instance's role, as EC2 shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from arylcloud.providers.local.metadata import TOKEN_HEADER, MetadataService, _Handler

PATH = "/latest/meta-data/iam/security-credentials/"

Credentials = Callable[[str], tuple[str, dict[str, str]] | None]
"""Instance → (role, document); None: it runs as nothing."""


class RoleMetadata(MetadataService):
    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.handler = _RoleHandler

    credentials: Credentials = staticmethod(lambda instance_id: None)  # type: ignore[assignment]


class _RoleHandler(_Handler):
    def do_GET(self) -> None:
        if not self.path.startswith(PATH):
            return super().do_GET()
        if not self.service.tokens.valid(self.instance_id, self.headers.get(TOKEN_HEADER, "")):
            return self._answer(HTTPStatus.UNAUTHORIZED)
        assert isinstance(self.service, RoleMetadata)
        found = self.service.credentials(self.instance_id)
        if found is None:
            return self._answer(HTTPStatus.NOT_FOUND)
        role, document = found
        name = self.path.removeprefix(PATH)
        if name not in ("", role):
            return self._answer(HTTPStatus.NOT_FOUND)
        return self._answer(HTTPStatus.OK, json.dumps(document) if name else role)
