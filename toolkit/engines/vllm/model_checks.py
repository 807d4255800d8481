"""Does this version of vLLM support this target with this drafter?

Formats and messages: vLLM 0.33.0, config/speculative.py and v1/spec_decode/llm_base_proposer.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import newest_with
from toolkit.engines.vllm.expert_checks import check_experts
from toolkit.engines.vllm.facts import divides, facts, generates, kv_group_factor, mask_token_keys, supports_eagle3
from toolkit.engines.vllm.fields import whole_number
from toolkit.engines.vllm.head import HEAD_FORMAT, check_head, check_head_version, loaded_architecture
from toolkit.engines.vllm.setting_checks import STAGES, runs_on_v1
from toolkit.engines.vllm.value_checks import check_multimodal, check_quantization
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Download
from toolkit.recipe.schema import EngineSection
from toolkit.sizing.fit import TENSOR_PARALLEL, has_enough
from toolkit.sizing.shape import shape_of

_DRAFTER = "speculation.model"
_GENERATION = "engine.args.override-generation-config"
# Kinds of rotary embeddings by whose factor vLLM does not multiply how far a model reaches, the last ones since 0.30.
_UNSCALED, _YARN = ("su", "longrope", "llama3"), ("yarn", "deepseek_yarn", "deepseek_llama_scaling")
YARN_UNSCALED_SINCE = "0.30.0"
# What vLLM makes of a model by the end of its name: it generates, or else it pools (config/model.py,
# _SUFFIX_TO_DEFAULTS, which a test asks). Encoders (`ForMaskedLM`) are not in that list, and generate nothing either.
GENERATING = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
POOLING = ("Classification", "ForMaskedLM", "ForRewardModeling", "ForTextEncoding", "Model")


def check_models(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    yield from _generation(recipe, models.target)
    yield from _target_architecture(recipe, models.target)
    yield from check_vocabulary(recipe, models.target)
    yield from check_experts(recipe, models.target)
    yield from check_quantization(recipe, models.target)
    yield from check_multimodal(recipe, models.target)
    yield from _stages(recipe, models)
    yield from _window(recipe, models.target)
    yield from _heads(recipe, models)
    yield from _contexts(recipe, models.target)
    if recipe.speculation is None:
        return
    drafting = recipe.speculation.facts
    if models.drafter is None:
        if recipe.drafter is None:
            yield from _own_layers(recipe, models.target)
    else:
        if drafting.format == HEAD_FORMAT:
            yield from check_head(recipe, models.target, models.drafter)
            yield from check_head_version(recipe.engine, models.target, models.drafter)
        if drafting.mask_token:
            yield from _mask_token(recipe.engine, models.drafter)
        if drafting.format == HEAD_FORMAT or (drafting.kind == "model" and runs_on_v1(recipe)):
            yield from _kv_groups(recipe, models.target, models.drafter)
    yield from _sampling(recipe, models.target)


def _generation(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """An endpoint of a model that embeds or classifies starts, and answers no chat."""
    engine, named = recipe.engine, target.architecture
    chosen = "runner" in engine.args or "architectures" in _overrides(recipe)
    if chosen or generates(engine.version, named) is not False:
        return
    if named.endswith(POOLING) and not named.endswith(GENERATING):
        message = f"{engine.name} embeds or classifies with a `{named}`, and generates no text"
        yield Finding("engine.no-generation", message, "target.model", hint="Take a model that generates text.")


def _target_architecture(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    engine, named = recipe.engine, target.architecture
    if recipe.speculation is None:
        return
    if recipe.speculation.facts.reads_layers and supports_eagle3(engine.version, named) is False:
        message = f"{engine.name} {engine.version} cannot pass the hidden states of a `{named}` to a head"
        newer = newest_with(recipe, lambda version: supports_eagle3(version, named) is True)
        hint = f"Set `version: {newer}`." if newer else "Use `method: ngram`, or a draft model."
        yield Finding("engine.target-architecture", message, "target.model", hint=hint)
    since = facts().multimodal_parallel_since
    parallel = recipe.drafting is not None and recipe.drafting.fixed.get("parallel_drafting")
    text_only = parallel or recipe.speculation.facts.kind == "model"
    if text_only and "vision_config" in target.config and lookup.older(engine.version, since):
        message = f"{engine.name} {engine.version} drafts with `{recipe.method}` for text-only targets only"
        yield Finding("engine.multimodal", message, "engine.version", hint=f"Set `version: {since}` or newer.")


def _stages(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Before 0.30 a drafter is divided as its target is (config/speculative.py, create_draft_parallel_config)."""
    version, stages = recipe.engine.version, recipe.engine.args.get(STAGES)
    if not isinstance(stages, int) or stages < 2:
        return
    other_code = recipe.engine.args.get("model-impl") == "transformers" or "architectures" in _overrides(recipe)
    parts = {} if other_code else {"target": models.target.architecture}
    if models.drafter and lookup.older(version, facts().drafter_stages_until):
        is_head = recipe.speculation is not None and recipe.speculation.facts.format == HEAD_FORMAT
        parts["drafter"] = loaded_architecture(models.drafter) if is_head else models.drafter.architecture
    for part, architecture in parts.items():
        if divides(version, architecture) is False:
            message = f"vLLM {version} cannot divide the {part} (`{architecture}`) into stages of a pipeline"
            hint = "Set `tensor-parallel-size` instead."
            yield Finding("engine.pipeline", message, f"engine.args.{STAGES}", hint=hint)


def _heads(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """On a CPU, where no memory model tells that attention heads cannot be divided."""
    flag = "tensor-parallel-size"
    size = recipe.engine.args.get(flag)
    if recipe.platform_rules.facts.has_instance_types or not isinstance(size, int) or size < 2:
        return
    own = recipe.speculation.settings.get("draft_tensor_parallel_size") if recipe.speculation else None
    for part, model, ways in (("target", models.target, size), ("drafter", models.drafter, own or size)):
        heads = model.text_config.get("num_attention_heads") if model else None
        if part == "target" and "heads" in _overrides(recipe):
            continue
        if isinstance(heads, int) and heads % ways:
            message = f"{heads} attention heads of the {part} cannot be divided by {ways}"
            hint = f"Set one that divides {heads}, or remove it."
            yield Finding("engine.combination", message, f"engine.args.{flag}", hint=hint)


def _contexts(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Ranks that share a context need heads to share, too (config/model.py, verify_with_parallel_config)."""
    flag, config, args = "decode-context-parallel-size", target.text_config, recipe.engine.args
    sizes = (args.get(flag, 1), args.get(TENSOR_PARALLEL, 1))
    ways, ranks, heads, kept = (
        whole_number(size) or 0
        for size in (*sizes, config.get("num_attention_heads"), config.get("num_key_value_heads"))
    )
    if 0 in (ways, ranks, heads, kept) or ways == 1 or "kv_lora_rank" in config or "heads" in _overrides(recipe):
        return
    if ranks % ways:
        return  # check_clashes tells
    if ranks <= kept or ways > ranks // kept or heads // kept % ways:
        message = f"{ranks} ranks cannot share a context {ways} ways: the target has {kept} KV heads for {heads} heads"
        enough = kept * ways
        divided = replace(recipe, engine=recipe.engine.edit(args={**args, TENSOR_PARALLEL: enough}))
        types = [recipe.platform_rules.instance(name) for name in recipe.platform.types]
        fits = heads % enough == 0 and all(one is not None and has_enough(divided, one) for one in types)
        hint = f"Remove it, or set `{TENSOR_PARALLEL}: {enough}`." if fits else "Remove it."
        yield Finding("engine.combination", message, f"engine.args.{flag}", hint=hint)


def _window(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Without its sliding window, a model reaches no further than that (config/model.py, _get_and_verify_max_len)."""
    window, length = target.text_config.get("sliding_window"), recipe.engine.max_model_len
    slides = target.text_config.get("use_sliding_window") is not False
    allowed = recipe.engine_rules.length_variable in recipe.engine.env
    unscaled = _UNSCALED if lookup.older(recipe.engine.version, YARN_UNSCALED_SINCE) else (*_UNSCALED, *_YARN)
    # What else decides how far it reaches then.
    scaled = not target.rope_kinds <= {*unscaled} or "model_max_length" in target.config
    overridden = any(key in _overrides(recipe) for key in ("sliding_window", "rope_", "model_max_length"))
    if not isinstance(window, int) or not length or not slides or allowed or scaled or overridden:
        return
    if recipe.engine.args.get("disable-sliding-window") is True and length > window:
        message = f"without its sliding window the target takes no more than {window} tokens"
        hint = f"Remove the flag, or set `max_model_len: {window}` or less."
        yield Finding("engine.max-model-len", message, "engine.args.disable-sliding-window", hint=hint)


def _overrides(recipe: Recipe) -> str:
    """What the recipe says in place of the target's config.json, as text."""
    return str(recipe.engine.args.get("hf-overrides", ""))


def _mask_token(engine: EngineSection, drafter: ModelFacts) -> Iterator[Finding]:
    keys = mask_token_keys(engine.version)
    if "speculators_config" in drafter.config:
        keys = ("mask_token_id", *keys)  # vLLM passes it on as `pard_token` (configs/speculators/algos.py)
    named = {key: token for key in keys if (token := _read_number(drafter.config, key)) is not None}
    if not named:
        if drafter.partial:
            return
        message = "the drafter's config.json names no mask token, which parallel drafting needs"
        # Every version reads these two keys.
        hint = "Add `pard_token` and `ptd_token_id` with the id that the drafter was trained with."
        yield Finding("pair.mask-token", message, _DRAFTER, hint=hint)
        return
    key, token = next(iter(named.items()))
    if not 0 <= token < drafter.vocab_size:
        message = f"mask token {token} (`{key}`) is outside the vocabulary of {drafter.vocab_size}"
        yield Finding("pair.mask-token", message, _DRAFTER, hint="Correct it in the drafter's config.json.")


def _own_layers(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Without a drafter, the target must have layers of its own for the method, and the engine must know them."""
    known = recipe.drafting.targets if recipe.drafting else ()
    named = {
        str(name)
        for config in (target.config, target.text_config)
        for name in (config.get("model_type"), *(config.get("architectures") or ()))
        if name
    }
    if known and named and named.isdisjoint(known):
        message = (
            f"{recipe.engine.name} does not know `{recipe.method}` layers in this target ({', '.join(sorted(named))})"
        )
        hint = "Set `speculation.model` to a drafter, or use a method that needs none, such as `ngram`."
        yield Finding("pair.own-layers", message, "speculation.method", hint=hint)
    elif (drafting := recipe.drafting) and (key := drafting.missing({**target.config, **target.text_config})):
        if target.partial:  # the key may be in what is not known of it
            return
        message = f"this checkpoint has no block for `{recipe.method}`: its config.json has no `{key}`"
        hint = "Take a checkpoint that has it, set `speculation.model` to a drafter, or use `method: mtp`."
        yield Finding("pair.own-layers", message, "speculation.method", hint=hint)


def _kv_groups(recipe: Recipe, target_facts: ModelFacts, head_facts: ModelFacts) -> Iterator[Finding]:
    """vLLM puts layers of one kind into KV groups of one size; all layers of the drafter must be in the same group."""
    try:
        target, head = shape_of(target_facts), shape_of(head_facts)
    except ToolkitError:  # check_memory reports this
        return
    kinds = Counter(target.cached_layers + head.cached_layers)
    one_group = len({(layer.kind, layer.reach) for layer in kinds}) == 1
    mixed = len({layer.kind for layer in head.cached_layers}) > 1  # check_threads reports this
    if one_group or mixed or len(head.cached_layers) == 1:
        return
    least, most = min(kinds.values()), max(kinds.values())
    factor = kv_group_factor(recipe.engine.version) or 1.0
    size = most if most < least * factor else least
    spread = [layer for layer in head.cached_layers if kinds[layer] > size]
    if spread:
        message = (
            f"the target has layers of {len(kinds)} kinds, in KV groups of {size}; the {kinds[spread[0]]} "
            f"{spread[0].kind} ones, those of the drafter included, do not stay together"
        )
        newer = newest_with(recipe, lambda version: (kv_group_factor(version) or 1.0) > factor)
        hint = f"Set `version: {newer}`, or use a head with one layer." if newer else "Use a head with one layer."
        yield Finding("engine.kv-groups", message, "engine.version", hint=hint)


def _sampling(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    overriding = recipe.engine.args.get("override-generation-config")
    defaults = {**target.generation_config, **(overriding if isinstance(overriding, dict) else {})}
    path = _GENERATION if isinstance(overriding, dict) else "target.model"
    refused = [name for name in facts().rejected_sampling_params if defaults.get(name)]
    if refused:
        message = f"the target sets `{refused[0]}` for every request, and such requests are refused with speculation"
        hint = f"Set `{refused[0]}` to 0 in `override-generation-config` of engine.args."
        yield Finding("quality.refused-sampling", message, path, hint=hint)
    temperature = defaults.get("temperature")
    if path == _GENERATION and isinstance(temperature, int | float) and temperature > 1:
        message = f"at temperature {temperature} the target's tokens are hard to predict: fewer drafts are accepted"
        yield Finding("quality.temperature", message, path, hint="Use 1.0 or less.", severity="warning")


def _read_number(config: Mapping[str, Any], key: str) -> int | None:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) else None


_VOCABULARY = Download(
    name="o200k_base.tiktoken",
    url="https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
    size=3_613_922,
    sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    variable="TIKTOKEN_ENCODINGS_BASE",
)
_MODEL_TYPE = "gpt_oss"


def downloads(recipe: Recipe) -> Sequence[Download]:
    """The vocabulary, where an isolated container would download it."""
    return (_VOCABULARY,) if _is_missing(recipe, recipe.target_type) else ()


def check_vocabulary(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """A finding on a vocabulary that an isolated container cannot download, or that staging downloads for it."""
    if not _is_missing(recipe, str(target.config.get("model_type"))):
        return
    engine = f"{recipe.engine.name} {recipe.engine.version}"
    newer = f"Set `engine.version` to {facts().harmony_download_until} or newer"
    if recipe.platform.weights == "s3":
        message = (
            f"{engine} needs the vocabulary of gpt-oss's chat format when it starts: it is staged beside the weights"
        )
        hint = f"Deploy from a machine that reaches {_VOCABULARY.url}. Or: {newer}."
        yield Finding("engine.vocabulary", message, "network.isolation", hint=hint, severity="info")
        return
    message = (
        f"{engine} downloads the vocabulary of gpt-oss's chat format when it starts, which an isolated container cannot"
    )
    hint = f"{newer}, or write `platform: {{weights: s3}}`, which stages it."
    yield Finding("engine.vocabulary", message, "network.isolation", hint=hint)


def _is_missing(recipe: Recipe, model_type: str) -> bool:
    is_older = lookup.older(recipe.engine.version, facts().harmony_download_until)
    own = _VOCABULARY.variable in recipe.engine.env or recipe.target.kind == "jumpstart"
    isolated = recipe.is_isolated
    return model_type == _MODEL_TYPE and isolated and is_older and not own
