"""Containers of one endpoint, without a daemon around them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolkit.platforms.local import container, modeldata
from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.deployment import Deployment, StartError, Variant

SERVER = """
import http.server, os, sys, time
time.sleep(float(os.environ.get("STARTS_IN", "0")))
if "DIES" in os.environ: sys.exit("gone")
class Ping(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Ping).serve_forever()
"""


@pytest.fixture
def variant(tmp_path: Path) -> Callable[..., Variant]:
    program = tmp_path / "serve"
    program.write_text(SERVER)

    def make(name: str = "v", startup_timeout_s: float = 30.0, **environment: str) -> Variant:
        return Variant(name, "image", program, environment, {}, 1.0, startup_timeout_s)

    return make


def deployment(folder: Path, *variants: Variant) -> Deployment:
    s3: Any = None  # no model data, no S3
    return Deployment("endpoint", variants, folder / "endpoint" / "1", s3, lambda *_: None)


def test_a_container_that_is_silent_for_too_long_is_given_up(tmp_path: Path, variant: Callable[..., Variant]) -> None:
    silent = deployment(tmp_path, variant(startup_timeout_s=0.5, STARTS_IN="60"))
    with pytest.raises(StartError, match=r"did not pass the ping health check.* No answer within 0 seconds"):
        silent.start()
    assert not (tmp_path / "endpoint").exists(), "its folder is gone, and so is what ran in it"


def test_one_variant_that_dies_does_not_wait_for_the_others(tmp_path: Path, variant: Callable[..., Variant]) -> None:
    both = deployment(tmp_path, variant("slow", STARTS_IN="60"), variant("dying", DIES="1"))
    started = time.monotonic()
    with pytest.raises(StartError, match=r"production variant dying did not pass .* exit code 1"):
        both.start()
    assert time.monotonic() - started < 10


def test_stopping_ends_a_start_that_is_under_way(tmp_path: Path, variant: Callable[..., Variant]) -> None:
    one = deployment(tmp_path, variant())
    one.stop()
    with pytest.raises(StartError, match="is being deleted"):
        one.start()


@pytest.mark.parametrize(
    ("image", "runs"),
    [
        ("123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm:0.32.0-cpu", True),
        ("vllm:0.32.0-cpu", True),
        ("vllm:0.32.0-gpu-py312", False),
        ("vllm", False),
        ("registry/team/vllm:1-cpu", False),
        ("registry/sglang:1-cpu", False),
        ("registry/..:1-cpu", False),
        ("", False),
    ],
)
def test_which_images_run(tmp_path: Path, image: str, runs: bool) -> None:
    serve = tmp_path / "vllm" / "serve"
    serve.parent.mkdir()
    serve.touch()
    assert container.entrypoint(image, tmp_path) == (serve if runs else None)


def test_a_port_that_is_taken_is_not_given() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        candidates = range(port - 1, port + 2)
        assert port not in {container.free_port(candidates) for _ in range(50)}


class Bucket:
    """The two calls of S3 that fetching needs."""

    def get_paginator(self, _: str) -> Bucket:
        return self

    def paginate(self, **_: str) -> list[dict[str, list[dict[str, Any]]]]:
        return [{"Contents": [{"Key": "m/weights", "Size": 10**15}]}]


def test_a_disk_that_is_too_small_is_said_before_anything_is_copied(tmp_path: Path) -> None:
    s3: Any = Bucket()
    with pytest.raises(
        ServiceError, match=r"too full for s3://b/m/: it takes 93132\d\.\d GiB, \d+\.\d GiB are free at"
    ):
        modeldata.fetch(s3, "s3://b/m/", tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []
