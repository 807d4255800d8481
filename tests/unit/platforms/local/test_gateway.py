"""The gateway alone, in front of a container that misbehaves: SageMaker's time limits."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import boto3
import httpx
import pytest
import uvicorn
from botocore.exceptions import EventStreamError
from starlette.applications import Starlette

from toolkit.platforms.local.clients import DaemonSession
from toolkit.platforms.local.credentials import create
from toolkit.platforms.local.daemon import LocalDaemon
from toolkit.platforms.local.gateway import Limits, gateway
from toolkit.platforms.local.host import Target
from toolkit.platforms.local.sigv4 import Guard
from toolkit.platforms.sagemaker.runtime import bearer_token


class Slow(http.server.BaseHTTPRequestHandler):
    """Answers with as many bytes as the body has, one each 50 ms."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.rfile.read(size)
        time.sleep(0.05)
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for _ in range(size):
            self.wfile.write(b".")
            time.sleep(0.05)


@contextmanager
def container() -> Iterator[Target]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Target("v", 1.0, server.server_port, "arn:of:the:log")
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving(target: Target, limits: Limits, *others: Target) -> Iterator[boto3.Session]:
    """A session for a gateway whose endpoint `e` is these containers."""
    with TemporaryDirectory() as folder:
        key = Path(folder, "credentials")
        with _listening(gateway({"e": [target, *others], "restarting": []}.get, Guard(create(key)), limits)) as url:
            yield DaemonSession(LocalDaemon(0, url, url, started_at=0, credentials_file=str(key)))


@contextmanager
def _listening(app: Starlette) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def test_an_answer_that_takes_too_long_is_a_model_error() -> None:
    with container() as target, serving(target, Limits(first_byte_s=2)) as boto:
        runtime = boto.client("sagemaker-runtime")
        assert runtime.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read() == b"."
        with pytest.raises(runtime.exceptions.ModelError, match="Your invocation timed out while waiting") as caught:
            runtime.invoke_endpoint(EndpointName="e", Body=b"x" * 100)
        assert caught.value.response["LogStreamArn"] == "arn:of:the:log"
        runtime.close()


def test_a_body_must_come_in_time_and_few_are_read_at_once() -> None:
    """64 that never end are read for their time; the 65th waits for one of them, and then has its own."""
    with container() as target, serving(target, Limits(body_s=1)) as boto, ExitStack() as stack:
        url = httpx.URL(boto.client("sagemaker-runtime").meta.endpoint_url)
        head = f"POST /endpoints/e/openai/v1/chat/completions HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n"
        token = bearer_token(boto.get_credentials(), boto.region_name)
        sent = f"{head}Authorization: Bearer {token}\r\nContent-Length: 9\r\n\r\nunended"
        began = time.monotonic()
        clients = [stack.enter_context(socket.create_connection((url.host, url.port), 30)) for _ in range(65)]
        for client in clients:
            client.sendall(sent.encode())
        assert {client.recv(12) for client in clients} == {b"HTTP/1.1 408"}
        assert time.monotonic() - began > 2


def test_a_stream_may_take_longer_but_not_for_ever() -> None:
    with container() as target, serving(target, Limits(first_byte_s=2, stream_s=4)) as boto:
        runtime = boto.client("sagemaker-runtime")
        events = runtime.invoke_endpoint_with_response_stream(EndpointName="e", Body=b"x" * 50)["Body"]
        assert b"".join(event["PayloadPart"]["Bytes"] for event in events) == b"." * 50
        arrived: list[bytes] = []
        events = runtime.invoke_endpoint_with_response_stream(EndpointName="e", Body=b"x" * 400)["Body"]
        with closing(events), pytest.raises(EventStreamError, match=r"ModelStreamError.*Your invocation timed out"):
            arrived.extend(event["PayloadPart"]["Bytes"] for event in events)
        assert 0 < len(b"".join(arrived)) < 400
        runtime.close()


def test_requests_under_way_are_counted_until_they_are_answered_or_dropped() -> None:
    with container() as target, serving(target, Limits()) as boto:
        runtime = boto.client("sagemaker-runtime")
        events = runtime.invoke_endpoint_with_response_stream(EndpointName="e", Body=b"x" * 50)["Body"]
        with closing(events):
            next(iter(events))
            assert target.requests == 1
        deadline = time.monotonic() + 60
        while target.requests and time.monotonic() < deadline:
            time.sleep(0.01)
        assert target.requests == 0
        runtime.close()


def test_while_a_container_restarts_the_service_is_unavailable() -> None:
    dead = Target("v", 1.0, 1, "arn")
    with serving(dead, Limits()) as boto:
        runtime = boto.client("sagemaker-runtime")
        for endpoint, why in (
            ("e", "does not take connections"),
            ("restarting", "No container of endpoint restarting is running"),
        ):
            with pytest.raises(runtime.exceptions.ServiceUnavailable, match=why) as refused:
                runtime.invoke_endpoint(EndpointName=endpoint, Body=b"x")
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        runtime.close()


def test_a_shadow_that_does_not_answer_disturbs_nobody() -> None:
    shadow = Target("shadow", 1.0, 1, "arn", is_shadow=True)
    with container() as target, serving(target, Limits(), shadow) as boto:
        runtime = boto.client("sagemaker-runtime")
        answer = runtime.invoke_endpoint(EndpointName="e", Body=b"x")
        assert (answer["Body"].read(), answer["InvokedProductionVariant"]) == (b".", "v")
        runtime.close()


def test_other_methods_are_not_allowed() -> None:
    with container() as target, serving(target, Limits()) as boto:
        url = boto.client("sagemaker-runtime").meta.endpoint_url
        assert httpx.get(f"{url}/endpoints/e/invocations", trust_env=False).status_code == 405


def test_the_page_of_figures_is_for_programs_only() -> None:
    """Even a web page that has a token does not get it."""
    with serving(Target("v", 1.0, 1, "arn"), Limits()) as boto:
        token = {"Authorization": f"Bearer {bearer_token(boto.get_credentials(), boto.region_name)}"}
        url = f"{boto.client('sagemaker-runtime').meta.endpoint_url}/endpoints/e/metrics"
        with httpx.Client(headers=token, trust_env=False) as client:
            page = {"Origin": "https://evil.example"}
            asked = [client.get(url), client.get(url, headers=page), client.get(url, headers={"Host": "evil.example"})]
        assert [answer.status_code for answer in asked] == [200, 403, 403]
