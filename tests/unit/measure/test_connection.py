"""Connections to OpenAI-like servers: times by the bytes, every way in which HTTP ends, keys, proxies and TLS."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fakes import answer_events, event_stream
from streaming_server import DONE, HANG_UP, Answer, Part, Served, StreamingServer, document, event, streaming

from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.generation import Acceptance
from toolkit.errors import InvocationError, PlatformError, UsageError
from toolkit.measure.arm import Arm
from toolkit.measure.connection import HttpConnection, connect_endpoint, connect_url, proxy_of
from toolkit.measure.load import closed_loop
from toolkit.measure.result import RequestResult
from toolkit.measure.stream_clock import Ask, Timing
from toolkit.measure.wire import Client
from toolkit.measure.workload import Prompt, Workload

WORKLOAD = Workload("w", (Prompt(({"role": "user", "content": "hello"},)),))
EVENTS = answer_events([7, 8, 9], histogram=[0, 0, 1])
AT_ONCE = Answer((Part(0.0, event_stream(EVENTS)),))
PAUSES = (0.03, 0.01, 0.02)
SLOW = Answer(
    [*(event(pause, item) for pause, item in zip(PAUSES, EVENTS[1:4], strict=True)), event(0, *EVENTS[4:]), DONE]
)


async def ask(connection: Any, requests: int = 1, concurrency: int = 1) -> list[RequestResult]:
    asks = [Ask(WORKLOAD, 0, index) for index in range(requests)]
    return await closed_loop(Arm("a", connection), asks, concurrency, Timing(time.perf_counter()))


def with_url(url: str, use: Callable[[HttpConnection], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        async with connect_url(url, **{"model": "tiny", **options}) as connection:
            return await use(connection)

    return asyncio.run(run())


def test_times_are_those_of_the_bytes() -> None:
    """Compared with when the server really sent: this machine may be busy. The median stray is below 1 ms."""
    with streaming(SLOW) as server:
        results = with_url(server.url, lambda connection: ask(connection, 8))
    sent = [(request.sent, result) for request, result in zip(server.served, results, strict=True)]
    gaps = [
        gap - (after - before)
        for times, result in sent
        for gap, before, after in zip(result.gaps, times[:3], times[1:3], strict=False)
    ]
    assert statistics.median(map(abs, gaps)) < 0.001
    assert statistics.median(result.ttft or 0 for _, result in sent) == pytest.approx(PAUSES[0], abs=0.003)
    assert statistics.median(result.tpot or 0 for _, result in sent) == pytest.approx(sum(PAUSES[1:]) / 2, abs=0.003)


def test_a_slow_reader_does_not_change_the_times() -> None:
    """The bytes are timed when they arrive, not when somebody takes them."""

    class Slow:
        def __init__(self, connection: HttpConnection) -> None:
            self._connection = connection

        async def stream(self, body: Mapping[str, Any]) -> Any:
            async for chunk in self._connection.stream(body):
                yield chunk
                await asyncio.sleep(0.05)

        async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
            raise NotImplementedError

    with streaming(SLOW) as server:
        (result,) = with_url(server.url, lambda connection: ask(Slow(connection)))
    assert result.seconds < 0.2
    assert max(result.gaps) < 0.045


def test_connections_are_kept_open() -> None:
    with streaming(AT_ONCE) as server:
        with_url(server.url, lambda connection: ask(connection, 12, concurrency=3))
    assert len({request.connection for request in server.served}) == 3


def test_a_connection_that_the_server_has_closed_meanwhile_is_replaced() -> None:
    numbers = count()
    with streaming(lambda _: HANG_UP if next(numbers) == 1 else AT_ONCE) as server:
        results = with_url(server.url, lambda connection: ask(connection, 2))
    assert [result.outcome for result in results] == ["successful", "successful"]
    assert [request.connection for request in server.served] == [0, 0, 1]


def test_a_server_that_closes_new_connections_is_asked_once() -> None:
    with streaming(HANG_UP) as server:
        (result,) = with_url(server.url, ask)
    assert result.error == f"{server.url}: the server closed the connection"
    assert len(server.served) == 1


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_endpoint_that_dies_midway_leaves_what_was_measured(concurrency: int) -> None:
    alive, numbers = 5, count()
    dead = Answer((event(0, *EVENTS[:3]),), cut=True)
    with streaming(lambda _: AT_ONCE if next(numbers) < alive else dead) as server:
        results = with_url(server.url, lambda connection: ask(connection, 9, concurrency))
    assert [result.outcome for result in results].count("successful") == alive
    failed = [result for result in results if result.outcome == "failed"]
    assert len(failed) == 4
    assert {result.output_tokens for result in failed} == {2}
    assert all("the server closed the connection" in (result.error or "") for result in failed)


def test_an_error_answer_is_a_failure_in_the_engines_words_and_is_not_asked_for_again() -> None:
    with streaming(document({"error": {"message": "no such model", "code": 404}}, status=404)) as server:
        (result,) = with_url(server.url, ask)
    assert result.outcome == "failed"
    assert result.error == f"{server.url}: answered 404: no such model"
    assert len(server.served) == 1, "to ask again would hide a failure of the endpoint"


def test_no_server() -> None:
    with streaming(AT_ONCE) as server:
        pass
    (result,) = with_url(server.url, ask)
    assert result.outcome == "failed"
    assert "Connect call failed" in (result.error or "")


def raw(content: bytes, **options: Any) -> RequestResult:
    """A request to a server that sends these bytes and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(content)
        if options.get("stay"):
            await reader.read()
        writer.close()

    async def run() -> RequestResult:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
            access = OpenAIAccess(url, lambda: "")
            client = Client(url, ssl.create_default_context(), longest_silence=options.get("silence", 5.0))
            (result,) = await ask(HttpConnection("raw", access, client))
            client.close()
            return result

    return asyncio.run(run())


STREAM = event_stream(EVENTS)


def test_an_answer_may_end_with_its_connection() -> None:
    assert raw(b"HTTP/1.1 200 OK\r\n\r\n" + STREAM).outcome == "successful"


def test_an_answer_may_tell_its_length() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    assert raw(head % len(STREAM) + STREAM).outcome == "successful"
    assert "closed the connection" in (raw(head % 10_000 + STREAM).error or "")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n", "is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000, "bytes of headers"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", "answered 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>", "ended too early"),
    ],
)
def test_what_is_no_answer(content: bytes, error: str) -> None:
    result = raw(content)
    assert result.outcome == "failed"
    assert error in (result.error or "")


def test_a_server_that_falls_silent() -> None:
    result = raw(b"HTTP/1.1 200 OK\r\n\r\n" + STREAM[:200], stay=True, silence=0.1)
    assert result.outcome == "failed"
    assert "nothing came for" in (result.error or "")


# What is asked for, with which model and key.


def models(*names: str) -> Callable[[Served], Answer]:
    listed = document({"object": "list", "data": [{"id": name} for name in names]})
    return lambda request: listed if request.path == "/v1/models" else AT_ONCE


def test_the_only_model_need_not_be_named() -> None:
    with streaming(models("org/tiny")) as server:
        with_url(server.url, ask, model="")
    assert server.served[-1].body["model"] == "org/tiny"


@pytest.mark.parametrize(
    ("names", "message"), [(("a", "b"), "serves 2 models: a, b"), ((), "names no model on /models")]
)
def test_of_several_models_one_has_to_be_named(names: tuple[str, ...], message: str) -> None:
    with streaming(models(*names)) as server, pytest.raises(UsageError, match=message) as caught:
        with_url(server.url, ask, model="")
    assert caught.value.hint == "Name the model with --model."


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-secret\n")
    shown: list[str] = []

    async def use(connection: HttpConnection) -> None:
        results = await ask(connection)
        shown.extend([repr(connection), repr(results), str(vars(connection.access).keys())])

    with streaming(document({"error": "invalid key"}, status=401)) as server:
        with_url(server.url, use, key_variable="SERVER_KEY")
    assert server.served[0].headers["authorization"] == "Bearer sk-secret"
    assert "answered 401" in shown[1]
    assert not any("sk-secret" in text for text in shown)


@pytest.mark.parametrize("value", [None, "", "a\r\nX-Injected: b"])
def test_a_key_that_is_none(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERVER_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SERVER_KEY", value)
    with pytest.raises(UsageError, match="SERVER_KEY holds no API key"):
        with_url("http://127.0.0.1:9/v1", ask, key_variable="SERVER_KEY")


@pytest.mark.parametrize("url", ["127.0.0.1:9000/v1", "ftp://h/v1", "http://", "http://user:pass@h/v1"])
def test_what_is_no_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="not the URL of a server") as caught:
        with_url(url, ask)
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "path"), [({"prompt": [1]}, "/v1/completions"), ({"messages": []}, "/v1/chat/completions")]
)
def test_a_whole_answer(body: Mapping[str, Any], path: str) -> None:
    with streaming(document({"choices": []})) as server:
        assert with_url(server.url, lambda connection: connection.invoke(body)) == {"choices": []}
    assert (server.served[0].path, server.served[0].body) == (path, {"model": "tiny", **body})


def test_a_whole_answer_that_is_no_json() -> None:
    with streaming(AT_ONCE) as server, pytest.raises(InvocationError, match="the answer cannot be used"):
        with_url(server.url, lambda connection: connection.invoke({"prompt": "a"}))


class Platform:
    """The part of a platform that a connection needs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tokens = count()
        self.invoked: list[tuple[str, Any]] = []

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        if endpoint != "chat":
            raise PlatformError("no such endpoint")
        return OpenAIAccess(f"{self._url}/endpoints/chat/openai/v1", lambda: f"token-{next(self._tokens)}")

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.invoked.append((endpoint, body))
        return {"choices": []}


def test_an_endpoint_of_a_platform_gets_a_fresh_token_for_each_request() -> None:
    async def use(platform: Any) -> None:
        async with connect_endpoint(platform, "chat") as connection:
            await ask(connection, 2)
            assert await connection.invoke({"prompt": "a"}) == {"choices": []}

    with streaming(AT_ONCE) as server:
        platform = Platform(server.url.removesuffix("/v1"))
        asyncio.run(use(platform))
    assert [request.headers["authorization"] for request in server.served] == ["Bearer token-0", "Bearer token-1"]
    assert server.served[0].path == "/endpoints/chat/openai/v1/chat/completions"
    assert server.served[0].body["model"] == "", "the model that is served"
    assert platform.invoked == [("chat", {"prompt": "a"})], "the platform's own route takes completions"


# Counters.

PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0"}} 0.0
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{{engine="0"}} {0}
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {1}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} {2}
"""


def page(*numbers: int) -> Answer:
    return Answer((Part(0.0, PAGE.format(*numbers).encode()),))


def test_the_acceptance_of_all_drafts_so_far() -> None:
    with streaming(page(100, 70, 30)) as server:
        assert with_url(server.url, HttpConnection.acceptance) == Acceptance((30, 40, 30))
    assert server.served[0].path == "/metrics"


@pytest.mark.parametrize("answer", [document({}, 404), document({"a": 1}), Answer((Part(0.0, b"python_gc 5\n"),))])
def test_a_server_without_counters(answer: Answer) -> None:
    with streaming(answer) as server:
        assert with_url(server.url, HttpConnection.acceptance) is None


# Proxies and TLS.


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://e.example/v1", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("http://e.example/v1", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("http://e.example/v1", {"ALL_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://e.example/v1", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".example"}, None),
        ("http://127.0.0.1:9/v1", {"HTTP_PROXY": "http://p:3128"}, None),
    ],
)
def test_the_environments_proxy(
    url: str, environment: Mapping[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(OpenAIAccess(url, lambda: "")) == proxy


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate for 127.0.0.1, which nobody has signed."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = (
        builder.not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(private + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[StreamingServer]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    with streaming(AT_ONCE, tls) as server:
        yield server


def through(client: Client, url: str, requests: int = 1) -> list[RequestResult]:
    async def run() -> list[RequestResult]:
        try:
            return await ask(HttpConnection("e", OpenAIAccess(url, lambda: "t"), client), requests)
        finally:
            client.close()

    return asyncio.run(run())


def test_tls(tls_server: StreamingServer, certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    assert through(Client(tls_server.url, trusting), tls_server.url)[0].outcome == "successful"


def test_a_certificate_that_nobody_vouches_for_is_refused(tls_server: StreamingServer) -> None:
    (result,) = through(Client(tls_server.url, ssl.create_default_context()), tls_server.url)
    assert result.outcome == "failed"
    assert "certificate verify failed" in (result.error or "")
    assert tls_server.served == [], "the token was not sent"


class Proxy:
    """Forwards to the one server that it knows. `asked` are the heads of the requests that it got."""

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        self.running: set[asyncio.Task[Any] | None] = set()
        self._port = port

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.running.add(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.decode())
        if b"Proxy-Authorization: Basic dTpw" not in head:  # u:p
            writer.write(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._port)
        if head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            their_writer.write(head)
        await asyncio.gather(self._pass(reader, their_writer), self._pass(their_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()


def proxied(server: StreamingServer, tls: ssl.SSLContext, user: str = "u:p@") -> tuple[list[RequestResult], list[str]]:
    proxy = Proxy(int(server.url.removesuffix("/v1").rpartition(":")[2]))

    async def run() -> list[RequestResult]:
        async with await asyncio.start_server(proxy.connected, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            client = Client(server.url, tls, f"http://{user}127.0.0.1:{port}")
            results = await ask(HttpConnection("e", OpenAIAccess(server.url, lambda: "t"), client), 2)
            client.close()
            await asyncio.gather(*filter(None, proxy.running))
            return results

    return asyncio.run(run()), proxy.asked


def test_through_a_proxy_a_tunnel_leads_to_a_server_with_tls(tls_server: StreamingServer, certificate: Path) -> None:
    results, asked = proxied(tls_server, ssl.create_default_context(cafile=certificate))
    assert [result.outcome for result in results] == ["successful"] * 2
    assert len(asked) == 1
    assert asked[0].startswith("CONNECT 127.0.0.1:")
    assert "Bearer" not in asked[0], "the proxy does not see the token"
    assert "proxy-authorization" not in tls_server.served[0].headers, "the server does not see the proxy's password"


def test_through_a_proxy_a_server_without_tls_is_named_in_full() -> None:
    with streaming(AT_ONCE) as server:
        results, asked = proxied(server, ssl.create_default_context())
    assert [result.outcome for result in results] == ["successful"] * 2
    assert asked[0].startswith(f"POST {server.url}/chat/completions HTTP/1.1")


def test_a_proxy_that_refuses(tls_server: StreamingServer) -> None:
    results, _ = proxied(tls_server, ssl.create_default_context(), user="")
    assert results[0].outcome == "failed"
    assert "the proxy answered 407 for 127.0.0.1:" in (results[0].error or "")
