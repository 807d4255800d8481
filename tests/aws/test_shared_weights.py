"""Recipes of one fleet that begin together and need the same models: these are sent once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_pair
from standin import StandIn

from toolkit.cli.main import run

FROM_FOLDERS = (
    HUB_RECIPE.replace("org/target", "../target")
    .replace("org/drafter", "../drafter")
    .replace("platform: {", "platform: {role: create, ")
)
PATIENCE_SECONDS = 100


class Arrivals:
    """What is written to the bucket, by path. The first to send a file has to wait until another begins to."""

    def __init__(self) -> None:
        self.written = Counter[str]()
        self._both = threading.Event()

    def __call__(self, environ: Any) -> None:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] == "PUT" and ("/weights/" in path or "/leases/weights." in path):
            self.written[path] += 1
            if self.written[path] == 2:
                self._both.set()
            if "/leases/" not in path:
                assert self._both.wait(PATIENCE_SECONDS)


@pytest.fixture
def arrivals(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arrivals]:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    answers, arrivals = standin._server.app, Arrivals()

    def arrives(environ: Any, start_response: Any) -> Any:
        arrivals(environ)
        return answers(environ, start_response)

    standin._server.app = arrives
    yield arrivals
    standin._server.app = answers


@pytest.mark.timeout(300)
def test_two_recipes_that_begin_together_send_a_model_once(
    arrivals: Arrivals, standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pair(tmp_path)
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    for name in ("one", "two"):
        (fleet / f"{name}.yaml").write_text(FROM_FOLDERS.replace("name: hub", f"name: {name}", 1))
    assert run(["deploy", str(fleet), "--yes", "--no-prove", "--parallel", "2"]) == 0
    models = {
        path: times for path, times in arrivals.written.items() if "/leases/" not in path and "/config-" not in path
    }
    assert {path.rpartition("/")[2] for path in models} >= {"model.safetensors", "config.json", "tokenizer.json"}
    assert set(models.values()) == {1}
    assert "waiting: weights/" in capsys.readouterr().err
    listed = standin.session().client("sagemaker").list_endpoints()["Endpoints"]
    assert {item["EndpointStatus"] for item in listed} == {"InService"}

    assert [run(["destroy", name, "--yes"]) for name in ("one", "two")] == [0, 0]
    assert not [item for item in standin.leftovers() if item.startswith("s3 bucket toolkit-")]
