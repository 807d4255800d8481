"""The commands in groups, in the order in which they are needed, with examples: what `--help` shows besides options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolkit.catalog import lookup

GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Start": {
        "docs": ("toolkit docs", "toolkit docs tutorial", "toolkit docs rollback"),
        "doctor": ("toolkit doctor",),
        "new": (
            "toolkit new Qwen/Qwen3-8B",
            "toolkit new ./my-model --max-price 5 --optimize throughput",
            "toolkit new Qwen/Qwen3-32B --hardware trn2",
        ),
        "recipes": (
            "toolkit recipes",
            "toolkit recipes --model qwen3 --hardware g6e --max-price 5",
            "toolkit recipes show qwen3-8b/p-eagle",
        ),
        "import": (
            "toolkit import serve.sh",
            f"echo '{lookup.example_command()}' | toolkit import - --out qwen.yaml",
        ),
    },
    "Before anything costs": {
        "check": ("toolkit check tiny/p-eagle", "toolkit check recipe.yaml --account"),
        "plan": ("toolkit plan tiny/p-eagle", "toolkit plan recipe.yaml --out plan.json"),
        "fit": (
            "toolkit fit gpt-oss-20b/p-eagle",
            "toolkit fit recipe.yaml --instance ml.g6e.2xlarge",
            "toolkit fit recipe.yaml --all",
        ),
        "lock": ("toolkit lock recipe.yaml",),
    },
    "Make": {
        "build": ("toolkit build recipe.yaml",),
        "compile": ("toolkit compile qwen3-32b/draft-model-trn2 --baseline",),
        "train": ("toolkit train tiny/train-p-eagle", "toolkit train recipe.yaml --dry-run"),
        "convert": ("toolkit convert ./trained-head --out ./head --target ./model",),
    },
    "Serve": {
        "deploy": ("toolkit deploy tiny/p-eagle --baseline", "toolkit deploy recipe.yaml --platform local --no-prove"),
        "status": ("toolkit status", "toolkit status --all-regions"),
        "invoke": ("toolkit invoke tiny-p-eagle 'Write JSON records of the books 205 to 210.'",),
        "logs": ("toolkit logs tiny-p-eagle --follow", "toolkit logs tiny-p-eagle --grep error --since 10m"),
        "metrics": ("toolkit metrics tiny-p-eagle --minutes 10",),
        "explain": (
            "toolkit logs tiny-p-eagle | toolkit explain -",
            "aws sagemaker describe-endpoint --endpoint-name NAME | toolkit explain -",
            "toolkit explain container.log --reason 'did not pass the ping health check'",
        ),
        "rollback": ("toolkit rollback tiny-p-eagle",),
        "destroy": ("toolkit destroy tiny-p-eagle",),
    },
    "Measure": {
        "prove": ("toolkit prove tiny/p-eagle", "toolkit prove http://127.0.0.1:8000/v1 --model NAME"),
        "bench": ("toolkit bench tiny/p-eagle --baseline tiny-p-eagle-baseline --concurrency 1,4 --html report.html",),
        "improve": ("toolkit improve my-endpoint --dry-run", "toolkit improve recipe.yaml --concurrency 1,8"),
        "tune": ("toolkit tune tiny/p-eagle --write",),
        "watch": ("toolkit watch recipe.yaml --minutes 60",),
    },
    "Other": {
        "render": ("toolkit render recipe.yaml --out manifests",),
        "catalog": ("toolkit catalog status", "toolkit catalog update --region us-east-1"),
        "schema": ("toolkit schema",),
        "local": ("toolkit local status", "toolkit local stop"),
    },
}
EXAMPLES = {name: examples for commands in GROUPS.values() for name, examples in commands.items()}
