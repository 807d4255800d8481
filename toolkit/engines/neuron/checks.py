"""Does this generation of the Neuron engine accept these settings? Checks that do not depend on the instance type.

Sources: awsdocs-neuron 2.33.0, vllm-neuron features guide and configuration reference, and NxD Inference's guides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog.trainium import LOGICAL_CORES_VARIABLES
from toolkit.engines.arguments import check_flags
from toolkit.engines.neuron.flags import CONFIG_FLAGS, dflash_blocks, is_fork, vllm_version
from toolkit.engines.neuron.generations import facts, generation_of, generations
from toolkit.engines.vllm.checks import check_whole_prompts, unknown_flag
from toolkit.engines.vllm.facts import flag_known
from toolkit.engines.vllm.flags import PARALLEL_FLAGS
from toolkit.engines.vllm.value_checks import check_risks, check_values
from toolkit.findings import Finding, Severity
from toolkit.recipe.recipe import Recipe

_LENGTH, _REQUESTS = "engine.max_model_len", "engine.max_num_seqs"
# Tokens in a block of the KV cache: the smaller of NxD Inference's two sizes.
_SMALLEST_BLOCK_TOKENS = 16
# The fork's K with which it drafts one token.
_LEAST_OF_FORK = 2
_SEGMENTS = (512, 1024, 2048, 4096, 8192)
# Keys of NxD Inference's configuration that control drafting; the toolkit writes them from `speculation`.
DRAFTING_KEYS = (
    "enable_eagle_speculation",
    "enable_fused_speculation",
    "is_eagle3",
    "is_medusa",
    "speculation_length",
)
# What each engine reads of --additional-config for itself. NxD Inference's guide writes `override-neuron-config` in 24
# places; the plugin asks for the other spelling, and says nothing of this one.
READ: Mapping[str, tuple[str, ...]] = {
    "vllm-neuron": ("neuron_config", "vision_neuron_config", "encoder_neuron_config"),
    "nxd-inference": ("override_neuron_config",),
}
_CONFIGURATION = "neuron_config"
# Flags with which the engine does not start, or which it refuses, together with a method.
_CLASHES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("vllm-neuron", "dflash"): ("async-scheduling", "enable-chunked-prefill", "enable-prefix-caching"),
    ("nxd-inference", "eagle3"): ("enable-prefix-caching",),
}


def check_neuron(recipe: Recipe) -> Iterator[Finding]:
    yield from check_flags(recipe, lambda flag: _unknown_flag(recipe, flag))
    yield from check_values(recipe)
    yield from check_risks(recipe)
    yield from _form(recipe)
    yield from _place(recipe)
    yield from _version(recipe)
    yield from _shapes(recipe)
    yield from _draft_tokens(recipe)
    yield from _parallel(recipe)
    yield from _by_hand(recipe)
    yield from _blocks(recipe)
    yield from _clashes(recipe)
    yield from _batches(recipe)
    yield from _logical_cores(recipe)
    if recipe.engine.name == "vllm-neuron":
        yield from _buckets(recipe)
        yield from _last_tokens(recipe)
        yield from check_whole_prompts(recipe, "neuron.batched-tokens")


def neuron_config(recipe: Recipe) -> Mapping[str, Any]:
    """The recipe's own settings in the engine's Neuron configuration."""
    config = recipe.engine.args.get(_config_flag(recipe))
    if not is_fork(recipe) and isinstance(config, Mapping):
        config = config.get(READ[recipe.engine.name][0])
    return config if isinstance(config, Mapping) else {}


def config_path(recipe: Recipe) -> str:
    """The recipe key of that configuration."""
    return f"engine.args.{_config_flag(recipe)}"


def _config_flag(recipe: Recipe) -> str:
    return "override-neuron-config" if is_fork(recipe) else "additional-config"


def _unknown_flag(recipe: Recipe, flag: str) -> Iterator[Finding]:
    """Findings by vLLM's own command line; a plugin may add flags."""
    version = vllm_version(recipe)
    if flag == "device" and flag_known(version, flag) is False:
        message = f"vllm {version} has no flag `--device`, with which its older versions were told to use Neuron"
        yield Finding("engine.unknown-flag", message, "engine.args.device", hint="Remove it: the plugin does that.")
    elif flag not in CONFIG_FLAGS:  # `_place` says where they are read
        yield from unknown_flag(flag, version, "warning")


def _form(recipe: Recipe) -> Iterator[Finding]:
    """The toolkit sets these flags too, and can only merge mappings."""
    for flag in CONFIG_FLAGS:
        if not isinstance(recipe.engine.args.get(flag, {}), Mapping):
            message = f"`{flag}` is not a mapping, so it would replace the settings that the toolkit adds"
            hint = f"Write it as a mapping: `{flag}: {{key: value}}`."
            yield Finding("neuron.config-form", message, f"engine.args.{flag}", hint=hint)


def _place(recipe: Recipe) -> Iterator[Finding]:
    """Findings on Neuron's configuration where another generation reads it: this one ignores it, or does not start."""
    args, flag, read = recipe.engine.args, _config_flag(recipe), READ[recipe.engine.name]
    place = f"`{flag}: {{…}}`" if is_fork(recipe) else f"`{flag}: {{{read[0]}: {{…}}}}`"
    for other in CONFIG_FLAGS:
        if other in args and other != flag:
            message = f"{recipe.engine.name} {recipe.engine.version} does not read `{other}`"
            yield Finding("neuron.config-place", message, f"engine.args.{other}", hint=f"Write {place}.")
    written = args.get("additional-config")
    if is_fork(recipe) or not isinstance(written, Mapping):
        return
    for key in written:
        if key not in read and str(key).replace("-", "_").endswith(_CONFIGURATION):
            message = f"{recipe.engine.name} does not read `{key}`: what it says would have no effect"
            yield Finding("neuron.config-place", message, f"engine.args.{flag}", hint=f"Write {place}.")


def _version(recipe: Recipe) -> Iterator[Finding]:
    engine, generation = recipe.engine, generation_of(recipe.engine)
    if generation is None:
        known = " or ".join(item.version for item in generations(engine.name))
        message = f"{engine.name} {engine.version} is unknown: the toolkit knows neither its methods nor its flags"
        hint = f"Remove `version`, or write {known}."
        own = recipe.container is not None and recipe.container.base is not None
        severity: Severity = "warning" if own else "error"
        yield Finding("neuron.version", message, "engine.version", hint=hint, severity=severity)
    elif generation.note:
        message = f"{generation}: {generation.note}"
        yield Finding("neuron.support", message, "engine.version", hint="", severity="info")


def _shapes(recipe: Recipe) -> Iterator[Finding]:
    if recipe.engine.max_model_len is None:
        message = (
            "graphs are compiled for one length, and without this key for the target's maximum, which is expensive"
        )
        hint = "Set it to the longest prompt plus answer, in tokens."
        yield Finding("neuron.max-model-len", message, _LENGTH, hint=hint)
    published, requests = facts().published.get(recipe.method), recipe.engine.max_num_seqs
    if published and requests > published.max_num_seqs:
        message = f"`{recipe.method}` with {requests} concurrent requests: {published.about}"
        hint = f"Set it to {published.max_num_seqs} or less, or measure with `toolkit prove`."
        yield Finding("neuron.requests", message, _REQUESTS, hint=hint, severity="warning")
    if recipe.engine.compile_ahead:
        what = "K, max_num_seqs, max_model_len, tensor parallelism and both models"
        what = what if recipe.speculation else "max_num_seqs, max_model_len, tensor parallelism and the target"
        message = f"{what} are compiled in: changing one of them needs a new compilation"
        hint = f"Run: {recipe.platform_rules.facts.compile_command}"
        yield Finding("neuron.compiled-in", message, "engine", hint=hint, severity="info")


def _draft_tokens(recipe: Recipe) -> Iterator[Finding]:
    """Values of K that draft nothing. The fork's K counts the target's own token (NxD Inference, model_base.py)."""
    length, speculation, path = recipe.engine.max_model_len, recipe.speculation, "speculation.num_speculative_tokens"
    if speculation is None:
        return
    k = speculation.num_speculative_tokens
    if length and k >= length:
        message = f"with K={k} nothing is drafted for requests of at most {length} tokens (max_model_len)"
        yield Finding("neuron.draft-tokens", message, path, hint="Set it to much less than engine.max_model_len.")
    if is_fork(recipe) and k < _LEAST_OF_FORK:
        message = f"the fork of vLLM V0 drafts K - 1 tokens: with K={k} it drafts none"
        yield Finding("neuron.draft-tokens", message, path, hint=f"Set it to {_LEAST_OF_FORK} or more.")


def _parallel(recipe: Recipe) -> Iterator[Finding]:
    """Findings on parallelism: NxD Inference is only known to support tensor parallelism."""
    for flag in PARALLEL_FLAGS[1:]:
        if recipe.engine.name == "nxd-inference" and str(recipe.engine.args.get(flag, 1)) != "1":
            message = f"NxD Inference under vLLM is not documented to support `{flag}`"
            hint = "Remove it; raise tensor-parallel-size, or scaling.max_instances."
            yield Finding("neuron.parallel", message, f"engine.args.{flag}", hint=hint)


def _by_hand(recipe: Recipe) -> Iterator[Finding]:
    """Findings on drafting that is configured outside of `speculation`; the same keys differ between generations."""
    written = recipe.engine.args.get("speculative-config")
    if isinstance(written, Mapping) and written.get("method") == "eagle":
        message = (
            "`method: eagle` turns nothing on in the fork of vLLM V0, and makes NxD Inference's plugin load the "
            "drafter as an EAGLE head"
        )
        hint = "Remove it, and use `speculation`: the toolkit writes the right settings for the generation."
        yield Finding("neuron.by-hand", message, "engine.args.speculative-config", hint=hint)
    config = neuron_config(recipe)
    for key in (key for key in DRAFTING_KEYS if key in config):
        if key == "enable_fused_speculation" and is_fork(recipe):  # `_batches` checks it
            continue
        message = f"`{key}` configures drafting outside of `speculation`"
        yield Finding("neuron.by-hand", message, config_path(recipe), hint="Remove it, and use `speculation`.")


def _blocks(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the number of KV cache blocks, if a flag sets it."""
    engine, path = recipe.engine, "engine.args.num-gpu-blocks-override"
    given = engine.args.get("num-gpu-blocks-override")
    if engine.name == "nxd-inference":
        given = given or engine.max_num_seqs  # the toolkit's own value
        if not neuron_config(recipe).get("is_block_kv_layout"):
            if given != engine.max_num_seqs and not is_fork(recipe):
                message = f"the KV cache needs one block for each of {engine.max_num_seqs} requests, not {given}"
                yield Finding("neuron.blocks", message, path, hint="Remove the flag.")
            return
    least = _least_blocks(recipe)
    if least and isinstance(given, int) and given < least:
        message = (
            f"{given} blocks are too few for {engine.max_num_seqs} x {engine.max_model_len} tokens with their drafts"
        )
        yield Finding("neuron.blocks", message, path, hint=f"Set `num-gpu-blocks-override: {least}` or more.")


def _least_blocks(recipe: Recipe) -> int | None:
    """The blocks needed for all requests at full length; None if they need not all fit, or it is unknown."""
    length, requests = recipe.engine.max_model_len, recipe.engine.max_num_seqs
    if length is None:
        return None
    if recipe.engine.name == "vllm-neuron":
        dflash = recipe.speculation if recipe.method == "dflash" else None
        return dflash_blocks(length, requests, dflash.num_speculative_tokens) if dflash else None
    tokens = neuron_config(recipe).get("pa_block_size", _SMALLEST_BLOCK_TOKENS)
    return -(-length // tokens) * requests if isinstance(tokens, int) and tokens > 0 else None


def _clashes(recipe: Recipe) -> Iterator[Finding]:
    args, engine = recipe.engine.args, recipe.engine.name
    for flag in _CLASHES.get((engine, recipe.method), ()):
        if args.get(flag):
            message = f"`{flag}` cannot be combined with `{recipe.method}` on {engine}"
            yield Finding("neuron.clash", message, f"engine.args.{flag}", hint="Remove the flag.")
    if recipe.speculation and args.get("enable-lora"):
        hint, path = "Remove the flag, or set `method: none`.", "engine.args.enable-lora"
        if engine == "nxd-inference":
            message = "NxD Inference does not support adapters together with speculation"
            yield Finding("neuron.clash", message, path, hint=hint)
        else:
            message = f"unverified: {engine} may not support adapters together with speculation"
            yield Finding("neuron.clash", message, path, hint=hint, severity="warning")


def _batches(recipe: Recipe) -> Iterator[Finding]:
    """Findings on concurrent requests with NxD Inference."""
    if recipe.engine.name != "nxd-inference" or recipe.speculation is None:
        return
    config = neuron_config(recipe)
    if config.get("enable_fused_speculation") is False and recipe.engine.max_num_seqs > 1:
        message = "without fused speculation, a draft model can draft for one request at a time only"
        hint = "Set it to 1, or remove `enable_fused_speculation` from override-neuron-config."
        yield Finding("neuron.batches", message, _REQUESTS, hint=hint)
    if config.get("token_generation_batches"):
        message = "NxD Inference does not support batch buckets together with speculation"
        hint = "Remove `token_generation_batches`."
        yield Finding("neuron.batches", message, config_path(recipe), hint=hint)


def _logical_cores(recipe: Recipe) -> Iterator[Finding]:
    for name in LOGICAL_CORES_VARIABLES:
        value = recipe.engine.env.get(name)
        if value not in (None, "1", "2"):
            message = f"a logical core has 1 or 2 physical cores, not {value!r}"
            hint = 'Set it to "2", the default, or "1".'
            yield Finding("neuron.logical-cores", message, f"engine.env.{name}", hint=hint)


def _buckets(recipe: Recipe) -> Iterator[Finding]:
    """Findings on bucket sizes, for which graphs are compiled. The largest must equal the engine's limit."""
    config, path = neuron_config(recipe), config_path(recipe)
    written = recipe.engine.args.get("additional-config")
    limits = {
        "num_batched_tokens_buckets": recipe.engine.max_num_batched_tokens,
        "num_seqs_buckets": recipe.engine.max_num_seqs,
    }
    for key in (*limits, "kv_segment_size_buckets"):
        if isinstance(written, Mapping) and key in written:
            message = f"`{key}` has no effect outside of `neuron_config`"
            yield Finding("neuron.buckets", message, path, hint=f"Write `neuron_config: {{{key}: …}}`.")
    for key, limit in limits.items():
        sizes = _sizes(config, key)
        if sizes and limit and max(sizes) != limit:
            name = key.removesuffix("_buckets")
            message = f"the largest of `{key}` is {max(sizes)}, but must be {limit}, as engine.max_{name}"
            yield Finding("neuron.buckets", message, path, hint=f"Add {limit} at the end, or remove `{key}`.")
    if other := [size for size in _sizes(config, "kv_segment_size_buckets") if size not in _SEGMENTS]:
        message = f"{other[0]} is not a valid size in `kv_segment_size_buckets`"
        yield Finding("neuron.buckets", message, path, hint=f"Use only {', '.join(map(str, _SEGMENTS))}.")


def _sizes(config: Mapping[str, Any], key: str) -> list[int]:
    sizes = config.get(key)
    return [size for size in sizes if isinstance(size, int)] if isinstance(sizes, list) else []


def _last_tokens(recipe: Recipe) -> Iterator[Finding]:
    length, speculation = recipe.engine.max_model_len, recipe.speculation
    if speculation and length and speculation.num_speculative_tokens < length:
        longest = length - speculation.num_speculative_tokens
        message = f"nothing is drafted once a request has more than {longest} tokens (max_model_len minus K)"
        yield Finding("neuron.last-tokens", message, _LENGTH, hint="", severity="info")
