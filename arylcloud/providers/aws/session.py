"""botocore's session and clients, made in one place; what is wrong with them is said as ours.

Our patience is in ``providers/patience``: a client sends each request once. Making the first client costs
0.3 CPU s, each one more 0.06.
"""

from __future__ import annotations

from typing import Any

from arylcloud.core.errors import MissingExtraError, OtherCloudError, UsageError


def session(profile: str | None, why: str) -> Any:
    """``why``: what MissingExtraError says where botocore is not installed. No call goes out."""
    try:
        import botocore.session
    except ImportError as error:
        raise MissingExtraError(why, hint="pip install 'arylcloud[aws]'") from error
    return botocore.session.Session(profile=profile)


def client(of: Any, service: str, region: str, **settings: Any) -> Any:
    """A client of the session ``of``; ``settings``: more of botocore's ``Config``. UsageError for a profile
    that there is not. Neither sessions nor the making of clients are safe for threads."""
    import botocore.exceptions
    from botocore.config import Config

    once = Config(retries={"total_max_attempts": 1}, max_pool_connections=16, **settings)
    try:
        return of.create_client(service, region_name=region, config=once)
    except botocore.exceptions.ProfileNotFound as error:
        raise UsageError(f"aws: {error}", hint="[aws] profile, or AWS_PROFILE") from error
    except botocore.exceptions.BotoCoreError as error:
        raise OtherCloudError(f"aws {service} in {region}: {error}") from error
