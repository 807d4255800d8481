"""The engine's log line on speculation: what the metric filters count must be what the installed vLLM writes."""

from __future__ import annotations

import pytest
from filter_patterns import extract

from toolkit.engines.vllm.rules import RULES

metrics = pytest.importorskip("vllm.v1.spec_decode.metrics")

pytestmark = pytest.mark.serving


@pytest.mark.parametrize("k", [1, 4, 18])
def test_the_tokens_of_a_line(k: int) -> None:
    log, stats = metrics.SpecDecodingLogging(), metrics.SpecDecodingStats.new(k)
    for accepted in (0, 1, k):
        stats.observe_draft(k, accepted)
    log.observe(stats)
    lines: list[str] = []
    log.log(lambda text, *values: lines.append(text % values))
    (line,) = lines
    found = extract(RULES.draft_line(k), line)
    assert found
    assert (found["accepted"], found["drafted"]) == (str(1 + k), str(3 * k))
