"""Checks of single sections: settings of instance types, prompt sets, expectations, tags, keys that nobody reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from toolkit.checks.container import check_container
from toolkit.checks.models import check_pair, check_quality, check_target
from toolkit.errors import UsageError
from toolkit.findings import Finding, Severity
from toolkit.recipe.facts import Lock
from toolkit.recipe.prompts import read_prompts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.section import Section

_K = "num_speculative_tokens"


def check_on_types(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings on the recipe, and with an instance type's own flags or K too; memory's check looks at every type."""
    own = {name: list(_findings(recipe.on(name), models)) for name in recipe.platform.overrides}
    everywhere = list(_findings(recipe, models))
    if own and len(own) == len(recipe.platform.types):  # without settings of a type's own it runs nowhere
        everywhere = [finding for finding in everywhere if all(finding in found for found in own.values())]
    yield from everywhere
    for index, name in enumerate(recipe.platform.types):
        for finding in own.get(name, ()):
            if finding not in everywhere:
                path = _path(finding.path, recipe, name, f"platform.instance_types.{index}")
                yield replace(finding, message=f"on {name}: {finding.message}", path=path)


def _findings(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    yield from check_container(recipe)
    yield from recipe.engine_rules.check(recipe, models)
    if models:
        yield from check_target(recipe, models.target)
        yield from check_pair(recipe, models)
        yield from check_quality(recipe)


def _path(path: str, recipe: Recipe, name: str, here: str) -> str:
    """The key in the instance type's own settings that causes the finding, or else the type itself."""
    own = recipe.platform.overrides[name]
    for flag in (flag.replace("_", "-") for flag in own.args):
        if path == f"engine.args.{flag}":
            return f"{here}.args.{flag}"
    return f"{here}.{_K}" if path == f"speculation.{_K}" and own.num_speculative_tokens else here


def check_workloads(recipe: Recipe) -> Iterator[Finding]:
    """Can the files behind `workloads` be read, and do they contain prompts?"""
    for name, path in recipe.workloads.items():
        try:
            if not read_prompts(path):
                hint = 'Write a prompt on each line: {"prompt": "Name three rivers."}.'
                yield Finding("workload.empty", f"{path} contains no prompts", f"workloads.{name}", hint=hint)
        except UsageError as error:
            yield Finding("workload.unreadable", error.message, f"workloads.{name}", hint=error.hint)


def check_expect(recipe: Recipe) -> Iterator[Finding]:
    """Can it be what the recipe expects of its measurement, and will it be measured at all?"""
    for workload, wanted in recipe.expect.items():
        path = f"expect.{workload}"
        if recipe.workloads and workload not in recipe.workloads:
            message = f"`workloads` has no {workload}: `toolkit prove` does not measure it"
            hint = f"Add its prompts to `workloads`, or expect something of: {', '.join(recipe.workloads)}."
            yield Finding("expect.not-measured", message, path, hint=hint, severity="warning")
        length, speculation = wanted.acceptance_length, recipe.speculation
        if length and speculation and length > (most := speculation.num_speculative_tokens + 1):
            message = f"an acceptance length of {length:g} is expected, and a target step yields at most {most} tokens"
            hint = f"K + 1 is the most: lower it to at most {most}, or raise `speculation.num_speculative_tokens`."
            yield Finding("expect.impossible", message, f"{path}.acceptance_length", hint=hint)


# botocore 1.44.5, service model of SageMaker: TagKey, TagValue, TagList. The toolkit adds four tags.
_KEY_CHARACTERS, _VALUE_CHARACTERS, _MOST = 128, 256, 50 - 4
_ALLOWED = re.compile(r"[\w\s.:/=+@-]*")
_RESERVED = ("aws:", "toolkit:")


def check_tags(recipe: Recipe) -> Iterator[Finding]:
    """Will AWS accept the recipe's tags? The local platform has the same limits."""
    if len(recipe.tags) > _MOST:
        message = f"{len(recipe.tags)} tags are too many: at most {_MOST} are allowed beside the toolkit's own"
        yield Finding("sagemaker.tags", message, "tags", hint="Remove some.")
    for key, value in recipe.tags.items():
        if problem := _problem(key, value):
            yield Finding("sagemaker.tags", problem, f"tags.{key}", hint="Change it, or remove the tag.")


def _problem(key: str, value: str) -> str | None:
    if reserved := next((prefix for prefix in _RESERVED if key.lower().startswith(prefix)), None):
        return f"keys that begin with `{reserved}` are reserved"
    if len(key) > _KEY_CHARACTERS or len(value) > _VALUE_CHARACTERS:
        return f"a key may have at most {_KEY_CHARACTERS} characters, a value {_VALUE_CHARACTERS}"
    if not (_ALLOWED.fullmatch(key) and _ALLOWED.fullmatch(value)):
        return "keys and values may contain only letters, digits, spaces and _ . : / = + - @"
    return None


# The classes of these have the keys that a platform or an engine reads.
_OF_PLATFORMS = ("platform", "scaling", "rollout", "network", "observability", "training")
_OF_ENGINES = ("engine", "speculation")


def check_no_effect(recipe: Recipe) -> Iterator[Finding]:
    """Findings on keys that only others read; one of a rehearsal of the recipe's platform does no harm."""
    places = (
        (recipe.platform_rules.sections, _OF_PLATFORMS, f"on platform `{recipe.platform.name}`"),
        (recipe.engine_rules.sections, _OF_ENGINES, f"with engine `{recipe.engine.name}`"),
    )
    for sections, names, where in places:
        for name in names:
            section: Section | None = getattr(recipe, name)
            read = sections.get(name, Section)
            keys = section.changed() if section else []
            for key in (key for key in keys if key not in read.model_fields):
                declared = next(kind for kind in type(section).__mro__ if key in kind.__annotations__)
                rehearsal = name == "platform" and issubclass(declared, read)
                # A head that is trained elsewhere may serve here.
                severity: Severity = "info" if rehearsal else "warning" if name == "training" else "error"
                message, path = f"`{key}` has no effect {where}", f"{name}.{key}"
                yield Finding("recipe.no-effect", message, path, hint="Remove it.", severity=severity)
