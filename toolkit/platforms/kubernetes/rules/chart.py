"""A recipe as a Helm chart: the manifests of `toolkit render` as they are, and a template that adds what values say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from toolkit.errors import UsageError
from toolkit.platforms.kubernetes.rules.manifests import BASE, SERVE, files, text
from toolkit.platforms.kubernetes.rules.metadata import MANAGED_BY, OURS
from toolkit.recipe.recipe import Recipe

_FOLDER = Path(__file__).parents[1] / "chart"
_MANIFESTS = "manifests"
_OUR_LABEL = re.compile(rf"^    {re.escape(MANAGED_BY)}: {OURS[MANAGED_BY]}$", re.MULTILINE)
_TEMPLATE = "templates/manifests.yaml"
_SAME_FOR_ALL = ("values.yaml", "values.schema.json", _TEMPLATE)


def chart(recipe: Recipe, parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[tuple[str, str]]:
    """Path and content of each file. What serves is in it; the namespace and Jobs are not.

    Raises UsageError for a recipe that compiles ahead: that comes before it serves, on a volume that others share; and
    for one on several nodes, whose pods the template does not know.
    """
    if recipe.nodes > 1:
        hint = "Leave --helm out, and commit the folder of --out."
        raise UsageError(f"{recipe.name} runs on {recipe.nodes} nodes at once, for which there is no chart", hint=hint)
    if "compile" in parts:
        hint = (
            "Write `compile: at-start` under `engine:`, or leave --helm out: --out has the Job in its folder compile."
        )
        raise UsageError(f"{recipe.name} compiles before it serves, which a chart cannot do", hint=hint)
    yield "Chart.yaml", text([_about(recipe)])
    for name in _SAME_FOR_ALL:
        yield name, (_FOLDER / name).read_text(encoding="utf-8")
    for path, content in files({part: parts[part] for part in (BASE, SERVE)}):
        if not path.endswith("kustomization.yaml"):
            yield f"{_MANIFESTS}/{PurePosixPath(path).name}", content


def leftovers(folder: Path, written: Collection[str]) -> list[Path]:
    """Manifests in a chart's folder that the toolkit wrote before and that are no longer in it, such as a baseline's.

    The template takes all there. One's own, without our label, are left alone, and all in what is no chart yet.
    """
    files = sorted((folder / _MANIFESTS).glob("*.yaml")) if (folder / _TEMPLATE).is_file() else []
    others = [path for path in files if f"{_MANIFESTS}/{path.name}" not in written and path.is_file()]
    return [path for path in others if _OUR_LABEL.search(path.read_text(encoding="utf-8", errors="replace"))]


def _about(recipe: Recipe) -> dict[str, Any]:
    return {
        "apiVersion": "v2",
        "name": recipe.name,
        "annotations": {"toolkit/endpoint": recipe.name},
        "description": recipe.description or f"{recipe.target} served by {recipe.engine.name}",
        "type": "application",
        "version": "0.1.0",  # one's own is given by `helm package --version`
        "appVersion": str(recipe.engine.version),
    }
