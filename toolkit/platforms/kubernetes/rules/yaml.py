"""Manifests as files, for GitOps: one for each, by part, with what Kustomize reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import RoundTripRepresenter

from toolkit.platforms.kubernetes.rules.metadata import INSTANCE
from toolkit.text import inert

Manifest = Mapping[str, Any]

_BASE, _SERVE = "base", "serve"
_ON_BASE = ("compile",)
# kubectl reads YAML 1.1: these words are no text there unless they are quoted, nor is what begins with a digit.
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z/][\w./-]*", re.IGNORECASE)


def files(parts: Mapping[str, Sequence[Manifest]]) -> Iterator[tuple[str, str]]:
    """Path and content of each file: a folder for each part. The folder above is what serves.

    Names say kind and endpoint, and not the content: the next version has the same files.
    """
    for part, manifests in parts.items():
        names = [
            f"{item['kind'].lower()}-{item['metadata']['labels'].get(INSTANCE, 'shared')}.yaml" for item in manifests
        ]
        for name, item in zip(names, manifests, strict=True):
            yield f"{part}/{name}", text([item])
        yield f"{part}/kustomization.yaml", _kustomization([*([f"../{_BASE}"] if part in _ON_BASE else []), *names])
    yield "kustomization.yaml", _kustomization([_BASE, _SERVE])


def text(documents: Sequence[Manifest]) -> str:
    """As YAML that means the same to readers of version 1.1 and 1.2."""
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = StringIO()
    yaml.dump_all(documents, stream)
    return inert(stream.getvalue())  # means the same in double quotes, which all that changes stands in


def _kustomization(resources: Sequence[str]) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return text([{**head, "resources": list(resources)}])


class _Representer(RoundTripRepresenter):
    """Text is quoted unless it can be taken for nothing else; several lines stand as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        """What stands twice is written twice."""
        return True


def _represent_text(representer: _Representer, value: str) -> Any:
    quotes = "'" if '"' in value else '"'  # JSON is easier to read so
    style = "|" if "\n" in value else None if _PLAIN.fullmatch(value) else quotes
    if inert(value) != value:
        style = '"'
    return representer.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Representer.add_representer(str, _represent_text)
