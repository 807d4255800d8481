"""More documents from outside (see document_kinds.py): kubeconfigs, heads to convert, journals, captured requests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from head_exports import specforge_eagle3, speculators

import toolkit
from toolkit.engines.vllm.convert import convert
from toolkit.errors import UsageError
from toolkit.measure.journal import Journal
from toolkit.measure.read_workloads import captured_workload
from toolkit.measure.result import RequestResult
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.platforms.sagemaker.rules.widgets import owner

Good = tuple[bytes, Callable[[bytes, Path], object], str, int]
"""A good document, what reads it, the pattern in its error, and the exit code."""


def _kubeconfig(content: bytes, folder: Path) -> object:
    (folder / "kubeconfig").write_bytes(content)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBECONFIG", str(folder / "kubeconfig"))
        try:
            return SESSION.open("ctx/ml").cluster.url
        except UsageError as error:  # it is one, and has another context
            return str(error).index("the kubeconfig has no")


def _head(head: Path) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> object:
        shutil.copytree(head, folder / "head")
        (folder / "head" / "config.json").write_bytes(content)
        return convert(folder / "head", folder / "out")

    return read


def _journal(content: bytes, folder: Path) -> object:
    (folder / "run.journal").write_bytes(content)
    return list(Journal(folder / "run.journal", {}).results())


def _good_journal(folder: Path) -> bytes:
    journal = Journal(folder / "good.journal", {})
    journal.add([RequestResult("a", "w", 0, 0, 1.0, 0.0, 1.0, "successful", text="Hi")] * 2)
    return journal.path.read_bytes()


def _cluster() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "ctx",
        "contexts": [{"name": "ctx", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://cluster.example"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }


def state_kinds(folder: Path) -> dict[str, Good]:
    """By name."""
    folder.mkdir()
    heads = {"specforge": specforge_eagle3(folder / "specforge"), "speculators": speculators(folder / "speculators")}
    request = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5})
    captured = json.dumps({"captureData": {"endpointInput": {"data": request, "encoding": "JSON"}}}).encode()
    log = {"Events": [{"message": "x", "reason": "Failed"}], "FailureReason": "It did not pass the health check"}
    dashboard = {"widgets": [{"type": "text", "properties": {"markdown": "# chat"}}]}
    return {
        "kubeconfig": (json.dumps(_cluster()).encode(), _kubeconfig, "cannot use the kubeconfig", 3),
        **{
            f"head of {maker}": ((head / "config.json").read_bytes(), _head(head), "config.json|head", 2)
            for maker, head in heads.items()
        },
        "journal": (_good_journal(folder), _journal, "run.journal", 2),
        "captured requests": (
            captured + b"\n" + captured,
            lambda content, _: captured_workload("s3://b/c", [("k", content)]),
            "s3://b/c",
            2,
        ),
        "log to explain": (
            json.dumps(log).encode(),
            lambda content, _: str(toolkit.explain(content.decode(errors="replace"))),
            "",
            2,
        ),
        "dashboard": (
            json.dumps(dashboard).encode(),
            lambda content, _: owner(content.decode(errors="replace")),
            "",
            2,
        ),
    }
