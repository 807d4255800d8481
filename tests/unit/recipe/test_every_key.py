"""Each key of a recipe, written with another value: what runs changes, or a check says that it has no effect there.

The keys are those of the JSON schema, so a new one is tried without a word here. Each is written on every platform, for
both families of engines, beside what it needs (`BESIDES`). What runs is every request for the endpoint, for its compile
jobs and its training job, without the digest of the recipe that they carry as a tag or annotation.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_kinds import desired
from fakes import ACCOUNT
from pairs import HUB_RECIPE, write_hub_pair

from toolkit.api.checking import check
from toolkit.errors import RecipeError, UsageError
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.planning.artifacts import compiles_ahead
from toolkit.recipe.assemble import json_schema
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.trained import as_trained
from toolkit.registry import recipe_schema, rules_of, session_of

Key = tuple[str, ...]
Document = Mapping[str, Any]

VLLM = yaml.safe_load(HUB_RECIPE)
NEURON = {
    **VLLM,
    "speculation": {"method": "eagle3", "model": "org/drafter", "num_speculative_tokens": 7},
    "engine": {"name": "neuron", "max_model_len": 1024, "max_num_seqs": 2, "args": {"tensor-parallel-size": 2}},
}
BASES: Mapping[str, Document] = {
    "sagemaker-vllm": {**VLLM, "platform": {"name": "sagemaker", "instance_types": ["ml.g6.12xlarge"]}},
    "local-vllm": {
        **VLLM,
        "engine": {**VLLM["engine"], "version": "0.32.0"},
        "platform": {"name": "local", "instance_types": ["ml.g6.12xlarge"]},
    },
    "kubernetes-vllm": {**VLLM, "platform": {"name": "kubernetes", "instance_types": ["g6.12xlarge"]}},
    "sagemaker-neuron": {**NEURON, "platform": {"name": "sagemaker", "instance_types": ["ml.trn2.48xlarge"]}},
    "kubernetes-neuron": {
        **NEURON,
        "platform": {
            "name": "kubernetes",
            "instance_types": ["trn2.48xlarge"],
            "kubernetes": {"artifacts_bucket": "ours"},
        },
    },
}
"""A recipe of each platform and family of engines. This machine has no Trainium, and a check says so."""

VALUES: Mapping[str, Any] = {
    "target.model": "org/another",
    "target.revision": "1" * 40,
    "speculation.method": "pard",
    "speculation.model": "org/another",
    "speculation.revision": "1" * 40,
    "speculation.num_speculative_tokens": 3,
    "speculation.num_speculative_tokens_per_batch_size": [[1, 8, 3]],
    "speculation.kv_cache_dtype": "fp8",
    "training.data": ["hf://org/others"],
    "training.data.*.from": "hf://org/others",
    "training.head": "org/another",
    "training.responses": "keep",
    "training.start_from": "org/another",
    "training.max_length": 256,
    "training.instance_type": "ml.g6e.12xlarge",
    "training.instance_types": ["ml.p5.48xlarge", "ml.p4d.24xlarge"],
    "training.instance_types.*.type": "ml.p5e.48xlarge",
    "training.instance_types.*.training_plan": "arn:aws:sagemaker:us-west-2:123456789012:training-plan/ours",
    "training.training_plan": "arn:aws:sagemaker:us-west-2:123456789012:training-plan/ours",
    "kubernetes training.instance_type": "g6e.12xlarge",
    "engine.version": "0.29.0",
    "engine.max_model_len": 512,
    "engine.max_num_seqs": 1,
    "engine.max_num_batched_tokens": 8192,
    "engine.args": {"seed": 1},
    "engine.env": {"OTHER": "1"},
    "engine.allow": ["trust-remote-code"],
    "container.base": "registry.example/vllm:2",
    "container.python": "3.11",
    "container.wheels": ["other==1.0"],
    "container.dockerfile": "./Dockerfile",
    "platform.instance_types": ["ml.g6e.12xlarge"],
    "kubernetes platform.instance_types": ["g6e.12xlarge"],
    "sagemaker-neuron platform.instance_types": ["ml.trn1.32xlarge"],
    "kubernetes-neuron platform.instance_types": ["trn2.3xlarge"],
    "platform.instance_types.*.type": "ml.g6e.12xlarge",
    "sagemaker-neuron platform.instance_types.*.type": "ml.trn1.32xlarge",
    "platform.instance_types.*.args": {"seed": 1},
    "platform.kubernetes.neuron_driver": "2.28.0.0",
    "platform.kubernetes.service_account_role": "arn:aws:iam::123456789012:role/pods",
    "platform.kubernetes.prometheus": "http://prometheus:9090",
    "platform.kubernetes.pod.tolerations": [{"key": "ours"}],
    "platform.kubernetes.pod.volumes": [{"name": "data", "mount_path": "/data", "claim": "ours"}],
    "platform.kubernetes.pod.volumes.*.mount_path": "/other",
    "platform.region": "eu-west-1",
    "platform.capacity_reservation": "arn:aws:sagemaker:us-west-2:123456789012:training-plan/ours",
    "scaling.requests_per_instance": 3,
    "rollout.wait_seconds": 60,
    "observability.notify": "arn:aws:sns:us-west-2:123456789012:ours",
    "workloads": {"other": "./prompts.jsonl"},
    "evidence": [
        {"workload": "mine", "hardware": "one L4", "engine": "vllm 0.30.0", "date": "2026-11-01", "source": "us"}
    ],
    "expect": {"mixed": {"speedup": 1.5}},
    "unlisted": ["ml.g9.xlarge"],
}
"""Values of keys for which the schema's type does not suffice; of one platform or base, where it needs another."""


def volume(source: str) -> Document:
    mounted = {"name": "data", "mount_path": "/data", source: "ours"}
    return {"platform": {"kubernetes": {"pod": {"volumes": [mounted]}}}}


BESIDES: Mapping[str, Document] = {
    "speculation.draft_tensor_parallel_size": {"engine": {"args": {"tensor-parallel-size": 2}}},
    "speculation.prompt_lookup": {"speculation": {"method": "ngram", "model": None}},
    "speculation.suffix": {"speculation": {"method": "suffix", "model": None}},
    "speculation.use_heterogeneous_vocab": {"speculation": {"method": "draft-model"}},
    "speculation.enable_adaptive_verification": {"speculation": {"method": "dspark"}},
    "training": {
        "training": {"data": ["hf://org/chats"], "max_length": 512},
        "speculation": {"model": "s3://ours/head"},
    },
    "training.data.*": {"training": {"data": [{"from": "hf://org/chats", "share": 0.3}, "hf://org/general"]}},
    "local training": {"speculation": {"model": "./drafter"}},
    "kubernetes training": {
        "training": {"image": "ours/train:1", "instance_type": "g6.12xlarge"},
        "platform": {"kubernetes": {"weights_claim": "models"}},
    },
    "training.max_wait_hours": {"training": {"spot": True}},
    "training.norms": {"speculation": {"method": "eagle3"}},
    "training.training_plan": {"training": {"instance_type": "ml.p5.48xlarge"}},
    "kubernetes-vllm training.instance_types": {"training": {"instance_type": None}},
    "training.instance_types.*": {"training": {"instance_types": [{"type": "ml.p5.48xlarge"}, "ml.p4d.24xlarge"]}},
    "container.python": {"container": {"base": "registry.example/vllm:1"}},
    "container.bake_drafter": {"speculation": {"model": "./drafter"}},
    "local platform.run": {"container": {"base": "registry.example/vllm:1"}},
    "local container": {"container": {"base": "registry.example/vllm:1"}, "platform": {"run": "container"}},
    "platform.prefix_routing": {"platform": {"routing": "prefix-aware"}},
    "sagemaker-vllm platform.capacity_timeout": {"platform": {"instance_types": ["ml.g6.12xlarge", "ml.g6e.12xlarge"]}},
    "sagemaker-neuron platform.capacity_timeout": {
        "platform": {"instance_types": ["ml.trn2.48xlarge", "ml.trn1.32xlarge"]}
    },
    "kubernetes platform.kubernetes.prometheus": {"scaling": {"max_instances": 3}},
    "kubernetes-vllm platform.kubernetes.service_account_role": {
        "platform": {"kubernetes": {"weights_bucket": "ours"}}
    },
    "platform.kubernetes.routing.": {"platform": {"kubernetes": {"routing": {"gateway": "ours"}}}},
    "platform.kubernetes.pod.tolerations.*": {"platform": {"kubernetes": {"pod": {"tolerations": [{"key": "ours"}]}}}},
    "platform.kubernetes.pod.volumes.*": volume("claim"),
    "platform.kubernetes.pod.volumes.*.config_map": volume("config_map"),
    "platform.kubernetes.pod.volumes.*.secret": volume("secret"),
    "scaling": {"scaling": {"max_instances": 3}},
    "sagemaker rollout": {"rollout": {"update": "rolling"}},
    "sagemaker network": {"network": {"subnets": ["subnet-0a1b2c3d"], "security_groups": ["sg-0a1b2c3d"]}},
    "local network": {"network": {"subnets": ["subnet-0a1b2c3d"], "security_groups": ["sg-0a1b2c3d"]}},
}
"""What keys need besides, by the beginning of their name, everywhere or on one platform or base. None removes a key."""

NOTHING_RUNS: Mapping[str, str] = {
    "description": "words for people",
    "target.accept_eula": "a leave, which a check asks for",
    "engine.allow": "a leave, which a check asks for",
    "unlisted": "a leave, which a check asks for",
    "workloads": "what a measurement sends",
    "expect": "what a measurement must find",
    "evidence": "what a measurement has found",
}
"""Keys that change nothing that runs, by their nature; so they change no digest of the recipe."""

NO_REQUEST: Mapping[str, str] = {
    "sagemaker platform.role": "the account is asked for the role of that name: tests/aws/test_account_role.py",
    "kubernetes training.instance_types.*": "of a list that has no effect there, which a check says of all of it",
    **{
        f"local {key}": "of SageMaker, whose recipes are rehearsed on this machine as they are"
        for key in (
            "platform.capacity_reservation",
            "platform.capacity_timeout",
            "platform.kms_key",
            "platform.prefix_routing",
            "platform.region",
            "platform.role",
            "platform.routing",
            "platform.staging",
            "container.builder",
            "rollout",
            "observability.log_retention_days",
            "observability.metrics_seconds",
            "observability.notify",
            "training.encrypt_traffic",
            "training.instance_count",
            "training.instance_type",  # and instance_types
            "training.keep_alive_minutes",
            "training.max_wait_hours",
            "training.spot",
            "training.training_plan",
            "training.volume_gb",
        )
    },
}
"""Keys whose effect is no request, by the beginning of their name on a platform."""


def keys(schema: Document, above: Key = ()) -> Iterator[tuple[Key, Document]]:
    """Every key of the schema with what it may be; `*` is an element of a list, or of a mapping by any name."""
    for name, child in schema.get("properties", {}).items():
        yield (*above, name), child
        for branch in branches(child):
            yield from keys(branch, (*above, name))
            for element in (branch.get("items"), branch.get("additionalProperties")):
                for part in branches(element) if isinstance(element, dict) else ():
                    yield from keys(part, (*above, name, "*"))


def branches(schema: Document) -> list[Document]:
    """The alternatives of a part of the schema."""
    if "$ref" in schema:
        schema = json_schema_of()["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" not in schema:
        return [schema]
    return [found for part in schema["anyOf"] for found in branches(part)]


json_schema_of = cache(lambda: json_schema(recipe_schema()))
SCHEMA = dict(keys(json_schema_of()))
MADE = {("platform", "name"), ("engine", "name")}
"""Keys that differ from base to base."""


def leaves() -> Iterator[Key]:
    """Keys that are no sections; of what runs nothing, the section alone."""
    for key, part in SCHEMA.items():
        is_section = any(branch.get("type") == "object" and "properties" in branch for branch in branches(part))
        below = any(".".join(key[:end]) in NOTHING_RUNS for end in range(1, len(key)))
        if key not in MADE and not is_section and not below:
            yield key


def names(base: str, key: Key) -> list[str]:
    """Of the key on that base, on its platform, and anywhere."""
    name = ".".join(key)
    return [f"{base} {name}", f"{base.partition('-')[0]} {name}", name]


def other_values(base: str, key: Key) -> list[Any]:
    """Values besides the default."""
    for name in names(base, key):
        if name in VALUES:
            return [VALUES[name]]
    default = SCHEMA[key].get("default")
    return [value for branch in branches(SCHEMA[key]) for value in _values(branch, default) if value != default]


def _values(branch: Document, default: Any = None) -> list[Any]:
    least = branch.get("minimum", branch.get("exclusiveMinimum", 0))
    most = branch.get("maximum", branch.get("exclusiveMaximum"))
    if "enum" in branch:
        return list(branch["enum"])
    match branch.get("type"):
        case "boolean":
            return [True, False]
        case "integer":
            return [(default or least) + 1 if most is None else (least + most) // 2]
        case "number":
            return [least + 0.5 if most is None else (least + most) / 2]
        case "string":
            return ["other"]
        case "array":
            return [[value] for value in _values(branch["items"])[:1]]
        case "object":
            return [{"other": "other"}]
    return []


@dataclass(frozen=True)
class Outcome:
    """What a recipe comes to; of one that a check refuses, the findings alone.

    `digest` is what its requests carry; `no_job` says why its head cannot be trained there.
    """

    findings: Sequence[Finding]
    runs: str = ""
    trains: str = ""
    notes: str = ""
    digest: str = ""
    no_job: str = ""

    @property
    def errors(self) -> Sequence[Finding]:
        return [item for item in self.findings if item.severity == "error"]


OutcomeOf = Callable[..., Outcome]
DIGEST = re.compile(r'"toolkit[:/]recipe"(?:, "Value")?: "(\w+)"')


def models_of(text: str) -> str:
    """What a recipe says of its models, which is what its lock depends on."""
    document = yaml.load(text, yaml.CSafeLoader)
    drafter = {key: value for key, value in document["speculation"].items() if key in ("method", "model", "revision")}
    return as_yaml({"target": document["target"], "speculation": drafter})


def as_yaml(document: Document) -> str:
    return str(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False))


def write_files(folder: Path, models: str) -> Path:
    """The models, the lock of them at their revisions, and other files that recipes name."""
    document = yaml.safe_load(models)
    facts = {
        role: {key: section[key] for key in ("model", "revision") if key in section}
        for role, section in (("target", document["target"]), ("drafter", document["speculation"]))
    }
    if document["speculation"]["method"] == "dspark":
        facts["drafter"]["config"] = {"architectures": ["DSparkDraftModel"]}
    (folder / "Dockerfile").write_text("RUN true\n")
    (folder / "prompts.jsonl").write_text('{"prompt": "hello"}\n')
    return write_hub_pair(folder, models, **facts)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> OutcomeOf:
    """What a key with that value comes to on that base, or what it needs besides without it."""

    @cache
    def path(models: str) -> Path:
        return write_files(tmp_path_factory.mktemp("models"), models)

    @cache
    def of(text: str) -> Outcome:
        recipe = path(models_of(text))
        recipe.write_text(text)
        return read(recipe)

    return lambda base, key, value=None: of(written(base, key, value))


def read(path: Path) -> Outcome:
    try:
        recipe = load(path)
    except RecipeError as error:
        return Outcome(error.findings)
    report = check(recipe)
    if not report.ok:
        return Outcome(report.findings)
    recipe = pinned(recipe, read_lock(lock_path(recipe)))
    rules, scope = rules_of(recipe.platform.name), session_of(recipe.platform.name).scope(recipe)
    account = replace(ACCOUNT, region=recipe.region or ACCOUNT.region)
    serves = desired([recipe], account)
    compilation, training = rules.parts.compilation, rules.parts.training
    compiles = compilation.resources([recipe], account) if compilation and compiles_ahead(recipe) else ()
    try:
        trains = training().resources(as_trained(recipe), account) if training and recipe.training else ()
    except UsageError as error:
        return Outcome(report.findings, no_job=str(error))
    runs, jobs = (
        json.dumps([scope, [[item.kind, item.name, item.request, item.update] for item in found]])
        for found in ([*serves, *compiles], trains)
    )
    notes = [*recipe.chosen_notes(), *rules.notes(recipe, account), recipe.price_per_hour]
    digests = sorted(set(DIGEST.findall(runs)))
    plain, plain_jobs = (re.sub("|".join(digests), "", text) for text in (runs, jobs))
    return Outcome(report.findings, plain, plain_jobs, json.dumps(notes), " ".join(digests))


def written(base: str, key: Key, value: Any = None) -> str:
    """The recipe with what the key needs besides, and with the key if there is a value."""
    document = copy.deepcopy(dict(BASES[base]))
    for beginning, besides in BESIDES.items():
        if any(name.startswith(beginning) for name in names(base, key)):
            merge(document, besides)
    if key[:3] == ("platform", "instance_types", "*"):
        document["platform"]["instance_types"] = [{"type": item} for item in document["platform"]["instance_types"]]
    if value is not None:
        section: Any = document
        for part in key[:-1]:
            section = section[0] if part == "*" else section.setdefault(part, {})
        section[key[-1]] = value
    return as_yaml(document)


def merge(document: dict[str, Any], more: Document) -> None:
    for key, value in more.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict):
            merge(document.setdefault(key, {}), value)
        else:
            document[key] = copy.deepcopy(value)


def about(finding: Finding, key: Key) -> bool:
    """Whether the finding is on the key, on its section, or on something in it."""
    path = re.sub(r"\.[0-9]+(?=\.|$)", "", finding.path)
    name = ".".join(key).replace(".*", "")
    return f"{name}.".startswith(f"{path}.") or f"{path}.".startswith(f"{name}.")


def beginning(table: Mapping[str, str], base: str, key: Key) -> str:
    """What a table says of the key on that base; empty if it says nothing."""
    found = (why for start, why in table.items() if any(name.startswith(start) for name in names(base, key)))
    return next(found, "")


CASES = [pytest.param(base, key, id=f"{base}-{'.'.join(key)}") for base in BASES for key in leaves()]


def effect(outcome: OutcomeOf, base: str, key: Key, value: Any) -> str:
    """What becomes of the key: `changes` something, is `refused` or `told` of by a check, or `nothing`."""
    before, after = outcome(base, key), outcome(base, key, value)
    new = [finding for finding in after.findings if finding not in before.findings]
    mine = [finding for finding in new if about(finding, key)]
    if after.errors or after.no_job:
        asked = [finding for finding in mine if finding.severity == "error"] or key[-1] in after.no_job
        assert asked, f"choose another value than {value}: {after.errors}{after.no_job}"
        return "refused"
    if (after.runs, after.trains, after.notes) != (before.runs, before.trains, before.notes):
        return "changes"
    return "told" if mine else "nothing"


@pytest.mark.parametrize("base", BASES)
def test_the_recipes_that_keys_are_written_to_are_good(outcome: OutcomeOf, base: str) -> None:
    assert not outcome(base, ("name",)).errors


@pytest.mark.parametrize("name", [*VALUES, *BESIDES, *NOTHING_RUNS, *NO_REQUEST])
def test_what_is_said_of_keys_is_said_of_keys_that_there_are(name: str) -> None:
    assert any(".".join(key).startswith(name.rpartition(" ")[2]) for key in SCHEMA)


@pytest.mark.parametrize(("base", "key"), CASES)
def test_each_key_changes_what_runs_or_is_told_of(outcome: OutcomeOf, base: str, key: Key) -> None:
    if beginning(NOTHING_RUNS, base, key) or beginning(NO_REQUEST, base, key):
        return
    before = outcome(base, key)
    if before.errors:  # what it needs cannot be had here
        sections = {name for start, more in BESIDES.items() if start in names(base, key) for name in more}
        assert {finding.path.partition(".")[0] for finding in before.errors} <= sections | {key[0], "speculation"}
        return
    effects = {effect(outcome, base, key, value) for value in other_values(base, key)}
    assert effects & {"changes", "refused", "told"}, f"`{'.'.join(key)}` has no effect on {base}, and no check says so"


SOMETIMES = {("target", "accept_eula"), ("unlisted",)}
"""Of JumpStart's models a request has the first, and an image under the second runs."""


@pytest.mark.parametrize(("base", "key"), CASES)
def test_the_digest_changes_with_what_runs(outcome: OutcomeOf, base: str, key: Key) -> None:
    """The digest tells deployments apart in `toolkit status`: whoever changes one shall see another."""
    before = outcome(base, key)
    for value in other_values(base, key):
        after = outcome(base, key, value)
        if before.errors or after.errors or after.no_job or key == ("tags",):  # a tag is on what runs: it does not run
            continue
        if before.runs != after.runs:
            assert before.digest != after.digest
        if (".".join(key) in NOTHING_RUNS and key not in SOMETIMES) or key[0] == "training":
            assert before.digest == after.digest
