"""The objects of a cluster, and the rules of the API server that the toolkit depends on.

The rules are those of kube-apiserver; test_apiserver_rules.py names each with its source, and asks a genuine server the
same where there is one.
"""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jsonschema
from standin_fields import Path, Untyped, at, definitions, merged, nested, owned, schema_of, told, without

Document = dict[str, Any]


@dataclass(frozen=True)
class Api:
    group_version: str
    kind: str
    namespaced: bool = True


APIS = {
    (api.kind.lower() + "s").replace("policys", "policies"): api
    for api in (
        Api("v1", "Namespace", namespaced=False), Api("v1", "ServiceAccount"), Api("v1", "ConfigMap"), Api("v1", "Pod"),
        Api("v1", "PersistentVolume", namespaced=False), Api("v1", "PersistentVolumeClaim"), Api("v1", "Service"),
        Api("v1", "Event"), Api("v1", "Secret"), Api("resource.k8s.io/v1", "ResourceClaimTemplate"),
        Api("apps/v1", "Deployment"), Api("apps/v1", "ReplicaSet"), Api("autoscaling/v2", "HorizontalPodAutoscaler"),
        Api("batch/v1", "Job"), Api("keda.sh/v1alpha1", "ScaledObject"), Api("coordination.k8s.io/v1", "Lease"),
        Api("networking.k8s.io/v1", "NetworkPolicy"), Api("policy/v1", "PodDisruptionBudget"),
    )
}  # fmt: skip

# pkg/apis/*/validation: what may not change, with the field that the server's answer names.
_IMMUTABLE: Mapping[str, Mapping[Path, str]] = {
    "Deployment": {("f:spec", "f:selector"): "spec.selector"},
    "Job": {("f:spec", "f:template"): "spec.template", ("f:spec", "f:selector"): "spec.selector"},
    "ResourceClaimTemplate": {("f:spec",): "spec"},
    "PersistentVolumeClaim": {("f:spec", "f:volumeName"): "spec", ("f:spec", "f:accessModes"): "spec"},
    "PersistentVolume": {("f:spec", "f:csi"): "spec.persistentvolumesource"},
}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Deployment": {"replicas": 1, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10},
    "Service": {"type": "ClusterIP", "sessionAffinity": "None", "clusterIP": "10.0.0.7"},
    "PersistentVolumeClaim": {"volumeMode": "Filesystem"},
}


class Refusal(Exception):
    """A Status document for an answer."""

    def __init__(self, code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.code = code
        details = {"details": {"causes": causes}} if causes else {}
        self.status = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code, **details,
        }  # fmt: skip


@dataclass(frozen=True)
class Key:
    """Where an object is."""

    plural: str
    namespace: str
    name: str

    @property
    def api(self) -> Api:
        return APIS[self.plural]

    def not_found(self) -> Refusal:
        group = self.api.group_version.rpartition("/")[0]
        resource = f"{self.plural}.{group}" if group else self.plural
        return Refusal(404, "NotFound", f'{resource} "{self.name}" not found')


@dataclass
class _Manager:
    paths: set[Path] = field(default_factory=set)
    time: str = ""


class Store:
    """All objects, each with the fields of its managers. Not thread-safe: the server has one lock."""

    def __init__(self) -> None:
        self.objects: dict[Key, Document] = {}
        self._managers: dict[Key, dict[tuple[str, str], _Manager]] = {}
        self._version = 100

    def get(self, key: Key) -> Document:
        if key not in self.objects:
            raise key.not_found()
        managers = [
            {"manager": name, "operation": operation, "apiVersion": key.api.group_version, "time": item.time,
             "fieldsType": "FieldsV1", "fieldsV1": nested(item.paths)}
            for (name, operation), item in self._managers[key].items()
            if item.paths
        ]  # fmt: skip
        found = copy.deepcopy(self.objects[key])
        found["metadata"]["managedFields"] = managers
        return found

    def select(self, plural: str, namespace: str = "", labels: Mapping[str, str] | None = None) -> list[Document]:
        """Those with the labels, of all namespaces where none is named; as a list has them, without their kind."""
        found = []
        for key in list(self.objects):
            if key.plural == plural and namespace in ("", key.namespace):
                item = self.get(key)
                if (labels or {}).items() <= (item["metadata"].get("labels") or {}).items():
                    found.append({name: value for name, value in item.items() if name not in ("apiVersion", "kind")})
        return found

    def apply(self, key: Key, manifest: Document, manager: str, *, force: bool, dry_run: bool) -> Document:
        """Server-side apply."""
        if manifest["metadata"].get("name", key.name) != key.name:
            message = f"the name of the object ({manifest['metadata']['name']}) does not match the name on the URL"
            raise Refusal(400, "BadRequest", f"{message} ({key.name})")
        schema, live = self._schema(key), self.objects.get(key)
        metadata = {**manifest["metadata"]}
        conditions = {name: metadata.pop(name) for name in ("uid", "resourceVersion") if name in metadata}
        manifest = {**manifest, "metadata": metadata}
        if live is not None and not conditions.items() <= live["metadata"].items():
            raise _modified(key)
        if live is None and "uid" in conditions:
            raise Refusal(409, "Conflict", "uid mismatch: the object has a uid, and no existing object was found")
        try:
            wanted = owned(schema, manifest)
        except Untyped as error:
            raise Refusal(500, "", f"failed to create typed patch object: {error}") from error
        managers = copy.deepcopy(self._managers.get(key, {}))
        mine = managers.setdefault((manager, "Apply"), _Manager())
        others = {name: item for name, item in managers.items() if item is not mine}
        after = merged(schema, live or {}, manifest)
        for path in sorted(mine.paths - wanted, key=len, reverse=True):
            if not any(path in item.paths for item in others.values()):
                without(after, path)
        self._require_no_conflict(key, live or {}, after, wanted, others, force)
        for item in others.values():  # with force: what changes is theirs no more
            item.paths -= {path for path in item.paths & wanted if at(live, path) != at(after, path)}
        mine.paths = wanted
        return self._write(key, after, managers, (manager, "Apply"), dry_run=dry_run)

    def write(self, key: Key, document: Document, manager: str, *, must: str = "") -> Document:
        """Create (`must` is "create") or replace: what changes becomes the manager's."""
        live = self.objects.get(key)
        if must == "create" and live is not None:
            raise Refusal(409, "AlreadyExists", f'{key.plural} "{key.name}" already exists')
        if must == "update" and live is None:
            raise key.not_found()
        version = document["metadata"].get("resourceVersion")
        if live is not None and version not in (None, live["metadata"]["resourceVersion"]):
            raise _modified(key)
        schema, managers = self._schema(key), copy.deepcopy(self._managers.get(key, {}))
        mine = managers.setdefault((manager, "Update"), _Manager())
        changed = {path for path in owned(schema, document) if at(live or {}, path) != at(document, path)}
        for item in managers.values():
            item.paths -= changed
        mine.paths |= changed
        return self._write(key, document, managers, (manager, "Update"))

    def set_status(self, key: Key, status: Document) -> None:
        """As a controller or a kubelet does, through the status subresource."""
        if self.objects[key].get("status") != status:
            self.objects[key]["status"] = copy.deepcopy(status)
            self._touch(key)

    def annotate(self, key: Key, name: str, value: str) -> None:
        """As a controller does, which leaves the generation as it is."""
        annotations = self.objects[key]["metadata"].setdefault("annotations", {})
        if annotations.get(name) != value:
            annotations[name] = value
            self._touch(key)

    def mark_deleted(self, key: Key, finalizers: list[str]) -> None:
        """It goes when its finalizers have; at once where it has none."""
        metadata = self.objects[key]["metadata"]
        if key.plural == "namespaces" and any(other.namespace == key.name for other in self.objects):
            finalizers = [*finalizers, "kubernetes"]  # which goes when all in it has: nobody does that here
        metadata["finalizers"] = sorted({*metadata.get("finalizers", []), *finalizers})
        if not metadata["finalizers"]:
            self.remove(key)
        elif "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = now()
            self._touch(key)

    def remove(self, key: Key) -> None:
        del self.objects[key], self._managers[key]

    def _require_no_conflict(
        self,
        key: Key,
        live: Document,
        after: Document,
        wanted: set[Path],
        others: Mapping[tuple[str, str], _Manager],
        force: bool,
    ) -> None:
        causes = [
            {"reason": "FieldManagerConflict", "field": told(path),
             "message": f'conflict with "{name}" using {key.api.group_version}'}
            for (name, _), item in others.items()
            for path in sorted(item.paths & wanted)
            if at(live, path) != at(after, path)
        ]  # fmt: skip
        if causes and not force:
            raise Refusal(409, "Conflict", f"Apply failed with {len(causes)} conflicts", causes)

    def _write(
        self,
        key: Key,
        document: Document,
        managers: dict[tuple[str, str], _Manager],
        by: tuple[str, str],
        *,
        dry_run: bool = False,
    ) -> Document:
        api, live = key.api, self.objects.get(key)
        if api.namespaced:
            self._require_namespace(key, is_new=live is None)
        document = {**copy.deepcopy(document), "apiVersion": api.group_version, "kind": api.kind}
        metadata = document["metadata"]
        metadata.update({"name": key.name, **({"namespace": key.namespace} if api.namespaced else {})})
        if key.plural in ("deployments", "services", "persistentvolumeclaims"):
            document["spec"] = {**_DEFAULTS.get(api.kind, {}), **document.get("spec", {})}
        _validate(key, document)
        if live is not None:
            _require_mutable(key, live, document)
        metadata.pop("managedFields", None)
        kept = live["metadata"] if live else {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        for name in ("uid", "creationTimestamp", "generation", "deletionTimestamp", "resourceVersion"):
            metadata.pop(name, None)
            if name in kept:
                metadata[name] = kept[name]
        if live and "status" in live:
            document["status"] = live["status"]
        if live is not None and live.get("spec") != document.get("spec"):
            metadata["generation"] = kept["generation"] + 1
        is_same = live == document and {k: v.paths for k, v in managers.items() if v.paths} == {
            k: v.paths for k, v in self._managers[key].items() if v.paths
        }
        if is_same:
            return self.get(key)
        if dry_run:
            return document
        managers[by].time = now()
        self.objects[key], self._managers[key] = document, managers
        self._touch(key)
        return self.get(key)

    def _require_namespace(self, key: Key, *, is_new: bool) -> None:
        """Admission plugin NamespaceLifecycle."""
        there = self.objects.get(Key("namespaces", "", key.namespace))
        if there is None:
            raise Refusal(404, "NotFound", f'namespaces "{key.namespace}" not found')
        if is_new and "deletionTimestamp" in there["metadata"]:
            message = f"unable to create new content in namespace {key.namespace} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            raise Refusal(403, "Forbidden", f'{key.plural} "{key.name}" is forbidden: {message}', [cause])

    def _touch(self, key: Key) -> None:
        self._version += 1
        self.objects[key]["metadata"]["resourceVersion"] = str(self._version)

    def _schema(self, key: Key) -> Mapping[str, Any]:
        name = schema_of(key.api.group_version, key.api.kind)
        return {"$ref": f"#/$defs/{name}"} if name else {"unknown": True}


def _modified(key: Key) -> Refusal:
    message = f'Operation cannot be fulfilled on {key.plural} "{key.name}": the object has been modified; '
    return Refusal(409, "Conflict", message + "please apply your changes to the latest version and try again")


def now() -> str:
    """Kubernetes' times have seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@cache
def _validator(api: Api) -> jsonschema.Draft7Validator:
    name = schema_of(api.group_version, api.kind)
    return jsonschema.Draft7Validator({"$ref": f"#/$defs/{name}", "$defs": definitions()})


def _validate(key: Key, document: Document) -> None:
    if schema_of(key.api.group_version, key.api.kind) is None or key.plural in ("pods", "events", "replicasets"):
        return
    error = jsonschema.exceptions.best_match(_validator(key.api).iter_errors(document))
    if error is not None:
        place = ".".join(str(part) for part in error.absolute_path)
        cause = {"reason": "FieldValueInvalid", "message": error.message, "field": place}
        message = f'{key.api.kind} "{key.name}" is invalid: {place}: {error.message}'
        raise Refusal(422, "Invalid", message, [cause])
    if key.plural == "deployments":
        labels = document["spec"]["template"].get("metadata", {}).get("labels", {})
        if not (document["spec"]["selector"].get("matchLabels") or {}).items() <= labels.items():
            text = "`selector` does not match template `labels`"
            cause = {"reason": "FieldValueInvalid", "message": text, "field": "spec.template.metadata.labels"}
            raise Refusal(422, "Invalid", f'Deployment.apps "{key.name}" is invalid: {text}', [cause])


def _require_mutable(key: Key, live: Document, after: Document) -> None:
    fields: dict[Path, str] = dict(_IMMUTABLE.get(key.api.kind, {}))
    if key.plural == "configmaps" and live.get("immutable"):
        fields |= {("f:data",): "data", ("f:immutable",): "immutable"}
    causes = [
        {"reason": "FieldValueInvalid", "message": "Invalid value: field is immutable", "field": name}
        for path, name in fields.items()
        if at(live, path) != at(after, path)
    ]
    if causes:
        names = ", ".join(cause["field"] for cause in causes)
        message = f'{key.api.kind} "{key.name}" is invalid: {names}: Invalid value: field is immutable'
        raise Refusal(422, "Invalid", message, causes)
