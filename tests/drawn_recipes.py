"""Recipes drawn by chance from vLLM's flags, methods and models, and what the checks and vLLM itself say of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.api.checking import check
from toolkit.catalog.lookup import older
from toolkit.engines.arguments import environment
from toolkit.engines.vllm.asking import Asked
from toolkit.engines.vllm.facts import flags, parsed_flag, takes
from toolkit.engines.vllm.fetched import folder as code_of
from toolkit.engines.vllm.flags import OWN_FLAGS
from toolkit.engines.vllm.installed import installed
from toolkit.engines.vllm.process import NoAnswer
from toolkit.home import containers_dir
from toolkit.loading import load
from toolkit.recipe.facts import Lock
from toolkit.recipe.known import catalogue_dir, known_model
from toolkit.recipe.lock import lock_path
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe

TINY = catalogue_dir() / "tiny" / "models"
TARGETS = (
    *("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8", "openai/gpt-oss-20b", "XiaomiMiMo/MiMo-7B-Base"),
    *("meta-llama/Llama-3.3-70B-Instruct", "deepseek-ai/DeepSeek-V3", "mistralai/Mixtral-8x7B-v0.1"),
    "Qwen/Qwen3-VL-8B-Instruct",
)
TYPES = ("ml.g4dn.xlarge", "ml.g5.12xlarge", "ml.g6e.2xlarge", "ml.g6e.12xlarge", "ml.p5.48xlarge")
METHODS = ("p-eagle", "eagle3", "draft-model", "pard", "eagle", "mtp", "ngram", "ngram_gpu", "suffix", "none")
WITH_MODEL = ("p-eagle", "eagle3", "draft-model", "pard", "eagle")
FOLDERS = {"eagle3": "eagle3", "draft-model": "draft-model", "pard": "draft-model", "eagle": "eagle3"}
_VALUES: tuple[Any, ...] = (
    *(0, 1, 2, 3, 7, 16, 4096, -1, -2, 0.5, 1.5, "auto", "nonsense", "1k"),
    *({}, {"nonsense": 1}, {"backend": "nonsense"}, [1, 2]),
)
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "tensor-parallel-size": (1, 2, 3, 4, 8, 16),
    "pipeline-parallel-size": (0, 1, 2, 4),
    "data-parallel-size": (1, 2, 4),
    "enable-expert-parallel": (True,),
    "enable-eplb": (True,),
    "decode-context-parallel-size": (1, 2, 3),
    "dtype": ("auto", "bfloat16", "float16", "float32"),
    "quantization": ("fp8", "awq", "gptq_marlin", "mxfp4", "bitsandbytes", "nonsense"),
    "kv-cache-dtype": ("auto", "fp8", "nvfp4", "bfloat16"),
    "attention-backend": ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "NONSENSE"),
    "moe-backend": ("triton", "marlin", "nonsense"),
    "enable-chunked-prefill": (True, False),
    "no-enable-chunked-prefill": (True,),
    "no-enable-prefix-caching": (True,),
    "enable-lora": (True,),
    "max-lora-rank": (7, 16, 512),
    "max-loras": (0, 1, 4),
    "max-cpu-loras": (1, 2, 8),
    "async-scheduling": (True,),
    "enforce-eager": (True,),
    "disable-sliding-window": (True,),
    "block-size": (8, 16, 17, 64, 128),
    "max-num-partial-prefills": (1, 2),
    "stream-interval": (0, 1, 20),
    "gpu-memory-utilization": (0.5, 0.95, 1.0, 1.2),
    "kv-cache-memory": (2**30,),
    "structured-outputs-config": ({"backend": "xgrammar"}, {"backend": "nonsense"}, {"nonsense": 1}),
    "compilation-config": ({"mode": 3}, {"mode": 9}, {"cudagraph_mode": "FULL"}, {"cudagraph_mode": "nonsense"}),
    "kv-transfer-config": ({"kv_connector": "NixlConnector", "kv_role": "kv_both"}, {"kv_role": "nonsense"}),
    "reasoning-parser": ("qwen3", "nonsense"),
    "tool-call-parser": ("hermes", "nonsense"),
    "hf-overrides": ({"max_position_embeddings": 512},),
    "max-logprobs": (-2, -1, 20),
    "scheduling-policy": ("fcfs", "priority", "nonsense"),
    "performance-mode": ("balanced", "throughput", "nonsense"),
}
"""Flags that conclusions are about, with values that may be right."""

NO_SWITCH = "maybe"
"""For a flag that is on or off: vLLM takes such a word for the model's name, without a word."""

PARSERS_ASKED_SINCE = "0.20.0"
"""Before, vLLM looks its parsers up when the server starts, which is not asked."""

NOT_ABOUT_SETTINGS = ("engine.risk", "engine.own-flag")
"""The toolkit's own rules: vLLM would take what they refuse."""


@dataclass(frozen=True)
class Drawn:
    """A recipe's file, and what is special in it."""

    path: Path
    special: str
    second_is_name: bool = False
    """A flag of one value has two: vLLM takes the second for the model's name, without a word."""


@dataclass(frozen=True)
class Verdicts:
    """Whether vLLM takes it (None: it does not say), and the errors of the checks before and after it is asked."""

    drawn: Drawn
    words: str
    takes: bool | None
    before: tuple[str, ...]
    after: tuple[str, ...]

    def missed(self, errors: Iterable[str]) -> bool:
        return self.takes is False and not list(errors)

    def wrongly_refused(self, errors: Iterable[str]) -> bool:
        """Of findings on settings: others know of memory and tensors what no configuration does."""
        of_settings = [code for code in errors if code.startswith(("engine.", "recipe."))]
        return (
            self.takes is True
            and NO_SWITCH not in self.drawn.special
            and not self.drawn.second_is_name
            and any(code not in NOT_ABOUT_SETTINGS for code in of_settings)
        )


def draw(folder: Path, number: int, seed: int, version: str) -> list[Drawn]:
    """So many recipes: half of them have one flag of all with any value, a third pairs of flags, the rest methods.

    Two in five are for a CPU, if that version is the one that is installed.
    """
    chance = random.Random(seed)
    names = [flag for flag in flags(version) if flag not in OWN_FLAGS and not flag.startswith("no-")]
    chance.shuffle(names)
    drawn = []
    for index in range(number):
        kind = ("flag", "flag", "flag", "pair", "pair", "method")[index % 6]
        if kind == "flag":
            flag = names[(index // 6 * 3 + index % 6) % len(names)]
            args = {flag: _value(chance, flag, version)}
        else:
            chosen = chance.sample(sorted(PLAIN), 2 if kind == "pair" else chance.randint(0, 1))
            args = {flag: chance.choice(PLAIN[flag]) for flag in chosen}
        if args.get("reasoning-parser") == "nonsense" and older(version, PARSERS_ASKED_SINCE):
            args["reasoning-parser"] = "qwen3"
        drawn.append(_write(folder / str(index), chance, version, args, any_method=kind == "method"))
    return drawn


def _value(chance: random.Random, flag: str, version: str) -> Any:
    if chance.random() < 0.5 and flag in PLAIN:
        return chance.choice(PLAIN[flag])
    if takes(flag) == "on_off":
        return chance.random() < 0.9 or NO_SWITCH
    if (known := parsed_flag(flag, version).choices) and chance.random() < 0.7:
        return chance.choice(known)
    return chance.choice(_VALUES)


def _write(folder: Path, chance: random.Random, version: str, args: Mapping[str, Any], *, any_method: bool) -> Drawn:
    folder.mkdir(parents=True)
    on_cpu = version == installed() and chance.random() < 0.4
    is_tiny = on_cpu or chance.random() < 0.5
    target = str(TINY / "target") if is_tiny else chance.choice(TARGETS)
    method = chance.choice(METHODS if any_method else ("p-eagle", "eagle3", "draft-model", "none"))
    if not is_tiny and method in WITH_MODEL:
        method = "ngram"  # no head of theirs is here
    speculation: dict[str, Any] = {"method": method}
    if method != "none":
        speculation["num_speculative_tokens"] = chance.choice((1, 3, 7) if not any_method else (1, 3, 7, 50))
    if method in WITH_MODEL:
        speculation["model"] = str(TINY / FOLDERS.get(method, method))
    platform = {"name": "local"}
    recipe: dict[str, Any] = {
        "name": "drawn",
        "target": {"model": target},
        "speculation": speculation,
        "engine": {
            "version": version,
            "max_model_len": chance.choice((512, 1024)) if is_tiny else 8192,
            "max_num_seqs": 16,
            "max_num_batched_tokens": 2048 if is_tiny else 8192,
            "args": dict(args),
        },
        "platform": platform,
    }
    if not on_cpu:
        recipe["platform"] = {"name": "sagemaker", "instance_types": [chance.choice(TYPES)]}
        recipe["container"] = {"base": f"vllm/vllm-openai:v{version}"}  # AWS has not one of each
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    if not is_tiny:
        facts = known_model(target)
        assert facts
        lock = Lock(replace(facts, partial=False, unverified=()))  # as if its files had been read
        path.with_suffix(".lock.json").write_text(json.dumps(lock.to_dict()))
    where = "CPU" if on_cpu else recipe["platform"]["instance_types"][0]
    second_is_name = any(isinstance(value, list) and takes(flag) in ("one", "optional") for flag, value in args.items())
    return Drawn(path, f"{dict(args)} {method} {target.rpartition('/')[2]} {where}", second_is_name)


def judge(drawn: Iterable[Drawn], engine: Callable[[bool, Path | None], Asked]) -> Iterator[Verdicts]:
    """What the checks and vLLM say; `engine` is that on pretended GPUs (True), or on the CPU."""
    for one in drawn:
        before = check(one.path)
        words, takes_it = _asked(one.path, engine) if _readable(before.findings) else ("", None)
        after = check(one.path, ask=True)
        codes = [tuple(finding.code for finding in report.errors) for report in (before, after)]
        yield Verdicts(one, words, takes_it, *codes)


def _readable(findings: Iterable[Any]) -> bool:
    """Whether the file could be loaded: else there is nothing to ask."""
    return not any(finding.code.startswith("recipe.") and finding.severity == "error" for finding in findings)


def _asked(path: Path, engine: Callable[[bool, Path | None], Asked]) -> tuple[str, bool | None]:
    recipe = load(path)
    code = None if recipe.engine.version == installed() else code_of(recipe.engine.version)
    try:
        answer = engine(recipe.platform_rules.facts.has_instance_types, code).ask(whole_question(recipe))
    except NoAnswer as error:
        return str(error), None
    return next(iter(answer.values()), ""), None if "failed" in answer else not answer


def whole_question(recipe: Recipe) -> dict[str, Any]:
    """All that the container gets, nothing left out, with the models' own configurations."""
    variables = environment(recipe, longest=2**20)
    variables["SM_VLLM_MODEL"] = "target"
    if written := variables.get("SM_VLLM_SPECULATIVE_CONFIG"):
        config = json.loads(written)
        variables["SM_VLLM_SPECULATIVE_CONFIG"] = json.dumps(config | ({"model": "drafter"} if recipe.drafter else {}))
    models = {"target": recipe.target, "drafter": recipe.drafter}
    has_types = recipe.platform_rules.facts.has_instance_types
    instance = recipe.platform_rules.instance(recipe.platform.types[0]) if has_types else None
    device = instance and {
        "name": instance.accelerator,
        "capability": list(map(int, instance.compute_capability.split("."))),
        "bytes": instance.usable_bytes,
        "count": instance.accelerator_count,
    }
    return {
        "flags": {name: value for name, value in variables.items() if name.startswith("SM_VLLM_")},
        "variables": {name: value for name, value in variables.items() if name.startswith("VLLM_")},
        "device": device,
        "models": {name: {"config.json": _config(recipe, source)} for name, source in models.items() if source},
        "entrypoint": str(containers_dir() / "on-vllm" / "entrypoint.py"),
    }


def _config(recipe: Recipe, source: Any) -> Mapping[str, Any]:
    if source.folder:
        return read_folder(source.folder).config
    lock: dict[str, Any] = json.loads(lock_path(recipe).read_text())
    config: dict[str, Any] = lock["target"]["config"]
    return config


def figures(verdicts: list[Verdicts]) -> dict[str, int]:
    """How often the checks miss what vLLM refuses and refuse what it takes, before and after it is asked."""
    return {
        "drawn": len(verdicts),
        "without an answer": sum(one.takes is None for one in verdicts),
        "vLLM refuses": sum(one.takes is False for one in verdicts),
        "missed before": sum(one.missed(one.before) for one in verdicts),
        "missed after": sum(one.missed(one.after) for one in verdicts),
        "wrongly refused before": sum(one.wrongly_refused(one.before) for one in verdicts),
        "wrongly refused after": sum(one.wrongly_refused(one.after) for one in verdicts),
    }
