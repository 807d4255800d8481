"""An endpoint's OpenAI route: where it is, and what lets requests in."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True)
class OpenAIAccess:
    """Base URL of an endpoint's OpenAI route, and `token`, which gives a bearer token that is valid now.

    `tls` None is the machine's own certificates.
    """

    base_url: str
    token: Callable[[], str] = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def loopback(self) -> bool:
        """See is_loopback."""
        return is_loopback(self.base_url)


def is_loopback(url: str) -> bool:
    """Whether it is on this machine, which no proxy of the environment reaches."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
