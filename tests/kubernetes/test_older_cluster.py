"""A cluster whose Kubernetes does not have all the kinds that a recipe may need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from manifests import manifest
from real_server import WITHOUT, real_server
from rendering import recipe_file

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.platforms.kubernetes.session import SESSION


@pytest.fixture(scope="module")
def _older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if WITHOUT:
        pytest.skip(WITHOUT)
    folder = tmp_path_factory.mktemp("older")
    with real_server(folder, "--runtime-config=resource.k8s.io/v1=false,autoscaling/v2=false"):
        yield folder / "kubeconfig"


@pytest.fixture(autouse=True)
def _kubeconfig(_older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(_older))


def test_what_a_recipe_does_not_need_need_not_be_there(tmp_path: Path) -> None:
    toolkit.deploy(recipe_file(tmp_path, "plain", "ml"), wait=False, progress=Silent())
    assert [item.name for item in toolkit.endpoints(platform="kubernetes")] == ["plain"]


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        ("ResourceClaimTemplate", "it needs Kubernetes 1.34, or write `neuron_devices: device-plugin`"),
        ("HorizontalPodAutoscaler", "it needs Kubernetes 1.23"),
    ],
)
def test_what_it_needs_is_told_with_the_version_that_has_it(kind: str, edit: str) -> None:
    platform = SESSION.open("/ml")
    with pytest.raises(PlatformError, match=f"the cluster does not know the kind {kind}") as error:
        platform.observe([manifest(kind)], ["chat"])
    assert edit in error.value.hint
