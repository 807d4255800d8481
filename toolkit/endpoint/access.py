"""How to reach an endpoint's OpenAI route: its URL and credentials, and lines for other clients that have them."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from toolkit import documents
from toolkit.endpoint import refusal
from toolkit.endpoint.refusal import ErrorAnswer
from toolkit.errors import EndpointNotFound, InvocationError


@dataclass(frozen=True)
class OpenAIAccess:
    """Base URL of an endpoint's OpenAI route, and `token`, which returns a valid bearer token.

    With `tls` None, this machine's own certificates apply, with `proxy` None the environment's proxy. `explain` turns
    an error response into an exception; the default assumes that the container sent it.
    """

    base_url: str
    token: Callable[[], str] = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    explain: Callable[[str, ErrorAnswer], InvocationError | EndpointNotFound] = field(
        default=refusal.of_container, repr=False
    )
    proxy: str | None = field(default=None, repr=False)  # it may have a password

    @property
    def loopback(self) -> bool:
        return documents.is_loopback(self.base_url)


_LINES = """\
base URL  {base_url}
model     {model}
token     info.token(): valid for a limited time, ask again for each session; never printed here

openai     OpenAI(base_url={url}, api_key=info.token).chat.completions.create(model={name}, messages=…)
LangChain  ChatOpenAI(base_url={url}, api_key=info.token, model={name})
LiteLLM    completion(model={litellm}, api_base={url}, api_key=info.token(), messages=…)
curl       python -c 'import toolkit as t; print("Authorization: Bearer", t.connect({name}).connect_info().token())' \\
             | curl {base_url}/chat/completions -H @- -H 'Content-Type: application/json' \\
                 -d '{body}'"""
_OWN_AUTHORITY = """
TLS        this server's certificate is signed by an authority of its own: `endpoint.openai()` knows it, other clients
           must be given the certificate of that authority"""


@dataclass(frozen=True, repr=False)
class ConnectInfo:
    """Base URL and model of an endpoint's OpenAI route, and `token()`, which returns a bearer token valid now.

    Its text has a ready line for openai, LangChain, LiteLLM and curl. The token is in none of them.
    """

    model: str
    access: OpenAIAccess = field(compare=False)

    @property
    def base_url(self) -> str:
        return self.access.base_url

    def token(self) -> str:
        """A bearer token that is valid now. Keep it out of logs."""
        return self.access.token()

    def __repr__(self) -> str:
        name, url = json.dumps(self.model), json.dumps(self.base_url)
        text = _LINES.format(
            base_url=self.base_url,
            model=self.model,
            url=url,
            name=name,
            litellm=json.dumps(f"openai/{self.model}"),
            body=json.dumps({"model": self.model, "messages": [{"role": "user", "content": "Hello"}]}),
        )
        return text + (_OWN_AUTHORITY if self.access.tls else "")
