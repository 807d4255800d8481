"""A local platform of its owner, and other users of the same machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LOCAL = Path(__file__).parents[1] / "aws" / "local"
sys.path.insert(0, str(LOCAL))

from local_account import CONTAINERS, Account  # noqa: E402

from toolkit.platforms.local.daemon import start, stop  # noqa: E402


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """In a folder that every user may enter, as a user's home often is."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "local"


@pytest.fixture(scope="session")
def account(home: Path) -> Iterator[Account]:
    """One daemon for all tests here, with the owner's bucket, model and endpoint."""
    owner = Account(start(home, CONTAINERS))
    owner.s3.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    owner.s3.put_object(Bucket="models", Key="target/config.json", Body=b"{}")
    owner.deploy("chat", {"HF_TOKEN": "hf_of_the_owner"})
    yield owner
    stop(home)
