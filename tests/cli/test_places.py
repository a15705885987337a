"""Places by the short names that ``plan`` shows are understood wherever a place is asked for."""

from __future__ import annotations

import pytest

from arylcloud.cli.places import full_place, parse_infra


@pytest.mark.parametrize(
    ("text", "region", "zone"),
    [
        ("aws/use1-az4", "aws/us-east-1", "aws/us-east-1/use1-az4"),
        ("aws/apne1-az2", "aws/ap-northeast-1", "aws/ap-northeast-1/apne1-az2"),
        ("aws/usgw1-az1", "aws/us-gov-west-1", "aws/us-gov-west-1/usgw1-az1"),
        ("aws/euc2-az3", "aws/eu-central-2", "aws/eu-central-2/euc2-az3"),
        ("gcp/us-central1-a", "gcp/us-central1", "gcp/us-central1/us-central1-a"),
        ("aws/us-east-1", "aws/us-east-1", None),
        ("azure/eastus", "azure/eastus", None),
        ("aws/us-east-1/use1-az4", "aws/us-east-1", "aws/us-east-1/use1-az4"),
    ],
)
def test_infra(text: str, region: str, zone: str | None) -> None:
    assert parse_infra(text, what="--infra")[1:] == (region, zone)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("aws/use1-az4", "aws/us-east-1/use1-az4"),
        ("aws/use1-az4:p3.2xlarge:spot", "aws/us-east-1/use1-az4:p3.2xlarge:spot"),
        ("gcp/europe-west4-b:a2-highgpu-1g", "gcp/europe-west4/europe-west4-b:a2-highgpu-1g"),
        ("aws/us-east-1:p3.2xlarge", "aws/us-east-1:p3.2xlarge"),
        ("local/calm-b", "local/calm-b"),
        ("aws", "aws"),
    ],
)
def test_where_a_job_is_moved(text: str, full: str) -> None:
    assert full_place(text) == full
