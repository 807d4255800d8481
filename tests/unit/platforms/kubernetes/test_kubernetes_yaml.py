"""Manifests as files: the same to every reader of YAML, and to Kustomize."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from toolkit.platforms.kubernetes.rules.manifests import files, text

PROGRAM = "#!/usr/bin/env python3\n\nif True:\n    print('on: %s' % {})\n"
TEXTS = ["on", "No", "null", "~", "1e3", "0x10", "1:30", "", " a ", "- a", "a: b", "#a", '{"k": "it\'s"}', "é", PROGRAM]


@pytest.mark.parametrize("value", TEXTS)
def test_text_is_text_to_readers_of_both_versions(value: str) -> None:
    document = {"data": {"key": value}}
    written = text([document])
    assert yaml.safe_load(written) == document  # YAML 1.1, as kubectl
    assert YAML(typ="safe").load(written) == document  # 1.2


def test_numbers_and_switches_stay_what_they_are() -> None:
    assert text([{"count": 8, "immutable": True, "name": "app"}]) == "count: 8\nimmutable: true\nname: app\n"


def manifest(kind: str, name: str, endpoint: str = "") -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": endpoint} if endpoint else {}
    return {"kind": kind, "metadata": {"name": name, "labels": labels}}


def test_a_folder_for_each_part_and_a_file_for_each_manifest() -> None:
    parts = {
        "base": [
            manifest("Namespace", "ml"),
            manifest("ConfigMap", "qwen-0123abcd"),
            manifest("PersistentVolume", "toolkit-qwen-model-0123abcd"),
            manifest("PersistentVolume", "toolkit-qwen-drafter-89abcdef"),
        ],
        "serve": [manifest("Deployment", "qwen"), manifest("Deployment", "qwen-baseline")],
        "compile": [manifest("Job", "compile-0123abcd", "qwen"), manifest("Job", "compile-89abcdef", "qwen-baseline")],
    }
    written = {path: list(yaml.safe_load_all(content)) for path, content in files(parts)}
    listed = {path: found[0]["resources"] for path, found in written.items() if path.endswith("kustomization.yaml")}
    assert listed == {
        "base/kustomization.yaml": [
            "namespace-ml.yaml",
            "configmap-qwen.yaml",
            "persistentvolume-toolkit-qwen-model.yaml",
            "persistentvolume-toolkit-qwen-drafter.yaml",
        ],
        "serve/kustomization.yaml": ["deployment-qwen.yaml", "deployment-qwen-baseline.yaml"],
        "compile/kustomization.yaml": ["../base", "job-qwen-compile.yaml", "job-qwen-baseline-compile.yaml"],
        "kustomization.yaml": ["base", "serve"],
    }
    assert written["base/configmap-qwen.yaml"] == [parts["base"][1]]
