"""Write a recipe from what others use: an engine's command line, or another tool's YAML. `toolkit import`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolkit.api.checking import check
from toolkit.api.context import STDOUT, require_new
from toolkit.catalog import lookup
from toolkit.checks.catalogue import current_day
from toolkit.engines import registry as engine_registry
from toolkit.errors import UsageError
from toolkit.files import write_whole
from toolkit.findings import Finding
from toolkit.platforms.sagemaker.rules import hosting
from toolkit.proposal.text import data_text
from toolkit.recipe.imported import Imported
from toolkit.recipe.load import plain_yaml
from toolkit.recipe.recipe import EngineRules
from toolkit.recipe.section import recipe_name
from toolkit.secret_values import secret_keys
from toolkit.text import inert

_MOST_CHARACTERS = 256 * 1024
_BASELINE = {"method": "none"}
_CLUSTER = "kubernetes"


@dataclass(frozen=True)
class ImportedRecipe:
    """A recipe that was written from another tool's settings; `left_out` says what of them is not in it, and why.

    `text` is the recipe where `path` is `-`, and nothing was written.
    """

    path: Path
    source: str
    findings: tuple[Finding, ...]
    left_out: tuple[Finding, ...]
    text: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        """Whether no check found an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit import --json`."""
        findings = [asdict(finding) for finding in (*self.left_out, *self.findings)]
        document = {"recipe": str(self.path), "source": self.source, "choices": [], "findings": findings}
        return {**document, **({"text": self.text} if self.text else {})}

    def __repr__(self) -> str:
        lines = [finding.line_for(str(self.path)) for finding in (*self.left_out, *self.findings)]
        return inert("\n".join([f"<ImportedRecipe {self.path} from {self.source}>", *lines]))


def import_recipe(
    text: str,
    *,
    out: str | os.PathLike[str] | None = None,
    platform: str = "sagemaker",
    name: str | None = None,
    variant: str | None = None,
) -> ImportedRecipe:
    """Write a recipe from an engine's command line, or from the YAML of another tool that starts it.

    The text is read, never run. `variant` names one of several variants in such YAML. What the text leaves open (engine
    version, instance type) is left open in the recipe, too, and chosen when the recipe is read. Raises UsageError for
    any other text, and if the file exists.
    """
    return write_imported(_read(text, variant), out, platform, name)


def write_imported(
    imported: Imported,
    out: str | os.PathLike[str] | None,
    platform: str,
    name: str | None,
    by: str = "toolkit import",
) -> ImportedRecipe:
    """Write a recipe of the sections that were read; `by` made it."""
    data = _recipe(imported, platform, name)
    _require_fit(data)
    path = Path(out) if out else Path(f"{data['name']}.yaml")
    origin = f"Made by `{by}` from {imported.source} on {current_day()}."
    text = data_text(data, [origin, *(finding.message for finding in imported.findings)])
    if path == STDOUT:
        return ImportedRecipe(path, imported.source, (), tuple(imported.findings), text)
    require_new(path)
    write_whole(path, text)
    return ImportedRecipe(path, imported.source, check(path).findings, tuple(imported.findings))


def read_document(document: Mapping[str, Any]) -> Imported:
    """The sections of what SageMaker says of a model, as DescribeModel answers. Raises UsageError."""
    imported = _settings(hosting.container_of(document), None)
    if imported is None:
        hint = "Start it from the model: toolkit new MODEL."
        raise UsageError(f"{lookup.default_engine()} cannot read a container of SageMaker", hint=hint)
    hosting.add_hosting(imported, document)
    return imported


def _settings(settings: str | Mapping[str, Any], variant: str | None) -> Imported | None:
    rules: EngineRules = engine_registry.engine_rules(lookup.default_engine())
    imported = rules.import_settings(settings, variant) if rules.import_settings else None
    if imported is None:
        return None
    for name in engine_registry.engines()[1:]:
        adopt = engine_registry.engine_rules(name).adopt
        if adopt and adopt(imported):
            break
    return imported


def _read(text: str, variant: str | None) -> Imported:
    document = _yaml(text)
    if document and hosting.is_hosted(document):
        return read_document(document)
    if imported := _settings(text if document is None else document, variant):
        return imported
    if document and "target" in document and "speculation" in document:
        raise UsageError("this is a recipe of the toolkit already", hint="Check it: toolkit check FILE")
    raise UsageError("not a format that can be imported", hint=f"Known: {lookup.importable()}.")


def _require_fit(data: Mapping[str, Any]) -> None:
    """Raise UsageError where the recipe has no name, or a secret in a key that cannot be left out."""
    if not data["name"]:
        hint = "Give one: --name my-model."
        raise UsageError("no letter or digit of the model's name can be the recipe's name", hint=hint)
    sections = {key: data[key] for key in ("target", "speculation", "platform")}
    for key in secret_keys("", sections):
        raise UsageError(f"`{key}` looks like a secret, which must not stand in a recipe", hint="Give it without.")


def _leave_out_version(imported: Imported, platform: str) -> None:
    """A version without an image stays open: the newest that works is chosen when the recipe is read."""
    version = imported.engine.get("version")
    if version and version not in lookup.released(platform, imported.engine.get("name", lookup.default_engine())):
        del imported.engine["version"]
        hint = f"To insist on it, name an image: `container: {{base: …}}` with `engine.version: {version}`."
        why = f"{platform} has no image of it, so the newest that works is taken"
        imported.leave_out(f"version {version}", why, hint)


def _yaml(text: str) -> Mapping[str, Any] | None:
    """The text as a YAML mapping; None if it is something else, such as a command."""
    if len(text) > _MOST_CHARACTERS:
        hint = "Give one file, or one command."
        raise UsageError(f"the text has more than {_MOST_CHARACTERS:,} characters", hint=hint)
    try:
        document = plain_yaml(text)
    except ValueError:
        return None
    if not isinstance(document, Mapping) or any(" " in str(key) for key in document):  # a command with `"a": 1` in it
        return None
    return document


def _recipe(imported: Imported, platform: str, name: str | None) -> dict[str, Any]:
    """The recipe's data, with speculation off where the source has none."""
    speculation = imported.speculation or _BASELINE
    model = str(imported.target["model"])
    written = name or f"{model.rstrip('/').rpartition('/')[2]}-{speculation['method']}".removesuffix("-none")
    _leave_out_version(imported, platform)
    settings, network = (imported.platform, imported.network) if platform == "sagemaker" else ({}, {})
    for key, value in {**imported.platform, **imported.network}.items():
        if key not in settings and key not in network:
            imported.leave_out(f"{key}: {value}", f"it is of another platform than {platform}")
    if imported.nodes > 1 and platform == _CLUSTER:
        settings = {_CLUSTER: {"nodes": imported.nodes}}
    elif imported.nodes > 1:
        why = f"{platform} runs a copy of the model on one"
        imported.leave_out(f"{imported.nodes} nodes", why, f"On a cluster: --platform {_CLUSTER}.")
    return {
        "name": recipe_name(written),
        "target": imported.target,
        "speculation": speculation,
        "engine": imported.engine,
        "platform": {"name": platform, **settings},
        **({"network": network} if network else {}),
    }
