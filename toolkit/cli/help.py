"""The commands in groups, in the order in which they are needed, with examples: what `--help` shows besides options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.catalog import lookup

_TEXT = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = json.loads(_TEXT.replace("{command}", lookup.example_command()))
EXAMPLES = {name: examples for commands in GROUPS.values() for name, examples in commands.items()}
