"""engines/vllm/flags.json and models.json: what each version of vLLM has, from the wheel that is installed.

The shipped file holds the versions before; each one that is read later is added to it, or takes its own place again.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import FOLDER, version_key
from toolkit.engines.vllm.answering import pretend_cuda, serving_module
from tools.catalogue.documents import Documents
from tools.catalogue.statements import statements

_FOLDER = FOLDER / "engines" / "vllm"


def with_version(shipped: Mapping[str, Any], version: str, names: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """The file with what that version has; `names` are its flags or architectures by the file's own keys."""
    versions = sorted({*shipped["versions"], version}, key=version_key)
    made: dict[str, Any] = {**shipped, "versions": versions}
    for kind, found in names.items():
        here = set(found)
        having = {
            name: {one for one in shipped["versions"] if _has(span, one)} - {version}
            for name, span in shipped[kind].items()
        }
        for name in here:
            having.setdefault(name, set()).add(version)
        made[kind] = {name: _span(having[name], versions) for name in sorted(having) if having[name]}
    return made


def as_listing(data: Mapping[str, Any]) -> str:
    """The text of a listing: one line for each name."""
    parts = []
    for key, value in data.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(span)}" for name, span in value.items())
            parts.append(f"  {json.dumps(key)}: {{\n{lines}\n  }}")
        else:
            text = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n  ")
            parts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def generate_flags(documents: Documents) -> str:
    """The text of flags.json."""
    return _generate(documents, "flags.json", {"flags": installed_flags()})


def generate_models(documents: Documents) -> str:
    """The text of models.json."""
    return _generate(documents, "models.json", installed_models())


def _generate(documents: Documents, name: str, names: Mapping[str, Iterable[str]]) -> str:
    import vllm

    shipped = json.loads((_FOLDER / name).read_text(encoding="utf-8"))
    version = vllm.__version__.partition("+")[0]
    return as_listing({**with_version(shipped, version, names), "date": documents.date})


@cache
def installed_parser() -> argparse.ArgumentParser:
    """The parser of the installed vLLM's server; it takes some seconds to make."""
    from vllm.platforms import current_platform

    if current_platform.is_unspecified():  # another version's Python code alone
        pretend_cuda()
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser: argparse.ArgumentParser = serving_module().make_arg_parser(FlexibleArgumentParser())  # type: ignore[no-untyped-call]
    return parser


def installed_flags() -> set[str]:
    """Every flag of the installed vLLM's server, without leading dashes."""
    names = {name for action in installed_parser()._actions for name in action.option_strings}
    return {name.removeprefix("--") for name in names if name.startswith("--")} - {"help"}


def installed_models() -> dict[str, set[str]]:
    """The architectures of the installed vLLM's registry: targets, those that heads can read, and drafters.

    Both are also among those that cannot be divided into the stages of a pipeline.
    """
    import vllm
    from vllm.model_executor.models import registry

    package = Path(vllm.__file__).parent
    folders = (package / "model_executor" / "models", package / "models")
    heads, staged = supporting("SupportsEagle3", folders), pipelined(folders)
    targets = {
        **registry._TEXT_GENERATION_MODELS,
        **registry._MULTIMODAL_MODELS,
        **registry._TRANSFORMERS_SUPPORTED_MODELS,
    }
    drafters = registry._SPECULATIVE_DECODING_MODELS
    return {
        "targets": set(targets),
        "eagle3_targets": {name for name, (_, implementation) in targets.items() if implementation in heads},
        "drafters": set(drafters),
        "unstaged": {
            name for name, (_, implementation) in {**targets, **drafters}.items() if implementation not in staged
        },
    }


@dataclass(frozen=True)
class _Class:
    """A class of vLLM's models. `takes` are the arguments of its own `forward`, `*` for any; None if it has none."""

    name: str
    bases: tuple[str, ...]
    takes: Set[str] | None


@cache
def _classes(folders: tuple[Path, ...]) -> Mapping[str, tuple[_Class, ...]]:
    """By name; several files may have a class of the same name."""
    found: dict[str, tuple[_Class, ...]] = {}
    for file in (file for folder in folders for file in sorted(folder.rglob("*.py"))):
        for node in statements(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
                found[node.name] = (*found.get(node.name, ()), _Class(node.name, bases, _taken(node)))
    return found


def _taken(node: ast.ClassDef) -> Set[str] | None:
    if any(ast.unparse(base).startswith("Protocol") for base in node.bases):  # which only says what others have
        return None
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "forward":
            given = item.args
            return {"*"} if given.kwarg else {one.arg for one in (*given.args, *given.kwonlyargs)}
    return None


def supporting(interface: str, folders: tuple[Path, ...]) -> set[str]:
    """Classes in those folders of vLLM's models that have the interface, such as that of targets of EAGLE-3."""
    bases = {name: {base for one in same for base in one.bases} for name, same in _classes(folders).items()}
    found = {interface}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found - {interface}


def pipelined(folders: tuple[Path, ...]) -> set[str]:
    """Classes that vLLM divides into stages: its interface, and a `forward` that takes what the stage before made."""
    classes = _classes(folders)

    def takes(name: str) -> bool | None:
        """None for a class elsewhere, or one whose `forward` is elsewhere."""
        for one in classes.get(name, ()):
            own = None if one.takes is None else not one.takes.isdisjoint(("intermediate_tensors", "*"))
            inherited = (known for base in one.bases if (known := takes(base)) is not None)
            if (known := next(inherited, None) if own is None else own) is not None:
                return known
        return None

    return {name for name in supporting("SupportsPP", folders) if takes(name) is not False}


def _has(span: list[str | None], version: str) -> bool:
    since, until = span
    assert since
    key = version_key(version)
    return version_key(since) <= key and (until is None or key < version_key(until))


def _span(having: set[str], versions: list[str]) -> list[str | None]:
    """First version that has it, and the first later one that does not. Raises ValueError for a gap."""
    first, last = (pick(having, key=version_key) for pick in (min, max))
    between = versions[versions.index(first) : versions.index(last) + 1]
    if missing := [version for version in between if version not in having]:
        raise ValueError(f"in {first} and {last}, but not in {missing[0]}: the file cannot say so")
    after = versions[versions.index(last) + 1 :]
    return [first, after[0] if after else None]
