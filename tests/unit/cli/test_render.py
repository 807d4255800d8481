"""`toolkit render`: manifests without a cluster and without AWS."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

import toolkit
from toolkit.cli.main import run

APPLY = "kubectl apply --server-side --field-manager=toolkit"
Captured = pytest.CaptureFixture[str]
Kustomize = Callable[[Path], list[Any]]
HOWTO = Path(__file__).parents[3] / "docs/howto/kubernetes.md"

RECIPE = """\
name: gated
target: {model: meta-llama/Llama-3.1-8B-Instruct}
speculation: {method: eagle3, model: RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3, num_speculative_tokens: 3}
engine: {version: 0.33.0, max_model_len: 8192, max_num_seqs: 16, max_num_batched_tokens: 8192}
platform: {name: kubernetes, instance_types: [g6e.xlarge], hub_token_secret: hf-token}
"""
SHIPPED = Path(__file__).parents[3] / "recipes/llama-3.1-8b-instruct/eagle3.lock.json"
ON_TRAINIUM = "qwen3-32b/draft-model-trn2-eks"


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    """A recipe for a cluster with GPUs."""
    (tmp_path / "gated.lock.json").write_bytes(SHIPPED.read_bytes())
    path = tmp_path / "gated.yaml"
    path.write_text(RECIPE)
    return str(path)


def ahead(tmp_path: Path, shipped: str = ON_TRAINIUM) -> str:
    """A copy of a shipped recipe for Trainium, which compiles ahead."""
    folder = Path(__file__).parents[3] / "recipes"
    text = (folder / f"{shipped}.yaml").read_text()
    text = text.replace("compile: at-start", "compile: ahead").replace("neuron_devices: dra", "artifacts_bucket: ours")
    path = tmp_path / "ahead.yaml"
    path.write_text(text)
    path.with_suffix(".lock.json").write_bytes((folder / f"{shipped}.lock.json").read_bytes())
    return str(path)


def kinds(text: str) -> list[str]:
    return [document["kind"] for document in yaml.safe_load_all(text)]


def test_what_serves_is_all_that_is_on_stdout(recipe: str, capsys: Captured) -> None:
    assert run(["render", recipe]) == 0
    ended = capsys.readouterr()
    assert kinds(ended.out) == ["Namespace", "ServiceAccount", "NetworkPolicy", "ConfigMap", "Service", "Deployment"]
    assert ended.err == ""


def test_a_part_is_printed_and_not_written_beside_all_others(recipe: str, tmp_path: Path, capsys: Captured) -> None:
    assert run(["render", recipe, "--part", "rbac", "--out", str(tmp_path / "out")]) == 2
    assert "Leave out --part rbac, or --out." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_same_recipe_gives_the_same_text(recipe: str, capsys: Captured) -> None:
    run(["render", recipe, "--baseline"])
    first = capsys.readouterr().out
    run(["render", recipe, "--baseline"])
    assert capsys.readouterr().out == first


def test_the_baseline_stands_beside_it(recipe: str, capsys: Captured) -> None:
    run(["render", recipe, "--format", "kubernetes", "--baseline"])
    documents = [item for item in yaml.safe_load_all(capsys.readouterr().out) if item["kind"] == "Deployment"]
    assert [item["metadata"]["name"] for item in documents] == ["gated", "gated-baseline"]


def test_the_benchmark_measures_the_arms_that_are_rendered(recipe: str, capsys: Captured) -> None:
    run(["render", recipe, "--baseline", "--part", "benchmark"])
    *_, job = yaml.safe_load_all(capsys.readouterr().out)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    arms = [word for word in container["command"] if "=" in word]
    assert arms == ["SD=http://gated.toolkit.svc", "Base=http://gated-baseline.toolkit.svc"]


def test_roles_for_the_cluster_s_users(recipe: str, capsys: Captured) -> None:
    run(["render", recipe, "--part", "rbac"])
    found = {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(capsys.readouterr().out)}
    assert list(found) == [
        *(("Role", f"toolkit-{what}") for what in ("read", "watch", "deploy")),
        ("ClusterRole", "toolkit-deploy-toolkit"),
    ]
    verbs = {verb for rule in found["Role", "toolkit-read"]["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list"}
    assert "secrets" not in str(found)


def test_a_gpu_has_nothing_to_compile(recipe: str, capsys: Captured) -> None:
    assert run(["render", recipe, "--part", "compile"]) == 2
    assert "needs no compile Job" in capsys.readouterr().err


def waits(name: str) -> str:
    condition = """jsonpath={.status.conditions[?(@.status=="True")].type}"""
    return f"until kubectl get -n toolkit job/{name} -o '{condition}' | grep -Ewo 'Complete|Failed'; do sleep 30; done"


def test_what_endpoints_share_goes_with_none_of_them(tmp_path: Path) -> None:
    """Apart from the namespace each base has it, as names of volumes depend on bucket, role and user."""
    folder = tmp_path / "manifests"
    run(["render", ahead(tmp_path), "--out", str(folder)])
    assert [path.name for path in (folder / "namespace").glob("*-*.yaml")] == ["namespace-toolkit.yaml"]
    shared = [*(folder / "namespace").glob("*-*.yaml"), *(folder / "base").glob("persistentvolume*-artifacts.yaml")]
    assert len(shared) == 3
    for path in shared:
        annotations = yaml.safe_load(path.read_text())["metadata"]["annotations"]
        assert annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
        assert annotations["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
    assert "../namespace" not in (folder / "compile/kustomization.yaml").read_text()


@pytest.mark.parametrize("ending", ["Complete", "Failed"])
def test_waiting_for_the_job_ends_however_it_ends(tmp_path: Path, ending: str) -> None:
    answers = tmp_path / "answers"
    answers.write_text(f"\nFailureTarget\n{ending}\n")
    for program, text in {"kubectl": f"head -n 1 {answers}; sed -i 1d {answers}", "sleep": "true"}.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", "-c", waits("compile-1")], env=env, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, f"{ending}\n")


def test_a_folder_of_files_that_says_what_comes_first(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "manifests"
    assert run(["render", ahead(tmp_path), "--out", str(out)]) == 0
    assert yaml.safe_load((out / "kustomization.yaml").read_text())["resources"] == ["base", "serve"]
    (job,) = (out / "compile").glob("job-*.yaml")
    name = yaml.safe_load(job.read_text())["metadata"]["name"]
    ended = capsys.readouterr()
    assert ended.out == ""
    assert ended.err.splitlines() == [
        f"once, for all endpoints of its namespace: {APPLY} -k {out}/namespace",
        f"compile first: {APPLY} -k {out}/compile",
        f"then wait: {waits(name)}",
        f"serve: {APPLY} -k {out}",
        f"measure: {APPLY} -k {out}/benchmark",
    ]


@pytest.fixture
def kustomize() -> Kustomize:
    """What `kubectl kustomize FOLDER` makes of a folder, as documents."""
    if not shutil.which("kubectl"):
        pytest.skip("NOT TESTED: kubectl is not installed, which has Kustomize in it")

    def build(folder: Path) -> list[Any]:
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))

    return build


def ordered(documents: Iterable[Any]) -> list[Any]:
    return sorted(documents, key=lambda item: (item["kind"], item["metadata"]["name"]))


def test_every_file_is_listed_once(tmp_path: Path) -> None:
    out = tmp_path / "manifests"
    path = Path(ahead(tmp_path))
    path.write_text(path.read_text().replace("  artifacts_bucket:", "  weights_bucket: ours\n    artifacts_bucket:"))
    run(["render", str(path), "--out", str(out), "--baseline"])
    for folder in (path for path in out.iterdir() if path.is_dir()):
        listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
        files = {path.name for path in folder.iterdir()} - {"kustomization.yaml"}
        assert sorted(files) == sorted(name for name in listed if not name.startswith("../"))


def test_kustomize_serves_what_is_printed(recipe: str, tmp_path: Path, capsys: Captured, kustomize: Kustomize) -> None:
    run(["render", recipe, "--baseline"])
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    run(["render", recipe, "--baseline", "--out", str(tmp_path / "manifests")])
    built = [*kustomize(tmp_path / "manifests" / "namespace"), *kustomize(tmp_path / "manifests")]
    assert ordered(built) == ordered(printed)
    benchmark = kustomize(tmp_path / "manifests" / "benchmark")
    assert [item["kind"] for item in ordered(benchmark)] == ["ConfigMap", "Job", "NetworkPolicy"]


def test_two_models_of_a_bucket_are_two_volumes(recipe: str, tmp_path: Path, kustomize: Kustomize) -> None:
    path = Path(recipe)
    path.write_text(path.read_text().replace("hub_token_secret: hf-token", "kubernetes: {weights_bucket: our-models}"))
    assert run(["render", recipe, "--out", str(tmp_path / "manifests")]) == 0
    built = kustomize(tmp_path / "manifests")
    volumes = [item for item in built if item["kind"] == "PersistentVolume"]
    claims = [item["metadata"]["name"] for item in built if item["kind"] == "PersistentVolumeClaim"]
    assert sorted(volume["spec"]["claimRef"]["name"] for volume in volumes) == sorted(claims)
    assert [name.rpartition("-")[0] for name in sorted(claims)] == ["gated-drafter", "gated-model"]


def test_the_documented_overlay_changes_what_it_says(recipe: str, tmp_path: Path, kustomize: Kustomize) -> None:
    (overlay,) = re.findall(r"^```yaml\n(apiVersion: kustomize.*?)^```", HOWTO.read_text(), re.S | re.M)
    folder = tmp_path / "overlays/production"
    folder.mkdir(parents=True)
    (folder / "kustomization.yaml").write_text(overlay)
    run(["render", recipe, "--out", str(tmp_path / "manifests")])

    (deployment,) = (item for item in kustomize(folder) if item["kind"] == "Deployment")
    assert deployment["metadata"]["labels"]["team"] == "search"
    assert deployment["spec"]["replicas"] == 3
    assert [item["key"] for item in deployment["spec"]["template"]["spec"]["tolerations"]] == [
        "nvidia.com/gpu",
        "dedicated",
    ]


def test_as_json_it_is_one_document(recipe: str, capsys: Captured) -> None:
    assert run(["render", recipe, "--json"]) == 0
    as_json = json.loads(capsys.readouterr().out)["manifests"]
    run(["render", recipe])
    assert as_json == list(yaml.safe_load_all(capsys.readouterr().out))


def test_as_json_a_folder_is_told_with_its_files(recipe: str, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "manifests"
    assert run(["render", recipe, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["out"] == str(out)
    assert all((out / name).is_file() for name in told["files"])
    assert "kustomization.yaml" in told["files"]


def test_a_folder_that_cannot_be_made(recipe: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").touch()
    assert run(["render", recipe, "--out", str(tmp_path / "file")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_checks_come_first(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(RECIPE.replace("g6e.xlarge", "ml.g6e.xlarge"))
    assert run(["render", str(path), "--out", str(tmp_path / "manifests")]) == 1
    assert "ml.g6e.xlarge" in capsys.readouterr().err
    assert not (tmp_path / "manifests").exists()


def test_python_gets_the_parts(recipe: str) -> None:
    assert toolkit.render(recipe).keys() == {"namespace", "base", "serve", "benchmark", "rbac"}


def test_a_plan_needs_no_cluster_either(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert run(["plan", recipe]) == 0
    out = capsys.readouterr().out
    assert "Deployment" in out
    assert "no price, and a note on why" in out
