"""engines/vllm/refusals.json: what vLLM says where it refuses settings, weights or devices, read in its source.

Causes of failure in the form of `causes.json`, whose words are the texts of `raise` and `assert` statements; those of
every version that was read, since a log does not always tell the version.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import FOLDER, version_key
from tools.catalogue.documents import Documents
from tools.catalogue.statements import statements

FILE = FOLDER / "engines" / "vllm" / "refusals.json"
_FILES = {
    "parallel": (
        "config/parallel.py",
        "executor/*.py",
        "v1/executor/*ray*.py",
        "v1/executor/abstract.py",
        "distributed/eplb/*.py",
        "distributed/device_communicators/all2all.py",
        "utils/numa_utils.py",
        "utils/ompmultiprocessing.py",
    ),
    "scheduler": ("config/scheduler.py", "v1/core/encoder_cache_manager.py"),
    "lora": ("config/lora.py", "lora/*.py"),
    "speculation": ("config/speculative.py", "v1/spec_decode/**/*.py", "v1/worker/gpu/spec_decode/**/*.py"),
    "flag-value": (
        "entrypoints/openai/api_server.py",
        "entrypoints/openai/tool_parsers/*.py",
        "tool_parsers/*.py",
        "reasoning/*.py",
    ),
    "quantization": (
        "model_executor/layers/quantization/**/*.py",
        "model_executor/layers/fused_moe/oracle/*.py",
        "utils/deep_gemm.py",
        "utils/flashinfer_moe_ep.py",
    ),
    "attention-backend": (
        "attention/**/*.py",
        "v1/attention/**/*.py",
        "model_executor/layers/attention/**/*.py",
        "platforms/*.py",
        "vllm_flash_attn/**/*.py",
        "utils/flashinfer.py",
    ),
    "multimodal": ("multimodal/**/*.py",),
    "kv-transfer": ("distributed/kv_transfer/**/*.py", "distributed/ec_transfer/**/*.py"),
    "tensors": ("model_executor/model_loader/**/*.py",),
    "torch-compile": ("compilation/**/*.py",),
    "kv-groups": ("v1/core/kv_cache_[cu]*.py", "v1/kv_cache_interface.py", "model_executor/layers/mamba/**/*.py"),
    "model-config": ("model_executor/models/**/*.py", "transformers_utils/**/*.py"),
    "settings": (
        "config.py",
        "config/*.py",
        "engine/arg_utils.py",
        "entrypoints/openai/cli_args.py",
        "entrypoints/cli/serve.py",
        "utils.py",
        "utils/__init__.py",
        "utils/argparse_utils.py",
    ),
}
# What a sentence is about in whichever file it stands.
_ABOUT = {
    "parallel": re.compile(r"with tensor parallelism is not supported"),
    "settings": re.compile(r"Mamba SSU backend|_retention_interval|RETENTION_INTERVAL|[Ll]oad[_ ]format"),
}
# A pattern with less of its own, or without a name of vLLM's, would match what others say.
_LEAST_LETTERS, _ENOUGH_LETTERS, _LEAST_WORDS = 14, 30, 3
_CHECKS = re.compile(r"_{0,2}(validate|verify|check|post_init|create|set|parse|ensure|resolve_and|from)")
# What a model's code says of its config.json; the rest is about a request's pictures and sounds, or about settings.
_OF_A_CONFIG = re.compile(
    r"^(?!.*([Ii]mage|[Vv]ideo|[Aa]udio|[Ii]nput|[Pp]ixel|[Ll]ora|[Tt]ensor|[Pp]arallel|[Pp]rocess|[Ss]hape"
    r"|VLLM_|\\-\\-|CUDA|GPU|backend|runner|overlap|[Pp]rompt|unreachable|[Ll]anguage|must be (set|a subclass)"
    r"|[Cc]andidate|anymore|[Gg]rid|module '))"
    r".*([Cc]onfig|rope|layer_type|_size|vocab|[Cc]heckpoint|[Aa]ctivation|[Aa]rchitectures? |model_type"
    r"|[Tt]ransformers|expert_dtype|num_\w*heads|[Ll]ayers)"
)
# Other functions of these folders complain of vLLM itself or of a request, and assertions elsewhere of vLLM itself.
_CHECKED_FOLDERS = frozenset({"config", "engine", "openai", "cli", "utils", "vllm"})
_OWN_NAME = re.compile(
    r"[Ll]o[Rr][Aa]|DoRA|adapter|[Dd]raft(er)?\b|v?LLM|EP\b|vllm serve|\bmodel type|[Pp]lacement group|float16"
    r"|[a-z]_[a-z]|-[a-z]"
)
_OWN_NAMES = {
    "parallel": re.compile(
        r"^(?!.*(State error|not started|environment variable|LoRA is|profiling|install|but found|current(ly)? not))"
        rf".*({_OWN_NAME.pattern}|\bRay\b|GPU|NUMA|DeepEP|world size)"
    ),
    "flag-value": re.compile(r"[Pp]arser"),
    "attention-backend": re.compile(
        r"[Aa]ttention|Attn|\bMLA|[Kk][Vv][ _-]cache|[Hh]ead[ _](size|dim)|[Bb]lock size|\bFA\b|FlashInfer"
    ),
    "quantization": re.compile(
        r"[Qq]uant|compressed-tensors|\b(MX|N[Vv])?[Ff][Pp]\d|AWQ|GPTQ|\bW\d+A\d|[Mm]arlin|Mo[Ee]"
    ),
    "multimodal": re.compile(r"^(?!.*skip_tokenizer_init).*[A-Z]"),
    "kv-transfer": re.compile(r"[Cc]onnector|[Tt]ransfer|NIXL|[Pp]refill|KV\b"),
    "tensors": re.compile(r"[Ww]eight|[Tt]ensor|[Cc]heckpoint|[Pp]arameter|[Ll]oad"),
    "torch-compile": re.compile(r"[Cc]ompil|[Gg]raph|[Ii]nductor|[Pp]ass\b|[Ss]hape"),
    "kv-groups": re.compile(
        r"^(?!.*(free_|[Ff]ree blocks|nvalid block|on an invalid|available memory))"
        r".*([Cc]ache|[Bb]lock|[Mm]amba|[Ss]pec\b|[Pp]age)"
    ),
    "model-config": re.compile(r"\bonly\b|[Uu]nsupported|not (yet )?support|[Cc]onfig|must|should|[Rr]equires?\b"),
}


def generate(documents: Documents) -> str:
    """The text of the file, with the installed version added to those that it has."""
    import vllm

    shipped = json.loads(FILE.read_text(encoding="utf-8"))
    version = vllm.__version__.partition("+")[0]
    made = with_version(shipped, version, read_refusals(Path(vllm.__file__).parent))
    return as_text({**made, "date": documents.date})


def with_version(shipped: dict[str, Any], version: str, words: dict[str, set[str]]) -> dict[str, Any]:
    """The file with the words of that version, too."""
    return {**with_words(shipped, "log", version, words), "settings": _settings()}


def with_words(shipped: dict[str, Any], table: str, version: str, words: dict[str, set[str]]) -> dict[str, Any]:
    """A table with the words of that version, too, but for those that another cause has: code moved between files."""
    having = {text: cause["code"] for cause in reversed(shipped[table]) for text in cause["words"]}
    new = {code: {text for text in texts if having.get(text, code) == code} for code, texts in words.items()}
    causes = [{**cause, "words": sorted({*cause["words"], *new[cause["code"]]})} for cause in shipped[table]]
    return {**shipped, "versions": sorted({*shipped["versions"], version}, key=version_key), table: causes}


def _settings() -> dict[str, str]:
    """Every flag of any version, and the key of a recipe that sets it."""
    flags = json.loads((FILE.parent / "flags.json").read_text(encoding="utf-8"))["flags"]
    own = json.loads((FILE.parent.parent / "vllm.json").read_text(encoding="utf-8"))["own_flags"]
    keys = {flag: instead.strip("`") for flag, instead in own.items() if instead.startswith("`")}
    return {flag: keys.get(flag, "engine.args") for flag in sorted(flags) if not flag.startswith("no-")}


def of_a_config(text: str) -> bool:
    """Whether a sentence of a model's code is about what its config.json says."""
    return len(text.replace(".*", "")) >= _ENOUGH_LETTERS and bool(_OF_A_CONFIG.search(text))


def as_text(data: dict[str, Any]) -> str:
    """The file's text."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def read_refusals(package: Path) -> dict[str, set[str]]:
    """Regular expressions of what is raised, by the code of the cause."""
    found: dict[str, set[str]] = {code: set() for code in _FILES}
    read: set[Path] = set()
    for code, names in _FILES.items():
        files = {file for pattern in names for file in package.glob(pattern)} - read
        own_name = _OWN_NAMES.get(code, _OWN_NAME)
        for file in files:
            for text in texts_of(file, own_name, file.parent.name not in _CHECKED_FOLDERS):
                if code != "model-config" or of_a_config(text):
                    found[next((about for about, words in _ABOUT.items() if words.search(text)), code)].add(text)
        read |= files
    return found


def texts_of(file: Path, own_name: re.Pattern[str], every: bool) -> Iterator[str]:
    """Regular expressions of what a module raises: in every function, or in those that check what they were given."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    checks = [function for function in functions if every or _CHECKS.match(function.name)]
    for node in (node for function in checks for node in statements(function)):
        said = node.msg if isinstance(node, ast.Assert) and not every else said_by(node, ("append",))
        if said is not None and (pattern := pattern_of(said, own_name)):
            yield pattern


def said_by(node: ast.AST, methods: tuple[str, ...]) -> ast.expr | None:
    """The text of `raise Error(text)`, or of a method of those names: some messages are put together from several.

    That is `error_msg.append(text)`, or `self.create_error_response(text)`: only what has `error` in its name.
    """
    call = node.exc if isinstance(node, ast.Raise) else getattr(node, "value", node)
    if not isinstance(call, ast.Call):
        return None
    function, given = call.func, [*call.args, *(word.value for word in call.keywords if word.arg == "message")]
    says = isinstance(function, ast.Attribute) and function.attr in methods and "error" in ast.unparse(function)
    return given[0] if given and (says or isinstance(node, ast.Raise)) else None


def pattern_of(node: ast.expr, own_name: re.Pattern[str]) -> str:
    """The first sentence of a text, with `.*` for what is filled in; empty for one that says too little."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None for part in parts]
    whole = "".join("\0" if text is None else text for text in texts).partition("\n")[0].strip("\0 .")
    if not own_name.search(whole):
        return ""
    first = whole.partition(". ")[0].strip("\0 ")
    whole = first if len(first.replace("\0", "")) >= _ENOUGH_LETTERS else whole
    own = whole.replace("\0", "")
    too_little = len(own) < _LEAST_LETTERS or len(re.findall(r"[A-Za-z]{2,}", own)) < _LEAST_WORDS
    return "" if too_little else ".*".join(map(re.escape, whole.split("\0"))).replace("\\ ", " ")
