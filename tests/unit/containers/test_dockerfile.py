"""The containers' Dockerfiles can be followed by every builder, and without running anything."""

from __future__ import annotations

import re

import pytest

from toolkit.home import containers_dir
from toolkit.platforms.image import programs

ENGINES = ["vllm", "nxd-inference", "vllm-neuron"]


@pytest.fixture(params=ENGINES)
def text(request: pytest.FixtureRequest) -> str:
    return (containers_dir() / request.param / "Dockerfile").read_text()


def test_it_says_only_what_can_be_done_through_a_registry(text: str) -> None:
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "ARG BASE_IMAGE",
        "FROM ${BASE_IMAGE}",
        "COPY rootfs/ /",
        "USER 0",
        'ENTRYPOINT ["/opt/toolkit/serve"]',
    ]


def test_lines_can_be_added_at_its_end(text: str) -> None:
    assert text.endswith("\n")


def test_no_frontend_is_fetched_to_read_it(text: str) -> None:
    assert not re.search(r"(?im)^#\s*syntax\s*=", text)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_image_holds_the_engines_programs_and_what_they_share(engine: str) -> None:
    files = programs(engine)

    assert files["serve"].content == (containers_dir() / engine / "serve").read_bytes()
    assert files["serve"].mode == 0o755
    assert files["entrypoint.py"].mode == 0o644
    assert files["compile"].mode == 0o755
    assert files.keys().isdisjoint({"Dockerfile", "README.md"})
