"""What must not stand in a recording: who called, with which keys, from where."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.model import ListShape, MapShape, Shape, StructureShape

from toolkit.catalog import lookup
from toolkit.secret_values import secret_keys
from toolkit.text import SECRET_SHAPES

HIDDEN = "<hidden>"
ACCOUNT = "123456789012"  # the stand-in's, and that of AWS's own examples
# Members that name who asked, or are good for asking again. botocore marks others as sensitive.
_MEMBERS = frozenset(
    ("AccessKeyId", "Authorization", "HostId", "Owner", "RequestId", "UserId", "authorizationToken", "secret")
)
# Random, but no secret; the stand-in needs them to tell one upload from another.
_KEPT = frozenset(("ETag", "UploadId"))
_SHORTEST_NAME = 4  # of a user or machine: "ml" is a word of AWS's own
_PATTERNS = (
    (SECRET_SHAPES, HIDDEN),
    # Ids of users, roles and keys (IAM user guide, "Understanding unique ID prefixes").
    (re.compile(r"\b(A3T[A-Z0-9]|ABIA|ACCA|AGPA|AIDA|AIPA|AKIA|ANPA|ANVA|APKA|AROA|ASCA|ASIA)[A-Z0-9]{12,}\b"), HIDDEN),
    # A presigned URL is a key: its query goes.
    (
        re.compile(r"(https?://[^\s?\"'<>]+)\?[^\s\"'<>]*(X-Amz-|Signature=|AWSAccessKeyId=)[^\s\"'<>]*", re.I),
        rf"\1?{HIDDEN}",
    ),
    (re.compile(r"(X-Amz-(?:Signature|Credential|Security-Token))=[^\s&\"'<>]+", re.I), rf"\1={HIDDEN}"),
    (re.compile(r"\b(AWS4-HMAC-SHA256)\b[^\"'<>]*", re.I), rf"\1 {HIDDEN}"),
    (re.compile(r"((?:request|host)[ -]?id[\"']?\s*[:=]\s*[\"']?)[\w+/=-]+", re.I), rf"\1{HIDDEN}"),
    (re.compile(r"(:assumed-role/[^/\s\"']+/)[^\s\"',)]+"), r"\1somebody"),
    (re.compile(r"(:(?:user|federated-user)/)[^\s\"',)]+"), r"\1somebody"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "somebody@example.com"),
)
_ACCOUNT = re.compile(r"(?<![0-9A-Za-z])\d{12}(?![0-9A-Za-z])")


class Secrets:
    """Hides them in whatever is recorded. Accounts other than AWS's own become that of its examples."""

    def __init__(self) -> None:
        self._words: set[str] = set(_of_this_machine())
        self._public = set(lookup.registries().values())

    def know_credentials(self, session: boto3.Session) -> None:
        """Hide the session's keys, wherever they stand."""
        credentials = session.get_credentials()
        if credentials is not None:
            frozen = credentials.get_frozen_credentials()
            self._words |= {word for word in (frozen.secret_key, frozen.token) if word}

    def know_caller(self, identity: Mapping[str, Any]) -> None:
        """Hide the names of the user or role that GetCallerIdentity tells of."""
        names = identity["Arn"].partition(":assumed-role/")[2] or identity["Arn"].partition(":user/")[2]
        self._words |= {name for name in names.split("/") if len(name) >= _SHORTEST_NAME}

    def cleaned(self, value: Any, shape: Shape | None = None, name: str = "") -> Any:
        """A copy without secrets of what JSON can say; `shape` is botocore's description of it, if there is one."""
        if shape is not None and shape.metadata.get("sensitive") and isinstance(value, str):
            return HIDDEN
        if isinstance(value, dict):
            return {self._text(key): self.cleaned(item, _member(shape, key), key) for key, item in value.items()}
        if isinstance(value, list):
            return [self.cleaned(item, shape.member if isinstance(shape, ListShape) else None, name) for item in value]
        if not isinstance(value, str):
            return value
        if name in _MEMBERS or (name not in _KEPT and any(secret_keys(name, value))):
            return HIDDEN
        return self._text(value)

    def _text(self, text: str) -> str:
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        for word in sorted(self._words, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", HIDDEN, text)
        return _ACCOUNT.sub(lambda found: found[0] if found[0] in self._public else ACCOUNT, text)


def _member(shape: Shape | None, name: str) -> Shape | None:
    """The shape of a member."""
    if isinstance(shape, StructureShape):
        found: Shape | None = shape.members.get(name)
        return found
    return shape.value if isinstance(shape, MapShape) else None


def _of_this_machine() -> Iterator[str]:
    """Names of the user and the machine; of a user that everybody has none."""
    words = (getpass.getuser(), socket.gethostname(), str(Path.home()))
    return (word for word in words if len(word) >= _SHORTEST_NAME and word.strip("/") not in ("root", "home", "user"))
