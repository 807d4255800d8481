"""An endpoint's OpenAI route: where it is, and what lets requests in."""

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
    """Base URL of an endpoint's OpenAI route, and `token`, which gives a bearer token that is valid now.

    `tls` None is the machine's own certificates. `explain` turns an answer with an error into an exception: by default
    the container is the only one who may have sent it.
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
    """Whether it is on this machine, which no proxy of the environment reaches."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
