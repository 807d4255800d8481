"""Workloads by name: those that come with the toolkit, files, data sets of the Hugging Face hub, captured requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.measure.arm import Workload
from toolkit.recipe.captured import read_capture
from toolkit.recipe.hub import HubFiles
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.prompts import Prompt, parse_prompts, prompt_of, read_prompts
from toolkit.recipe.rows import ENDINGS
from toolkit.training.sources import HubDataset, Objects, on_the_hub

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


def read_workloads(what: str, objects: Objects | None = None, dataset: HubDataset = on_the_hub) -> tuple[Workload, ...]:
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


# The eight classes of prompts of AWS's study on speculative decoding with Trainium: 64 tokens in, up to 600 out. In
# https://github.com/aws-neuron/aws-neuron-eks-samples, speculative_decoding_trn2_vllm, llmperf asks to repeat lines of
# a text, which is one line again and again in seven classes, and Shakespeare's sonnets in one. The wording is ours.
_STUDY = Path(__file__).parent / "study.json"
_STUDY_TOKENS = 600


def _study(what: str) -> tuple[Workload, ...]:
    """The workload of a class, named `study/json` and so on, or those of all."""
    classes = {f"study/{name}": texts for name, texts in json.loads(_STUDY.read_text(encoding="utf-8")).items()}
    if what not in ("study", *classes):
        hint = f"Give `study` for all, or one of: {', '.join(classes)}."
        raise UsageError(f"no workload is called {what}", hint=hint)
    return tuple(
        Workload(name, tuple(Prompt(({"role": "user", "content": text},), _STUDY_TOKENS) for text in texts))
        for name, texts in classes.items()
        if what in ("study", name)
    )


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
    named = f": {', '.join(matching[:_MOST_NAMED])}" if matching else ""
    part_of = f"Name one by a part of its path: {repo}:PART"
    hint = part_of if matching else f"Files of prompts end in one of {', '.join(ENDINGS)}."
    raise UsageError(f"{repo} on the hub has {len(matching)} files that could be meant{named}", hint=hint)


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
    return prompt_of(read_capture(documents.decode(line)).request, "a captured request")
