"""What the documents say is what the code does: exit codes, commands, invariants and their tests, links."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from arylcloud.cli.main import run
from arylcloud.cli.registry import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def exit_codes_page() -> str:
    spec = importlib.util.spec_from_file_location("exit_codes", ROOT / "scripts" / "exit_codes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.page())


def test_the_exit_code_page_is_the_error_tree() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    assert page == exit_codes_page(), "run scripts/exit_codes.py"


def test_every_error_kind_is_one_remedy() -> None:
    from arylcloud.core import errors

    kinds = [
        cls.kind
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, errors.ArylError)
    ]
    assert len(kinds) == len(set(kinds))


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`{name}" not in text and f"arylcloud {name}" not in text] == []


def test_the_readme_names_no_command_that_there_is_not() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"arylcloud ([a-z]+)", text))
    assert named - set(COMMANDS) == set()


INVARIANT = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_invariant_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
    named = INVARIANT.findall(text)
    assert named
    missing = []
    for path, name in named:
        file = ROOT / path
        if not file.is_file() or (
            name and not re.search(rf"(?:def|class) {name}\b", file.read_text(encoding="utf-8"))
        ):
            missing.append(f"{path}::{name}" if name else path)
    assert missing == []


@pytest.mark.parametrize(
    "path",
    [
        p.relative_to(ROOT)
        for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    ],
    ids=str,
)
def test_links_between_documents_hold(path: Path) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    targets = [
        t for t in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in t and not t.startswith("mailto:")
    ]
    assert [t for t in targets if not (ROOT / path).parent.joinpath(t).exists()] == []


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=lambda c: " ".join(c) or "root")
def test_every_command_shows_its_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    captured = capsys.readouterr()
    assert "--help" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_answer_in_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it is a group, each of its commands."""
    from importlib import import_module

    import typer

    found = typer.main.get_command(import_module(COMMANDS[command].module).app)
    leaves = list(getattr(found, "commands", {}).values()) or [found]
    lacking = [leaf.name for leaf in leaves if not any("--json" in p.opts for p in leaf.params)]
    assert lacking == []
