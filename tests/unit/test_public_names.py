"""What a user may import, and what that costs."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import toolkit
from toolkit import errors

HEAVY = ("boto3", "botocore", "huggingface_hub", "moto", "pydantic", "rich", "ruamel", "sagemaker", "torch", "vllm")


def test_public_names_are_sorted_and_every_one_is_there() -> None:
    assert toolkit.__all__ == sorted(toolkit.__all__)
    for name in toolkit.__all__:
        assert inspect.getdoc(getattr(toolkit, name)), f"toolkit.{name} has no docstring"
    assert set(toolkit.__all__) <= set(dir(toolkit))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(toolkit, "deplyo")


def loaded_by(statement: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has loaded after that statement."""
    code = f"import sys\n{statement}\nprint(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_toolkit_loads_nothing_heavy() -> None:
    assert loaded_by("import toolkit") == set()


def test_the_command_line_starts_without_anything_heavy() -> None:
    assert loaded_by("import toolkit.cli.main") == set()


def test_a_check_needs_no_aws() -> None:
    assert loaded_by("import toolkit; toolkit.check('tiny/p-eagle')") == {"pydantic", "ruamel"}


def test_the_tree_drawn_in_errors_is_the_tree_of_classes() -> None:
    drawn: dict[str, str] = {}
    parents: list[str] = []
    for indent, name in re.findall(r"^    ([│├└─ ]*)([A-Z]\w+) ", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4
        parents[depth:] = [name]
        drawn[name] = parents[depth - 1] if depth else "Exception"
    classes = {
        name: cls.__bases__[0].__name__
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and issubclass(cls, Exception)
    }
    assert drawn == classes


def test_an_error_shows_its_hint() -> None:
    assert str(errors.PlatformError("no quota", hint="Ask for more.")) == "no quota\n  Ask for more."
    assert str(errors.PlatformError("no quota")) == "no quota"
