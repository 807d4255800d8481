"""Logins that `docker login` keeps in a helper: real programs on PATH, of a few lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkit.errors import UsageError
from toolkit.images.command import logins
from toolkit.images.docker_config import IDENTITY_TOKEN, docker_credentials
from toolkit.images.reference import parse

Write = Callable[..., None]


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a helper of that name; what it was asked with lies beside it."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write(name: str, script: str) -> None:
        program = tmp_path / f"docker-credential-{name}"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = get ] || exit 9\nread -r server\necho "$server" > {program}.asked\n{script}\n'
        )
        program.chmod(0o755)

    return write


def config(folder: Path, **settings: object) -> None:
    (folder / "config.json").write_text(json.dumps(settings))


def answering(user: str, secret: str) -> str:
    return f"""printf '%s' '{json.dumps({"ServerURL": "x", "Username": user, "Secret": secret})}'"""


def test_the_helper_of_a_registry_goes_before_the_one_for_all(helper: Write, tmp_path: Path) -> None:
    helper("one", answering("me", "s1"))
    helper("all", answering("us", "s2"))
    config(
        tmp_path, credHelpers={"ghcr.io": "one", "plain.io": ""}, credsStore="all", auths={"plain.io": {"auth": "YTpi"}}
    )
    assert docker_credentials("ghcr.io") == ("me", "s1")
    assert docker_credentials("quay.io") == ("us", "s2")
    assert docker_credentials("plain.io") == ("a", "b")
    assert docker_credentials("docker.io") == ("us", "s2")
    assert (tmp_path / "docker-credential-all.asked").read_text() == "https://index.docker.io/v1/\n"


def test_a_helper_may_have_an_identity_token(helper: Write, tmp_path: Path) -> None:
    """As that of Docker Desktop has after `az acr login`; builders get it as Docker's config.json has it."""
    helper("all", answering("<token>", "s3"))
    config(tmp_path, credsStore="all")
    assert docker_credentials("ours.azurecr.io") == (IDENTITY_TOKEN, "s3")
    given = logins(docker_credentials, [parse("ours.azurecr.io/a:1")])
    assert given == {"ours.azurecr.io": {"auth": "dG9rZW46", "identitytoken": "s3"}}


def test_a_helper_without_a_login_is_no_error(helper: Write, tmp_path: Path) -> None:
    helper("all", "echo 'credentials not found in native keychain'; exit 1")
    config(tmp_path, credsStore="all")
    assert docker_credentials("quay.io") is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo hunter2; exit 3", "docker-credential-all ended with exit code 3"),
        ("echo hunter2", "docker-credential-all answered what is no login"),
        ('echo \'{"Username": "hunter2"}\'', "docker-credential-all answered what is no login"),
    ],
)
def test_a_helper_that_fails_is_named_and_nothing_of_what_it_said(
    helper: Write, tmp_path: Path, script: str, words: str
) -> None:
    helper("all", script)
    config(tmp_path, credsStore="all")
    with pytest.raises(UsageError, match=words) as caught:
        docker_credentials("quay.io")
    assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.__context__}"


@pytest.mark.parametrize("name", ["none-such", "../../bin/sh", "a b"])
def test_a_helper_that_is_not_there_is_named_with_the_file(helper: Write, tmp_path: Path, name: str) -> None:
    config(tmp_path, credsStore=name)
    with pytest.raises(UsageError, match=r"config\.json names the credential helper") as caught:
        docker_credentials("quay.io")
    assert "docker login quay.io" in caught.value.hint


def test_a_helper_that_never_answers_is_ended(helper: Write, tmp_path: Path) -> None:
    helper("all", "sleep 1000")
    config(tmp_path, credsStore="all")
    with pytest.raises(UsageError, match="did not answer in 1 seconds"):
        docker_credentials("quay.io", seconds=1)


def test_a_build_gets_the_logins_that_there_are() -> None:
    """The credential store's format of config.json: user and password as in basic authentication."""
    accounts = {"ghcr.io": ("me", "pw:1"), "docker.io": None}
    images = [parse("ghcr.io/ours/a:1"), parse("ghcr.io/ours/b:1"), parse("python:3.12")]
    assert logins(accounts.__getitem__, images) == {"ghcr.io": {"auth": "bWU6cHc6MQ=="}}
