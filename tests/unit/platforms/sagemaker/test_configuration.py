"""What the user's AWS configuration says, where there are no credentials or a wrong profile."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from toolkit.api.deployment import plan
from toolkit.api.listing import status
from toolkit.cli.main import run
from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.session import SESSION

RECIPE = "qwen3-8b/p-eagle"


def test_a_plan_without_an_account_is_for_the_users_region(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SESSION.unread_account(None).region == "us-west-2"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert SESSION.unread_account("us-east-1").region == "us-east-1"
    assert plan(RECIPE).actions[0].name == "toolkit-000000000000-eu-west-1"


def test_a_profile_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "prod")
    (line,) = [line for line in status().not_listed if "prod" in line]
    assert line == (
        "opening an AWS session: The config profile (prod) could not be found. See: aws configure list-profiles"
    )


def test_what_aws_says_ends_with_one_full_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    (line,) = status().not_listed
    assert line.startswith("opening an AWS session: You must specify a region. Set AWS_DEFAULT_REGION, or ")


ROLE = "role_arn = arn:aws:iam::111122223333:role/x"


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        (
            "login_session = arn:aws:iam::111122223333:user/x",
            'Install it beside the toolkit: pip install "botocore[crt]".',
        ),
        ("credential_process = /no/such/program", "No such file or directory: '/no/such/program'. Fix that file"),
        ("credential_process = false", "retrieving credentials from custom-process: . Log in: aws sso login"),
        (
            f"{ROLE}\nsource_profile = nosuch",
            'The source_profile "nosuch" referenced in the profile "prod" does not exist',
        ),
        (f"{ROLE}\nsource_profile = prod\nmfa", "Correct it in your AWS configuration, or name another profile"),
    ],
)
def test_a_broken_login_is_no_missing_one(
    profile: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else what AWS has would not be listed, and a removal would find nothing."""
    config = tmp_path / "config"
    config.write_text(f"[profile prod]\nregion = us-east-1\n{profile}\n", encoding="utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "prod")
    assert any(said in line for line in status().not_listed)
    with pytest.raises(PlatformError):
        plan(RECIPE)
    assert run(["status"]) == 3
    assert run(["destroy", "hub", "--yes"]) == 3
    assert "there is no endpoint" not in capsys.readouterr().err


def test_a_proxy_that_does_not_reach_the_metadata_of_aws_is_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    assert "AWS (no credentials)" in status().not_listed


@pytest.fixture
def with_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("with_keys")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "AWS_ENDPOINT_URL",
            "localhost:4566",
            "as it is configured here: Invalid endpoint: localhost:4566. Correct it in",
        ),
        ("AWS_MAX_ATTEMPTS", "many", "as it is configured here: invalid literal for int() with base 10: 'many'"),
        ("AWS_DEFAULT_REGION", "us east", "Correct AWS_DEFAULT_REGION"),
        ("TOOLKIT_POLL_SECONDS", "5s", "TOOLKIT_POLL_SECONDS=5s: not a number of seconds. Write for example"),
        ("TOOLKIT_POLL_SECONDS", "nan", "TOOLKIT_POLL_SECONDS=nan: not a number of seconds"),
    ],
)
def test_a_variable_that_cannot_be_used_is_told(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    (line,) = status().not_listed
    assert said in line


@pytest.mark.usefixtures("with_keys")
def test_a_certificate_that_is_not_trusted_is_no_missing_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that opens connections."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=a",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=_refuse_all, args=(server, context), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{server.getsockname()[1]}")
        (line,) = status().not_listed
        assert "certificate verify failed" in line
        assert "let AWS_CA_BUNDLE name a file" in line


@pytest.mark.usefixtures("with_keys")
def test_a_connection_that_breaks_off_before_tls_is_a_missing_network(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=_close_all, args=(server,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{server.getsockname()[1]}")
        (line,) = status().not_listed
        assert "check the network" in line


@pytest.mark.usefixtures("with_keys")
def test_a_proxys_password_with_a_mark_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:S3cr#et@127.0.0.1:9")
    (line,) = status().not_listed
    assert "the proxy of the environment cannot be used" in line
    assert "as %23" in line
    assert "S3cr" not in line


def _close_all(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            server.accept()[0].close()


def _refuse_all(server: socket.socket, context: ssl.SSLContext) -> None:
    with suppress(OSError):
        while True:
            with suppress(ssl.SSLError), server.accept()[0] as client, context.wrap_socket(client, server_side=True):
                pass


def test_a_code_that_nobody_can_type_is_told(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"[profile prod]\nregion = us-east-1\n{ROLE}\nsource_profile = keys\nmfa_serial = arn:aws:iam::1:mfa/me\n"
        "[profile keys]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = secret\n",
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, "-m", "toolkit", "status", "--platform", "sagemaker"],
        env={
            **os.environ,
            "AWS_CONFIG_FILE": str(config),
            "AWS_PROFILE": "prod",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,  # without a terminal of its own
        check=False,
    )
    assert ended.returncode == 3
    assert "the profile's role asks for an MFA code, and nobody is at a terminal to give it" in ended.stderr
    assert "Aborted" not in ended.stderr
