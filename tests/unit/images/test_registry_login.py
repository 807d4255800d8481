"""Who we say we are, to whom; the registries are functions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest

from toolkit.errors import BuildError, UsageError
from toolkit.images.docker_config import IDENTITY_TOKEN, read_login
from toolkit.images.manifest import LAYER, SCHEMA_2, Blob, Manifest, digest_of
from toolkit.images.registry import Registry, asked_wait
from toolkit.images.upload import Upload

CHALLENGE = 'Bearer realm="https://auth.example.com/token",service="example",scope="repository:a:pull"'
BLOB = Blob(LAYER, "sha256:" + "0a" * 32, 10)


def registry(
    answer: Callable[[httpx.Request], httpx.Response],
    login: tuple[str, str] | None = ("me", "pw"),
    host: str = "registry.example.com",
) -> Registry:
    return Registry(host, lambda _host: login, transport=httpx.MockTransport(answer), sleep=lambda _seconds: None)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class WithTokens:
    """A registry whose tokens are good for so many requests."""

    def __init__(self, requests_per_token: int) -> None:
        self.asked: list[httpx.Request] = []
        self._per_token = requests_per_token
        self._left = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "auth.example.com":
            self.asked.append(request)
            self._left = self._per_token
            return httpx.Response(200, json={"token": f"t{len(self.asked)}"})
        if request.headers.get("Authorization") != f"Bearer t{len(self.asked)}" or not self._left:
            return httpx.Response(401, headers={"WWW-Authenticate": CHALLENGE})
        self._left -= 1
        return httpx.Response(200, headers={"Content-Type": SCHEMA_2}, content=b"{}")


def test_a_configuration_that_is_not_what_its_digest_names_is_refused() -> None:
    with (
        registry(lambda _: httpx.Response(200, stream=httpx.ByteStream(b"0123456789"))) as client,
        pytest.raises(BuildError, match="does not match its digest"),
    ):
        client.small_blob("a", BLOB)


def test_a_token_is_got_with_the_login_and_used_until_it_expires() -> None:
    server = WithTokens(requests_per_token=2)
    with registry(server) as client:
        for _ in range(3):
            assert client.find_manifest("a", "1") == Manifest(SCHEMA_2, b"{}")
    assert [request.headers["Authorization"] for request in server.asked] == [basic("me", "pw")] * 2
    assert dict(server.asked[0].url.params) == {"service": "example", "scope": "repository:a:pull"}


def test_without_a_login_the_token_is_anonymous() -> None:
    server = WithTokens(requests_per_token=9)
    with registry(server, login=None) as client:
        client.find_manifest("a", "1")
    assert "Authorization" not in server.asked[0].headers


def test_an_identity_token_is_given_for_a_token() -> None:
    """As the distribution project's "OAuth 2.0 Token Authentication" says."""
    server = WithTokens(requests_per_token=9)
    with registry(server, login=(IDENTITY_TOKEN, "secret")) as client:
        client.find_manifest("a", "1")
    (asked,) = server.asked
    assert asked.method == "POST"
    assert "Authorization" not in asked.headers
    assert parse_qs(asked.content.decode()) == {
        "grant_type": ["refresh_token"],
        "refresh_token": ["secret"],
        "client_id": ["toolkit"],
        "service": ["example"],
        "scope": ["repository:a:pull"],
    }


def test_an_identity_token_is_not_sent_on_to_another_host() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "auth.example.com":
            return httpx.Response(307, headers={"Location": "http://evil.example/token"})
        return httpx.Response(401, headers={"WWW-Authenticate": CHALLENGE})

    with registry(answer, login=(IDENTITY_TOKEN, "secret")) as client, pytest.raises(BuildError, match="no token for"):
        client.find_manifest("a", "1")
    assert "evil.example" not in asked


def test_an_identity_token_is_no_password() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="x"'})

    with registry(answer, login=(IDENTITY_TOKEN, "secret")) as client, pytest.raises(BuildError) as caught:
        client.find_manifest("a", "1")
    assert "takes a user and password, and its login is an identity token" in str(caught.value)


def test_a_mount_asks_for_both_repositories() -> None:
    server = WithTokens(requests_per_token=9)
    with registry(server) as client, pytest.raises(BuildError, match="HTTP 200"):
        client.mount("a", BLOB.digest, "b")
    assert set(server.asked[0].url.params.get_list("scope")) == {
        "repository:a:pull",
        "repository:a:pull,push",
        "repository:b:pull",
    }


def test_a_login_is_not_sent_where_nothing_is_encrypted() -> None:
    challenge = CHALLENGE.replace("https", "http")
    with (
        registry(lambda _: httpx.Response(401, headers={"WWW-Authenticate": challenge})) as client,
        pytest.raises(BuildError, match="which is not encrypted"),
    ):
        client.find_manifest("a", "1")


def test_a_login_may_go_to_this_machine_unencrypted() -> None:
    challenge = CHALLENGE.replace("https://auth.example.com", "http://127.0.0.1")

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "127.0.0.1":
            return httpx.Response(200, json={"token": "t"})
        if "Authorization" not in request.headers:
            return httpx.Response(401, headers={"WWW-Authenticate": challenge})
        return httpx.Response(200, headers={"Content-Type": SCHEMA_2}, content=b"{}")

    with registry(answer) as client:
        assert client.find_manifest("a", "1") == Manifest(SCHEMA_2, b"{}")


def test_a_refused_login_is_told_without_the_password() -> None:
    refuses = httpx.Response(401, headers={"WWW-Authenticate": CHALLENGE})
    with (
        registry(lambda _: refuses) as client,
        pytest.raises(BuildError, match=r"auth.example.com rejects the login") as caught,
    ):
        client.find_manifest("a", "1")
    assert "docker login registry.example.com" in caught.value.hint
    assert "pw" not in str(caught.value)


def test_what_the_registry_forbids_is_told_in_its_words() -> None:
    error = {"errors": [{"code": "DENIED", "message": "not authorized to perform: ecr:InitiateLayerUpload"}]}
    words = "HTTP 403 DENIED not authorized to perform: ecr:InitiateLayerUpload"
    with registry(lambda _: httpx.Response(403, json=error)) as client, pytest.raises(BuildError, match=words):
        client.start_upload("a")


LATER, EARLIER = "Wed, 25 Nov 2099 07:28:00 GMT", "Wed, 25 Nov 2020 07:28:00 GMT"


@pytest.mark.parametrize(
    ("asked", "waited"), [("20", 20), ("99999", 120), ("0", 0.5), ("soon", 0.5), (LATER, 120), (EARLIER, 0.5)]
)
def test_a_busy_registry_is_asked_again_when_it_says(asked: str, waited: float) -> None:
    waits: list[float] = []

    blob = Blob(LAYER, digest_of(b"0123456789"), 10)

    def serve(request: httpx.Request) -> httpx.Response:
        given = {"GET": 200, "POST": 202, "PUT": 201}[request.method]
        if len(waits) < {"GET": 1, "POST": 2, "PUT": 3}[request.method]:
            return httpx.Response(429, headers={"Retry-After": asked})
        return httpx.Response(given, stream=httpx.ByteStream(b"0123456789"))

    client = Registry("registry.example.com", transport=httpx.MockTransport(serve), sleep=waits.append)
    with client:
        assert client.small_blob("a", blob) == b"0123456789"
        client.start_upload("a")
        Upload(client, "a", blob, lambda start: iter([b"0123456789"[start:]]), "https://registry.example.com/up").run()
    assert len(waits) == 3
    assert all(waited / 2 <= wait <= waited if waited == 0.5 else wait == waited for wait in waits)


def test_a_date_to_ask_again_is_waited_for() -> None:
    answer = httpx.Response(429, headers={"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=90))})
    assert 60 < asked_wait(answer) <= 90


def test_a_busy_registry_is_asked_again() -> None:
    answers = iter([httpx.Response(429), httpx.Response(503), httpx.Response(404)])
    with registry(lambda _: next(answers)) as client:
        assert client.find_manifest("a", "1") is None


@pytest.mark.parametrize(("awaited", "tries"), [(True, 6), (False, 1)])
@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout])
def test_a_registry_that_cannot_be_reached_is_tried_again_by_who_waits_for_it(
    error: type[httpx.TransportError], awaited: bool, tries: int
) -> None:
    waits: list[float] = []

    def unreachable(_request: httpx.Request) -> httpx.Response:
        raise error("no route")

    client = Registry(
        "registry.example.com", transport=httpx.MockTransport(unreachable), sleep=waits.append, awaited=awaited
    )
    with client, pytest.raises(BuildError, match="no route") as caught:
        client.find_manifest("a", "1")
    assert len(waits) == tries - 1
    assert awaited or "the network" in caught.value.hint


def test_a_registry_that_has_too_much_to_do_is_asked_again_by_who_does_not_wait_for_it_too() -> None:
    found: list[httpx.Response | httpx.ReadTimeout] = [
        httpx.Response(429), httpx.ReadTimeout("late"), httpx.Response(404),
    ]  # fmt: skip

    def answer(_request: httpx.Request) -> httpx.Response:
        next_one = found.pop(0)
        if isinstance(next_one, httpx.ReadTimeout):
            raise next_one
        return next_one

    waits: list[float] = []
    transport = httpx.MockTransport(answer)
    with Registry("registry.example.com", transport=transport, sleep=waits.append, awaited=False) as client:
        assert client.find_manifest("a", "1") is None
    assert len(waits) == 2


def test_ecr_hanging_up_is_told_with_what_it_means() -> None:
    def hang_up(_request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.")

    host = "111122223333.dkr.ecr.us-west-2.amazonaws.com"
    with registry(hang_up, host=host) as client, pytest.raises(BuildError, match="tried 6 times") as caught:
        client.start_upload("a")
    assert "Check that the repository exists" in caught.value.hint


def test_the_storage_that_a_registry_sends_us_to_does_not_see_the_login() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "storage.example.com":
            seen.append(request.headers.get("Authorization"))
            return httpx.Response(200, stream=httpx.ByteStream(b"0123456789"))
        if request.headers.get("Authorization") != basic("me", "pw"):
            return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return httpx.Response(307, headers={"Location": "https://storage.example.com/blob"})

    with registry(answer) as client:
        assert b"".join(client.read_blob("a", BLOB)) == b"0123456789"
    assert seen == [None]


@pytest.mark.parametrize(
    ("address", "is_ours"),
    [
        ("https://registry.example.com/v2/a/blobs/uploads/1", True),
        ("https://storage.example.com/v2/a/blobs/uploads/1", False),
        ("https://registry.example.com:8443/v2/a/blobs/uploads/1", False),
        ("http://registry.example.com/v2/a/blobs/uploads/1", False),
    ],
)
def test_only_the_registry_itself_sees_the_login(address: str, is_ours: bool) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        challenge = {"WWW-Authenticate": 'Basic realm="x"'}
        return httpx.Response(202) if seen[-1] else httpx.Response(401, headers=challenge)

    with registry(answer) as client:
        client.start_upload("a")  # from here on the login is known
        assert client.request("PUT", address, "a").status_code == (202 if is_ours else 401)
    assert seen == [None, basic("me", "pw"), basic("me", "pw") if is_ours else None]


@pytest.mark.parametrize("location", ["/v2/a/blobs/uploads/1", "http://registry.example.com/v2/a/blobs/uploads/1"])
def test_an_upload_stays_encrypted_wherever_the_registry_sends_it(location: str) -> None:
    with registry(lambda _: httpx.Response(202, headers={"Location": location})) as client:
        assert client.start_upload("a") == "https://registry.example.com/v2/a/blobs/uploads/1"


class Breaks(httpx.SyncByteStream):
    """Four bytes, and the connection is gone."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"0123"
        raise httpx.ReadError("gone")


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_download_goes_on_where_it_broke(knows_ranges: bool) -> None:
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Range"))
        if len(asked) == 1:
            return httpx.Response(200, stream=Breaks())
        rest = b"456789" if knows_ranges else b"0123456789"
        return httpx.Response(206 if knows_ranges else 200, stream=httpx.ByteStream(rest))

    with registry(answer) as client:
        assert b"".join(client.read_blob("a", BLOB)) == b"0123456789"
    assert asked == [None, "bytes=4-"]


def test_a_download_that_makes_progress_may_break_any_number_of_times() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        start = int(request.headers.get("Range", "bytes=0-")[6:-1])
        return httpx.Response(206 if start else 200, stream=httpx.ByteStream(b"0123456789"[start : start + 1]))

    with registry(answer) as client:
        assert b"".join(client.read_blob("a", BLOB)) == b"0123456789"


def test_an_image_other_than_asked_for_is_refused() -> None:
    other = httpx.Response(200, content=b"{}")
    with registry(lambda _: other) as client, pytest.raises(BuildError, match="but got sha256:44136fa355b3"):
        client.find_manifest("a", BLOB.digest)


def test_docker_hub_has_its_api_elsewhere() -> None:
    hosts: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return httpx.Response(404)

    with registry(answer, host="docker.io") as client:
        client.find_manifest("library/ubuntu", "1")
    assert hosts == ["registry-1.docker.io"]


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("ghcr.io", "ghcr.io"),
        ("ghcr.io", "https://ghcr.io"),
        ("ghcr.io", "https://ghcr.io/v2/"),
        ("registry:5000", "http://registry:5000"),
        ("docker.io", "https://index.docker.io/v1/"),
        ("docker.io", "https://index.docker.io"),
        ("docker.io", "docker.io"),
    ],
)
def test_the_login_that_docker_wrote_is_found(tmp_path: Path, host: str, key: str) -> None:
    auth = base64.b64encode(b"me:pass:word").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {key: {"auth": auth}}}))
    assert read_login(tmp_path / "config.json", host) == ("me", "pass:word")


@pytest.mark.parametrize(
    "text", ["{}", '{"auths": {"ghcr.io": {}}, "credsStore": "x"}', '{"auths": {"other": {"auth": "x"}}}']
)
def test_where_docker_has_no_login_there_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert read_login(tmp_path / "config.json", "ghcr.io") is None


@pytest.mark.parametrize(
    ("login", "found"),
    [
        ({"username": "me", "password": "pw"}, ("me", "pw")),
        ({"auth": "MDAwOg==", "identitytoken": "t"}, (IDENTITY_TOKEN, "t")),  # as `az acr login` writes it
        ({"auth": "", "username": "me", "password": "pw"}, ("me", "pw")),
    ],
)
def test_a_login_in_other_words_is_one(tmp_path: Path, login: dict[str, str], found: tuple[str, str]) -> None:
    """A key without a login, as beside a helper, hides none."""
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"ours.io": {}, "https://ours.io": login}}))
    assert read_login(tmp_path / "config.json", "ours.io") == found


def test_a_token_of_docker_hub_is_not_its_login(tmp_path: Path) -> None:
    """Docker keeps those of its login by browser beside it."""
    logins = {
        "https://index.docker.io/v1/access-token": {"auth": "YTp0"},
        "https://index.docker.io/v1/": {"auth": "YTpi"},
    }
    (tmp_path / "config.json").write_text(json.dumps({"auths": logins}))
    assert read_login(tmp_path / "config.json", "docker.io") == ("a", "b")


def test_without_docker_there_is_no_login(tmp_path: Path) -> None:
    assert read_login(tmp_path / "config.json", "ghcr.io") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"auths": {"ghcr.io": {"auth": "secret"}}}'])
def test_a_broken_file_is_named_without_what_it_holds(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=r"cannot read .*config\.json") as caught:
        read_login(tmp_path / "config.json", "ghcr.io")
    assert "secret" not in str(caught.value)
