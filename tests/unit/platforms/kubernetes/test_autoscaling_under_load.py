"""The rendered autoscalers under simulated load: they act, they settle, and do not flap.

The rules are those of Kubernetes' documentation (Horizontal Pod Autoscaling: algorithm details, stabilization window,
default behavior). The metric is what KEDA's query says, or for an HPA what the documented rule of the adapter says.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.api.export import render

DOCS = Path(__file__).parents[4] / "docs"
HOWTO, PICTURE = DOCS / "howto/kubernetes.md", DOCS / "pictures/autoscaling.svg"
SLOTS, MOST = 16, 8
REQUEST_SECONDS = 20  # that a request takes once the engine works on it
START_SECONDS = 300  # that a pod takes until it is ready
SYNC_SECONDS = 15  # --horizontal-pod-autoscaler-sync-period
TOLERANCE = 0.1
HOUR = 3600
Load = Callable[[int], float]


def autoscaler(folder: Path, prometheus: str | None, **scaling: Any) -> dict[str, Any]:
    """The rendered object, of an endpoint that works on 16 requests at a time."""
    recipe = {
        "name": "chat",
        "target": {"model": "Qwen/Qwen3-8B"},
        "speculation": {"method": "ngram", "num_speculative_tokens": 3},
        "engine": {"version": "0.33.0", "max_model_len": 8192, "max_num_seqs": SLOTS},
        "scaling": {"max_instances": MOST, **scaling},
        "platform": {"name": "kubernetes", "instance_types": ["g6e.xlarge"]},
    }
    recipe["platform"] |= {"kubernetes": {"prometheus": prometheus}} if prometheus else {}
    path = folder / "chat.yaml"
    path.write_text(json.dumps(recipe))
    (found,) = (item for item in render(str(path))["serve"] if "Scale" in item["kind"] or "Autoscaler" in item["kind"])
    return dict(found)


def documented_rule() -> str:
    """What the adapter asks Prometheus for."""
    (block,) = re.findall(r"^```yaml\n(rules:.*?)^```", HOWTO.read_text(), re.S | re.M)
    (rule,) = yaml.safe_load(block)["rules"]["custom"]
    assert rule["name"]["as"] == "vllm_requests_in_flight"
    return str(rule["metricsQuery"])


def read(item: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Query, target for each pod, and behavior."""
    spec = item["spec"]
    if item["kind"] == "ScaledObject":
        (trigger,) = spec["triggers"]
        asked = trigger["metadata"]
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        return asked["query"], int(asked["threshold"]), behavior
    (metric,) = spec["metrics"]
    assert metric["pods"]["metric"]["name"] == "vllm_requests_in_flight"
    return documented_rule(), int(metric["pods"]["target"]["averageValue"]), spec["behavior"]


def simulate(item: dict[str, Any], load: Load, seconds: int) -> Iterator[tuple[int, int]]:
    """Pods wanted and requests waiting, each second. `load` is how many requests come in that second."""
    query, target, behavior = read(item)
    ready, wanted, starting = 1, 1, deque[int]()
    work, waiting, due = deque[int](), 0, 0.0
    advised: deque[tuple[int, int]] = deque()
    for now in range(seconds):
        due += load(now)
        waiting, due = waiting + int(due), due % 1
        while work and work[0] <= now:
            work.popleft()
        while starting and starting[0] <= now:
            starting.popleft()
            ready += 1
        taken = max(0, min(waiting, ready * SLOTS - len(work)))
        waiting -= taken
        work.extend([now + REQUEST_SECONDS] * taken)
        if now % SYNC_SECONDS == 0:
            values = {"vllm:num_requests_running": len(work), "vllm:num_requests_waiting": waiting}
            total = sum(value for name, value in values.items() if name in query)
            within = abs(total / (target * wanted) - 1) <= TOLERANCE
            advised.append((now, wanted if within else math.ceil(total / target)))
            before, wanted = wanted, _stabilized(advised, now, wanted, behavior)
            for _ in range(wanted - before):
                starting.append(now + START_SECONDS)
            for _ in range(before - wanted):
                if starting:
                    starting.pop()
                else:
                    ready -= 1
        yield wanted, waiting


def _stabilized(advised: deque[tuple[int, int]], now: int, wanted: int, behavior: dict[str, Any]) -> int:
    windows = [behavior[name]["stabilizationWindowSeconds"] for name in ("scaleUp", "scaleDown")]
    while advised[0][0] <= now - max(windows):
        advised.popleft()
    lowest, highest = (
        choose(value for at, value in advised if at > now - max(1, window))
        for choose, window in zip((min, max), windows, strict=True)
    )
    settled = min(max(wanted, lowest), max(highest, 1))
    return max(1, min(settled, MOST, max(2 * wanted, wanted + 4)))


def turns(wanted: list[int]) -> int:
    """How often the number of pods goes the other way."""
    steps = [after - before for before, after in pairwise(wanted) if after != before]
    return sum(one * other < 0 for one, other in pairwise(steps))


def step(now: int) -> float:
    """From half a pod's work to that of three and a half, and back."""
    return (3.5 if HOUR <= now < 3 * HOUR else 0.5) * SLOTS / REQUEST_SECONDS


def bursts() -> Load:
    """Five minutes of much every twenty, by chance."""
    chance = random.Random(1)
    return lambda now: (2.0 if now % 1200 < 300 else 0.5) * SLOTS / REQUEST_SECONDS * chance.expovariate(1)


def picture(panels: dict[str, tuple[list[float], list[int]]]) -> str:
    """By title a panel of the load, in the pods that it keeps busy, and of the pods wanted, for each minute."""
    shown = []
    for number, (title, lines) in enumerate(panels.items()):
        left, width = 30 + 370 * number, 340 / len(lines[0])
        for values, style in zip(lines, ('stroke="#8a8f98"', 'stroke="#2f7fd1" stroke-width="2"'), strict=True):
            points = " ".join(f"{left + i * width:.0f},{170 - 18 * value:.0f}" for i, value in enumerate(values))
            shown.append(f'<polyline fill="none" {style} points="{points}"/>')
        for pods in (0, 4, 8):
            shown.append(f'<text x="{left - 14}" y="{174 - 18 * pods}">{pods}</text>')
        hours = len(lines[0]) // 60
        shown.append(f'<text x="{left}" y="192">{title}: {hours} hours; grey: load in pods, blue: pods</text>')
    text = "\n".join(shown)
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 750 200" font-family="sans-serif" font-size="11"'
    return f'{head} fill="#8a8f98">\n{text}\n</svg>\n'


@pytest.fixture(params=["http://prometheus:9090", None], ids=["keda", "hpa"])
def prometheus(request: pytest.FixtureRequest) -> str | None:
    found: str | None = request.param
    return found


@pytest.mark.parametrize("target", [None, 8, SLOTS])
def test_a_step_of_load_adds_pods_and_settles(tmp_path: Path, prometheus: str | None, target: int | None) -> None:
    scaling = {"requests_per_instance": target} if target else {}
    item = autoscaler(tmp_path, prometheus, **scaling)
    run = list(simulate(item, step, 5 * HOUR))
    wanted, waiting = ([one[index] for one in run] for index in (0, 1))
    enough = 3.5 * SLOTS / (target or SLOTS // 2)
    assert max(wanted[:HOUR]) == 1
    assert max(wanted[HOUR : HOUR + 120]) > 1, "a minute or two after the step nothing has been done"
    settled = set(wanted[2 * HOUR : 3 * HOUR])
    assert len(settled) == 1
    assert enough / (1 + TOLERANCE) <= settled.pop() <= math.ceil(enough) + 1
    assert max(waiting[2 * HOUR : 3 * HOUR]) == 0
    assert set(wanted[4 * HOUR :]) == {1}
    assert turns(wanted) <= 1


def test_bursts_do_not_make_it_flap(tmp_path: Path, prometheus: str | None) -> None:
    """Five minutes of much every twenty, by chance: what it adds stays while it may be wanted again."""
    item = autoscaler(tmp_path, prometheus, scale_in_seconds=1800)
    wanted = [pods for pods, _ in simulate(item, bursts(), 6 * HOUR)]
    assert max(wanted[:HOUR]) > 1
    assert turns(wanted) <= 4


def test_the_picture_in_the_docs_is_that_of_the_simulation(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    panels = {}
    for title, load, hours, scaling in (("a step", step, 5, {}), ("bursts", bursts(), 6, {"scale_in_seconds": 1800})):
        loads = [load(now) for now in range(hours * HOUR)]
        item = autoscaler(tmp_path, "http://prometheus:9090", **scaling)
        wanted = [pods for pods, _ in simulate(item, loads.__getitem__, hours * HOUR)]
        minutes = range(0, hours * HOUR, 60)
        busy = [sum(loads[at : at + 60]) / 60 * REQUEST_SECONDS / SLOTS for at in minutes]
        panels[title] = busy, wanted[::60]
    drawn = picture(panels)
    if request.config.getoption("--update-golden"):
        PICTURE.write_text(drawn)
    assert PICTURE.read_text() == drawn, "if that is meant: pytest --update-golden"
