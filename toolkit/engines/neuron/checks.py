"""Will this generation of Neuron's engines take these settings? What holds on every instance type of the recipe.

Sources: awsdocs-neuron 2.33.0, vllm-neuron features guide and configuration reference, and NxD Inference's guides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog.trainium import LOGICAL_CORES_VARIABLES
from toolkit.engines.flag_checks import check_flags
from toolkit.engines.neuron.flags import CONFIG_FLAGS, dflash_blocks, is_fork
from toolkit.engines.neuron.generations import generation_of, generations
from toolkit.engines.vllm.checks import unknown_flag
from toolkit.engines.vllm.flags import PARALLEL_FLAGS
from toolkit.findings import Finding, Severity
from toolkit.recipe.resolve import Recipe

_LENGTH, _REQUESTS = "engine.max_model_len", "engine.max_num_seqs"
# Up to how many requests at a time a method was published, and what with more.
_PUBLISHED = {
    "draft-model": (4, "AWS published Qwen3-32B with 4"),
    "eagle3": (2, "the limit of vllm-neuron's tutorial is 2"),
    "dflash": (1, "4 were published as 1.22x for Llama-3.1-8B, and as 0.35x, a loss, for Qwen3-4B"),
}
# The KV cache's blocks, in tokens: the smaller of NxD Inference's two.
_SMALLEST_BLOCK_TOKENS = 16
# K of the fork that drafts one token.
_LEAST_OF_FORK = 2
_SEGMENTS = (512, 1024, 2048, 4096, 8192)
# Keys of NxD Inference's configuration that switch drafting; the toolkit writes them from `speculation`.
_DRAFTING_KEYS = ("enable_eagle_speculation", "enable_fused_speculation", "speculation_length", "is_medusa")
# Flags that fail the start, or are refused, together with a method.
_CLASHES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("vllm-neuron", "dflash"): ("async-scheduling", "enable-chunked-prefill", "enable-prefix-caching"),
    ("nxd-inference", "eagle3"): ("enable-prefix-caching",),
}


def check_neuron(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the settings."""
    # vLLM's own command line, whose version is the first three numbers; a plugin may add to it
    version = ".".join(recipe.engine.version.split(".")[:3])
    yield from check_flags(recipe, lambda flag: unknown_flag(recipe, flag, version, "warning"))
    yield from _form(recipe)
    yield from _version(recipe)
    yield from _shapes(recipe)
    yield from _without_effect(recipe)
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
        yield from _whole_prompts(recipe)


def neuron_config(recipe: Recipe) -> Mapping[str, Any]:
    """What the recipe itself adds to the engine's Neuron configuration."""
    key = "neuron_config" if recipe.engine.name == "vllm-neuron" else "override_neuron_config"
    found = recipe.engine.args.get("override-neuron-config" if is_fork(recipe) else "additional-config")
    if not is_fork(recipe) and isinstance(found, Mapping):
        found = found.get(key)
    return found if isinstance(found, Mapping) else {}


def config_path(recipe: Recipe) -> str:
    """The recipe's key of that configuration."""
    return f"engine.args.{'override-neuron-config' if is_fork(recipe) else 'additional-config'}"


def _form(recipe: Recipe) -> Iterator[Finding]:
    """The toolkit writes these flags too, and joins mappings only."""
    for flag in CONFIG_FLAGS:
        if not isinstance(recipe.engine.args.get(flag, {}), Mapping):
            message = f"`{flag}` is no mapping: it would replace what the toolkit writes there itself"
            hint = f"Write it as a mapping: `{flag}: {{key: value}}`."
            yield Finding("neuron.config-form", message, f"engine.args.{flag}", hint=hint)


def _version(recipe: Recipe) -> Iterator[Finding]:
    engine, generation = recipe.engine, generation_of(recipe.engine)
    if generation is None:
        known = " or ".join(found.version for found in generations(engine.name))
        message = f"nothing is known of {engine.name} {engine.version}: neither its methods nor its flags"
        hint = f"Remove `version`, or write {known}."
        own = recipe.container is not None and recipe.container.base is not None
        severity: Severity = "warning" if own else "error"
        yield Finding("neuron.version", message, "engine.version", hint=hint, severity=severity)
    elif generation.note:
        message = f"{generation}: {generation.note}"
        yield Finding("neuron.support", message, "engine.version", severity="info")


def _shapes(recipe: Recipe) -> Iterator[Finding]:
    if recipe.engine.max_model_len is None:
        message = "graphs are compiled for one length, and the target's own limit is a costly one"
        yield Finding("neuron.max-model-len", message, _LENGTH, hint="Write the longest prompt + answer, in tokens.")
    most, published = _PUBLISHED.get(recipe.method, (0, ""))
    requests = recipe.engine.max_num_seqs
    if most and requests > most:
        message = f"`{recipe.method}` with {requests} requests at a time: {published}"
        hint = f"Set it to {most} or less, or measure with `toolkit prove`."
        yield Finding("neuron.requests", message, _REQUESTS, hint=hint, severity="warning")
    if recipe.engine.compile_ahead:
        what = "K, max_num_seqs, max_model_len, tensor parallelism and both models"
        what = what if recipe.speculation else "max_num_seqs, max_model_len, tensor parallelism and the target"
        message = f"{what} are compiled in: after a change of one of them it is compiled again"
        hint = f"Run: {recipe.platform.rules.compile_command}"
        yield Finding("neuron.compiled-in", message, "engine", hint=hint, severity="info")


def _without_effect(recipe: Recipe) -> Iterator[Finding]:
    """Recipe keys that have no effect on these engines."""
    speculation = recipe.speculation
    if speculation is None:
        return
    for key, is_set in (
        ("num_speculative_tokens_per_batch_size", bool(speculation.schedule)),
        ("draft_tensor_parallel_size", speculation.tensor_parallel is not None),
    ):
        if is_set:
            message = f"{recipe.engine.name} has no such setting: K and the drafter's cores are compiled in"
            yield Finding("neuron.no-effect", message, f"speculation.{key}", hint="Remove it.")
    for key in speculation.settings:
        message = f"{recipe.engine.name} has no such setting"
        yield Finding("neuron.no-effect", message, f"speculation.{key}", hint="Remove it.")


def _draft_tokens(recipe: Recipe) -> Iterator[Finding]:
    """K with which nothing is drafted. In the fork it counts the target's own token (NxD Inference, model_base.py)."""
    length, speculation, path = recipe.engine.max_model_len, recipe.speculation, "speculation.num_speculative_tokens"
    if speculation is None:
        return
    k = speculation.num_speculative_tokens
    if length and k >= length:
        message = f"K={k} leaves no request of {length} tokens (max_model_len) to draft for"
        yield Finding("neuron.draft-tokens", message, path, hint="Set it far below engine.max_model_len.")
    if is_fork(recipe) and k < _LEAST_OF_FORK:
        message = f"the fork of vLLM V0 drafts K - 1 tokens: with K={k} it drafts none"
        yield Finding("neuron.draft-tokens", message, path, hint=f"Set it to {_LEAST_OF_FORK} or more.")


def _parallel(recipe: Recipe) -> Iterator[Finding]:
    """Engines that split a model by tensor parallelism only, as far as is known."""
    for flag in PARALLEL_FLAGS[1:]:
        if recipe.engine.name == "nxd-inference" and str(recipe.engine.args.get(flag, 1)) != "1":
            message = f"nothing that we read of NxD Inference under vLLM has `{flag}`"
            hint = "Remove it; raise tensor-parallel-size, or scaling.max_instances."
            yield Finding("neuron.parallel", message, f"engine.args.{flag}", hint=hint)


def _by_hand(recipe: Recipe) -> Iterator[Finding]:
    """Drafting that is switched past `speculation`: the generations mean different things by the same words."""
    written = recipe.engine.args.get("speculative-config")
    if isinstance(written, Mapping) and written.get("method") == "eagle":
        message = (
            "`method: eagle` turns nothing on in the fork of vLLM V0, and makes NxD Inference's plugin load the "
            "drafter as an EAGLE head"
        )
        hint = "Remove it, and set `speculation`: the toolkit writes what the generation means."
        yield Finding("neuron.by-hand", message, "engine.args.speculative-config", hint=hint)
    config = neuron_config(recipe)
    for key in (key for key in _DRAFTING_KEYS if key in config):
        if key == "enable_fused_speculation" and is_fork(recipe):  # `_batches` looks at it
            continue
        message = f"`{key}` switches drafting past `speculation`"
        yield Finding("neuron.by-hand", message, config_path(recipe), hint="Remove it, and set `speculation`.")


def _blocks(recipe: Recipe) -> Iterator[Finding]:
    """Blocks of the KV cache, where the engine is told how many it makes."""
    engine, path = recipe.engine, "engine.args.num-gpu-blocks-override"
    given = engine.args.get("num-gpu-blocks-override")
    if engine.name == "nxd-inference":
        given = given or engine.max_num_seqs  # the toolkit's
        if not neuron_config(recipe).get("is_block_kv_layout"):
            if given != engine.max_num_seqs and not is_fork(recipe):
                message = f"the KV cache has one block for each of {engine.max_num_seqs} requests, not {given}"
                yield Finding("neuron.blocks", message, path, hint="Remove the flag.")
            return
    least = _least_blocks(recipe)
    if least and isinstance(given, int) and given < least:
        message = f"{given} blocks do not hold {engine.max_num_seqs} x {engine.max_model_len} tokens with their drafts"
        yield Finding("neuron.blocks", message, path, hint=f"Set `num-gpu-blocks-override: {least}` or more.")


def _least_blocks(recipe: Recipe) -> int | None:
    """Blocks that hold all requests at their longest; None where it need not hold them all, or is not known."""
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
            message = f"`{flag}` does not go with `{recipe.method}` on {engine}"
            yield Finding("neuron.clash", message, f"engine.args.{flag}", hint="Remove the flag.")
    if recipe.speculation and args.get("enable-lora"):
        hint, path = "Remove the flag, or set `method: none`.", "engine.args.enable-lora"
        if engine == "nxd-inference":
            message = "NxD Inference has no adapters together with speculation"
            yield Finding("neuron.clash", message, path, hint=hint)
        else:
            message = f"whether {engine} serves adapters together with speculation is unverified"
            yield Finding("neuron.clash", message, path, hint=hint, severity="warning")


def _batches(recipe: Recipe) -> Iterator[Finding]:
    """NxD Inference: what goes with more than one request at a time."""
    if recipe.engine.name != "nxd-inference" or recipe.speculation is None:
        return
    config = neuron_config(recipe)
    if config.get("enable_fused_speculation") is False and recipe.engine.max_num_seqs > 1:
        message = "a draft model that is not fused with the target drafts for one request at a time"
        hint = "Set it to 1, or remove `enable_fused_speculation` from override-neuron-config."
        yield Finding("neuron.batches", message, _REQUESTS, hint=hint)
    if config.get("token_generation_batches"):
        message = "NxD Inference refuses buckets of batches together with speculation"
        hint = "Remove `token_generation_batches`."
        yield Finding("neuron.batches", message, config_path(recipe), hint=hint)


def _logical_cores(recipe: Recipe) -> Iterator[Finding]:
    for name in LOGICAL_CORES_VARIABLES:
        value = recipe.engine.env.get(name)
        if value not in (None, "1", "2"):
            message = f"a logical core is 1 or 2 physical ones, not {value!r}"
            hint = 'Write "2", which is the default, or "1".'
            yield Finding("neuron.logical-cores", message, f"engine.env.{name}", hint=hint)


def _buckets(recipe: Recipe) -> Iterator[Finding]:
    """Sizes that graphs are compiled for; the largest must hold what the engine is allowed."""
    config, path = neuron_config(recipe), config_path(recipe)
    written = recipe.engine.args.get("additional-config")
    limits = {
        "num_batched_tokens_buckets": recipe.engine.max_num_batched_tokens,
        "num_seqs_buckets": recipe.engine.max_num_seqs,
    }
    for key in (*limits, "kv_segment_size_buckets"):
        if isinstance(written, Mapping) and key in written:
            message = f"`{key}` is ignored outside of `neuron_config`"
            yield Finding("neuron.buckets", message, path, hint=f"Write `neuron_config: {{{key}: …}}`.")
    for key, limit in limits.items():
        sizes = _sizes(config, key)
        if sizes and limit and max(sizes) != limit:
            name = key.removesuffix("_buckets")
            message = f"the largest of `{key}` is {max(sizes)}, and must be engine.max_{name}, {limit}"
            yield Finding("neuron.buckets", message, path, hint=f"End it with {limit}, or remove it.")
    if other := [size for size in _sizes(config, "kv_segment_size_buckets") if size not in _SEGMENTS]:
        message = f"{other[0]} is no size of `kv_segment_size_buckets`"
        yield Finding("neuron.buckets", message, path, hint=f"Take some of {', '.join(map(str, _SEGMENTS))}.")


def _sizes(config: Mapping[str, Any], key: str) -> list[int]:
    found = config.get(key)
    return [size for size in found if isinstance(size, int)] if isinstance(found, list) else []


def _last_tokens(recipe: Recipe) -> Iterator[Finding]:
    length, speculation = recipe.engine.max_model_len, recipe.speculation
    if speculation and length and speculation.num_speculative_tokens < length:
        longest = length - speculation.num_speculative_tokens
        message = f"requests longer than {longest} tokens (max_model_len less K) are not drafted for"
        yield Finding("neuron.last-tokens", message, _LENGTH, severity="info")


def _whole_prompts(recipe: Recipe) -> Iterator[Finding]:
    """Without chunked prefill a step must take the longest request (vLLM, config/scheduler.py)."""
    flags, tokens, length = recipe.flags, recipe.engine.max_num_batched_tokens, recipe.engine.max_model_len
    whole = flags.get("no-enable-chunked-prefill") is True or flags.get("enable-chunked-prefill") is False
    if whole and tokens and length and tokens < length:
        message = f"without chunked prefill a step must take a request of {length} tokens, and this allows {tokens}"
        hint = f"Set it to {length} or more, or remove it."
        yield Finding("neuron.batched-tokens", message, "engine.max_num_batched_tokens", hint=hint)
