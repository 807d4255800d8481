"""Resources as a CloudFormation template.

Each kind defines its form in a template (kinds/base.py). The fields that CloudFormation lacks are the difference
between botocore 1.44.5 and the resource schemas in cfn-lint 1.58.0 (read 2026-11-21; a test compares them again).
Unverified: no stack was created on AWS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.errors import UsageError
from toolkit.planning.resources import Resource
from toolkit.platforms.sagemaker.kinds.base import AwsKind

STAGE_FIRST = "toolkit:stageFirst"
"""Metadata key: commands for what must exist before the stack and is not a resource of it."""

NOT_IN_CLOUDFORMATION = "toolkit:notInCloudFormation"
"""Metadata key: by logical id, the parts of the request that the template cannot express."""

# It is replaced wherever it stands in a text, and there is no way to escape it.
_DYNAMIC_REFERENCE = re.compile(r"\{\{\s*resolve\s*:", re.IGNORECASE)


def template(resources: Sequence[Resource], kinds: Sequence[AwsKind]) -> dict[str, Any]:
    """The template that creates these resources, except for what its metadata lists under `STAGE_FIRST`.

    It is made from desired resources, not from a plan's actions, because update requests lack fields of creation.
    Raises UsageError for a value that CloudFormation would replace by a secret or parameter of the account.
    """
    document = _Template(resources, {kind.kind: kind for kind in kinds}).build()
    for path, text in _texts(document, ""):
        if _DYNAMIC_REFERENCE.search(text):
            message = f"CloudFormation would replace {{{{resolve:…}}}} in {path} by a value of the account"
            hint = "Remove it from the recipe: a stack cannot be given that text."
            raise UsageError(message, hint=hint)
    return document


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text of a document, keys too, and where it is."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield path, str(key)
            yield from _texts(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}.{index}")


def losses(document: Mapping[str, Any], kinds: Sequence[AwsKind]) -> list[str]:
    """What a stack of the template lacks compared with `toolkit deploy`, one sentence each."""
    return [text for _, text in _losses(document, kinds)]


def failures(document: Mapping[str, Any], kinds: Sequence[AwsKind]) -> list[str]:
    """Those losses without which no stack of the template works."""
    return [text for fails, text in _losses(document, kinds) if fails]


def _losses(document: Mapping[str, Any], kinds: Sequence[AwsKind]) -> Iterator[tuple[bool, str]]:
    """Each loss as a sentence, and whether the stack fails because of it."""
    by_type = {kind.resource_type: kind for kind in kinds}
    for logical_id, fields in document["Metadata"][NOT_IN_CLOUDFORMATION].items():
        kind = document["Resources"][logical_id]["Type"]
        for field, lost in fields.items():
            rule = by_type[kind]
            text = f"CloudFormation has no {field} for {kind} ({logical_id}): {rule.loss(field, lost)}"
            yield rule.fails_without(field), text


@dataclass(frozen=True)
class _Template:
    resources: Sequence[Resource]
    kinds: Mapping[str, AwsKind]

    def build(self) -> dict[str, Any]:
        ids = _logical_ids(self.resources)
        document: dict[str, Any] = {}
        lost: dict[str, Any] = {}
        sections: dict[str, Any] = {}
        outputs: dict[str, Any] = {}
        for item in self.resources:
            kind, logical_id = self.kinds[item.kind], ids[item.kind, item.name]
            sections |= kind.sections(item)
            outputs |= kind.outputs(item, logical_id)
            if kind.resource_type:
                missing: dict[str, Any] = {}
                document[logical_id] = self._resource(item, kind, ids, missing)
                lost |= {logical_id: missing} if missing else {}
                document |= kind.companions(item, logical_id)
        endpoints = [item.name for item in self.resources if item.kind == "Endpoint"]
        staged = [step for item in self.resources for step in self.kinds[item.kind].stage_first(item)]
        return {
            "AWSTemplateFormatVersion": "2010-09-09",
            "Description": f"{', '.join(endpoints)}: made by toolkit plan --format cloudformation",
            "Metadata": {STAGE_FIRST: staged, NOT_IN_CLOUDFORMATION: lost},
            **sections,
            "Resources": document,
            "Outputs": outputs,
        }

    def _resource(self, item: Resource, kind: AwsKind, ids: _Ids, missing: dict[str, Any]) -> dict[str, Any]:
        known = _drop_unknown(item.request, "", kind.lacking, missing)
        properties = self._link(kind.properties(item, known, self.resources), ids, ids[item.kind, item.name])
        before = [ids[key] for key in kind.depends_on(item) if key in ids]
        depends = {"DependsOn": before} if before else {}
        return {"Type": kind.resource_type, "Properties": properties, **kind.attributes(item), **depends}

    def _link(self, value: Any, ids: _Ids, own: str) -> Any:
        """`value` with the names of other resources of the template replaced by references."""
        if isinstance(value, list):
            return [self._link(item, ids, own) for item in value]
        if not isinstance(value, Mapping):
            return value
        return {key: self._reference(key, item, ids, own) or self._link(item, ids, own) for key, item in value.items()}

    def _reference(self, field: str, value: Any, ids: _Ids, own: str) -> dict[str, Any] | None:
        kind = next((kind for kind in self.kinds.values() if field in kind.references), None)
        if kind is None or not isinstance(value, str):
            return None
        other = ids.get((kind.kind, kind.named(value)))
        if other in (None, own):
            return None
        attribute = kind.references[field]
        return {"Fn::GetAtt": [other, attribute]} if attribute else {"Ref": other}


_Ids = Mapping[tuple[str, str], str]


def _logical_ids(resources: Sequence[Resource]) -> dict[tuple[str, str], str]:
    """Logical ids such as `EndpointTiny`: letters and digits of the name, with a number if two names have the same."""
    ids: dict[tuple[str, str], str] = {}
    for item in resources:
        base = item.kind + "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", item.name))
        alike = [taken for taken in ids.values() if re.fullmatch(rf"{base}(x\d+)?", taken)]
        ids[item.kind, item.name] = f"{base}x{len(alike) + 1}" if alike else base
    return ids


def _drop_unknown(value: Any, path: str, lacking: frozenset[str], missing: dict[str, Any]) -> Any:
    """`value` without the fields that CloudFormation lacks, which are put into `missing` by path."""
    if isinstance(value, list):
        return [_drop_unknown(item, path, lacking, missing) for item in value]
    if not isinstance(value, Mapping):
        return value
    kept: dict[str, Any] = {}
    for key, item in value.items():
        at = f"{path}.{key}" if path else key
        if at in lacking or f"{at}={item}" in lacking:
            missing[at] = item
            continue
        rest = _drop_unknown(item, at, lacking, missing)
        if rest or not item:  # and without what has become empty
            kept[key] = rest
    return kept
