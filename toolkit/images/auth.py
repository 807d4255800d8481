"""Authentication at a registry: user and password, or a token if the registry asks for one."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Sequence
from typing import Annotated

import httpx
from pydantic import BaseModel, StringConstraints

from toolkit import documents
from toolkit.errors import BuildError
from toolkit.images.docker_config import IDENTITY_TOKEN
from toolkit.images.manifest import NO_REGISTRY
from toolkit.images.reference import is_loopback

Credentials = Callable[[str], tuple[str, str] | None]
"""Returns user and password for a registry, None for anonymous access. Called again when they are rejected.

The user may be IDENTITY_TOKEN: then the password is a token that the registry's token server takes.
"""

_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


_Token = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]*$")]


class _Tokens(BaseModel):
    """What a registry's token server answers: the token, under one of two names."""

    token: _Token | None = None
    access_token: _Token | None = None


class LoginRefused(BuildError):
    """The registry knows who asks, and lets him not do what is asked."""


def anonymous(_registry: str) -> None:
    """No credentials, for anonymous access."""


class Login:
    """The Authorization header for one registry, by scopes. Thread-safe."""

    def __init__(self, registry: str, credentials: Credentials, client: httpx.Client) -> None:
        self._registry = registry
        self._credentials = credentials
        self._client = client
        self._headers: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()

    def header(self, scopes: tuple[str, ...]) -> str | None:
        """The current header; None until the registry has asked for one."""
        return self._headers.get(scopes)

    def renew(self, scopes: tuple[str, ...], refused: str | None, challenge: str) -> None:
        """Get new credentials, because the registry rejected `refused` with `challenge`. Raises BuildError."""
        with self._lock:
            if self._headers.get(scopes) != refused:
                return  # another thread was faster
            account = self._credentials(self._registry)
            scheme, parameters = challenge.partition(" ")[0].lower(), dict(_PARAMETER.findall(challenge))
            if scheme == "bearer":
                self._headers[scopes] = f"Bearer {self._token(parameters, scopes, account)}"
            elif scheme != "basic":
                message = f"{self._registry} requires an unsupported authentication scheme: {scheme or 'none named'}"
                raise BuildError(message, hint="Copy the image to a registry with Basic or Bearer logins.")
            elif account is None:
                raise BuildError(f"{self._registry} requires a login, and no credentials were found", hint=self.hint)
            elif account[0] == IDENTITY_TOKEN:
                message = f"{self._registry} takes a user and password, and its login is an identity token"
                raise BuildError(message, hint=self.hint)
            else:
                self._headers[scopes] = _basic(account)

    @property
    def hint(self) -> str:
        return f"Log in: docker login {self._registry}; for ECR, check that the role may pull and push."

    def _token(self, parameters: dict[str, str], scopes: Sequence[str], account: tuple[str, str] | None) -> str:
        try:
            realm = httpx.URL(parameters.get("realm", ""))
        except httpx.InvalidURL as error:
            message = f"{self._registry} sends logins to an address that is not one: {error}"
            raise BuildError(message, hint=NO_REGISTRY) from error
        if realm.scheme != "https" and not is_loopback(realm.host):
            message = f"{self._registry} asks to send the login to {realm}, which is not encrypted"
            raise BuildError(message, hint="Its administrator has to serve the tokens by https.")
        asked = list(dict.fromkeys([*parameters.get("scope", "").split(), *scopes]))
        service = parameters.get("service", "")
        try:
            if account and account[0] == IDENTITY_TOKEN:
                # github distribution/distribution, docs/content/spec/auth/oauth.md
                form = {"grant_type": "refresh_token", "refresh_token": account[1], "client_id": "toolkit"}
                form |= {"service": service, "scope": " ".join(asked)}
                sent = self._client.build_request("POST", realm, data=form)
                # The token is in the body, which a redirect would take elsewhere.
                answer = documents.read_whole(self._client.send(sent, stream=True, follow_redirects=False))
            else:
                query = {"service": service, "scope": asked}
                headers = {"Authorization": _basic(account)} if account else {}
                answer = documents.request(self._client, "GET", realm, params=query, headers=headers)
            if answer.status_code in (401, 403):
                raise LoginRefused(f"{realm.host} rejects the login for {self._registry}", hint=self.hint)
            given = documents.parse(_Tokens, answer.raise_for_status().content)
        except (httpx.HTTPError, httpx.InvalidURL, documents.Unfit) as error:
            raise BuildError(f"{realm.host} returned no token for {self._registry}: {error}", hint=self.hint) from error
        if token := given.token or given.access_token:
            return token
        message = f"{realm.host} returned no token for {self._registry}"
        raise BuildError(f"{message}: its answer has neither `token` nor `access_token`", hint=NO_REGISTRY)


def _basic(account: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(account).encode()).decode()
