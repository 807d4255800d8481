"""HTTP underneath a connection: every way in which an answer ends, TLS and proxies."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fakes import answer_events, event_stream
from streaming_server import Answer, Part, StreamingServer, streaming

from toolkit.endpoint import openai_route
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.wire import Client, Response
from toolkit.errors import InvocationError
from toolkit.measure.arm import Arm, Workload
from toolkit.measure.connection import HttpConnection, proxy_of
from toolkit.measure.load import Ask, Timing, closed_loop
from toolkit.measure.result import RequestResult
from toolkit.recipe.prompts import Prompt

STREAM = event_stream(answer_events([7, 8, 9]))
AT_ONCE = Answer((Part(0.0, STREAM),))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """Measuring takes uvloop's event loop where it is installed."""
    with asyncio.Runner(loop_factory=request.param) as running:
        yield running


async def ask(url: str, client: Client, requests: int = 1) -> list[RequestResult]:
    workload = Workload("w", (Prompt(({"role": "user", "content": "hello"},)),))
    connection = HttpConnection("e", OpenAIAccess(url, lambda: "t"), client)
    asks = [Ask(workload, 0, index) for index in range(requests)]
    try:
        return await closed_loop(Arm("a", connection), asks, 1, Timing(time.perf_counter()))
    finally:
        client.close()


def raw(runner: asyncio.Runner, content: bytes, **options: Any) -> RequestResult:
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
            client = Client(url, ssl.create_default_context(), longest_silence=options.get("silence", 5.0))
            (result,) = await ask(url, client)
            return result

    return runner.run(run())


@pytest.mark.parametrize("relays", [False, True])
def test_a_connection_is_used_again_after_an_answer_that_its_reader_left_waiting(
    runner: asyncio.Runner, relays: bool
) -> None:
    body = bytes(256 * 1024)  # so much may wait: with its last byte reading is paused, and the answer has ended
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        with suppress(asyncio.IncompleteReadError, OSError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()
        left.set()

    left = asyncio.Event()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
            client = Client(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", relays=relays)
            for _ in range(2):
                async with asyncio.timeout(10), client.send("GET", "/", {}) as response:
                    while not response.reusable:
                        await asyncio.sleep(0)
            client.close()
            await left.wait()

    runner.run(run())
    assert len(connections) == 1


def test_reading_goes_on_once_the_reader_has_taken_as_much_as_may_wait(runner: asyncio.Runner) -> None:
    class Line(asyncio.Transport):
        reads = True

        def pause_reading(self) -> None:
            self.reads = False

        def resume_reading(self) -> None:
            self.reads = True

    line = Line()
    response = Response(0.0, line, None, None)
    response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + bytes(256 * 1024), 0.0)
    assert not line.reads
    runner.run(anext(response.chunks()))
    assert line.reads


def test_an_answer_may_end_with_its_connection(runner: asyncio.Runner) -> None:
    assert raw(runner, b"HTTP/1.1 200 OK\r\n\r\n" + STREAM).outcome == "successful"


def test_an_answer_may_tell_its_length(runner: asyncio.Runner) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    assert raw(runner, head % len(STREAM) + STREAM).outcome == "successful"
    assert "closed the connection" in (raw(runner, head % 10_000 + STREAM).error or "")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n", "is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000, "bytes of headers"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", "answered 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>", "is no stream of events"),
    ],
)
def test_what_is_no_answer(runner: asyncio.Runner, content: bytes, error: str) -> None:
    result = raw(runner, content)
    assert result.outcome == "failed"
    assert error in (result.error or "")


def test_a_server_that_falls_silent(runner: asyncio.Runner) -> None:
    result = raw(runner, b"HTTP/1.1 200 OK\r\n\r\n" + STREAM[:200], stay=True, silence=0.1)
    assert result.outcome == "failed"
    assert "nothing came for" in (result.error or "")


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


@pytest.mark.parametrize("proxy", ["https://127.0.0.1:9", "socks5://127.0.0.1:9"])
def test_a_proxy_of_another_kind_is_named_as_what_is_wrong(runner: asyncio.Runner, proxy: str) -> None:
    url = "http://e.example/v1"
    (result,) = runner.run(ask(url, Client(url, ssl.create_default_context(), proxy)))
    assert f"only HTTP proxies are supported, not {proxy.partition(':')[0]}" in (result.error or "")


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


def test_tls(runner: asyncio.Runner, tls_server: StreamingServer, certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    assert runner.run(ask(tls_server.url, Client(tls_server.url, trusting)))[0].outcome == "successful"


def test_a_certificate_that_nobody_vouches_for_is_refused(runner: asyncio.Runner, tls_server: StreamingServer) -> None:
    (result,) = runner.run(ask(tls_server.url, Client(tls_server.url, ssl.create_default_context())))
    assert result.outcome == "failed"
    assert "certificate verify failed" in (result.error or "")
    assert tls_server.served == [], "the token was not sent"


def test_both_routes_hint_at_a_certificate_that_is_not_trusted(
    runner: asyncio.Runner, tls_server: StreamingServer
) -> None:
    access = OpenAIAccess(tls_server.url, lambda: "")
    connection = HttpConnection("a", access, Client(tls_server.url, ssl.create_default_context()))
    with pytest.raises(InvocationError, match="CERTIFICATE_VERIFY_FAILED") as measured:
        runner.run(connection.models())
    with pytest.raises(InvocationError, match="CERTIFICATE_VERIFY_FAILED") as asked:
        next(openai_route.stream(access, "a", {}, sleep=lambda _: None))
    assert all("SSL_CERT_FILE" in caught.value.hint for caught in (measured, asked))


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


def proxied(
    runner: asyncio.Runner, server: StreamingServer, tls: ssl.SSLContext, user: str = "u:p@"
) -> tuple[list[RequestResult], list[str]]:
    proxy = Proxy(int(server.url.removesuffix("/v1").rpartition(":")[2]))

    async def run() -> list[RequestResult]:
        async with await asyncio.start_server(proxy.connected, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            client = Client(server.url, tls, f"http://{user}127.0.0.1:{port}")
            results = await ask(server.url, client, 2)
            await asyncio.gather(*filter(None, proxy.running))
            return results

    return runner.run(run()), proxy.asked


def test_through_a_proxy_a_tunnel_leads_to_a_server_with_tls(
    runner: asyncio.Runner, tls_server: StreamingServer, certificate: Path
) -> None:
    results, asked = proxied(runner, tls_server, ssl.create_default_context(cafile=certificate))
    assert [result.outcome for result in results] == ["successful"] * 2
    assert len(asked) == 1
    assert asked[0].startswith("CONNECT 127.0.0.1:")
    assert "Bearer" not in asked[0], "the proxy does not see the token"
    assert "proxy-authorization" not in tls_server.served[0].headers, "the server does not see the proxy's password"


def test_through_a_proxy_a_server_without_tls_is_named_in_full(runner: asyncio.Runner) -> None:
    with streaming(AT_ONCE) as server:
        results, asked = proxied(runner, server, ssl.create_default_context())
    assert [result.outcome for result in results] == ["successful"] * 2
    assert asked[0].startswith(f"POST {server.url}/chat/completions HTTP/1.1")


def test_a_proxy_that_refuses(runner: asyncio.Runner, tls_server: StreamingServer) -> None:
    results, _ = proxied(runner, tls_server, ssl.create_default_context(), user="")
    assert results[0].outcome == "failed"
    assert "the proxy answered 407 for 127.0.0.1:" in (results[0].error or "")
