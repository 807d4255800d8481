"""How DFlash and DSpark heads learn: whole blocks of draft tokens, in which each sees all others, from one pass.

A block begins at an anchor, the position of the last known token, and goes on with mask tokens. Its positions
see the target's hidden states before the anchor, which every layer of the head takes for keys and values, and one
another (arXiv 2602.06036). Blocks see nothing of each other, so as many go through the head at a time as memory holds.

A DFlash head drafts at the mask tokens, each for its own position. A DSpark head (arXiv 2607.05147) drafts at the
anchor, too, each for the next position; it adds to a draft's logits what the token before it speaks for, and learns
how sure it can be. Here that token is the text's own one; an engine has the draft before instead. Both are the same up
to the first wrong draft, behind which an engine keeps none: so runs of right drafts are those of an engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from speculators.losses.utils import dflash_loss_decay
from speculators.models.dflash import DFlashDraftModel
from speculators.models.dflash.utils import select_anchors
from speculators.models.dspark import DSparkDraftModel
from torch import Tensor
from torch.nn import functional

from toolkit.training.job import BLOCKS_AT_ONCE
from toolkit.training.learn import (
    Evaluated,
    Lesson,
    LossFunction,
    Outcome,
    draft_tokens,
    loss_function,
    outcome,
    padded,
    said_tokens,
    within_answer,
)

MOST_BLOCKS = 512
"""Of a sequence in one step, chosen by chance; speculators' default for DFlash."""
_DECAY = 4.0  # speculators' default: a draft counts by e^(-depth/4), as it is lost with any before it


@dataclass(frozen=True)
class BlockLearner:
    """All draft tokens of a block from one pass. `depths` are those of the engine's blocks, too.

    A sequence has a multiple of `rows` tokens, the last of which may be padding, as in P-EAGLE's.
    """

    head: DFlashDraftModel
    loss: LossFunction
    depths: int
    blocks_at_once: int = BLOCKS_AT_ONCE
    rows: int = 1

    def learn(self, sequence: Lesson) -> Outcome:
        chosen, valid = select_anchors(sequence.loss_mask[None], MOST_BLOCKS, self.head.block_size)
        anchors = chosen[valid]
        loss, count, right = self._pass(sequence, anchors)
        drafted = torch.zeros_like(right)
        drafted[anchors] = True
        return outcome(loss, count, right, drafted & within_answer(sequence, self.depths))

    @torch.no_grad()
    def evaluate(self, sequence: Lesson) -> Evaluated:
        return Evaluated(*self._pass(sequence, sequence.loss_mask.nonzero()[:, 0]))

    def _pass(self, lesson: Lesson, anchors: Tensor) -> tuple[Tensor, int, Tensor]:
        """The sum of the losses of so many drafts, and which drafts are right [tokens, depths].

        Gradients are added unless they are switched off.
        """
        sequence = padded(lesson, self.rows)
        total, count = torch.zeros((), device=anchors.device), 0
        right = torch.zeros(len(lesson), self.depths, dtype=torch.bool, device=anchors.device)
        depth = torch.arange(self.depths, device=anchors.device)
        decay = dflash_loss_decay(depth + 1.0, _DECAY)
        # A DFlash draft is learned where its own token is the target's, a DSpark draft where the one before it is.
        # Behind the end nothing is learned, and nothing is right.
        learned = functional.pad(sequence.loss_mask[self._first :], (0, self.depths + 1))
        said = functional.pad(said_tokens(sequence), (0, self.depths), value=-1)
        # An answer shorter than a block has no anchor.
        for some in torch.split(anchors, self.blocks_at_once) if len(anchors) else ():
            position = some[:, None] + depth
            before = sequence.input_ids[position.clamp(max=len(sequence) - 1)]
            logits, sureness = self._drafts(self._hidden(sequence, some), before)
            with torch.no_grad():
                last = sequence.last_hidden_states[position.clamp(max=len(sequence) - 1)]
                targets = self.head.verifier_lm_head(self.head.verifier_norm(last))
            losses = self.loss(logits.flatten(0, 1)[None], targets.flatten(0, 1)[None])[0].view_as(position)
            if sureness is not None:
                losses = losses + self._unsure(sureness, logits, targets)
            loss = (losses * learned[position] * decay).sum()
            if torch.is_grad_enabled():
                torch.autograd.backward(loss)
            total, count = total + loss.detach(), count + int(learned[position].sum())
            right[some] = draft_tokens(self.head, logits.argmax(dim=-1)) == said[position]
        return total, count, right

    @property
    def _first(self) -> int:
        """The first position of a block that drafts."""
        return int(self.head.block_size) - self.depths

    def _drafts(self, hidden: Tensor, before: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits [blocks, depths, V] behind the tokens `before` them; of DSpark also how sure each is, as a logit."""
        logits: Tensor = self.head.lm_head(hidden)
        if not isinstance(self.head, DSparkDraftModel):
            return logits, None
        markov, confidence = self.head.markov_head, self.head.confidence_head
        assert markov
        assert confidence
        embedded = markov.prev_embeddings(before)
        bias = markov.block_bias(prev_token_ids=before, hidden_states=hidden, prev_emb=embedded)
        return logits + bias, confidence(torch.cat([hidden, embedded], dim=-1))

    @staticmethod
    def _unsure(sureness: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of how sure each draft is, against the share of such drafts that sampling accepts."""
        with torch.no_grad():
            accepted = 1 - loss_function(logits.device, "tv")(logits.flatten(0, 1)[None], targets.flatten(0, 1)[None])
        return functional.binary_cross_entropy_with_logits(sureness, accepted[0].view_as(sureness), reduction="none")

    def _hidden(self, sequence: Lesson, anchors: Tensor) -> Tensor:
        """Of each block's drafts: [blocks, depths, H]."""
        block = int(self.head.block_size)
        tokens = torch.full((len(anchors), block), self.head.mask_token_id, device=anchors.device)
        tokens[:, 0] = sequence.input_ids[anchors]
        hidden = self.head.embed_tokens(tokens.flatten())[None].float()
        context = self.head.hidden_norm(self.head.fc(sequence.hidden_states))[None]
        # A token at t + 1 stands beside the hidden state at t.
        within = torch.arange(1, block + 1, device=anchors.device)
        positions = torch.cat(
            [torch.arange(len(sequence), device=anchors.device), (anchors[:, None] + within).flatten()]
        )
        rotary, mask = self.head.rotary_emb(hidden, positions[None]), _mask(anchors, len(sequence), block)
        for layer in self.head.layers:
            hidden = layer(hidden_states=hidden, target_hidden=context, attention_mask=mask, position_embeddings=rotary)
        drafts: Tensor = self.head.norm(hidden).view(len(anchors), block, -1)[:, self._first :]
        return drafts


def _mask(anchors: Tensor, length: int, block: int) -> Tensor:
    """What each position of the blocks sees: [1, 1, blocks x block, length + blocks x block]."""
    number = torch.arange(len(anchors), device=anchors.device).repeat_interleave(block)
    before = torch.arange(length, device=anchors.device) <= anchors.repeat_interleave(block)[:, None]
    seen = torch.cat([before, number[:, None] == number], dim=1)
    return torch.zeros(seen.shape, device=anchors.device).masked_fill(~seen, float("-inf"))[None, None]
