"""boto3 for the local platform."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from toolkit.platforms.local import credentials
from toolkit.platforms.local.aws import REGION
from toolkit.platforms.local.daemon import LocalDaemon
from toolkit.platforms.sagemaker.clients import new_session

_CONFIG = Config(
    connect_timeout=2,
    read_timeout=70,  # an invocation may take 60 seconds
    retries={"mode": "standard", "total_max_attempts": 2},
    max_pool_connections=64,
    s3={"addressing_style": "path"},
    # What follows keeps variables of the user's environment from having a say.
    proxies={},
    use_fips_endpoint=False,
    use_dualstack_endpoint=False,
    defaults_mode="legacy",  # type: ignore[arg-type]  # the stubs say bool
)
_S3 = Config(signature_version="s3v4")  # also for presigned URLs, which botocore would sign as of old
# Each: no name in a config file, no environment variable, this value.
_NO_FILES = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


class DaemonSession(boto3.Session):
    """A boto3 session whose clients talk to the daemon, whatever AWS_* variables and files the user has.

    Raises PlatformError when the daemon's key cannot be read.
    """

    def __init__(self, daemon: LocalDaemon) -> None:
        key = credentials.read(Path(daemon.credentials_file))
        super().__init__(
            aws_access_key_id=key.access_key_id,
            aws_secret_access_key=key.secret_access_key,
            region_name=REGION,
            botocore_session=new_session(session_vars=_NO_FILES),
        )
        self._daemon = daemon

    def client(  # type: ignore[override]
        self,
        service_name: str,
        region_name: str | None = None,
        *,
        endpoint_url: str | None = None,
        config: Config | None = None,
        **options: Any,
    ) -> Any:
        theirs = self._daemon.runtime_url if service_name == "sagemaker-runtime" else self._daemon.control_url
        ours = _CONFIG.merge(_S3) if service_name == "s3" else _CONFIG
        return super().client(
            service_name,  # type: ignore[call-overload]
            region_name,
            endpoint_url=endpoint_url or theirs,
            config=ours.merge(config) if config else ours,
            **options,
        )
