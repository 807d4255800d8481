"""`python -m tools.recipes_readme` writes recipes/README.md: a table of the recipes that come with the toolkit."""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.loading import load
from toolkit.recipe.known import catalogue, catalogue_dir
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import Evidence

_HEAD = "| recipe | method | K | hardware | $/h | evidence | date | source |\n|---|---|---|---|---|---|---|---|"
_TEXT = """\
# Recipes

Each recipe is a pair of models with settings that fit its first instance type; the second one is a fallback.

"Evidence" is the best published or measured number of the pair, at the recipe's K where there is one: tokens per step
of the target (acceptance length), and the speedup over no speculation where somebody measured it. It holds for the
hardware and engine under `evidence` in the recipe, which may be others than the recipe's own.

"$/h" is one instance on demand, hosting on SageMaker or EC2 for a cluster, with the date of that price: "~" where its
source is not sure, "?" where the catalogue has none; `toolkit catalog update` reads AWS's price list. Facts of the
models stand in the `.lock.json` beside each recipe: curated from what was published, until
`toolkit lock RECIPE` reads the models themselves.

A recipe may say what a measurement must find at least, by workload. `toolkit prove` and `toolkit bench` then give a
verdict on each: "yes" or "NO" where the 95 % interval is on one side of the bound, "not shown" where it reaches over.

```yaml
expect:
  structured:              # a name under `workloads`, or a workload that comes with the toolkit
    concurrency: 1         # requests at a time; this is the default
    speedup: 1.5           # output tokens/s over the baseline's
    acceptance_length: 3
    slo: {ttft: 0.5, tpot: 0.02, share: 0.95}   # seconds (`e2e` too), and the share of requests within all of them
```

Recipes for AWS Trainium were never run on it by us: [trainium.md](trainium.md) says why each is as it is, what is
unproven, and how to try it.

A recipe may use what the catalogue does not know yet: an instance type, an image of AWS, an engine version. That is an
error, since most often it is a typing error. Name it, and it is a warning that says what was not checked:

```yaml
unlisted: [ml.p9.48xlarge, 0.99.0]                  # a type; a version, whose image is named like the newest one
unlisted: ["vllm:server-sagemaker-cuda-v9.9"]       # or an image, `[registry/]repository:tag`
```

This file is made by `python -m tools.recipes_readme`.
"""


def table(names: Iterable[str]) -> str:
    """One row for each recipe, by its catalogue name. Raises RecipeNotFound or RecipeError."""
    return "\n".join([_HEAD, *(_row(name, load(name)) for name in names)])


def readme() -> str:
    """The text of `recipes/README.md`."""
    return f"{_TEXT}\n{table(catalogue())}\n"


def _row(name: str, recipe: Recipe) -> str:
    k = recipe.speculation.num_speculative_tokens if recipe.speculation else None

    def order(evidence: Evidence) -> tuple[float, bool, float]:
        return evidence.speedup or 0.0, evidence.num_speculative_tokens == k, evidence.acceptance_length or 0.0

    best = max(recipe.evidence, key=order, default=None)
    proof = (_evidence(best), best.date, best.source) if best else ("none known", "", "")
    cells = (f"[{name}]({name}.yaml)", recipe.method, str(k or ""), *_hardware(recipe), *proof)
    return f"| {' | '.join(cells)} |"


def _evidence(evidence: Evidence) -> str:
    k = evidence.num_speculative_tokens
    numbers = [
        f"{evidence.acceptance_length:.2f} tokens a step" if evidence.acceptance_length else "",
        f"{evidence.speedup:.2f}x" if evidence.speedup else "",
    ]
    return f"{', '.join(filter(None, numbers))} ({evidence.workload}, {f'K={k}' if k else 'K not stated'})"


def _hardware(recipe: Recipe) -> tuple[str, str]:
    """First instance type and its price."""
    if recipe.platform.name == "local":
        return "this machine", "0"
    name = recipe.platform.types[0]
    found = recipe.platform_rules.instance(name)
    price = found.price() if found else None
    if price is None:
        return name, "?"
    unsure = "" if price.quality.startswith("good") else "~"
    return name, f"{unsure}{price.usd_per_hour:.2f} ({price.date})"


if __name__ == "__main__":
    (catalogue_dir() / "README.md").write_text(readme(), encoding="utf-8")
