"""What a Python exception says by its form: the module that raised it, and what its sentence names.

This explains errors that nobody has described yet: an engine's package has a module for each of its parts, and a
sentence that refuses a setting names the setting.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

from toolkit.engines import registry as engine_registry

# The class has a telling end, or its module before it.
_RAISED = re.compile(
    r"^((?:[A-Za-z_]\w*\.)*)([A-Z]\w*(?:Error|Exception|Failed|Interrupt|Exit|Iteration)\b|(?<=\.)[A-Z]\w*"
    r"|(?<=\.)[a-z]\w*(?:Error|Exception)\b|Value error(?=, ))(?:(?:: |, )(.*))?$"
)
_TRACEBACK = "Traceback (most recent call last)"
# Between the two exceptions of a chain, as CPython writes it.
_LED_TO = re.compile(r"During handling of the above exception, another|above exception was the direct cause of")
# As glibc and others write it: the program's file in C++, its line, and what does not hold.
_IN_C = re.compile(r"(?<![\w.@+/-])(?P<file>/*(?:[\w.@+-]+/)+[\w.@+-]+)\.(?:c|cc|cpp|cu|cuh|h|hpp):\d+:? (?P<says>.*)")
_ASSERTED = re.compile(r"[Aa]ssertion .*\bfailed\b.*")
_FRAME = re.compile(
    r"(?:^|\bFile )\"?(?P<file>[\w~/.@+-]+\.pyx?)(?:\"?, line \d+(?:, in )?|:\d+, in |\(\d+\): )(?P<function>\w*)"
)
_PACKAGES = "-packages/"
_ARROW = re.compile(r"(-+> ?)?\d* ")
_MOST_LINES = 40
# What runs the code of others or reads JSON for them, and a command or a path that is quoted: none tells what is wrong.
_PASSING = re.compile(
    r"torch/(nn/modules/module|_ops|utils/_contextlib|jit/|_dynamo/(eval_frame|utils)|_tensor)|pydantic|contextlib|"
    r"asyncio|concurrent|multiprocessing|uvloop|importlib|functools|threading|(^|/)json/(decoder|__init__)$"
)
_PATH = re.compile(r"(?<![\w-])[\w.~-]*/\S*|\S+\.(json|py)\b")
_SETTING = re.compile(r"[a-z]\w*(?:[_-]\w+)+")
# Names of fewer words stand in sentences about other things, too.
_TELLING = re.compile(r"\w+-\w+-\w+|\w+-(config|backend|parser)$")
_REFUSED = r"\b(?:[Uu]nsupported|(?:[Cc]ould |does |do )?not|[Cc]annot|[Ff]ailed to|No)\b([^.;]|\.\S){0,40}"
_REFUSES = (
    r"([^.;]|\.\S){0,80}\b(not? (yet )?(supported|support|compatible|available|valid|allowed|implemented|found)"
    r"|[Uu]nsupported|[Oo]nly supports?|only supported|[Rr]equires?|must|cannot|larger|greater|exceeds?|mismatch\w*"
    r"|failed|not)\b"
)
# What a program raises because of what it was given. Others show a fault of its own, and name what it has.
_REFUSING = frozenset(
    {"AssertionError", "NotImplementedError", "RuntimeError", "ValidationError", "ValueError", "Value error"}
)
# What a program raises where it is wrong itself, or meets what its authors did not expect.
_FAULTS = frozenset(
    {"AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "TypeError", "UnboundLocalError"}
)
_HAS_NOT = "has no attribute"
# What happened outside of the program, wherever it was raised: files, networks, other processes.
_OF_THE_SYSTEM = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, OSError)
)
_OUTSIDE = re.compile(
    r"Timeout|Expired|Connect(?!or)|Protocol|Network|HTTP|SSL|Proxy|ReadError|WriteError|Interrupt|Broken|Cancel"
    r"|SystemExit"
)
_CUT_OFF = re.compile(r"\b(closed|reset) by (the )?(remote )?peer\b|\b[Cc]ancell?ed\b")
# What a driver says is about whatever it did before.
_OF_A_DRIVER = re.compile(r"(CUDA|HIP|NCCL|cuDNN|CUBLAS|NVRTC)\w* (\w+ )?(error|failed)\b")


@dataclass(frozen=True)
class Subject:
    """A part of an engine that an error may be about.

    `modules` matches the path of a module of that part, `settings` the names of flags that belong to it, `terms` the
    words for it in a sentence that refuses something. `raises` matches a frame and, after a blank, the class of what it
    raises. `within` matches a frame of work that only that part does: whatever the engine, PyTorch or transformers
    raise below it is about the part.
    """

    code: str
    hint: str
    modules: re.Pattern[str]
    raises: re.Pattern[str] | None
    within: re.Pattern[str] | None
    settings: re.Pattern[str] | None
    terms: re.Pattern[str] | None


@dataclass(frozen=True)
class Raised:
    """An exception of a log: its line there, its class, its sentence, its module's path, and its frames.

    The path is that below the folder of packages, without `.py`; that of the class where no frame is at hand. A frame
    is such a path and its function, with a colon between; the deepest is the first.
    """

    at: int
    kind: str
    says: str
    module: str
    frames: tuple[str, ...] = ()


def subject_pattern(terms: str) -> re.Pattern[str]:
    """What matches a sentence that refuses something of these words."""
    named = rf"(?<![\w/.-])(?:{terms})\b(?![\w.-]*/)"
    return re.compile(rf"{named}{_REFUSES}|{_REFUSED}{named}")


def exceptions(lines: Sequence[str], prefix: re.Pattern[str]) -> Iterator[Raised]:
    """Every exception of the lines, in their order."""
    plain = [prefix.sub("", line) for line in lines]
    for at, line in enumerate(plain):
        if found := _RAISED.match(line.strip()):
            frames = tuple(_frames(plain, at))
            module = frames[0].partition(":")[0] if frames else found[1].replace(".", "/")
            yield Raised(at, found[2], _sentence(found[3] or "", plain[at + 1 : at + 2]), module, frames)
        elif (found := _IN_C.search(line)) and (asserted := _ASSERTED.search(found["says"])):
            yield Raised(at, "Assertion", asserted[0], found["file"])


def last_chain(raised: Sequence[Raised], lines: Sequence[str]) -> Iterator[Raised]:
    """The last of the exceptions, then those that led to it, the newest first. All others were caught."""
    later: Raised | None = None
    for each in reversed(raised):
        if later and not _led_to(each, later, lines):
            return
        yield each
        later = each


def _led_to(before: Raised, after: Raised, lines: Sequence[str]) -> bool:
    between = lines[before.at + 1 : after.at]
    tracebacks = sum(_TRACEBACK in line for line in between)
    if after.kind == "Value error":  # a part of pydantic's own exception
        return not tracebacks
    return tracebacks <= 1 and any(_LED_TO.search(line) for line in between)


def _sentence(says: str, after: Sequence[str]) -> str:
    """With the next line, where the sentence goes on there."""
    goes_on = says and says[-1].isalnum() and after and after[0][:1].islower()
    return f"{says} {after[0]}" if goes_on else says


def _frames(lines: Sequence[str], raised_at: int) -> Iterator[str]:
    """Those of the traceback that ends in that line, the deepest first."""
    for line in reversed(lines[max(0, raised_at - _MOST_LINES) : raised_at]):
        if line.startswith(_TRACEBACK) or _RAISED.match(line.strip()):
            return
        if frame := _FRAME.search(line):
            module = frame["file"].rpartition(_PACKAGES)[2].removesuffix(".py")
            if not _PASSING.search(module):
                yield f"{module}:{frame['function']}"
        elif line and not line[0].isspace() and not _ARROW.match(line):
            return


@cache
def _command() -> re.Pattern[str]:
    """A command that is quoted, such as an engine's, with all of its flags."""
    names = _engines()
    return re.compile(rf"Command ['\[]|\b({names})['\", ]+serve\b|-m['\", ]+({names})\b|\bapi_server\b")


@cache
def _at_work() -> re.Pattern[str]:
    """Modules whose errors are about what a part was doing: others, which fetch its files, have their own reasons."""
    return re.compile(rf"(?:^|/)(?:{_engines()}|torch|transformers)\w*/")


@cache
def _of_an_engine() -> re.Pattern[str]:
    return re.compile(rf"(?:^|/)(?:{_engines()})\w*/")


def _engines() -> str:
    return "|".join(sorted({name.partition("-")[0] for name in engine_registry.engines()}))


def about(raised: Raised, subjects: Sequence[Subject], settings: Mapping[str, str]) -> Subject | None:
    """The part that the exception is about: whose setting or words it has, whose module raised it, or that was at work.

    `settings` are the names of flags, in hyphens, that tell what a sentence is about.
    """
    if raised.kind in _OF_THE_SYSTEM or _OUTSIDE.search(raised.kind) or _CUT_OFF.search(raised.says):
        return None
    if _command().search(raised.says):
        return None
    if raised.kind in _REFUSING or (raised.kind == "AttributeError" and _HAS_NOT not in raised.says):
        says = _PATH.sub("", raised.says)
        named = [name for name in named_settings(says) if name in settings and _TELLING.search(name)]
        for subject in subjects:
            if subject.settings and any(subject.settings.search(name) for name in named):
                return subject
            if subject.terms and subject.terms.search(says):
                return subject
    raiser = f"{raised.frames[0]} {raised.kind}" if raised.frames else ""
    raised_it = (each for each in subjects if each.modules.search(raised.module))
    refused = (each for each in subjects if each.raises and each.raises.search(raiser))
    at_work = _at_work().search(raised.module) and not _OF_A_DRIVER.match(raised.says)
    working = raised.frames if at_work else ()
    worked = (each for frame in working for each in subjects if each.within and each.within.search(frame))
    return next(chain(raised_it, refused, worked), None)


def is_fault(raised: Raised) -> bool:
    """Whether it shows a fault within an engine, rather than a setting that it refuses."""
    return raised.kind in _FAULTS and _of_an_engine().search(raised.module) is not None


def named_settings(says: str) -> list[str]:
    """Words of a sentence that may be flags, with hyphens."""
    return [word.replace("_", "-") for word in _SETTING.findall(says)]
