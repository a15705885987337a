"""YAML read by schema, with the line of everything: unknown keys and bad values can say where they stand.

Works on PyYAML's node tree (libyaml's parser where it is built in), so that a value's line, its text as
written and duplicate keys are still known when something turns out wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from arylcloud.core.errors import UsageError

T = TypeVar("T")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the file: ``what`` names file, line and key for error messages."""

    node: Any
    loader: Any
    file: str
    path: str
    line: int
    """From 1; of the key where there is one (an empty value's own mark lies lines below)."""

    @property
    def what(self) -> str:
        return f"{self.file}:{self.line}: {self.path}" if self.path else f"{self.file}:{self.line}"

    @property
    def plain(self) -> Any:
        try:
            return self.loader.construct_object(self.node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            raise UsageError(f"{self.what}: {getattr(error, 'problem', None) or error}") from error

    @property
    def text(self) -> str:
        """A scalar as it is written (``yes`` stays ``yes``, ``1:30`` stays ``1:30``)."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise UsageError(f"{self.what}: text is expected, not {self.kind}")
        return str(self.node.value)

    @property
    def kind(self) -> str:
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.node, yaml.SequenceNode):
            return "a list"
        return "a single value"

    @property
    def is_null(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == "tag:yaml.org,2002:null"

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def section(self) -> Section:
        if not self.is_mapping:
            hint = None if self.path else "`arylcloud init` writes a job file"
            raise UsageError(f"{self.what}: a mapping (key: value) is expected, not {self.kind}", hint=hint)
        return Section(self)

    def items(self) -> list[Value]:
        """Values of a list."""
        if not self.is_list:
            raise UsageError(f"{self.what}: a list is expected, not {self.kind}")
        return [
            Value(node, self.loader, self.file, f"{self.path}[{i}]", node.start_mark.line + 1)
            for i, node in enumerate(self.node.value)
        ]


class Section:
    """One mapping, read key by key; what is left at ``finish`` is unknown, and an error."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.known: list[str] = []
        self.entries: dict[str, Value] = {}
        try:
            value.loader.flatten_mapping(value.node)
        except yaml.YAMLError as error:
            raise UsageError(f"{value.what}: {getattr(error, 'problem', None) or error}") from error
        for key_node, node in value.node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise UsageError(f"{value.file}:{line}: a key must be a single word")
            key = str(key_node.value)
            path = f"{value.path}.{key}" if value.path else key
            if key in self.entries:
                raise UsageError(
                    f"{value.file}:{line}: {path} stands twice (first in line {self.entries[key].line})",
                    hint="leave one of them out",
                )
            self.entries[key] = Value(node, value.loader, value.file, path, line)

    def take(self, key: str) -> Value | None:
        """The value of ``key``; None where it is absent or null (which both mean the default)."""
        self.known.append(key)
        found = self.entries.pop(key, None)
        return None if found is None or found.is_null else found

    def get(self, key: str, parse: Callable[..., T]) -> T | None:
        """``parse(plain value, what=…)`` of ``key``, or None."""
        found = self.take(key)
        return None if found is None else parse(found.plain, what=found.what)

    def text(self, key: str) -> str | None:
        found = self.take(key)
        return None if found is None else found.text

    def choice(self, key: str, options: Iterable[str]) -> str | None:
        found = self.take(key)
        return None if found is None else one_of(found.text, tuple(options), what=found.what)

    def flag(self, key: str) -> bool | None:
        found = self.take(key)
        if found is None:
            return None
        plain = found.plain
        if not isinstance(plain, bool):
            raise UsageError(f"{found.what}: true or false is expected, not {found.text!r}")
        return plain

    def refuse(self, reasons: dict[str, str]) -> None:
        """Keys that are understood and not supported: an error that says so, unless null."""
        for key, reason in reasons.items():
            found = self.entries.pop(key, None)
            if found is not None and not found.is_null:
                raise UsageError(
                    f"{found.what} is not supported: {reason}", hint=f"remove {key} from the file"
                )

    def finish(self, elsewhere: dict[str, str] | None = None) -> None:
        """``elsewhere``: key → where it belongs instead, of keys that a file may have in the wrong place."""
        for key, found in self.entries.items():
            if elsewhere is not None and key in elsewhere:
                raise UsageError(
                    f"{found.file}:{found.node.start_mark.line + 1}: {found.path} has no place here",
                    hint=elsewhere[key],
                )
            from difflib import get_close_matches  # only on the way to an error message

            close = get_close_matches(key, self.known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(self.known))}"
            raise UsageError(
                f"{found.file}:{found.node.start_mark.line + 1}: unknown key {found.path}", hint=hint
            )


def one_of(text: str, options: tuple[str, ...], *, what: str) -> str:
    if text not in options:
        from difflib import get_close_matches

        close = get_close_matches(text, options, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(options)}"
        raise UsageError(f"{what}: {text!r} is none of {', '.join(options)}", hint=hint)
    return text


def read_yaml(path: Path) -> Value | None:
    """Root of the file's one document; None where it is empty. UsageError with line and column else."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint="`arylcloud init` writes a job file") from error
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror or error}", hint="name a job file"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: is not UTF-8 text (byte {error.start})", hint="a job file is YAML text"
        ) from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, file: str) -> Value | None:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        problem = error.problem or "cannot be read"
        if "single document" in (error.context or ""):
            raise UsageError(f"{where}: one job per file: a second document begins here") from error
        raise UsageError(f"{where}: not valid YAML: {problem}", hint=_yaml_hint(problem)) from error
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0] if str(error) else "cannot be read"
        raise UsageError(f"{file}: not valid YAML: {first}") from error
    except RecursionError as error:
        raise UsageError(f"{file}: nested too deeply") from error
    return None if node is None else Value(node, loader, file, "", 1)


def _yaml_hint(problem: str) -> str | None:
    if "cannot start any token" in problem or "tab" in problem:
        return "indent with spaces, not tabs, and quote values that begin with @, ` or %"
    if "mapping values are not allowed" in problem:
        return "quote a value that contains ': ', and check the indentation of this line and the one above"
    if "expected" in problem:
        return "check the indentation and the brackets of this line and the one above"
    return None
