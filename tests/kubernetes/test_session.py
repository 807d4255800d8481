"""Which cluster is meant, and what is said when there is none."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml
from boto3 import Session
from real_server import kubeconfig_of, write_kubeconfig
from scripted_http import Reply, scripted
from test_cluster_requests import handle
from urllib3.exceptions import ReadTimeoutError

import toolkit
from toolkit.cli.main import run
from toolkit.errors import PlatformError, UsageError
from toolkit.measure.connection import proxy_of
from toolkit.planning.resources import Account
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.registry import open_platform, open_readable


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig. Its cluster is there where a test needs one to be."""
    return write_kubeconfig(kubeconfig_of("http://127.0.0.1:1", {"token": "theirs"}), tmp_path, monkeypatch)


def write(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def test_the_place_is_context_and_namespace(config_file: Path) -> None:
    platform = open_platform("kubernetes", "real/ml")
    assert platform.account() == Account("", "", scope="real/ml"), "it has no region"
    assert platform.account().location == "real/ml"


def test_without_a_place_it_is_the_current_context_and_our_namespace(config_file: Path) -> None:
    assert open_platform("kubernetes").account().location == "real/toolkit"


def test_a_context_may_be_an_arn(config_file: Path) -> None:
    arn = "arn:aws:eks:us-west-2:123456789012:cluster/main"
    write(config_file, contexts=[{"name": arn, "context": {"cluster": "real", "user": "admin"}}])
    assert SESSION.open(f"{arn}/ml").account().location == f"{arn}/ml"


@pytest.mark.timeout(20)
def test_an_answer_that_does_not_come_is_waited_for_as_long_as_the_caller_says(config_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        write(config_file, clusters=[{"name": "real", "cluster": server}])
        with pytest.raises(ReadTimeoutError):
            SESSION.open("/ml").cluster.open("GET", "/version", read_seconds=0.1)


def test_a_login_to_aws_is_refused_with_what_says_who_one_is() -> None:
    with pytest.raises(UsageError, match="a cluster needs no AWS session") as error:
        SESSION.logged_in(Session(region_name="us-west-2"))
    assert "the kubeconfig says which cluster, and who you are" in error.value.hint


def test_an_unknown_context_is_told_with_those_that_there_are(config_file: Path) -> None:
    with pytest.raises(UsageError, match="the kubeconfig has no context `production`") as error:
        SESSION.open("production/ml")
    assert "real" in error.value.hint


def test_a_kubeconfig_without_a_current_context_wants_one_named(config_file: Path) -> None:
    write(config_file, **{"current-context": ""})
    with pytest.raises(UsageError, match="the kubeconfig has no current context"):
        SESSION.open("/ml")
    assert SESSION.open("real/ml").cluster.namespace == "ml"


def test_of_several_files_the_first_says_the_current_context_as_for_kubectl(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = yaml.safe_load(config_file.read_text().replace("real", "other"))
    (tmp_path / "other").write_text(yaml.safe_dump(other))
    (tmp_path / "none").write_text(yaml.safe_dump(other | {"current-context": ""}))
    files = [tmp_path / "none", config_file, tmp_path / "other"]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert SESSION.open("/ml").account().location == "real/ml"


def test_a_pod_has_no_cluster_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe for another one must not come here because a kubeconfig is missing."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    with pytest.raises(UsageError, match="there is no kubeconfig, and so no context `production`") as error:
        SESSION.open("production/ml")
    assert "set KUBECONFIG, or leave out platform.kubernetes.context" in error.value.hint


def test_a_clusters_proxy_is_used_for_all_requests(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "cluster.example")
    answer = b'{"id": "1", "choices": [], "object": "chat.completion"}'
    with scripted(Reply(), Reply(parts=[answer])) as proxy:
        server = {"server": "http://cluster.example", "proxy-url": proxy.url}
        write(config_file, clusters=[{"name": "real", "cluster": server}])
        platform = SESSION.open("/ml")
        platform.cluster.call("GET", "/version")
        with handle(platform).openai() as client:
            client.chat.completions.create(model="", messages=[{"role": "user", "content": "hello"}])
    paths = ("/version", "/api/v1/namespaces/ml/services/chat:http/proxy/v1/chat/completions")
    assert [request.path for request in proxy.requests] == [f"http://cluster.example{path}" for path in paths]
    access = platform.openai_access("chat")
    assert proxy_of(access) == proxy.url, "for what measures"
    assert proxy.url not in repr((access, platform)), "it may have a password"


def test_a_proxy_of_the_environment_may_have_no_scheme(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy", "https_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    write(config_file, clusters=[{"name": "real", "cluster": {"server": "http://cluster.example"}}])
    with scripted(Reply()) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.removeprefix("http://"))
        SESSION.open("/ml").cluster.call("GET", "/version")
    assert [request.path for request in proxy.requests] == ["http://cluster.example/version"]


@pytest.mark.parametrize("from_environment", [True, False])
def test_a_proxy_of_another_kind_is_told(
    config_file: Path, monkeypatch: pytest.MonkeyPatch, from_environment: bool
) -> None:
    if from_environment:
        monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    else:
        server = {"server": "http://cluster.example", "proxy-url": "socks5://127.0.0.1:1080"}
        write(config_file, clusters=[{"name": "real", "cluster": server}])
    with pytest.raises(UsageError, match="only HTTP proxies are supported") as error:
        SESSION.open("/ml")
    assert "kubectl proxy" in error.value.hint


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
def test_a_proxy_that_is_not_for_the_cluster_may_be_of_any_kind(
    config_file: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    monkeypatch.setenv(variable, "cluster.example")
    write(config_file, clusters=[{"name": "real", "cluster": {"server": "https://cluster.example"}}])
    assert SESSION.open("/ml").cluster.url == "https://cluster.example"


def test_a_proxy_without_a_port_is_told(config_file: Path) -> None:
    server = {"server": "http://cluster.example", "proxy-url": "HTTP://proxy:port"}
    write(config_file, clusters=[{"name": "real", "cluster": server}])
    with pytest.raises(PlatformError, match="cannot use the kubeconfig"):
        SESSION.open("/ml")


def test_the_name_of_a_clusters_certificate_is_asked_for_whatever_its_address_is(
    config_file: Path, tmp_path: Path
) -> None:
    """As through a tunnel that ends on this machine."""
    key, certificate, name = tmp_path / "key", tmp_path / "certificate", "cluster.example"
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    settings = {"server": "https://127.0.0.1:1", "certificate-authority": str(certificate), "tls-server-name": name}
    write(config_file, clusters=[{"name": "real", "cluster": settings}])
    tls, theirs = SESSION.open("/ml").openai_access("chat").tls, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    assert tls

    def connect(address: tuple[str, int]) -> None:
        with socket.create_connection(address) as line, tls.wrap_socket(line, server_hostname=address[0]) as secured:
            assert secured.getpeercert()

    async def connect_both_ways() -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=theirs) as server:
            address = server.sockets[0].getsockname()
            await asyncio.to_thread(connect, address)
            _, writer = await asyncio.open_connection(*address, ssl=tls)
            writer.close()

    asyncio.run(connect_both_ways())


def test_without_a_kubeconfig_the_command_that_makes_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="no kubeconfig was found") as error:
        SESSION.open(None)
    assert "aws eks update-kubeconfig" in error.value.hint
    assert open_readable("kubernetes") is None
    with pytest.raises(UsageError, match="no kubeconfig was found"):
        toolkit.status(platform="kubernetes")


def test_a_kubeconfig_that_is_none_is_told(config_file: Path) -> None:
    config_file.write_text("")
    with pytest.raises(PlatformError, match="cannot use the kubeconfig"):
        SESSION.open(None)


@pytest.mark.parametrize(
    "text",
    ["contexts: [", "\tfoo: 1", "hello there", "- a\n- b\n", "contexts: hello"],
    ids=["broken", "tab", "text", "list", "no contexts"],
)
def test_a_file_that_is_no_kubeconfig_is_told(config_file: Path, text: str) -> None:
    config_file.write_text(text)
    with pytest.raises(PlatformError, match="cannot use the kubeconfig") as error:
        SESSION.open(None)
    assert str(config_file) in error.value.hint


def test_a_user_that_is_none_is_told(config_file: Path) -> None:
    write(config_file, users=[{"name": "admin", "user": "token"}])
    with pytest.raises(PlatformError, match="cannot use the kubeconfig"):
        SESSION.open(None)


def test_a_login_page_in_place_of_the_cluster_is_told(config_file: Path) -> None:
    with scripted(Reply(parts=[b"<html>Log in</html>"])) as proxy:
        write(config_file, clusters=[{"name": "real", "cluster": {"server": proxy.url}}])
        with (
            pytest.raises(PlatformError, match="perhaps a proxy or a login page"),
            SESSION.open("/ml").lease("chat"),
        ):
            pass


def test_a_cluster_that_is_left_out_is_told(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config_file.write_text("hello there")
    assert run(["status", "--json"]) == 0
    ended = capsys.readouterr()
    document = json.loads(ended.out)
    assert document["endpoints"] == []
    assert document["not_listed"][1].startswith("cannot use the kubeconfig")
    assert "not listed: cannot use the kubeconfig" in ended.err


def test_a_cluster_that_does_not_answer_is_told_in_time(config_file: Path) -> None:
    with pytest.raises(PlatformError, match="the cluster does not answer") as error:
        SESSION.open("/ml").status("chat")
    assert "kubectl cluster-info" in error.value.hint


def test_credentials_that_are_not_known_are_told(kubeconfig: Path) -> None:
    write(kubeconfig, users=[{"name": "admin", "user": {"token": "stale"}}])
    with pytest.raises(PlatformError, match=r"Unauthorized \(401\)") as error:
        SESSION.open("/ml").status("chat")
    assert error.value.hint.startswith("Log in again")


def test_a_login_program_that_fails_is_told(kubeconfig: Path) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "interactiveMode": "Never"}
    write(kubeconfig, users=[{"name": "admin", "user": {"exec": program}}])
    with pytest.raises(PlatformError) as error:
        SESSION.open("/ml").status("chat")
    assert error.value.hint.startswith("Log in again")
