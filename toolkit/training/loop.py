"""The training loop: lessons in an order that the seed decides, evaluation, checkpoints, and where it stops.

Not speculators' Trainer: it needs an accelerator (`model.to(0)`), goes back through a batch at once, so that a sequence
cannot be partitioned, and its checkpoints (bfloat16, per epoch, `interrupted` apart) do not resume the same training.
Heads, losses, conditional drop and optimizers are speculators'.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import torch
import torch.distributed as dist
from speculators.train.optimizers import build_optimizers
from speculators.train.trainer import TrainerConfig
from torch import Tensor, nn

from toolkit.errors import ToolkitError, UsageError
from toolkit.training import checkpoint, progress, sharded
from toolkit.training.acceptance import Walk, acceptance_of, walk
from toolkit.training.arithmetic import computing, without_emulation
from toolkit.training.batches import deal, plan_batches
from toolkit.training.checkpoint import Checkpoint, Writer
from toolkit.training.job import EVALUATED_CONVERSATIONS, EVALUATED_TOKENS, FINAL_TIMES, TrainingJob
from toolkit.training.learn import Learner, Outcome, lesson
from toolkit.training.progress import TrainingProgress
from toolkit.training.samples import Samples

LONGEST_GRADIENT = 1.0
EVALUATIONS = 20
PATIENCE = 5
FLAT = 0.005
_STEPS_TO_JUDGE = 5


class TrainingDiverged(UsageError):
    """The loss, or a gradient, is not a number any more."""


class TrainingStopped(ToolkitError):
    """It was asked to stop, as before a spot instance is taken away; a checkpoint holds all it has learned."""


@dataclass(frozen=True)
class Data:
    """Samples with the target's hidden states: to learn from, and held out."""

    train: Samples
    held_out: Samples


@dataclass(frozen=True)
class Result:
    """How it ended: `walks` are the best weights' through held-out answers, `loss` is theirs of a draft token.

    `evaluations` are acceptance lengths by step; step 0 is the head that it started from. `ended` is why it stopped
    before its last step: `flat` or `time`; empty if it did not.
    """

    steps: int
    best_step: int
    walks: tuple[Walk, ...]
    loss: float
    evaluations: tuple[tuple[int, float], ...]
    ended: str
    tokens: int
    seconds: float


class Loop:
    """One training, alone or as one process of several. `stopping` is asked after every step whether to end."""

    def __init__(
        self,
        job: TrainingJob,
        head: nn.Module,
        learner: Learner,
        data: Data,
        device: torch.device,
        *,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._job, self._head, self._learner, self._data, self._device = job, head, learner, data, device
        self._stopping, self._folder = stopping, Path(job.checkpoints)
        self._writer = Writer(self._folder, job)
        self._optimizers = build_optimizers(head, _optimizer_settings(job))
        self._lengths = data.train.lengths
        self._batches = plan_batches(self._lengths, job)
        self._starts = list(accumulate(map(len, self._batches), initial=0))
        self._interval = max(1, len(self._batches) // EVALUATIONS)
        self._evaluations: list[tuple[int, float]] = []
        self._seconds = 0.0
        self._sharded = any(map(sharded.is_part, head.parameters()))
        self._rank, self._world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)

    def run(self, end: int | None = None) -> Result | None:
        """Train to the last step or until held-out acceptance is flat; the head then has its best weights.

        With `end` it stops after so many steps, with a checkpoint and no result, if there is more to learn.

        Raises TrainingDiverged, TrainingStopped, and PlatformError for a full disk: started again, it continues.
        """
        with self._writer:
            return self._run(end)

    def _run(self, end: int | None) -> Result | None:
        first, ended = self._resume(), ""
        if self._job.continues and not (first or self._evaluations):
            self._save(0, _Clock(0, 0.0), evaluate=True)  # training that only makes a head worse ends with what it had
        clock = _Clock(first, self._seconds)
        for step in range(first, min(end or len(self._batches), len(self._batches))):
            ended = self._ended(clock)
            if ended:
                break
            self._step(step, clock)
            done = step + 1
            evaluated = done % self._interval == 0 or done == len(self._batches)
            stop = self._any(self._stopping())
            if stop or evaluated or done == end or self._any(clock.since_saved() > self._job.checkpoint_seconds):
                self._require_finite(done)
                self._save(done, clock, evaluate=evaluated)
            if stop and done < len(self._batches):
                self._writer.wait()
                message = f"the training was stopped after step {done} of {len(self._batches)}"
                raise TrainingStopped(message, hint="Start it again: it continues there.")
        if not ended and clock.step < len(self._batches):
            ended = self._ended(clock)
            if not ended:
                return None
        if ended == "time" and clock.step not in dict(self._evaluations):
            self._save(clock.step, clock, evaluate=True)
        return self._finish(clock, ended)

    def _step(self, step: int, clock: _Clock) -> None:
        self._writer.require_written()
        for group in (group for optimizer in self._optimizers for group in optimizer.param_groups):
            group["lr"] = self._job.learning_rate * rate(step, len(self._batches), self._job.warmup)
        outcome, norm = self.learn(step)
        if not math.isfinite(norm) or not torch.isfinite(outcome.loss):
            raise _diverged(step + 1)
        for optimizer in self._optimizers:
            with without_emulation(self._device):
                optimizer.step()
            optimizer.zero_grad()
        clock.count(sum(self._lengths[index] for index in self._batches[step]))
        self._report(step + 1, float(outcome.loss) / max(1, outcome.count), outcome.shares, clock, held_out=False)

    def learn(self, step: int) -> tuple[Outcome, float]:
        """Gradients of the mean loss of the step's tokens, their norm before it is limited, and what came out.

        They do not depend on the number of processes: each sample has random numbers of its own.
        """
        self._head.train()
        samples, batch = self._data.train, self._batches[step]
        own = Outcome.none(self._job.depth, self._device)
        shares = deal(batch, self._lengths, self._world)
        with computing(self._device):
            for place in shares[self._rank]:
                torch.manual_seed(seed_of(self._job.seed, self._starts[step] + place))
                index = batch[place]
                own += self._learner.learn(lesson(samples[index], samples.states(index), self._device))
            if self._sharded:
                self._go_along(batch, max(map(len, shares)) - len(shares[self._rank]))
        outcome = self._of_all(own)
        return outcome, self._share_gradients(outcome.count)

    def _go_along(self, batch: Sequence[int], times: int) -> None:
        """Go through the head so many times more and learn nothing: others need this process's parts of it."""
        index = min(batch, key=self._lengths.__getitem__)
        for _ in range(times):
            sequence = lesson(self._data.train[index], self._data.train.states(index), self._device)
            self._learner.learn(replace(sequence, loss_mask=torch.zeros_like(sequence.loss_mask)))

    def _of_all(self, own: Outcome) -> Outcome:
        """The sum over all processes."""
        if self._world == 1:
            return own
        counted = torch.tensor([own.count], device=self._device)
        loss, accepted, drafts = own.loss.clone(), own.accepted.clone(), own.drafts.clone()
        for value in (counted, loss, accepted, drafts):
            dist.all_reduce(value)
        return Outcome(loss, int(counted), accepted, drafts)

    def _share_gradients(self, count: int) -> float:
        """Make the gradients those of the mean loss of all processes' tokens; their norm before it is limited."""
        weights = [weight for weight in self._head.parameters() if weight.requires_grad]
        if self._world > 1:
            self._sum_gradients([weight for weight in weights if not sharded.is_part(weight)])
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for gradient in gradients:
            sharded.own(gradient).div_(max(1, count))
        norm = sharded.total_norm(gradients)
        for gradient in gradients:
            sharded.own(gradient).mul_((LONGEST_GRADIENT / (norm + 1e-6)).clamp(max=1.0))
        return float(norm)

    def _sum_gradients(self, weights: Sequence[Tensor]) -> None:
        """Over all processes, of weights that each of them has whole; what is divided is summed already."""
        learning = torch.tensor([weight.grad is not None for weight in weights], device=self._device).int()
        dist.all_reduce(learning)  # a process without a sample has no gradients, and some weights have none at all
        for weight, processes in zip(weights, learning.tolist(), strict=True):
            if processes:
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                dist.all_reduce(weight.grad)

    def _evaluate(self, done: int, clock: _Clock) -> bool:
        """Measure on held-out data; whether the weights are the best so far."""
        walks, loss = self._held_out()
        found = acceptance_of(walks)
        self._evaluations.append((done, found.length))
        self._report(done, loss, found.per_depth, clock, held_out=True)
        return found.length >= max(length for _, length in self._evaluations)

    def _held_out(self, times: int = 1) -> tuple[list[Walk], float]:
        """How an engine would go through held-out answers, and the loss of a draft token."""
        self._head.eval()
        torch.manual_seed(self._job.seed)
        samples = self._data.held_out
        chosen = evaluated(samples.lengths, times)
        return walks_of(self._learner, samples, chosen, self._job.num_speculative_tokens, self._device)

    def _ended(self, clock: _Clock) -> str:
        if is_flat([length for _, length in self._evaluations]):
            return "flat"
        return "time" if self._any(clock.seconds() > self._job.max_seconds) else ""

    def _resume(self) -> int:
        """Take up the checkpoint, if there is one; the number of steps done."""
        loaded = None
        if self._rank == 0:
            checkpoint.remove_unfinished(self._folder)
            loaded = checkpoint.load(self._folder, self._job, self._weights(), self._optimizers)
        found = [loaded and replace(loaded, weights={}, optimizers=[])]
        if self._world > 1:
            dist.broadcast_object_list(found)
        if (stored := found[0]) is not None:
            sharded.fill(self._weights(), loaded.weights if loaded else {})
            states = loaded.optimizers if loaded else [{} for _ in self._optimizers]
            for optimizer, state in zip(self._optimizers, states, strict=True):
                optimizer.load_state_dict(sharded.handed_out(state, optimizer))
            self._evaluations, self._seconds = list(stored.evaluations), stored.seconds
            if stored.drafted != self._job.num_speculative_tokens:  # an earlier version's, or for another K
                self._evaluations = []
                self._save(stored.step, _Clock(stored.step, stored.seconds), evaluate=True)
        done = stored.step if stored else 0
        if self._rank == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            progress.forget_after(self._folder, "train", done)
        return done

    def _save(self, done: int, clock: _Clock, *, evaluate: bool) -> None:
        best = evaluate and self._evaluate(done, clock)
        weights, states = self._weights(), [optimizer.state_dict() for optimizer in self._optimizers]
        if self._sharded:
            self._writer.wait()  # memory has one checkpoint at a time
            weights = sharded.gathered(weights)
            states = [sharded.gathered_state(optimizer) for optimizer in self._optimizers]
        if self._rank == 0:
            drafted = self._job.num_speculative_tokens
            stored = Checkpoint(done, weights, states, list(self._evaluations), clock.seconds(), drafted)
            self._writer.save(stored, best=best, is_copy=self._sharded)
        clock.saved()

    def _finish(self, clock: _Clock, ended: str) -> Result:
        steps = clock.step
        self._take_best()
        tokens = sum(self._lengths[index] for batch in self._batches[:steps] for index in batch)
        best_step = max(self._evaluations, key=lambda evaluation: (evaluation[1], evaluation[0]))[0]
        walks, loss = self._held_out(FINAL_TIMES)
        evaluations = tuple(self._evaluations)
        return Result(steps, best_step, tuple(walks), loss, evaluations, ended, tokens, clock.seconds())

    def _take_best(self) -> None:
        """Those of the first process: other machines have no file of them."""
        self._writer.wait()
        weights = self._weights()
        sharded.fill(weights, checkpoint.load_best(self._folder, weights) if self._rank == 0 else {})

    def _weights(self) -> dict[str, Tensor]:
        """Everything that is trained."""
        return {name: value.detach() for name, value in self._head.named_parameters() if value.requires_grad}

    def _require_finite(self, done: int) -> None:
        """Raise TrainingDiverged, so that no weights are kept that nothing can be learned from any more."""
        if self._any(not all(bool(sharded.own(one).isfinite().all()) for one in self._weights().values())):
            raise _diverged(done)

    def _any(self, here: bool) -> bool:
        """Whether it is so in any process."""
        if self._world == 1:
            return here
        flag = torch.tensor(float(here), device=self._device)
        dist.all_reduce(flag)
        return bool(flag > 0)

    def _report(self, done: int, loss: float, shares: Sequence[float], clock: _Clock, *, held_out: bool) -> None:
        if self._rank > 0:
            return
        line = TrainingProgress(
            "train",
            done,
            len(self._batches),
            loss=loss,
            accuracy=tuple(round(share, 4) for share in shares),
            held_out=held_out,
            seconds_left=clock.seconds_left(len(self._batches)),
            tokens_per_second=clock.pace(),
            stops_at=clock.stops_at(len(self._batches), self._job.max_seconds),
        )
        progress.report(line, self._folder)


def _diverged(step: int) -> TrainingDiverged:
    return TrainingDiverged(
        f"step {step}: the loss is not a number any more; the checkpoint before it is kept",
        hint="Lower training.learning_rate, remove the checkpoints, and start again.",
    )


class _Clock:
    """Steps, tokens and seconds of this start, and the seconds of those before it."""

    def __init__(self, step: int, seconds_before: float) -> None:
        self.step = self._first = step
        self._before, self._tokens = seconds_before, 0
        self._started = self._saved = time.monotonic()

    def count(self, tokens: int) -> None:
        self.step += 1
        self._tokens += tokens

    def saved(self) -> None:
        self._saved = time.monotonic()

    def since_saved(self) -> float:
        return time.monotonic() - self._saved

    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def seconds_left(self, steps: int) -> float:
        return round(self._step_seconds() * (steps - self.step), 1)

    def stops_at(self, steps: int, most_seconds: float) -> int | None:
        """The step after which the time is up, None if that is the last; also None of the first, slow steps."""
        if self.step - self._first < _STEPS_TO_JUDGE:
            return None
        last = self.step + int((most_seconds - self.seconds()) / self._step_seconds())
        return max(self.step, last) if last < steps else None

    def _step_seconds(self) -> float:
        return (time.monotonic() - self._started) / max(1, self.step - self._first)

    def pace(self) -> float:
        return round(self._tokens / (time.monotonic() - self._started), 1)


def seed_of(seed: int, sample: int) -> int:
    """The seed of a sample by how many are learned before it: no two share their random numbers, also of one step."""
    return seed * 1_000_003 + sample


def walks_of(
    learner: Learner, samples: Samples, chosen: Iterable[int], drafted: int, device: torch.device
) -> tuple[list[Walk], float]:
    """How an engine that drafts so many tokens would go through these samples, and the loss of a draft token."""
    walks, loss, count = [], torch.zeros((), device=device), 0
    with computing(device):
        for index in chosen:
            sequence = lesson(samples[index], samples.states(index), device)
            found = learner.evaluate(sequence)
            one = walk(found.right, sequence.loss_mask, drafted)
            conversation, source = samples.origin(index)
            walks.append(replace(one, conversation=conversation, source=source))
            loss, count = loss + found.loss, count + found.count
    return walks, float(loss) / max(1, count)


def evaluated(lengths: Sequence[int], times: int = 1) -> list[int]:
    """The first samples, with about EVALUATED_TOKENS tokens and at least EVALUATED_CONVERSATIONS, or times as many."""
    before = list(accumulate(lengths, initial=0))
    tokens, samples = times * EVALUATED_TOKENS, times * EVALUATED_CONVERSATIONS
    return [index for index in range(len(lengths)) if before[index] < tokens or index < samples]


def rate(step: int, steps: int, share: float) -> float:
    """Share of the learning rate: up in a line over that `share` of the steps, then down to nothing at the last."""
    warmup = max(1, round(steps * share))
    return min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))


def is_flat(acceptance_lengths: Sequence[float]) -> bool:
    """Whether the last PATIENCE evaluations brought less than FLAT more than the best one before them."""
    before, last = acceptance_lengths[:-PATIENCE], acceptance_lengths[-PATIENCE:]
    return bool(before) and max(last) < max(before) * (1 + FLAT)


def _optimizer_settings(job: TrainingJob) -> TrainerConfig:
    """speculators' default: Muon for matrices, scaled as AdamW's updates are, and AdamW for the rest."""
    lr = job.learning_rate
    return TrainerConfig(lr, 1, job.checkpoints, optimizer="muon", weight_decay=0.0, muon_lr=lr, muon_weight_decay=0.01)
