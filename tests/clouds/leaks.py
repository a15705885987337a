"""Looking for secrets where none may be: user data, tags, logs, events, journals, arguments of processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

_LINK = re.compile(r"https?://[^\s'\"]*(?:X-Amz-Signature|X-Goog-Signature|[?&]sig)=[^\s'\"]*")

_LASTS = re.compile(r"X-(?:Amz|Goog)-Expires=(\d+)")


def links(user_data: str) -> list[str]:
    """Signed ones in it."""
    return _LINK.findall(user_data)


def of_machine(user_data: str, secrets: Iterable[str]) -> list[str]:
    """What is wrong with this user data: more than one signed link, one that lasts, or a secret beside it."""
    found = links(user_data)
    wrong = [f"{len(found)} signed links"] if len(found) > 1 else []
    wrong += [f"a link for {s} s" for link in found for s in _LASTS.findall(link) if int(s) > 3600]
    rest = user_data
    for link in found:
        rest = rest.replace(link, "")
    return wrong + in_texts({"user data": rest}, secrets)


def in_texts(texts: Mapping[str, str], secrets: Iterable[str]) -> list[str]:
    """``place: secret`` of every one found in ``{place: text}``: as it is, or quoted as in an address."""
    return [
        f"{place}: {secret[:6]}…"
        for secret in secrets
        for place, text in texts.items()
        if secret and (secret in text or quote(secret, safe="") in text)
    ]


def in_files(folders: Iterable[Path], secrets: Iterable[str], *, leave_out: Iterable[str] = ()) -> list[str]:
    """As ``in_texts``, of every file below; ``leave_out``: names of files that may hold them."""
    wanted = [(one, one.encode()) for one in secrets if one]
    names = set(leave_out)
    found = []
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in names):
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # a launcher that has just ended tidies up
                continue
            found += [f"{path}: {secret[:6]}…" for secret, raw in wanted if raw in data]
    return found


def arguments() -> Iterator[tuple[str, str]]:
    """(process, its arguments) of all that this user may see."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.parent.name, path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue


class Watch:
    """Arguments of processes, looked at again and again while something runs."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def look(self) -> None:
        for process, text in arguments():
            self.seen[f"arguments of {process}: {text[:40]}"] = text
