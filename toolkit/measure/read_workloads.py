"""Workloads by name: those that come with the toolkit, files, data sets of the Hugging Face hub, captured requests."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.measure.workload import Prompt, Workload
from toolkit.recipe.captured import captured
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.prompts import parse_prompts, prompt_of, read_prompts
from toolkit.recipe.rows import ENDINGS

SHIPPED = ("structured", "open-ended")
"""Workloads of eight short prompts each: predictable text, and text that is not."""

DATASETS = {
    "gsm8k": "openai/gsm8k:main",
    "humaneval": "openai/openai_humaneval",
    "mt-bench": "philschmid/mt-bench",
    "speed-bench": "nvidia/SPEED-Bench:qualitative",
}
"""Short names of data sets that papers on speculative decoding measure with."""

_DATASET = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<part>.+))?")
_SPLITS = ("test", "validation", "train")
_MOST_NAMED = 10
# SPEED-Bench's text where a prompt's source has a licence of its own: https://huggingface.co/datasets/nvidia/SPEED-Bench
_MASKED = "FULL BENCHMARK DATA SHOULD BE FETCHED"

HubDataset = Callable[[str, str | None], HubFiles]


def _on_the_hub(repo: str, revision: str | None) -> HubFiles:
    return HubFiles(repo, revision, hub_client(), "datasets")


def read_workloads(
    what: str, objects: Objects | None = None, dataset: HubDataset = _on_the_hub
) -> tuple[Workload, ...]:
    """The workloads that `what` names. Raises UsageError or HubError.

    `what` is a file; `structured` or `open-ended`; `study`, or one of its classes such as `study/json`; a data set of
    the hub, as `gsm8k` or `org/name[@revision][:part]`, where `part` is in the path of one of its files; or `s3://…`, a
    prefix of SageMaker's data capture. `objects` reads that with a platform's own client: texts stay in the account.
    """
    if what in SHIPPED:
        return (_from_file(catalogue_dir() / "tiny" / "prompts" / f"{what}.jsonl"),)
    if what == "study" or what.startswith("study/"):
        return _study(what)
    if what.startswith("s3://"):
        return (_read_captured(what, objects),)
    path = Path(what).expanduser()
    if path.suffix.lower() in ENDINGS or path.exists():
        return (_from_file(path),)
    if named := _DATASET.fullmatch(DATASETS.get(what, what)):
        name = what if what in DATASETS else PurePosixPath(named["repo"]).name
        files = dataset(named["repo"], named["revision"])
        return (_from_hub(name, named["repo"], named["part"] or "", files),)
    names = ", ".join((*SHIPPED, "study", *DATASETS))
    hint = f"Give a file that exists, a data set of the hub as `org/name`, `s3://…`, or one of: {names}."
    raise UsageError(f"no workload is called {what}", hint=hint)


def _from_file(path: Path) -> Workload:
    return _workload(path.stem, read_prompts(path), str(path))


def _workload(name: str, prompts: tuple[Prompt, ...], source: str, note: str = "") -> Workload:
    if not prompts:
        hint = 'Write a prompt on each line: {"prompt": "Name three rivers."}.'
        raise UsageError(f"{source} contains no prompts", hint=hint)
    return Workload(name, prompts, note=note)


def _study(what: str) -> tuple[Workload, ...]:
    workloads = study_workloads()
    chosen = tuple(workload for workload in workloads if what in ("study", workload.name))
    if not chosen:
        names = ", ".join(workload.name for workload in workloads)
        raise UsageError(f"no workload is called {what}", hint=f"Give `study` for all, or one of: {names}.")
    return chosen


def _read_captured(prefix: str, objects: Objects | None) -> Workload:
    if objects is None:
        hint = "Measure an endpoint on SageMaker, or copy the files and give their paths."
        raise UsageError(f"{prefix} can be read only with a platform that has S3", hint=hint)
    return captured_workload(prefix, objects(prefix))


def _from_hub(name: str, repo: str, part: str, files: HubFiles) -> Workload:
    file = _data_file(repo, part, files.names())
    prompts = parse_prompts(files.read(file), f"{repo}, {file}")
    kept = tuple(prompt for prompt in prompts if _MASKED not in prompt.text)
    masked = f"; {len(prompts) - len(kept)} of {len(prompts)} prompts are masked and were left out"
    note = f"{name}: {file} at {files.revision[:12]}{masked if len(kept) < len(prompts) else ''}"
    return _workload(name, kept, f"{repo}, {file}", note)


def _data_file(repo: str, part: str, names: Iterable[str]) -> str:
    """The one file to read: of the test split where there is one."""
    matching = sorted(name for name in names if PurePosixPath(name).suffix in ENDINGS and part in name)
    for split in _SPLITS:
        of_split = [name for name in matching if PurePosixPath(name).name.startswith(split)]
        if len(of_split) == 1:
            return of_split[0]
    if len(matching) == 1:
        return matching[0]
    named = ", ".join(matching[:_MOST_NAMED])
    raise UsageError(
        f"{repo} on the hub has {len(matching)} files that could be meant{f': {named}' if named else ''}",
        hint=f"Name one by a part of its path: {repo}:PART"
        if matching
        else f"Files of prompts end in one of {', '.join(ENDINGS)}.",
    )


Objects = Callable[[str], Iterable[tuple[str, bytes]]]
"""Reads every object below a prefix such as `s3://bucket/data-capture/`: its key and content, oldest first."""

# What a measurement can ask in its time; a day's capture may be gigabytes.
_MOST_PROMPTS = 1000


def captured_workload(prefix: str, objects: Iterable[tuple[str, bytes]]) -> Workload:
    """The first thousand captured requests for text. Lines without such a request are counted, and never shown."""
    lines = (line for _, content in objects for line in content.split(b"\n") if line.strip())
    prompts: list[Prompt] = []
    skipped = 0
    for line in lines:
        try:
            prompts.append(_prompt(line))
        except (UsageError, ValueError):
            skipped += 1
        if len(prompts) == _MOST_PROMPTS:
            break
    if not prompts:
        hint = "Give the prefix of an endpoint's capture, and see that it captures the input (`CaptureMode: Input`)."
        raise UsageError(f"{prefix} holds no captured requests for text ({skipped} other lines)", hint=hint)
    others = f"; {skipped} lines were no requests for text" if skipped else ""
    return Workload("captured", tuple(prompts), note=f"captured: {len(prompts)} captured requests{others}")


def _prompt(line: bytes) -> Prompt:
    """A line's request. Raises UsageError or ValueError, as for a request that is not JSON."""
    return prompt_of(captured(documents.decode(line)).request, "a captured request")


# The eight classes of prompts of AWS's study on speculative decoding with Trainium: 64 tokens in, up to 600 out. In
# https://github.com/aws-neuron/aws-neuron-eks-samples, speculative_decoding_trn2_vllm, llmperf asks to repeat lines of
# a text, which is one line again and again in seven classes, and Shakespeare's sonnets in one. The wording is ours.
_LINES = {
    "counting": "counting numbers from 1",
    "a": "a",
    "hello-world": "hello world",
    "cat": "the cat sat on the mat.",
    "json": "Output valid JSON with fixed keys",
    "python": "Write a simple Python function skeleton",
    "list-numbers": "List numbers from one to twenty",
}
_ASK = "Repeat lines of the following text, in any order, until you have written 600 tokens. Do not stop before:\n\n"
_INPUT_TOKENS, _OUTPUT_TOKENS = 64, 600
_SHAKESPEARE_PROMPTS = 8
_SONNETS = """\
Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimmed,
And every fair from fair sometime declines,
By chance, or nature's changing course untrimmed:
But thy eternal summer shall not fade,
Nor lose possession of that fair thou ow'st,
Nor shall death brag thou wander'st in his shade,
When in eternal lines to time thou grow'st,
So long as men can breathe, or eyes can see,
So long lives this, and this gives life to thee."""


def study_workloads() -> tuple[Workload, ...]:
    """A workload for each class, named `study/json` and so on. The same prompts on every call."""
    shuffle = random.Random(0)  # noqa: S311 - an order, no secret
    lines = _SONNETS.splitlines()
    sonnets = [shuffle.sample(lines, len(lines)) for _ in range(_SHAKESPEARE_PROMPTS)]
    repeated = {name: [[line] * _INPUT_TOKENS] for name, line in _LINES.items()}
    texts = {**repeated, "shakespeare": sonnets}
    return tuple(Workload(f"study/{name}", tuple(map(_repeat_prompt, prompts))) for name, prompts in texts.items())


def _repeat_prompt(lines: list[str]) -> Prompt:
    """The request with as many lines as make about 64 tokens, which words and marks stand for here."""
    text = _ASK
    for line in lines:
        if _tokens(text + line) > _INPUT_TOKENS:
            break
        text += f"{line}\n"
    return Prompt(({"role": "user", "content": text},), _OUTPUT_TOKENS)


def _tokens(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))
