"""The key of a daemon, in a file that its owner alone can read.

The file is one of AWS's shared credentials files, so that other programs can use it too:
`AWS_SHARED_CREDENTIALS_FILE=<file> aws --endpoint-url <control_url> s3 ls`.
"""

from __future__ import annotations

import configparser
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.errors import PlatformError

_SECTION = "default"
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Credentials:
    access_key_id: str
    secret_access_key: str = field(repr=False)


def create(file: Path) -> Credentials:
    """A new key, written to a new file."""
    created = Credentials(f"LOCAL{secrets.token_hex(8).upper()}", secrets.token_urlsafe(30))
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(f"[{_SECTION}]\n")
        opened.write(f"aws_access_key_id = {created.access_key_id}\n")
        opened.write(f"aws_secret_access_key = {created.secret_access_key}\n")
    return created


def read(file: Path) -> Credentials:
    """The key in that file. Raises PlatformError, also when somebody else may have written or read it."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        with file.open(encoding="utf-8") as opened:
            _must_be_private(file, os.fstat(opened.fileno()))
            parser.read_file(opened)
        section = parser[_SECTION]
        return Credentials(section["aws_access_key_id"], section["aws_secret_access_key"])
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError) as error:
        raise _unusable(f"{file} cannot be read: {error}") from error


def _must_be_private(file: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _unusable(f"{file} belongs to another user")
    if status.st_mode & _OF_OTHERS:
        raise _unusable(f"{file} is open to other users (mode {stat.S_IMODE(status.st_mode):o})")


def _unusable(why: str) -> PlatformError:
    return PlatformError(
        f"The key of the local platform's daemon cannot be used: {why}.",
        hint="End the daemon and start a new one, with a new key: toolkit local stop",
    )
