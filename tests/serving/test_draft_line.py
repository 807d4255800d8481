"""The engine's log line on speculation: what the metric filters count must be what the installed vLLM writes."""

from __future__ import annotations

import pytest
from filter_patterns import extract
from forked_vllm import ForkedVllm

from toolkit.engines.vllm.rules import RULES

pytestmark = pytest.mark.serving


KS = (1, 4, 18)


def test_the_tokens_of_a_line(vllm: ForkedVllm) -> None:
    for k, line in zip(KS, vllm.run("draft_lines", ks=KS), strict=True):
        found = extract(RULES.metrics.draft_line(k), line)
        assert found, line
        assert (found["accepted"], found["drafted"]) == (str(1 + k), str(3 * k))
