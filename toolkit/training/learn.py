"""What a head learns from one sequence: loss, gradients, and which of its draft tokens are right at each depth.

A draft token is right if the text has it there: it is what the target said. So it is with a reduced draft vocabulary,
too: a token that the head cannot draft is never right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from speculators.losses import resolve_loss_config
from speculators.models.dflash import DFlashDraftModel
from speculators.models.eagle3 import Eagle3DraftModel
from speculators.models.peagle import PEagleDraftModel
from torch import Tensor
from torch.nn import functional
from torch.torch_version import TorchVersion

from toolkit.training.partition import DraftMasks, Drafts, Segment, partition, sample_drafts
from toolkit.training.samples import Sample, States


@dataclass(frozen=True)
class Lesson:
    """One sequence, shifted as an EAGLE head reads it: the token at t + 1 beside the target's hidden state at t.

    Shapes: `input_ids` and `loss_mask` [T], `hidden_states` [T, aux x H], `last_hidden_states` [T, H], from which
    the target says the token at t + 2.
    """

    input_ids: Tensor
    loss_mask: Tensor
    hidden_states: Tensor
    last_hidden_states: Tensor

    def __len__(self) -> int:
        return len(self.input_ids)


def lesson(sample: Sample, states: States, device: torch.device) -> Lesson:
    """The sequence on the device, in float32. Its first token is never learned: no draft comes before it."""
    loss_mask = sample.loss_mask[1:].long()
    loss_mask[:1] = 0
    return Lesson(
        sample.input_ids[1:].long().to(device),
        loss_mask.to(device),
        states.hidden_states[:-1].to(device, torch.float32),
        states.last_hidden_states[1:].to(device, torch.float32),
    )


@dataclass(frozen=True)
class Outcome:
    """Sums over draft tokens, each tensor of shape [depths] or without one.

    `loss` over `count` learned tokens; of `drafts` that reach a depth, `accepted` are right there and at all depths
    before. All positions count alike here: it is a view of the training, not what an engine accepts.
    """

    loss: Tensor
    count: int
    accepted: Tensor
    drafts: Tensor

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.loss + other.loss,
            self.count + other.count,
            self.accepted + other.accepted,
            self.drafts + other.drafts,
        )

    @classmethod
    def none(cls, depths: int, device: torch.device) -> Outcome:
        """Of no sequence at all."""
        nothing = torch.zeros(depths, dtype=torch.long, device=device)
        return cls(torch.zeros((), device=device), 0, nothing, nothing)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of drafts that are right up to each depth."""
        return tuple((self.accepted / self.drafts.clamp(min=1)).tolist())


@dataclass(frozen=True)
class Evaluated:
    """One sequence without gradients: `loss` over `count` draft tokens, and of each anchor which drafts are right.

    `right` has the shape [tokens, depths].
    """

    loss: Tensor
    count: int
    right: Tensor


class Learner(Protocol):
    """A head that learns sequences one by one."""

    def learn(self, sequence: Lesson) -> Outcome:
        """Add the gradients of the sum of all losses to those that the parameters have."""

    def evaluate(self, sequence: Lesson) -> Evaluated:
        """The same without gradients, for every draft that the sequence has."""


LossFunction = Callable[[Tensor, Tensor], Tensor]


def loss_function(device: torch.device, name: str = "kl_div", *, is_compiled: bool = False) -> LossFunction:
    """speculators' default, the Kullback-Leibler divergence from the target, or another; Triton kernels need a GPU.

    `is_compiled`: the head is compiled with it. Two such kernels in one graph need torch 2.12 (pytorch issue 177600).
    """
    on_triton = device.type == "cuda" and not (is_compiled and torch.__version__ < TorchVersion("2.12"))
    config = resolve_loss_config(name, "fused" if on_triton else "eager")
    function: LossFunction = config[name][0]
    return function


class _PrefixCache:
    """Keys and values of depth 0, by layer, as transformers' attention layers ask for them."""

    def __init__(self) -> None:
        self.stored: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        self.stored[layer] = (keys, values)
        return keys, values


class _SegmentCache:
    """Puts the first `end` keys and values of depth 0 before those of a segment's drafts."""

    def __init__(self, prefix: dict[int, tuple[Tensor, Tensor]], end: int) -> None:
        self._prefix, self._end = prefix, end

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        prefix_keys, prefix_values = self._prefix[layer]
        return (
            torch.cat([prefix_keys[:, :, : self._end], keys], dim=2),
            torch.cat([prefix_values[:, :, : self._end], values], dim=2),
        )


@dataclass(frozen=True)
class PEagleLearner:
    """P-EAGLE: all depths of a draft from one pass, segment by segment.

    Depth 0 goes through the head once. Segments then read its keys and values, and the gradients that they leave on
    them go back through depth 0 once, at the end: the sum is the whole sequence's gradient, while only one segment's
    logits and deeper positions are in memory. With `longest_segment` there are as many more segments as keep each of
    them to so many positions of depth 0: attention among drafts costs the square of a segment's length.

    All matrices have a multiple of `rows` rows, the last of which may be padding: on a CPU, oneDNN compiles a kernel
    for every new shape, which takes longer than to multiply.
    """

    head: PEagleDraftModel
    masks: DraftMasks
    loss: LossFunction
    depths: int
    segments: int
    keep: float = 0.8
    keep_least: float = 0.2
    longest_segment: int | None = None
    rows: int = 1

    def learn(self, sequence: Lesson) -> Outcome:
        drafts = sample_drafts(sequence.loss_mask, self.depths, self.keep, self.keep_least)
        loss, right = self._pass(sequence, drafts)
        first = sequence.loss_mask.nonzero()[:, 0]
        drafted = torch.zeros_like(right)
        drafted[first, 0] = drafted[drafts.anchor, drafts.depth] = True
        return outcome(loss, len(first) + len(drafts), right, drafted & within_answer(sequence, self.depths))

    @torch.no_grad()
    def evaluate(self, sequence: Lesson) -> Evaluated:
        drafts = sample_drafts(sequence.loss_mask, self.depths, 1.0, 1.0)
        loss, right = self._pass(sequence, drafts)
        return Evaluated(loss, int(sequence.loss_mask.sum()) + len(drafts), right)

    def _pass(self, lesson: Lesson, drafts: Drafts) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and which drafts are right [tokens, depths]; gradients unless they are switched off.

        One pass of depth 0 and one of each segment.
        """
        learning = torch.is_grad_enabled()
        sequence = padded(lesson, self.rows)
        computed = _PrefixCache()
        positions = torch.arange(len(sequence), device=drafts.anchor.device)
        tokens, states = self.head.embed_tokens(sequence.input_ids), self._project(sequence.hidden_states)
        outputs = self._decode(tokens, states, positions, partial(self._causal_mask, len(sequence)), computed)
        prefix = {layer: (_leaf(keys), _leaf(values)) for layer, (keys, values) in computed.stored.items()}
        hidden = _leaf(outputs)
        said = said_tokens(sequence)
        right = torch.zeros(len(sequence), self.depths, dtype=torch.bool, device=hidden.device)
        total = torch.zeros((), device=hidden.device)
        longest = self.longest_segment or len(sequence)
        segments = max(self.segments, math.ceil(len(sequence) / longest))
        for segment in partition(drafts, len(sequence), segments):
            targets = self._targets(sequence, segment)
            loss = torch.zeros((), device=hidden.device)
            for logits, anchor, depth in self._logits(segment, hidden, prefix):
                if not len(anchor):
                    loss = loss + logits.sum()  # of nothing: each sequence goes through the same modules as any other
                    continue
                position = anchor + depth
                row = position - segment.start
                loss = loss + (self.loss(logits, targets[:, row])[0] * sequence.loss_mask[position]).sum()
                right[anchor, depth] = draft_tokens(self.head, logits.argmax(dim=-1)[0]) == said[position]
            if learning:
                torch.autograd.backward(loss)
            total += loss.detach()
        if learning:
            _backward_through_leaves([(outputs, hidden)], computed.stored, prefix)
        return total, right[: len(lesson)]

    def _project(self, states: Tensor) -> Tensor:
        """The target's hidden states as the head's layers read them, after the norms that its config names."""
        if self.head.input_norm is not None:
            states = self.head.input_norm(states)
        if self.head.fc_norm is not None:
            parts = states.chunk(len(self.head.fc_norm), dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.head.fc_norm, parts, strict=True)], dim=-1)
        projected: Tensor = self.head.fc(states)
        return projected

    def _causal_mask(self, length: int, window: int | None) -> Tensor | None:
        """None where attention masks what comes later by itself."""
        attention: Any = self.head.layers[0].self_attn
        by_itself = window is None and attention.config._attn_implementation != "eager"
        return None if by_itself else self.masks.causal(length, window)

    def _logits(
        self, segment: Segment, hidden: Tensor, prefix: dict[int, tuple[Tensor, Tensor]]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Logits, anchors and depths: first those of depth 0, then all deeper ones."""
        anchor = torch.arange(segment.start, segment.end, device=hidden.device)
        yield self._score(hidden[:, segment.start : segment.end]), anchor, torch.zeros_like(anchor)
        drafts = segment.drafts
        count = _multiple(max(1, len(drafts)), self.rows)
        end = min(_multiple(segment.end, self.rows), hidden.shape[1])
        token = torch.full((count,), self.head.mask_token_id or 0, device=hidden.device)
        state = self._project(self.head.mask_hidden[0].float()).expand(count, -1)
        position = functional.pad(drafts.position, (0, count - len(drafts)))
        mask, cache = partial(self.masks.of, drafts, end, count), _SegmentCache(prefix, end)
        deep = self._decode(self.head.embed_tokens(token), state, position, mask, cache)
        yield self._score(deep[:, : len(drafts)]), drafts.anchor, drafts.depth

    def _decode(
        self,
        embeds: Tensor,
        states: Tensor,
        positions: Tensor,
        mask: Callable[[int | None], Tensor | None],
        cache: _PrefixCache | _SegmentCache,
    ) -> Tensor:
        """Hidden states [1, N, H] after the head's layers; `mask` gives that of a sliding window, or of none.

        The residual stream stays in float32 under autocast.
        """
        hidden = torch.cat([embeds, states], dim=-1)[None].float()
        rotary = self.head.rotary_emb(hidden, positions[None])
        sliding = self.head.sliding_window_indices
        windows = [self.head.sliding_window if index in sliding else None for index in range(len(self.head.layers))]
        masks = {window: mask(window) for window in set(windows)}
        for layer, window in zip(self.head.layers, windows, strict=True):
            hidden = layer(hidden, attention_mask=masks[window], past_key_values=cache, position_embeddings=rotary)
        return hidden

    def _score(self, hidden: Tensor) -> Tensor:
        count = hidden.shape[1]
        hidden = functional.pad(hidden, (0, 0, 0, -count % self.rows))
        logits: Tensor = self.head.lm_head(self.head.norm(hidden))
        return logits[:, :count]

    @torch.no_grad()
    def _targets(self, sequence: Lesson, segment: Segment) -> Tensor:
        """The target's logits [1, N, V] of a segment and of all that its drafts reach: each position once."""
        last = sequence.last_hidden_states[segment.start : segment.end + self.depths]
        last = functional.pad(last, (0, 0, 0, -len(last) % self.rows))
        logits: Tensor = self.head.verifier_lm_head(self.head.verifier_norm(last))
        return logits[None]


def said_tokens(sequence: Lesson) -> Tensor:
    """The token that a draft at each position is for: the text's next one, -1 behind its end."""
    return functional.pad(sequence.input_ids[1:], (0, 1), value=-1)


def draft_tokens(head: Eagle3DraftModel | DFlashDraftModel, drafted: Tensor) -> Tensor:
    """The target's ids of draft ids."""
    return drafted if head.d2t is None else drafted + head.d2t[drafted]


def within_answer(sequence: Lesson, depths: int) -> Tensor:
    """Whether the draft of each anchor at each depth is for a token of the anchor's own answer: [tokens, depths]."""
    windows = functional.pad(sequence.loss_mask, (0, depths)).unfold(0, depths + 1, 1)
    return windows.cumprod(dim=1)[:, 1:].bool()


def outcome(loss: Tensor, count: int, right: Tensor, counted: Tensor) -> Outcome:
    accepted = right.long().cumprod(dim=1).bool() & counted
    return Outcome(loss, count, accepted.sum(dim=0), counted.sum(dim=0))


def _multiple(count: int, of: int) -> int:
    """The next multiple of that number."""
    return count + -count % of


def padded(sequence: Lesson, rows: int) -> Lesson:
    """With tokens behind its last one that are never learned, until it has a multiple of so many."""
    more = -len(sequence) % rows
    return Lesson(
        functional.pad(sequence.input_ids, (0, more)),
        functional.pad(sequence.loss_mask, (0, more)),
        functional.pad(sequence.hidden_states, (0, 0, 0, more)),
        functional.pad(sequence.last_hidden_states, (0, 0, 0, more)),
    )


def _leaf(tensor: Tensor) -> Tensor:
    """The same values, whose gradient is collected."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _backward_through_leaves(
    outputs: list[tuple[Tensor, Tensor]],
    computed: dict[int, tuple[Tensor, Tensor]],
    leaves: dict[int, tuple[Tensor, Tensor]],
) -> None:
    """Hand the gradients that the leaves have collected on to what they were taken from."""
    pairs = outputs + [pair for layer in computed for pair in zip(computed[layer], leaves[layer], strict=True)]
    reached = [(output, leaf.grad) for output, leaf in pairs if leaf.grad is not None]
    torch.autograd.backward([output for output, _ in reached], [gradient for _, gradient in reached])


@dataclass(frozen=True)
class Eagle3Learner:
    """EAGLE-3: one token after the other, by speculators' training-time test over all depths."""

    head: Eagle3DraftModel
    loss: LossFunction
    depths: int

    def learn(self, sequence: Lesson) -> Outcome:
        loss, count, right = self._test(sequence)
        torch.autograd.backward(loss)
        return outcome(loss.detach(), count, right, within_answer(sequence, self.depths))

    @torch.no_grad()
    def evaluate(self, sequence: Lesson) -> Evaluated:
        return Evaluated(*self._test(sequence))

    def _test(self, sequence: Lesson) -> tuple[Tensor, int, Tensor]:
        mask = sequence.loss_mask.bool()[None]
        drafted, mean_loss, _ = self.head(
            hidden_states=sequence.hidden_states[None],
            input_ids=sequence.input_ids[None],
            document_ids=torch.zeros_like(sequence.input_ids)[None],
            loss_mask=mask,
            verifier_last_hidden_states=sequence.last_hidden_states[None],
            ttt_steps=self.depths,
            loss_config={"kl_div": (self.loss, 1.0)},
        )
        # speculators' loss is the sum over depths of each depth's mean.
        count = int(mask.sum())
        said = functional.pad(said_tokens(sequence), (0, self.depths), value=-1).unfold(0, self.depths, 1)[
            : len(sequence)
        ]
        tokens = torch.stack([draft_tokens(self.head, depth[0]) for depth in drafted], dim=1)
        return mean_loss * count, count * self.depths, tokens == said
