"""From a job's sources to what its head learns from: conversations, answers, samples, draft vocabulary, hidden states.

    checkpoints/responses.jsonl    the target's answers, which cost the most to make again
    work/conversations.jsonl       the different conversations of all sources, within the shares of `shares`
    work/train/, work/held-out/    samples and hidden states (`samples`)
    work/vocabulary.safetensors    the maps of a reduced draft vocabulary
    work/data.json                 written last of these: what was prepared, and from what
    work/window.json               which hidden states are complete (`extraction`)

Every stage goes on where it was interrupted. Nothing here says anything of the texts but how many there are and where.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

from transformers import AutoConfig

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.files import write_whole, writing
from toolkit.recipe.content import digest
from toolkit.recipe.source import is_commit
from toolkit.training.chat import Chat, Cut, Turn, Unmaskable, load_chat, samples_of
from toolkit.training.checkpoint import steps_done
from toolkit.training.conversations import UNANSWERED, Conversation, Skipped, distinct, held_out, parts_of, rank
from toolkit.training.engine import TrainingEngine
from toolkit.training.extraction import prepare_window, require_exact
from toolkit.training.generators import FromServer, InTransformers, served_model, server_client
from toolkit.training.job import IN_BLOCKS, TrainingJob, block_size
from toolkit.training.progress import Report, TrainingProgress
from toolkit.training.reading import reading
from toolkit.training.responses import Answered, Generator, Lengths, Responses, respond
from toolkit.training.samples import (
    HELD_OUT,
    INDEX,
    TRAIN,
    Contents,
    Origin,
    Sample,
    Samples,
    SampleWriter,
    read_contents,
)  # fmt: skip
from toolkit.training.shares import Split, mark_of, mixed, split, within_shares
from toolkit.training.sources import HubDataset, on_the_hub, source_rows
from toolkit.training.states import load_target
from toolkit.training.vocabulary import Vocabulary, count_tokens, draft_vocabulary, head_vocabulary, read_vocabulary

KEEP, IN_JOB = "keep", "target"
"""What `responses` is, where it is no address."""
_DECIDING = {"target_name", "target_revision", "responses", "temperature", "max_new_tokens", "max_length", "seed"}
"""Settings that decide the target's answers."""


@dataclass(frozen=True)
class Prepared:
    """What was prepared. `skipped` says what is not used; `coverage` is the draft vocabulary's of held-out tokens."""

    made_from: str
    train: Contents
    held_out: Contents
    skipped: str
    coverage: float | None = None


def prepare_data(
    job: TrainingJob,
    layers: tuple[int, ...],
    report: Report,
    say: Callable[[str], None],
    engine: TrainingEngine | None = None,
    dataset: HubDataset = on_the_hub,
) -> Prepared:
    """Make samples of the job's data, and hidden states for its next steps; `layers` are those that the head reads.

    `say` gets a line of text now and then; `engine` serves the target where it is installed. Raises UsageError for
    data that cannot be used, before the target answers anything; PlatformError for a full disk or a target that does
    not answer. What is complete stays.
    """
    work = Path(job.work)
    chat = load_chat(job.target, job.target_revision or "main")
    prepared = _read_prepared(work, _made_from(job, chat)) if all(map(_is_fixed, job.data)) else None
    if prepared is None:
        prepared = _prepare_samples(job, chat, layers, report, engine, dataset)
        say(_told(prepared))
    for name in (TRAIN, HELD_OUT):
        Samples(work / name).require_vocabulary(_vocab_size(job))
    if job.method in IN_BLOCKS:
        _require_blocks(job, say)
    prepare_window(job, layers, steps_done(Path(job.checkpoints)), report, say, engine)
    return prepared


def _require_blocks(job: TrainingJob, say: Callable[[str], None]) -> None:
    """Raise UsageError if no sample has a place for a whole block of the head; `say` if some have none."""
    samples, block = Samples(Path(job.work) / TRAIN), block_size(job.method, job.depth)
    # Behind the first token, which has no hidden state before it, and as `select_anchors` chooses.
    able = sum(bool(sample.loss_mask[2:-block].any()) for sample in samples)
    if not able:
        hint = "Set speculation.num_speculative_tokens to fewer, or give data with longer answers."
        raise UsageError(f"no answer of the data is as long as a {job.method} block of {block} tokens", hint=hint)
    if able < len(samples):
        say(f"{able:,} of {len(samples):,} samples are long enough for a {job.method} block of {block} tokens")


def read_draft_vocabulary(job: TrainingJob) -> Vocabulary | None:
    """The maps of a prepared job's draft vocabulary; None where the head drafts all tokens. Raises UsageError."""
    return read_vocabulary(Path(job.work), _vocab_size(job)) if job.draft_vocab_size else None


def _vocab_size(job: TrainingJob) -> int:
    """How many tokens the target has."""
    with reading(
        f"config.json of {job.target}", "Check that it is that of a language model that transformers knows.", job.target
    ):
        config = AutoConfig.from_pretrained(job.target, revision=job.target_revision or "main")
        return int(config.get_text_config().vocab_size)


def _told(prepared: Prepared) -> str:
    train, other = prepared.train, prepared.held_out
    lines = [
        f"{train.samples:,} samples to train on ({train.tokens:,} tokens, {train.trained_tokens:,} of them the "
        f"target's), {other.samples:,} held out"
    ]
    if prepared.skipped:
        lines.append(f"not used: {prepared.skipped}")
    if prepared.coverage is not None:
        lines.append(f"the draft vocabulary covers {prepared.coverage:.2%} of the held-out tokens")
    return "\n".join(lines)


def _prepare_samples(
    job: TrainingJob,
    chat: Chat,
    layers: tuple[int, ...],
    report: Report,
    engine: TrainingEngine | None,
    dataset: HubDataset,
) -> Prepared:
    work, skipped = Path(job.work), Skipped()
    with writing(work):
        work.mkdir(parents=True, exist_ok=True)
        Path(job.checkpoints).mkdir(parents=True, exist_ok=True)
    own = [Path(source) for source in job.data if (Path(source) / INDEX).is_file()]
    _require_tokenizer(own, chat)
    for folder in own:
        Samples(folder).require_vocabulary(_vocab_size(job))
    questions, sides = _collect(job, skipped, dataset)
    count = len(questions)
    report(TrainingProgress("data", 0, count))
    if job.responses != KEEP:
        require_exact(job, layers, engine)  # before the answers are paid for
        _respond(job, chat, count, report, engine)
    asked = [*map(sides.of, questions), *(question for question, _ in _ready(own))]
    aside = held_out(asked, job.held_out, job.seed)
    numbers: dict[str, int] = {}
    with ExitStack() as stack:
        writers = [stack.enter_context(SampleWriter(work / name, chat.digest)) for name in (TRAIN, HELD_OUT)]
        for number, (question, sample, source) in enumerate(_samples(job, chat, own, skipped)):
            conversation = numbers.setdefault(question, number)
            writers[sides.of(question) in aside].add(sample, Origin(conversation, source))
    train, other = read_contents(work / TRAIN), read_contents(work / HELD_OUT)
    _require_samples(train, other, skipped)
    coverage = _write_vocabulary(job, chat) if job.draft_vocab_size else None
    prepared = Prepared(_made_from(job, chat), train, other, skipped.text(), coverage)
    write_whole(work / _FILE, json.dumps(asdict(prepared), indent=2) + "\n")
    return prepared


_FILE = "data.json"
_FORM = 4
"""Samples of an earlier form are made anew, from the same answers."""


def _read_prepared(work: Path, made_from: str) -> Prepared | None:
    """What is there already, if it was made from the same."""
    try:
        prepared = documents.parse(Prepared, documents.read_file(work / _FILE))
    except (OSError, documents.Unfit):
        return None
    return prepared if prepared.made_from == made_from else None


def _is_fixed(source: str) -> bool:
    """Whether a look at this machine shows that a source did not change: new objects come to S3, and to a branch."""
    return not source.startswith("s3://") and (not source.startswith("hf://") or is_commit(source.rpartition("@")[2]))


def _made_from(job: TrainingJob, chat: Chat) -> str:
    """A digest of all that decides the samples: settings, tokenizer, and the state of the files on this machine."""
    files = [path for source in job.data for path in sorted([Path(source), *Path(source).rglob("*")]) if path.is_file()]
    states = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    settings = job.model_dump(include=_DECIDING | {"data", "shares", "held_out", "draft_vocab_size", "start_from"})
    return digest([_FORM, settings, chat.digest, states])


def _collect(job: TrainingJob, skipped: Skipped, dataset: HubDataset) -> tuple[list[str], Split]:
    """Write the different conversations of all sources to a file: their questions, and how these are split."""
    work = Path(job.work)
    sources = {index: source for index, source in enumerate(job.data) if not (Path(source) / INDEX).is_file()}
    every, seen, source_of = work / f"all-{_CONVERSATIONS}", set[str](), array("I")
    with writing(every), every.open("w", encoding="utf-8") as stream:
        for index, source in sources.items():
            rows = source_rows(source, work / "downloads", dataset=dataset)
            for conversation in distinct(rows, job.responses == KEEP, skipped, seen, strict=job.strict):
                stream.write(json.dumps(asdict(replace(conversation, source=_name_of(source)))) + "\n")
                source_of.append(index)
    sides = split(_conversations(every), job.held_out, job.seed)
    marks = [mark_of(conversation, sides) for conversation in _conversations(every)]
    parts = parts_of(_conversations(every), job.responses == KEEP)
    wholes = [number for number in range(len(marks)) if number not in parts]
    taken = within_shares([marks[number] for number in wholes])
    left_out = {wholes[number]: reason for number, reason in taken.left_out}
    left_out |= dict.fromkeys(parts, "beginnings of chats that go on in another row")
    left_out |= _beyond_shares(
        job, [number for number in range(len(marks)) if number not in left_out], source_of, every
    )
    questions = _keep(left_out, every, work / _CONVERSATIONS, skipped)
    if sources and not questions:
        hint = (
            "Write `training.responses: target`: then the target answers the questions of the data itself."
            if job.responses == KEEP and UNANSWERED in skipped.counts
            else "Correct `training.data`."
        )
        raise UsageError(f"the data has no conversation to train on: {skipped.text()}", hint=hint)
    return questions, sides


def _beyond_shares(job: TrainingJob, numbers: Sequence[int], source_of: Sequence[int], every: Path) -> dict[int, str]:
    """Which of the conversations with these numbers would make a source more than its share of all."""
    if not job.shares:
        return {}
    ranks = [rank(conversation.digest, job.seed) for conversation in _conversations(every)]
    stay = mixed([source_of[number] for number in numbers], job.shares, [ranks[number] for number in numbers])
    beyond = [number for position, number in enumerate(numbers) if position not in stay]
    return {number: f"beyond the share of {_name_of(job.data[source_of[number]])}" for number in beyond}


def _keep(left_out: Mapping[int, str], every: Path, kept: Path, skipped: Skipped) -> list[str]:
    """Write a file's conversations to another one, but for those left out: their questions. The file is removed."""
    questions = []
    with writing(kept), kept.open("w", encoding="utf-8") as stream:
        for number, conversation in enumerate(_conversations(every)):
            if reason := left_out.get(number):
                skipped.add(reason, conversation.location)
                continue
            stream.write(json.dumps(asdict(conversation)) + "\n")
            questions.append(conversation.question)
    every.unlink()
    return questions


_CONVERSATIONS = "conversations.jsonl"


def _name_of(source: str) -> str:
    """A source's name, for the card: a file's or folder's without where it lies, a data set's without the revision."""
    return source.partition("@")[0] if source.startswith("hf://") else PurePosixPath(source).name


def _conversations(path: Path) -> Iterator[Conversation]:
    with path.open("rb") as stream:
        for line in stream:
            yield documents.parse_quickly(Conversation, line, documents.Limits(size=256 * 1024**2))


def _responses(job: TrainingJob) -> Responses:
    settings = job.model_dump(include=_DECIDING | {"dtype"})
    return Responses(Path(job.answers or job.checkpoints) / "responses.jsonl", digest(settings))


def _respond(job: TrainingJob, chat: Chat, count: int, report: Report, engine: TrainingEngine | None) -> None:
    responses, path = _responses(job), Path(job.work) / _CONVERSATIONS
    if all(conversation in responses for conversation in _conversations(path)):
        return
    with _target(job, chat, engine) as generate:
        respond(
            _conversations(path),
            responses,
            generate,
            chat,
            Lengths(job.max_length, job.max_new_tokens),
            lambda done: report(TrainingProgress("data", done, count)),
        )


@contextmanager
def _target(job: TrainingJob, chat: Chat, engine: TrainingEngine | None) -> Iterator[Generator]:
    """The target behind the job's server, or in this job: there in the engine, where it is installed."""
    if job.responses != IN_JOB:
        with server_client(job.responses) as client:
            yield FromServer(client, served_model(client), chat, job.temperature, job.seed)
    elif engine and (answering := engine.answering(job, chat)):
        with answering as generate:
            yield generate
    else:
        target = load_target(job.target, job.target_revision or "main", job.dtype)
        yield InTransformers(target, chat, job.temperature, job.seed)


def _samples(job: TrainingJob, chat: Chat, own: list[Path], skipped: Skipped) -> Iterator[tuple[str, Sample, str]]:
    """Samples, each with its question and the name of its source."""
    sources = {one.digest: one.source for one in _conversations(Path(job.work) / _CONVERSATIONS)}
    for one in _read_answers(job, chat, skipped):
        cut = samples_of(one.turns, job.max_length)
        _count_lengths(cut, one.location, skipped)
        yield from ((one.question, sample, sources[one.digest]) for sample in cut.samples)
    for folder in own:
        for question, sample in _ready([folder]):
            tokens, mask = sample.input_ids[: job.max_length], sample.loss_mask[: job.max_length]
            if mask.any():
                yield question, Sample(tokens, mask), _name_of(str(folder))


def _read_answers(job: TrainingJob, chat: Chat, skipped: Skipped) -> Iterator[Answered]:
    """All conversations with their answers as tokens."""
    path = Path(job.work) / _CONVERSATIONS
    if job.responses != KEEP:
        wanted = {conversation.digest for conversation in _conversations(path)}
        found = (one for one in _responses(job) if one.digest in wanted)
    else:
        found = (_keep_answers(conversation, chat) for conversation in _conversations(path))
    for one in found:
        if one.reason:
            skipped.add(one.reason, one.location)
        yield one


def _keep_answers(conversation: Conversation, chat: Chat) -> Answered:
    turns: list[Turn] = []
    reason = ""
    try:
        turns.extend(chat.turns(conversation.messages, conversation.given, conversation.tools))
    except Unmaskable as error:
        reason = f"conversations because {error}"
    return Answered(conversation.digest, conversation.question, conversation.location, tuple(turns), reason)


def _count_lengths(cut: Cut, location: str, skipped: Skipped) -> None:
    for _ in range(cut.cut):
        skipped.add("ends of answers that are longer than max_length", location)
    for _ in range(cut.dropped):
        skipped.add("answers to prompts that are longer than max_length", location)


def _ready(folders: Iterable[Path]) -> Iterator[tuple[str, Sample]]:
    """Samples that were prepared before, each with a digest of what precedes its first answer."""
    for folder in folders:
        for sample in Samples(folder):
            prompt = sample.input_ids[: int(sample.loss_mask.argmax())]
            yield digest(prompt.tolist()), sample


def _require_tokenizer(folders: list[Path], chat: Chat) -> None:
    for folder in folders:
        if read_contents(folder).tokenizer != chat.digest:
            hint = "Give the conversations that they were made from as `training.data`, or samples of this target."
            raise UsageError(f"the samples in {folder} were made with another tokenizer than the target's", hint=hint)


def _require_samples(train: Contents, other: Contents, skipped: Skipped) -> None:
    for contents, what in ((train, "train on"), (other, "hold out")):
        if not contents.trained_tokens:
            why = f": {skipped.text()}" if skipped.counts else ""
            hint = "Correct `training.data`, or raise training.max_length. With `training.responses: target` the "
            hint += "target's own tokens are used, whatever its chat template does."
            raise UsageError(f"the data gives no answer to {what}{why}", hint=hint)


def _write_vocabulary(job: TrainingJob, chat: Chat) -> float:
    """Choose the draft vocabulary and write its maps: its share of the held-out tokens."""
    work, size = Path(job.work), job.draft_vocab_size or 0
    tokens = _vocab_size(job)
    always = (token for token in chat.special_tokens if token < tokens)
    vocabulary = head_vocabulary(Path(job.start_from), tokens) if job.start_from else None
    if vocabulary is None:
        vocabulary = draft_vocabulary(count_tokens(work / TRAIN, tokens), size, always)
    if len(vocabulary.d2t) != size:
        hint = f"Write training.draft_vocab_size: {len(vocabulary.d2t)}; a head keeps its tokens when it is continued."
        raise UsageError(f"the head in {job.start_from} drafts {len(vocabulary.d2t)} tokens, not {size}", hint=hint)
    vocabulary.write(work)
    return vocabulary.coverage(count_tokens(work / HELD_OUT, tokens))
