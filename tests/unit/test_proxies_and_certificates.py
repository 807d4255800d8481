"""What the environment says of proxies and certificates, for requests to all but AWS."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable

import httpx
import pytest
from scripted_http import Reply, scripted

from toolkit.api.outside import open_web
from toolkit.endpoint.openai_route import machine_tls
from toolkit.errors import HubError, PlatformError
from toolkit.images.registry import Registry
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.training.generators import served_model, server_client

CLIENTS = (hub_client, open_web, lambda: Registry("example.com"))


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize(
    ("name", "value", "said", "hint"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", "socksio", "pip install 'httpx[socks]'"),
        ("HTTPS_PROXY", "ftp://127.0.0.1:9", "it is no address", "http://HOST:PORT"),
        ("HTTPS_PROXY", "http://me:S3cr#et@127.0.0.1:9", "it is no address", "`#`, `?` and `/` of a password as %23"),
        ("SSL_CERT_FILE", "/no/such/file", "No such file", "Correct SSL_CERT_FILE"),
        ("SSL_CERT_FILE", __file__, "certificates of the environment cannot be read", "Correct SSL_CERT_FILE"),
    ],
)
def test_what_cannot_be_used_is_told(
    make: Callable[[], object], name: str, value: str, said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(PlatformError, match=said) as caught:
        make()
    assert hint in caught.value.hint
    assert "S3cr" not in str(caught.value)


def test_certificates_for_an_endpoint_are_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    machine_tls.cache_clear()
    with pytest.raises(PlatformError, match="cannot be read: No such file"):
        machine_tls()


def test_a_certificate_of_the_hub_that_is_not_trusted_is_no_missing_network() -> None:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    client = hub_client()
    client.event_hooks = {"request": [lambda _: _fail(error)]}
    with pytest.raises(HubError) as caught:
        HubFiles("org/model", None, client).sizes()
    assert "let SSL_CERT_FILE name a file" in caught.value.hint


def _fail(error: OSError) -> None:
    raise httpx.ConnectError(str(error)) from error


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_server_on_this_machine_answers_behind_a_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    models = Reply(parts=(json.dumps({"data": [{"id": "mine"}]}).encode(),))
    with scripted(models) as server, server_client(f"{server.url}/v1") as client:
        assert served_model(client) == "mine"
