"""engines/vllm/names.json: names that vLLM looks up in its own tables, by version, read statically in its source.

Parsers of reasoning, of tool calls and of config files; architectures of models that take more than text, of those that
take text alone, and of those that `use-replayssm` is for; the kernels of experts for each type of weights; the ways of
quantizing that are for weights which are so quantized already; and the flags whose whole numbers may end in `k`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from toolkit.catalog.lookup import FOLDER
from tools.catalogue.documents import Documents
from tools.catalogue.listings import as_listing, supporting, with_version
from tools.catalogue.statements import statements

_FILE = FOLDER / "engines" / "vllm" / "names.json"
_REGISTRIES = {
    "reasoning_parser": ("reasoning/__init__.py", "_REASONING_PARSERS_TO_REGISTER"),
    "tool_call_parser": ("tool_parsers/__init__.py", "_TOOL_PARSERS_TO_REGISTER"),
    "config_format": ("transformers_utils/config.py", "_CONFIG_FORMAT_TO_CONFIG_PARSER"),
    "multimodal": ("model_executor/models/registry.py", "_MULTIMODAL_MODELS"),
}
# By the `quant_method` of a config.json.
_ORACLES = {"unquantized": "unquantized", "fp8": "fp8", "mxfp4": "mxfp4"}
_QUANTIZATION = "model_executor/layers/quantization"
# These look for no file (model_loader/weight_utils.py, get_quant_config), whatever their class names.
_WITHOUT_FILE = {"bitsandbytes", "gguf"}
_READERS = ("human_readable_int", "human_readable_int_or_auto")


def generate(documents: Documents) -> str:
    """The text of the file, with the installed version added to those that it has."""
    import vllm

    shipped = json.loads(_FILE.read_text(encoding="utf-8"))
    version = vllm.__version__.partition("+")[0]
    names = read_names(Path(vllm.__file__).parent)
    return as_listing({**with_version(shipped, version, names), "date": documents.date})


def read_names(package: Path) -> dict[str, set[str]]:
    """The names by what they are for."""
    found = {kind: _keys(package / file, name) for kind, (file, name) in _REGISTRIES.items()}
    found["text"] = set(_text_models(package))
    found["replayssm"] = set(_with_replay(package))
    for method, oracle in _ORACLES.items():
        file = package / "model_executor" / "layers" / "fused_moe" / "oracle" / f"{oracle}.py"
        found[f"moe_backend_{method}"] = _keys(file, "mapping", f"map_{oracle}_backend") if file.is_file() else set()
    found["quantized_before"] = set(_quantized_before(package))
    found["suffixed"] = {name.replace("_", "-") for name in _suffixed(package / "engine" / "arg_utils.py")}
    return found


def _text_models(package: Path) -> Iterator[str]:
    """Architectures of the registry of text models whose class takes text alone: that of some takes images, too."""
    take_more = supporting("SupportsMultiModal", (package / "model_executor" / "models", package / "models"))
    registry = _dictionary(package / _REGISTRIES["multimodal"][0], "_TEXT_GENERATION_MODELS")
    for key, value in zip(registry.keys, registry.values, strict=True):
        if isinstance(key, ast.Constant) and ast.literal_eval(value)[1] not in take_more:
            yield str(key.value)


def _quantized_before(package: Path) -> Iterator[str]:
    """Methods whose class looks for a file that says how the weights were quantized, and that cannot begin without."""
    folder = package / _QUANTIZATION
    shorthands = package / "config" / "quantization.py"
    without_file = _WITHOUT_FILE | (_keys(shorthands, "_ONLINE_SHORTHANDS") if shorthands.is_file() else set())
    looking = _with_file(folder)
    methods = _dictionary(folder / "__init__.py", "method_to_config", "get_quantization_config")
    for key, value in zip(methods.keys, methods.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name) and value.id in looking:
            yield from {str(key.value)} - without_file


def _with_file(folder: Path) -> set[str]:
    """Classes with a `get_config_filenames` that names some, their own or that of the class above."""
    bases: dict[str, set[str]] = {}
    names_some: dict[str, bool] = {}
    for file in folder.rglob("*.py"):
        for node in (
            item for item in statements(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(item, ast.ClassDef)
        ):
            bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "get_config_filenames":
                    lists = [part for part in ast.walk(item) if isinstance(part, ast.List)]
                    names_some[node.name] = any(part.elts for part in lists)
    while more := {name: True for name in bases if name not in names_some and any(map(names_some.get, bases[name]))}:
        names_some |= more
    return {name for name, some in names_some.items() if some}


def _with_replay(package: Path) -> Iterator[str]:
    """Architectures of models whose states may be computed anew."""
    able = supporting("SupportsReplaySSM", (package / "model_executor" / "models", package / "models"))
    for name in ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS"):
        registry = _dictionary(package / _REGISTRIES["multimodal"][0], name)
        for key, value in zip(registry.keys, registry.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple) and ast.literal_eval(value)[1] in able:
                yield str(key.value)


def _keys(file: Path, name: str, function: str = "") -> set[str]:
    """The keys of the dictionary of that name, in that function; none where the file has no such dictionary."""
    return {str(key.value) for key in _dictionary(file, name, function).keys if isinstance(key, ast.Constant)}


def _dictionary(file: Path, name: str, function: str = "") -> ast.Dict:
    """The dictionary of that name, in that function; an empty one where there is none."""
    tree: ast.AST = ast.parse(file.read_text(encoding="utf-8"))
    if function:
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
        tree = next(functions, ast.Module([], []))
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.Dict):
            return value
    return ast.Dict([], [])


def _suffixed(file: Path) -> Iterator[str]:
    """Fields with a type of `_READERS`: `if name == "…"` or `if name in {…}`, where the set may have a name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    sets = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and _reads_suffixes(node.body):
            compared = node.test.comparators[0]
            compared = sets.get(compared.id, compared) if isinstance(compared, ast.Name) else compared
            for part in ast.walk(compared):
                if isinstance(part, ast.Constant):
                    yield str(part.value)


def _reads_suffixes(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Assign) and getattr(node.value, "id", "") in _READERS for node in body)
