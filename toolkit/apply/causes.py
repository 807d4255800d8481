"""Known causes of failure and the stages of a start, read from the JSON files of engines and platforms.

An engine's files are listed in its rules, a platform's in the registry; engines/causes.json is for all engines. A file
may have these keys:

* `reasons`, `log`: known causes, found in the platform's failure reason or in lines of a container. The first entry
  that matches wins; entries are sorted by `rank`, across files. `{name}` in a hint is replaced from `texts`. `.*` in
  a pattern stands for a part of a line, not for any length: the time for a line must not grow with its square.
* `coded`: errors with a code, by the grammar of whoever writes it: `forms` are its sentences, with `{code}` in place of
  the code, `kinds` which codes are which cause, `meanings` what its documents say of a code (a table, or the name of a
  file of the catalogue). They become entries of `reasons` or `log` (`table`).
* `requests`: why a server refused a request, as the entries above; `answer`: the forms in which its client is told so.
  Looked up in such an answer alone, and by `explain` alone: nothing of it ends a start (diagnose.py).
* `listed`: a sentence that counts several causes (`of`, whose group is the list), and an edit for each of its `parts`;
  the first that matches tells what an item is.
* `subjects`, `settings`: what an exception is about that no entry knows (exceptions.py), and the recipe's key of each
  flag.
* `starts`, `answers`: the first line of a server's start, and the line that it writes when it begins to serve;
  `version`: what tells the engine's version, as a group; `answered`: what it writes of a request; `dies`: what it
  writes before the error that it dies of.
* `listens`: host and port that it listens on. `prefix`: the logger's prefix of a line. `noise`: lines that look like
  errors but are harmless. `echo`: errors that only repeat another one. `unknown_death`: codes whose cause is the last
  error before.
* `stages`, `counts`: lines that begin a stage (stages.py), and progress counters within it.
* `health_check`: how a platform reports a container that did not become healthy, and what to do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from toolkit.apply.exceptions import Subject, subject_pattern
from toolkit.apply.literals import Pattern, PatternSet
from toolkit.catalog import lookup
from toolkit.engines import CAUSES
from toolkit.engines import registry as engine_registry

_NOTHING = r"(?!)"
_ANY, _NEAR = ".*", ".{0,300}"


@dataclass(frozen=True)
class Known:
    """A known cause and the texts that identify it.

    `words` must match a line; `beside` must match another line of the same start, and `without` no line. `certain` is
    the number of failed starts after which another start is pointless; 0 if the cause may go away by itself.
    `starting` is for words that a server that answers writes of a refused request, too: they tell of its start alone.
    `meanings` are what documents say of the codes that a group of the words may match.
    """

    code: str
    words: Pattern
    hint: str
    beside: Pattern | None = None
    without: Pattern | None = None
    certain: int = 1
    rank: int = 0
    starting: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def meaning(self, line: str) -> str:
        """What documents say of the line's code; may be empty."""
        found = self.words.search(line) if self.meanings else None
        code = next(filter(None, found.groups()), "") if found else ""
        return f"{code}: {self.meanings[code]}" if code in self.meanings else ""


@dataclass(frozen=True)
class Listed:
    """A sentence that counts several causes: `of` matches it and has the list as its group, each of `parts` an item."""

    of: Pattern
    parts: tuple[Known, ...]


@dataclass(frozen=True)
class HealthCheck:
    """A platform's check of a container's health.

    `failed` matches its failure reason, `ended` that of a container that exited. `refused` matches log lines of health
    check requests that got an error. The keys of `hints` and `lines` are codes of causes.
    """

    failed: re.Pattern[str]
    ended: re.Pattern[str]
    refused: Pattern
    port: str
    hints: Mapping[str, str]
    lines: Mapping[str, str]


@dataclass(frozen=True)
class Words:
    """Everything known about the messages of a platform and all engines."""

    reasons: tuple[Known, ...]
    log: tuple[Known, ...]
    requests: tuple[Known, ...]
    answer: Pattern
    listed: tuple[Listed, ...]
    subjects: tuple[Subject, ...]
    settings: Mapping[str, str]
    starts: Pattern
    version: Pattern
    answers: Pattern
    answered: Pattern
    dies: Pattern
    listens: tuple[Pattern, ...]
    prefix: re.Pattern[str]
    noise: re.Pattern[str]
    echo: re.Pattern[str]
    unknown_deaths: frozenset[str]
    stages: tuple[tuple[str, Pattern], ...]
    counts: tuple[tuple[Pattern, str], ...]
    health_checks: tuple[HealthCheck, ...]

    @cached_property
    def marks(self) -> PatternSet:
        """What any line may match, whoever wrote it and however harmless it is."""
        conditions = [part for known in self.all_known for part in (known.beside, known.without) if part]
        stages = [mark for _, mark in self.stages]
        refused = [check.refused for check in self.health_checks]
        server = [self.starts, self.version, self.answers, self.answered, self.answer, self.dies, *self.listens]
        return PatternSet([*server, *conditions, *stages, *refused])

    @cached_property
    def causes(self) -> PatternSet:
        """What shows a cause in a line that is no noise."""
        return PatternSet([*(known.words for known in self.all_known), *(each.of for each in self.listed)])

    @property
    def all_known(self) -> tuple[Known, ...]:
        """The entries of all tables."""
        return (*self.reasons, *self.log, *self.requests)


def words(platform: str | None = None) -> Words:
    """The patterns of all engines and of one platform, by default of all platforms."""
    engines = [path for name in engine_registry.engines() for path in engine_registry.engine_rules(name).causes]
    platforms = lookup.platform_causes(platform)
    return _read(tuple(dict.fromkeys([*engines, CAUSES, *platforms])))


@cache
def _read(paths: tuple[Path, ...]) -> Words:
    files = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return Words(
        reasons=_known(files, "reasons"),
        log=_known(files, "log"),
        requests=_known(files, "requests"),
        answer=_any(chain.from_iterable(_all(files, "answer"))),
        listed=tuple(_listed(fields) for items in _all(files, "listed") for fields in items),
        subjects=tuple(
            _subject(fields, file.get("texts", {})) for file in files for fields in file.get("subjects", ())
        ),
        settings=dict(chain.from_iterable(settings.items() for settings in _all(files, "settings"))),
        starts=_any(_all(files, "starts")),
        version=_any(_all(files, "version")),
        answers=_any(_all(files, "answers")),
        answered=_any(_all(files, "answered")),
        dies=_any(_all(files, "dies")),
        listens=tuple(map(Pattern, _all(files, "listens"))),
        prefix=re.compile(_either(_all(files, "prefix"))),
        noise=re.compile(_either(text for texts in _all(files, "noise") for text in texts)),
        echo=re.compile(_either(_all(files, "echo"))),
        unknown_deaths=frozenset(_all(files, "unknown_death")),
        stages=tuple((name, _any(texts)) for marks in _all(files, "stages") for name, texts in marks.items()),
        counts=tuple((Pattern(item["words"]), item["unit"]) for items in _all(files, "counts") for item in items),
        health_checks=tuple(_health_check(fields) for fields in _all(files, "health_check")),
    )


def _known(files: Sequence[Mapping[str, Any]], table: str) -> tuple[Known, ...]:
    entries = [_entry(fields, file.get("texts", {})) for file in files for fields in file.get(table, ())]
    hints = {known.code: known.hint for known in reversed(entries)}
    entries += [_entry(f, {}) for file in files for coded in file.get("coded", ()) for f in _coded(coded, table, hints)]
    return tuple(sorted(entries, key=lambda known: known.rank))


def _entry(fields: Mapping[str, Any], texts: Mapping[str, str]) -> Known:
    patterns: dict[str, Any] = {name: _any(fields[name]) for name in ("beside", "without") if name in fields}
    patterns["words"] = _any(fields["words"], fields.get("of", ""))
    values = {name: fields[name] for name in ("certain", "rank", "starting", "meanings") if name in fields}
    return Known(fields["code"], hint=_filled(fields["hint"], texts), **patterns, **values)


def _filled(hint: str, texts: Mapping[str, str]) -> str:
    for name, text in texts.items():  # a text may refer to a later one
        hint = hint.replace(f"{{{name}}}", text)
    return hint


def _coded(coded: Mapping[str, Any], table: str, hints: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """An entry for each kind, with the meanings of its codes. Of two kinds with a code, the first is asked first."""
    if coded["table"] != table:
        return
    listed = coded.get("meanings", {})
    if isinstance(listed, str):
        listed = lookup.read(listed)["meanings"]
    values = {name: coded[name] for name in ("certain", "rank") if name in coded}
    for kind in coded["kinds"]:
        meanings = {code: says for code, says in listed.items() if re.fullmatch(kind["of"], code)}
        words = [form.replace("{code}", f"({kind['of']})") for form in coded["forms"]]
        hint = kind.get("hint") or hints[kind["code"]]
        yield {"code": kind["code"], "words": words, "of": kind["of"], "hint": hint, "meanings": meanings, **values}


def _listed(fields: Mapping[str, Any]) -> Listed:
    return Listed(_any(fields["of"]), tuple(_entry(part, fields.get("texts", {})) for part in fields["parts"]))


def _subject(fields: Mapping[str, Any], texts: Mapping[str, str]) -> Subject:
    modules = re.compile(rf"(?:^|/)(?:{fields['modules']})")
    raises, within, settings = (
        re.compile(fields[name]) if name in fields else None for name in ("raises", "within", "settings")
    )
    terms = subject_pattern(fields["terms"]) if "terms" in fields else None
    return Subject(fields["code"], _filled(fields["hint"], texts), modules, raises, within, settings, terms)


def _health_check(fields: Mapping[str, Any]) -> HealthCheck:
    failed, ended = (re.compile(fields[name]) for name in ("failed", "ended"))
    return HealthCheck(failed, ended, Pattern(fields["refused"]), fields["port"], fields["hints"], fields["lines"])


def _all(files: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    return [file[key] for file in files if key in file]


def _any(texts: Iterable[str], part: str = "") -> Pattern:
    return Pattern(_either(texts), part)


def _either(texts: Iterable[str]) -> str:
    """A regular expression that matches any of the texts; none if there are none."""
    return "|".join(f"(?:{text})" for text in texts).replace(_ANY, _NEAR) or _NOTHING
