"""Does the target work with the engine's settings?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe


def check_target(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Findings on length, chat template and quantization."""
    wanted, limit = recipe.engine.max_model_len, target.text_config.get("max_position_embeddings")
    if wanted and isinstance(limit, int) and wanted > limit:
        message = f"{wanted} tokens are more than the target supports ({limit} positions)"
        hint = f"Set it to {limit} or less."
        yield Finding("engine.max-model-len", message, "engine.max_model_len", hint=hint)
    tokenizer = target.tokenizer
    if tokenizer and not tokenizer.chat_template_sha256 and "chat-template" not in recipe.engine.args:
        message = "the target's tokenizer has no chat template: the engine would reject every chat request"
        hint = "Add chat_template.jinja to the model's folder, or use an instruction-tuned target."
        yield Finding("engine.chat-template", message, "target.model", hint=hint, severity="warning")
    yield from _quantization(recipe, target)


def _quantization(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """A flag that contradicts the checkpoint; names such as `awq_marlin` are ways to run `awq`."""
    stored = (target.config.get("quantization_config") or target.text_config.get("quantization_config") or {}).get(
        "quant_method"
    )
    wanted = recipe.engine.args.get("quantization")
    if stored and isinstance(wanted, str) and not wanted.startswith(stored):
        message = f"the target is quantized with `{stored}`, and the flag says `{wanted}`"
        hint = "Remove the flag: the engine reads it from the target's config.json."
        yield Finding("engine.quantization", message, "engine.args.quantization", hint=hint)
