from __future__ import annotations

from pathlib import Path

import pytest

from arylcloud.core.errors import UsageError
from arylcloud.providers.settings import known_only, settings_for


def write(folder: Path, text: str) -> Path:
    (folder / "config.toml").write_text(text)
    return folder


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    config = write(tmp_path, '[gcp]\nproject = "mine"\napi_endpoint = "http://a"\nretries = 3\ntls = true\n')
    env = {"ARYLCLOUD_GCP__API_ENDPOINT": "http://b", "ARYLCLOUD_AWS__REGION": "x"}
    assert settings_for("gcp", env, config) == {
        "project": "mine",
        "api_endpoint": "http://b",
        "retries": "3",
        "tls": "true",
    }


def test_no_file_and_no_table_are_no_settings(tmp_path: Path) -> None:
    assert settings_for("gcp", {}, tmp_path) == {}
    assert settings_for("gcp", {}, write(tmp_path, "[aws]\n")) == {}


@pytest.mark.parametrize("text", ["[gcp", "gcp = 1", "[gcp]\nzones = ['a']\n", "[gcp.deeper]\nkey = 1\n"])
def test_a_file_that_does_not_hold_is_one_clear_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"config\.toml"):
        settings_for("gcp", {}, write(tmp_path, text))


def test_an_unknown_key_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="no setting called 'endpoint'") as caught:
        known_only("gcp", {"endpoint": "x"}, ["project", "api_endpoint"])
    assert "api_endpoint, project" in (caught.value.hint or "")
