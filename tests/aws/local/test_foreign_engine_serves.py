"""An engine that the product does not have serves on the local platform: measured, tuned, its failure explained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign import RECIPE, Product, product_with_grove
from nvml import nvml


@pytest.fixture(scope="module")
def grove(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = product_with_grove(tmp_path_factory.mktemp("product"))
    yield product
    product.run("local", "stop")


def test_it_is_deployed_proved_and_removed(grove: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = grove.recipe()
    grove.json("deploy", recipe, "--baseline", "--no-prove")
    assert "grove stands" in grove.run("logs", "grown").stdout
    assert grove.run("invoke", "grown", "Hello").stdout.startswith("leaf")

    with monkeypatch.context() as machine:
        for name, value in nvml(tmp_path).items():
            machine.setenv(name, value)
        proof = grove.json("prove", recipe, "--time", "10s")

    verdicts = {one["claim"]: one for one in proof["verdicts"]}
    assert verdicts["on"]["holds"], verdicts["on"]  # by its speed
    assert verdicts["lossless"]["holds"] is not False
    assert "does not tell how probable given tokens are" in verdicts["lossless"]["detail"]
    assert verdicts["same-target"]["holds"] is None
    assert all(row["joules_per_output_token"] > 0 for row in proof["arms"]), "this machine has GPUs that count"
    assert grove.json("metrics", "grown")["engine"]["acceptance_length"] > 1
    grove.json("destroy", recipe, "--yes")


def test_its_k_is_tuned(grove: Product) -> None:
    """Which K is shown to win, or measured to the end of a block, depends on how busy this machine is."""
    report = grove.json("tune", grove.recipe(), "--k", "2,4", "--time", "5s", status=[0, 1])
    assert report["measured"] == 2
    assert {row["setting"] for row in report["rows"]} <= {"K=2", "K=4"}
    assert all(row["ratio"] > 0 for row in report["rows"])


def test_its_failure_has_its_cause(grove: Product) -> None:
    failing = grove.recipe(RECIPE.replace("  max_num_seqs", "  args: {random-seed: 13}\n  max_num_seqs"))
    done = grove.run("deploy", failing, "--no-prove")
    assert done.returncode == 3
    assert "Water it." in done.stderr
