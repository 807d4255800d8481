"""`toolkit render --helm`: the chart as the genuine Helm reads it, and its releases on a genuine API server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import RECIPES, Kubectl, recipe_file

from toolkit.cli.main import run

HOWTO = Path(__file__).parents[2] / "docs/howto/kubernetes.md"
KINDS = "serviceaccount,service,deployment,networkpolicy,configmap,pvc"
Helm = Callable[..., str]


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Helm:
    """Runs the genuine Helm, and gives what it prints. Raises CalledProcessError."""
    if not shutil.which("helm"):
        pytest.skip("NOT TESTED: it takes helm")
    for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))

    def helm(*arguments: str | Path) -> str:
        return subprocess.run(["helm", *arguments], capture_output=True, text=True, check=True).stdout

    return helm


def refusal(helm: Helm, *arguments: str | Path) -> str:
    with pytest.raises(subprocess.CalledProcessError) as error:
        helm(*arguments)
    return str(error.value.stderr)


def chart_of(recipe: Path, *options: str) -> Path:
    folder = recipe.parent / f"chart-{recipe.stem}"
    assert run(["render", str(recipe), "--helm", "--out", str(folder), *options]) == 0
    return folder


def on_trainium(folder: Path) -> Path:
    """An endpoint that compiles while it starts."""
    shipped = RECIPES / "qwen3-32b/draft-model-trn2-eks.yaml"
    recipe = yaml.safe_load(shipped.read_text())
    recipe["platform"]["kubernetes"] = {"namespace": "ml"}
    path = folder / "trainium.yaml"
    path.write_text(json.dumps(recipe))
    path.with_suffix(".lock.json").write_bytes(shipped.with_suffix(".lock.json").read_bytes())
    return path


def by_name(documents: list[Any]) -> dict[tuple[str, str], Any]:
    return {(item["kind"], item["metadata"]["name"]): item for item in documents if item}


RECIPES_TRIED: dict[str, Callable[[Path], Path]] = {
    "plain": lambda folder: recipe_file(folder, "chat", "ml"),
    "bucket": lambda folder: recipe_file(folder, "chat", "ml", weights_bucket="our-models"),
    "scaled": lambda folder: recipe_file(folder, "chat", "ml", most=4, prometheus="http://p:9090"),
    "watched": lambda folder: recipe_file(folder, "chat", "ml", monitors={"release": "prometheus"}),
    "routed": lambda folder: recipe_file(folder, "chat", "ml", routing={"gateway": "public"}),
    "node": lambda folder: recipe_file(folder, "chat", "ml", weights_cache="node"),
    "trainium": on_trainium,
}


@pytest.mark.parametrize("baseline", [(), ("--baseline",)], ids=["alone", "baseline"])
@pytest.mark.parametrize("written", RECIPES_TRIED)
def test_without_values_helm_makes_what_render_prints(
    helm: Helm, tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, baseline: tuple[str, ...]
) -> None:
    recipe = RECIPES_TRIED[written](tmp_path)
    chart = chart_of(recipe, *baseline)
    made = by_name(list(yaml.safe_load_all(helm("template", "any", chart, "--namespace", "ml"))))
    capsys.readouterr()
    assert run(["render", str(recipe), "--json", *baseline]) == 0
    printed = by_name(json.loads(capsys.readouterr().out)["manifests"])
    del printed["Namespace", "ml"]
    assert made == printed


def test_what_is_set_for_the_engine_does_not_reach_the_picker_of_a_gateway(helm: Helm, tmp_path: Path) -> None:
    chart = chart_of(recipe_file(tmp_path, "chat", "ml", routing={"gateway": "public"}))
    values = ("--set", "image=ours", "--set", "nodeSelector.team=search", "--set", "replicas=3")
    plain, with_values = (
        by_name(list(yaml.safe_load_all(helm("template", "any", chart, "--namespace", "ml", *options))))
        for options in ((), values)
    )
    changed = {key for key, item in with_values.items() if item != plain[key]}
    assert changed == {("Deployment", "chat")}


def test_what_the_how_to_puts_into_an_environment_reaches_the_pods(helm: Helm, tmp_path: Path) -> None:
    """Of the baseline too, but for the number of its pods."""
    chart = chart_of(recipe_file(tmp_path, "chat", "ml", weights_cache="node"), "--baseline")
    environment = tmp_path / "production.yaml"
    (text,) = re.findall(r"^```yaml\n(replicas: 3\n.*?)^```", HOWTO.read_text(), re.DOTALL | re.MULTILINE)
    environment.write_text(text)
    said = yaml.safe_load(text)
    templated = list(yaml.safe_load_all(helm("template", "any", chart, "--namespace", "ml", "-f", environment)))
    before = by_name([yaml.safe_load(path.read_text()) for path in (chart / "manifests").iterdir()])
    found = {item["metadata"]["name"]: item for item in templated if item["kind"] == "Deployment"}
    assert {name: item["spec"]["replicas"] for name, item in found.items()} == {"chat": 3, "chat-baseline": 1}
    for name, item in found.items():
        pod, was = item["spec"]["template"]["spec"], before["Deployment", name]["spec"]["template"]["spec"]
        assert {one["image"] for one in [*pod["initContainers"], *pod["containers"]]} == {said["image"]}
        assert pod["imagePullSecrets"] == said["imagePullSecrets"]
        assert pod["nodeSelector"] == {**was["nodeSelector"], **said["nodeSelector"]}
        assert pod["tolerations"] == [*was["tolerations"], *said["tolerations"]]
        for metadata in (item["metadata"], item["spec"]["template"]["metadata"]):
            assert metadata["labels"]["team"] == "search"
            assert metadata["labels"]["app.kubernetes.io/instance"] == name
        assert item["spec"]["selector"] == before["Deployment", name]["spec"]["selector"]


@pytest.mark.parametrize(
    ("most", "options", "words"),
    [
        (1, ("--namespace", "other"), "the recipe is for namespace ml: add --namespace ml"),
        (1, ("--namespace", "ml", "--set", "replica=3"), "additional properties 'replica' not allowed"),
        (4, ("--namespace", "ml", "--set", "replicas=3"), "replicas: the recipe lets the number of pods scale"),
        (1, ("--namespace", "ml", "--set", "labels.a=b,labels.b=1"), "got number, want string"),
    ],
)
def test_a_value_that_cannot_be_is_refused(
    helm: Helm, tmp_path: Path, most: int, options: tuple[str, ...], words: str
) -> None:
    chart = chart_of(recipe_file(tmp_path, "chat", "ml", most=most))
    assert words in refusal(helm, "template", "any", chart, *options)


def test_a_value_of_null_is_as_in_the_recipe(helm: Helm, tmp_path: Path) -> None:
    chart = chart_of(recipe_file(tmp_path, "chat", "ml"))
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text(json.dumps(dict.fromkeys(yaml.safe_load((chart / "values.yaml").read_text()))))
    plain = ("template", "any", chart, "--namespace", "ml")
    assert helm(*plain, "-f", nothing) == helm(*plain)


@pytest.mark.parametrize(("replicas", "is_refused"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_disruption_budget_leaves_a_pod_that_may_go(
    helm: Helm, tmp_path: Path, replicas: int, is_refused: bool
) -> None:
    """Else a drain of its node waits for ever; without pods there is none to wait for."""
    chart = chart_of(recipe_file(tmp_path, "chat", "ml", pod={"min_available": 2}))
    values = ("template", "any", chart, "--namespace", "ml", "--set", f"replicas={replicas}")
    if is_refused:
        assert f"replicas: {replicas}, of which the recipe keeps 2 (pod.min_available)" in refusal(helm, *values)
    else:
        assert f"replicas: {replicas}\n" in helm(*values)


def test_values_reach_a_chart_that_an_umbrella_chart_calls_otherwise(helm: Helm, tmp_path: Path) -> None:
    chart = chart_of(recipe_file(tmp_path, "chat", "ml"))
    umbrella = tmp_path / "umbrella"
    shutil.copytree(chart, umbrella / "charts" / "chat")
    dependency = {"name": "chat", "version": "0.1.0", "alias": "assistant"}
    about = {"apiVersion": "v2", "name": "umbrella", "version": "0.1.0", "dependencies": [dependency]}
    (umbrella / "Chart.yaml").write_text(json.dumps(about))
    made = helm("template", "any", umbrella, "--namespace", "ml", "--set", "assistant.replicas=3")
    assert by_name(list(yaml.safe_load_all(made)))["Deployment", "chat"]["spec"]["replicas"] == 3


def test_helm_s_own_lint_has_nothing_against_it(helm: Helm, tmp_path: Path) -> None:
    chart = chart_of(recipe_file(tmp_path, "chat", "ml"))
    assert "0 chart(s) failed" in helm("lint", "--strict", chart, "--namespace", "ml")


def names(kubectl: Kubectl, namespace: str) -> set[str]:
    return set(kubectl("get", KINDS, "-n", namespace, "-o", "name").split())


def test_uninstalling_a_release_leaves_the_others_of_its_namespace(
    helm: Helm, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl("create", "namespace", namespace)
    for name in ("first", "second"):
        chart = chart_of(recipe_file(tmp_path, name, namespace, weights_bucket="our-models"))
        helm("install", name, chart, "--namespace", namespace)
    before = names(kubectl, namespace)
    assert len([name for name in before if "/second" in name]) == 7
    helm("uninstall", "first", "--namespace", namespace)
    gone = before - names(kubectl, namespace)
    kinds = {"configmap", "deployment.apps", "networkpolicy.networking.k8s.io", "service", "serviceaccount"}
    assert {name.partition("/")[0] for name in gone} == kinds
    assert all(name.partition("/")[2].startswith("first") for name in gone)


def test_a_rollback_brings_back_the_programs_of_before(
    helm: Helm, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl("create", "namespace", namespace)
    chart = chart_of(recipe_file(tmp_path, "chat", namespace, weights_bucket="our-models"))
    helm("install", "chat", chart, "--namespace", namespace)
    before = names(kubectl, namespace)
    (programs,) = [name.partition("/")[2] for name in before if name.startswith("configmap/chat")]
    for path in (chart / "manifests").iterdir():  # as the next version of the toolkit would write them
        path.write_text(path.read_text().replace(programs, "chat-00000000"))
    helm("upgrade", "chat", chart, "--namespace", namespace)
    assert before - names(kubectl, namespace) == {f"configmap/{programs}"}
    helm("rollback", "chat", "1", "--namespace", namespace)
    assert names(kubectl, namespace) == before


def test_the_older_chart_goes_back_to_the_volumes_of_before(
    helm: Helm, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    """And a rollback says the words of the how-to."""
    kubectl("create", "namespace", namespace)
    charts = []
    for bucket in ("first-bucket", "second-bucket"):
        (tmp_path / bucket).mkdir()
        charts.append(chart_of(recipe_file(tmp_path / bucket, "chat", namespace, weights_bucket=bucket)))
        helm("upgrade", "--install", "chat", charts[-1], "--namespace", namespace)
    refused = refusal(helm, "rollback", "chat", "1", "--namespace", namespace)
    start, end = re.findall(r'"(original object) … (not found)"', HOWTO.read_text())[0]
    assert re.search(f"{start} .* {end}", refused)

    helm("upgrade", "chat", charts[0], "--namespace", namespace)
    deployment = json.loads(kubectl("get", "deployment", "chat", "-n", namespace, "-o", "json"))
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    claims = [item["persistentVolumeClaim"]["claimName"] for item in volumes if "persistentVolumeClaim" in item]
    assert len(claims) == 2
    for claim in claims:
        found = json.loads(kubectl("get", "pvc", claim, "-n", namespace, "-o", "json"))
        assert "deletionTimestamp" not in found["metadata"]
        volume = json.loads(kubectl("get", "pv", found["spec"]["volumeName"], "-o", "json"))
        assert volume["spec"]["csi"]["volumeAttributes"]["bucketName"] == "first-bucket"


def test_what_helm_has_made_is_left_alone(
    helm: Helm, kubectl: Kubectl, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl("create", "namespace", namespace)
    recipe = recipe_file(tmp_path, "chat", namespace)
    helm("install", "chat", chart_of(recipe), "--namespace", namespace)
    before = names(kubectl, namespace)
    assert run(["deploy", str(recipe), "--yes", "--no-prove"]) == 3
    assert "was not created by the toolkit" in capsys.readouterr().err
    assert names(kubectl, namespace) == before
