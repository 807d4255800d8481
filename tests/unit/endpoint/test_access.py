"""What an endpoint gives other clients; they are tried against a real one in tests/serving/test_clients.py."""

from __future__ import annotations

import ssl

from toolkit.endpoint.access import ConnectInfo, OpenAIAccess

URL = "http://127.0.0.1:9/endpoints/chat/openai/v1"


def info(tls: ssl.SSLContext | None = None) -> ConnectInfo:
    return ConnectInfo("part", OpenAIAccess(URL, lambda: "secret-token", tls))


def test_every_line_has_the_address_and_the_model() -> None:
    found = info()
    assert (found.base_url, found.model, found.token()) == (URL, "part", "secret-token")
    text = str(found)
    for client in ("openai ", "LangChain ", "LiteLLM ", "curl "):
        (line,) = (line for line in text.splitlines() if line.startswith(client))
        assert "info.token" in line or "connect_info().token()" in line
    assert f'api_base="{URL}"' in text
    assert 'model="openai/part"' in text
    assert 'connect("part")' in text


def test_no_token_is_ever_printed() -> None:
    for text in (str(info()), repr(info()), f"{info()}", repr(info().access)):
        assert "secret-token" not in text


def test_a_server_with_its_own_authority_is_said_to_have_one() -> None:
    assert "authority of its own" in str(info(ssl.create_default_context()))
    assert "authority of its own" not in str(info())
