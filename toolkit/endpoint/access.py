"""How to reach an endpoint's OpenAI route: its URL and credentials."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from toolkit.endpoint import refusal
from toolkit.endpoint.refusal import ErrorAnswer
from toolkit.errors import EndpointNotFound, InvocationError


@dataclass(frozen=True)
class OpenAIAccess:
    """Base URL of an endpoint's OpenAI route, and `token`, which returns a valid bearer token.

    With `tls` None, this machine's own certificates apply. `explain` turns an error response into an exception; the
    default assumes that the container sent it.
    """

    base_url: str
    token: Callable[[], str] = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    explain: Callable[[str, ErrorAnswer], InvocationError | EndpointNotFound] = field(
        default=refusal.of_container, repr=False
    )

    @property
    def loopback(self) -> bool:
        return is_loopback(self.base_url)


def is_loopback(url: str) -> bool:
    """Whether the URL is on this machine, so that proxies of the environment must not be used."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
