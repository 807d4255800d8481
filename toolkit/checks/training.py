"""Can the head that `training` describes be trained, and will it serve? Of the data it reads the beginnings alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from toolkit.catalog.lookup import Instance, default_engine
from toolkit.checks.training_fit import TAPS, check_quantized, check_states, check_target_memory, layers_read
from toolkit.errors import ToolkitError, UnreadableModel
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.trained import as_trained
from toolkit.recipe.training_schema import TRAINED_METHODS, TrainingSection
from toolkit.sizing.shape import Shape, shape_of
from toolkit.training.job import (
    BLOCKS_AT_ONCE,
    CONVERT,
    EAGLE_3_1,
    IN_BLOCKS,
    IN_PARTS,
    KEEP_OUTPUT,
    LEARNED_BYTES,
    MARKOV_RANK,
    OF_SPECULATORS,
    UNCONVERTED,
    block_size,
    is_divided,
)
from toolkit.training.own_block import has_own_block, why_not_trained
from toolkit.training.plan import machines

_GIB = 1024**3


def check_training(recipe: Recipe, training: TrainingSection, target: ModelFacts | None) -> Iterator[Finding]:
    """Findings on the recipe's section `training`."""
    if training.head:
        for finding in check_training(as_trained(recipe), training.edit(head=None), target):
            yield _later(finding)
        return
    if recipe.method not in TRAINED_METHODS:
        message = f"`training` makes a head, and method `{recipe.method}` has none"
        hint = f"Set `method` to one of {', '.join(TRAINED_METHODS)}, or remove `training`; or say in it "
        hint += "where the head is put until it serves: `head: ./FOLDER`."
        named = recipe.speculation.facts.spelling_of if recipe.speculation else ""
        if named in TRAINED_METHODS:
            hint = f"Write `method: {named}`: the engine sees by itself which model it is for."
        yield Finding("training.method", message, "speculation.method", hint=hint)
        return
    if recipe.engine.name != (able := default_engine()):
        message = f"heads are trained by `{able}`, and machine and image of this recipe are for `{recipe.engine.name}`"
        hint = f"Remove `training`, and train the head by a recipe of its own, with `engine: {{name: {able}}}` and "
        hint += "a GPU's `instance_types`; then name its head in `speculation.model` here."
        yield Finding("training.engine", message, "training", hint=hint)
        return
    yield from _depth(recipe, training)
    yield from _norms(recipe, training)
    yield from _data(training)
    yield from _destination(recipe)
    if recipe.method == "mtp":
        yield from _check_own_block(recipe, training, target)
    yield from _start(recipe, training, target)
    if target:
        yield from check_states(recipe, training, target)
        yield from _lengths(recipe, training, target)
        yield from _memory(recipe, training, target)
        yield from check_target_memory(recipe, training, target)
        yield from check_quantized(training, target)


def _later(finding: Finding) -> Finding:
    """What stands in the way of training alone: the recipe serves without the head."""
    path = finding.path if finding.path.startswith("training") else "training.head"
    return replace(finding, path=path, severity="info" if finding.severity == "error" else finding.severity)


def _depth(recipe: Recipe, training: TrainingSection) -> Iterator[Finding]:
    """P-EAGLE trains to a greater depth than it drafts (arXiv 2602.01469: K_train 8 for K 5)."""
    assert recipe.speculation
    tokens = recipe.speculation.num_speculative_tokens
    if recipe.method in IN_BLOCKS:  # what it learns are the blocks that it drafts
        return
    if training.depth < tokens:
        message = f"a head trained to depth {training.depth} cannot draft {tokens} tokens (num_speculative_tokens)"
        hint = f"Set `depth: {tokens + 1}` or more, or fewer speculative tokens."
        yield Finding("training.depth", message, "training.depth", hint=hint)
    elif training.depth == tokens and recipe.speculation.facts.parallel:
        message = f"the last of the {tokens} drafted tokens is the last that is trained, which is learned worst"
        yield Finding(
            "training.depth", message, "training.depth", hint=f"Set `depth: {tokens + 1}` or more.", severity="warning"
        )


def _norms(recipe: Recipe, training: TrainingSection) -> Iterator[Finding]:
    if training.norms and recipe.method != "eagle3":
        message = f"`norms` is for EAGLE-3 heads: one of method `{recipe.method}` is trained without"
        hint = "Set `method: eagle3`, or remove it."
        yield Finding("training.norms", message, "training.norms", hint=hint, severity="warning")


def _data(training: TrainingSection) -> Iterator[Finding]:
    for index, source in enumerate(training.sources):
        if "://" not in source and not Path(source).exists():
            message = f"there is no file or folder {source}"
            hint = (
                "Correct the path, which begins at the recipe's folder; or put your conversations there, a JSON object "
            )
            hint += 'on each line: {"messages": [{"role": "user", "content": "…"}]}'
            yield Finding("training.data", message, f"training.data.{index}", hint=hint)


def _destination(recipe: Recipe) -> Iterator[Finding]:
    """The head is written to a folder or to S3; a hub id cannot be written to."""
    drafter = recipe.drafter
    if drafter and drafter.kind not in ("folder", "s3"):
        message = f"the head cannot be written to `{drafter}`"
        hint = "Set `speculation.model` to a folder (`./…`) or s3://bucket/prefix/, where `toolkit train` writes it."
        yield Finding("training.destination", message, "speculation.model", hint=hint)


def _start(recipe: Recipe, training: TrainingSection, target: ModelFacts | None) -> Iterator[Finding]:
    """A head that is continued keeps its size: where the section says another one, both are named."""
    if not training.start_from or not Path(training.start_from).is_absolute():
        return
    try:
        head = read_folder(Path(training.start_from))
    except UnreadableModel as error:
        message = f"there is no head in {training.start_from}: {error.message}"
        yield Finding("training.start-from", message, "training.start_from", hint="Correct the path, or remove it.")
        return
    if OF_SPECULATORS in head.config:
        yield Finding(
            "training.start-from", f"the head in `start_from` {UNCONVERTED}", "training.start_from", hint=f"{CONVERT}."
        )
        return
    layers, drafted = head.text_config.get("num_hidden_layers"), head.config.get("draft_vocab_size") or head.vocab_size
    own_block = recipe.method == "mtp"
    wanted_layers = 1 if own_block else training.layers
    if layers != wanted_layers:
        message = f"the head in `start_from` has {layers} layers, and `layers` is {wanted_layers}"
        hint = "Name the folder of a block that was trained alone" if own_block else f"Set `layers: {layers}`"
        yield Finding("training.start-from", message, "training.layers", hint=f"{hint}, or remove `start_from`.")
    if head.tensors and (other := _method_of(head)) != recipe.method:
        message = f"the head in `start_from` is for method `{other}`, and `method` is `{recipe.method}`"
        yield Finding("training.start-from", message, "speculation.method", hint="Start from another head, or anew.")
    if training.norms and recipe.method == "eagle3" and not all(head.config.get(key) for key in EAGLE_3_1):
        message = "the head in `start_from` is an EAGLE-3 head, and `norms` makes an EAGLE-3.1 head"
        hint = "Remove `norms`, or start from another head, or anew."
        yield Finding("training.start-from", message, "training.norms", hint=hint)
    if target is None:
        return
    wanted = training.draft_vocab_size or target.vocab_size
    if drafted != wanted:
        message = f"the head in `start_from` drafts {drafted} tokens, and this one would draft {wanted}"
        hint = f"Set `draft_vocab_size: {drafted}`, or remove `start_from`."
        yield Finding("training.start-from", message, "training.draft_vocab_size", hint=hint)
    size = head.config.get("target_hidden_size") or head.hidden_size
    if size != target.hidden_size:
        message = f"the head in `start_from` is for hidden size {size}, and the target's is {target.hidden_size}"
        yield Finding("training.start-from", message, "training.start_from", hint="Start from another head, or anew.")


def _method_of(head: ModelFacts) -> str:
    if has_own_block(head.tensors or {}):
        return "mtp"
    if "mask_hidden" in (head.tensors or ()):
        return "p-eagle"
    if "markov_rank" in head.config:
        return "dspark"
    return "dflash" if "dflash_config" in head.config else "eagle3"


def _lengths(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> Iterator[Finding]:
    limit = target.text_config.get("max_position_embeddings")
    written = "max_length" in training.model_fields_set  # what nobody wrote, the job cuts to the target's positions
    if written and isinstance(limit, int) and training.max_length > limit:
        message = f"sequences of {training.max_length} tokens are longer than the target supports ({limit} positions)"
        yield Finding("training.max-length", message, "training.max_length", hint=f"Set it to {limit} or less.")
    drafted = training.draft_vocab_size
    if drafted and drafted > target.vocab_size:
        message = f"the target has only {target.vocab_size} tokens"
        hint = f"Set `draft_vocab_size` to less than {target.vocab_size}, or remove it."
        yield Finding("training.draft-vocab-size", message, "training.draft_vocab_size", hint=hint)
    if training.partitions > 1 and recipe.method not in IN_PARTS:
        message = f"a sequence goes through a head of method `{recipe.method}` whole: `partitions` has no effect"
        yield Finding("training.partitions", message, "training.partitions", hint="Remove it.", severity="warning")
    elif training.partitions > training.max_length:
        message = f"a sequence of {training.max_length} tokens cannot be split into {training.partitions} parts"
        yield Finding("training.partitions", message, "training.partitions", hint="Set it to 1, or 2 to 8.")


def _memory(recipe: Recipe, training: TrainingSection, target: ModelFacts) -> Iterator[Finding]:
    """An estimate against the memory of one accelerator of the instance type, where both are known."""
    if not recipe.platform_rules.facts.has_instance_types:
        return
    known = machines(recipe, training)
    if not known:
        return
    try:
        shape = shape_of(target)
        of_each = [(_bytes_on(recipe, shape, training.machine_count, one), one.usable_bytes, one.name) for one in known]
    except ToolkitError as error:
        yield Finding("memory.unknown", error.message, "target.model", hint=error.hint, severity="info")
        return
    needed, room, name = max(of_each, key=lambda one: one[0] / one[1])
    if needed > room:
        message = f"training needs about {needed / _GIB:.0f} GiB on each accelerator (an estimate), and {name} has "
        message += f"{room / _GIB:.0f}"
        parts = f"`partitions: {max(2, round(needed / room + 0.5)) * training.partitions}`, "
        shorter = "a shorter `max_length`, or another `instance_type`."
        hint = f"Set {parts if recipe.method in IN_PARTS else ''}{shorter}"
        yield Finding("training.memory", message, training.types_key, hint=hint, severity="warning")


def _bytes_on(recipe: Recipe, target: Shape, machine_count: int, instance: Instance) -> float:
    """Bytes on each accelerator of such machines."""
    return training_bytes(recipe, target, instance.accelerator_count * machine_count, instance.usable_bytes)


# Of a divided head the matrix that is multiplied with: its weight, its gradient, and that as it is summed, in float32.
_BYTES_OF_WHOLE = 12
# A float32 weight that is not trained, and its bf16 copy.
_BYTES_PER_FROZEN = 6
# P-EAGLE keeps this share of the positions of one depth at the next (arXiv 2602.01469, conditional drop).
_KEPT = 0.8
# bf16 logits and their float32 softmax and gradient.
_BYTES_PER_LOGIT = 10
# bf16 activations of one decoder layer per position, in hidden sizes (arXiv 2205.05198, flash attention).
_HIDDEN_SIZES_PER_LAYER = 34
_STATE_BYTES = 2


def training_bytes(recipe: Recipe, target: Shape, accelerators: int = 1, memory: float = math.inf) -> float:
    """Bytes on one of so many accelerators, with so much memory each, while the recipe's head trains.

    The head has the target's hidden size, heads and intermediate size. Of the target's own weights only its output
    layer is there, which the head learns from: hidden states are computed before the head trains. Of a head that is
    divided each accelerator has a part, and the largest matrix whole for a moment. Of a head that drafts in blocks, and
    of the target's own block, embedding and output layer are the target's, and not trained; blocks of the former go
    through it so many at a time, beside keys and values of all the text.
    """
    training = recipe.training
    assert training
    hidden, drafted = target.hidden, training.draft_vocab_size or target.vocabulary
    per_position = _HIDDEN_SIZES_PER_LAYER * hidden * training.layers + _BYTES_PER_LOGIT * drafted
    states = training.max_length * (layers_read(recipe) + 1) * hidden * _STATE_BYTES
    if recipe.method in KEEP_OUTPUT:
        frozen = (target.vocabulary + drafted) * hidden
        weights = (head_parameters(recipe, target) - frozen) * LEARNED_BYTES + frozen * _BYTES_PER_FROZEN
        if recipe.method == "mtp":
            return weights + training.max_length * kept_positions(recipe) * per_position + states
        positions = min(BLOCKS_AT_ONCE, training.max_length) * kept_positions(recipe)
        around = training.max_length * 2 * _STATE_BYTES * hidden * (training.layers + 1)
        return weights + positions * per_position + around + states
    parts = training.partitions if recipe.method in IN_PARTS else 1
    positions = training.max_length * kept_positions(recipe) / parts
    learned = head_parameters(recipe, target)
    held: float = learned * LEARNED_BYTES + drafted * hidden * _BYTES_PER_FROZEN
    if is_divided(recipe.method, learned, memory, accelerators):
        held = held / accelerators + max(target.vocabulary, drafted) * hidden * _BYTES_OF_WHOLE
    return held + positions * per_position + states


def kept_positions(recipe: Recipe) -> float:
    """Positions that go through the recipe's head for each token of a sequence that is learned."""
    assert recipe.training
    assert recipe.speculation
    if recipe.method in IN_BLOCKS:  # a block at each, or at fewer in a long text
        return block_size(recipe.method, recipe.speculation.num_speculative_tokens)
    if recipe.method == "mtp":
        return recipe.training.depth
    return sum(_KEPT**depth for depth in range(recipe.training.depth))


def head_parameters(recipe: Recipe, target: Shape, *, active: bool = False) -> int:
    """Weights of the recipe's head, the embedding of the target's vocabulary included.

    With `active` only those of the experts that one token passes through.
    """
    training = recipe.training
    assert training
    hidden, drafted = target.hidden, training.draft_vocab_size or target.vocabulary
    if recipe.method == "mtp":
        experts = target.experts_per_token if active else target.experts
        return _own_block_parameters(target, experts) + 2 * target.vocabulary * hidden
    layer = target.layers[0]
    attention = hidden * (2 * target.heads * layer.key_size + 2 * layer.kv_heads * layer.key_size)
    intermediate = target.intermediate or 4 * hidden
    per_layer = attention + 3 * hidden * intermediate
    # Layer 0 reads the token's embedding beside the hidden state, but not in blocks.
    beside = 0 if recipe.method in IN_BLOCKS else hidden * (target.heads + 2 * layer.kv_heads) * layer.key_size
    if recipe.method == "dspark":
        beside += MARKOV_RANK * (target.vocabulary + drafted)
    return training.layers * per_layer + beside + TAPS * hidden * hidden + (target.vocabulary + drafted) * hidden


def _own_block_parameters(target: Shape, experts: int) -> int:
    """A layer like the target's last one, with a gate as wide as its queries and an expert more, for all tokens."""
    layer, hidden = target.layers[-1], target.hidden
    attention = hidden * (3 * target.heads + 2 * layer.kv_heads) * layer.key_size
    width = (experts + 1) * target.expert_intermediate if target.experts else target.intermediate
    return attention + 3 * hidden * width + hidden * target.experts + 2 * hidden * hidden


def _check_own_block(recipe: Recipe, training: TrainingSection, target: ModelFacts | None) -> Iterator[Finding]:
    if recipe.drafter is None:
        message = "`speculation.model` does not say where the trained block is put"
        hint = "Set it to a folder (`./…`) or s3://bucket/prefix/; the target's own files stay as they are."
        yield Finding("training.destination", message, "speculation.model", hint=hint)
    if target and (why := why_not_trained(target.tensors, target.text_config.get("model_type"))):
        others = ", ".join(method for method in TRAINED_METHODS if method != "mtp")
        yield Finding("training.own-block", why, "speculation.method", hint=f"Set `method` to one of {others}.")
    if training.layers != 1:
        message = f"the target's own block has one layer, and `layers` is {training.layers}"
        yield Finding("training.own-block", message, "training.layers", hint="Remove it.")
    if training.draft_vocab_size:
        message = "the target's own block drafts all tokens of the target"
        yield Finding("training.own-block", message, "training.draft_vocab_size", hint="Remove it.")
