"""`containers/vllm/Dockerfile` is one that every builder can follow, and that needs no container to be followed."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).parents[3] / "containers" / "vllm" / "Dockerfile").read_text()


def test_it_says_only_what_can_be_done_through_a_registry() -> None:
    assert [line for line in TEXT.splitlines() if not line.startswith("#")] == [
        "ARG BASE_IMAGE",
        "FROM ${BASE_IMAGE}",
        "COPY rootfs/ /",
        "USER 0",
        'ENTRYPOINT ["/opt/toolkit/serve"]',
    ]


def test_lines_can_be_added_at_its_end() -> None:
    assert TEXT.endswith("\n")


def test_no_frontend_is_fetched_to_read_it() -> None:
    assert not re.search(r"(?im)^#\s*syntax\s*=", TEXT)
