"""A chat template is a program of the model's publisher: it runs in a process of its own, within bounds."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from toolkit.errors import UnreadableModel
from toolkit.recipe.prompts import Message
from toolkit.training.chat import Chat, Unmaskable, load_chat
from toolkit.training.template import Bounds, Renderer, Template

TARGET = Path(__file__).parents[2] / "recipes" / "tiny" / "models" / "target"
VARIABLES = {"eos_token": "<end>", "bos_token": "<begin>"}
TALK: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'Name a café.\n\tPlease \\ "now" \u2028 🙂'},
    {"role": "assistant", "content": "Löwen.", "reasoning_content": "In town."},
    {"role": "user", "content": "Another?"},
    {"role": "assistant", "content": "Ochsen."},
]
OPEN, CLOSE = "{% for _ in range(99999) %}", "{% endfor %}"
LOOP = OPEN * 3 + CLOSE * 3
MARKED = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
ORDINARY = (
    MARKED,
    "  {%- for m in messages %}\n {{ m.content | trim }}\n{%- endfor %}\n\n",
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}{% for m in messages[::-1] %}{{ loop.index }}{% endfor %}",
    "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "{{ bos_token }}{{ tools is none }}{{ documents }}{{ unknown }}{{ add_generation_prompt }}",
)
FAILING = (
    "{{ raise_exception('roles must alternate') }}", "{{ 1 // (messages | length - 1) }}", "{{ messages[9].x.y }}",
    "{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ range(10 ** 9) }}", "{{ again() }}",
    "{{ '%d' % messages[0].role }}", "{{ 5 + messages[0].role }}", r"{{ '\ud83d' }}",
)  # fmt: skip


def template(text: str, **bounds: float) -> Template:
    return Template(text, VARIABLES, "model/chat_template.jinja", Renderer(Bounds(**{"seconds": 0.5, **bounds})))  # type: ignore[arg-type]


def tokenizer(text: str) -> PreTrainedTokenizerFast:
    """Of single bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(tokenizer_object=bytes_alone, **VARIABLES)
    found.chat_template = text
    return found


def children() -> set[int]:
    """Processes of ours that render."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        if int(parent) == os.getpid() and "toolkit.training.rendering" in command:
            found.add(int(folder.name))
    return found


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    """One that has started, for the templates that pass no bound."""
    found = Renderer()
    Template("", {}, "x", found).render(TALK)
    gc.collect()
    gc.freeze()  # each test looks through what is newer
    return found


@pytest.fixture(autouse=True)
def others(renderer: Renderer) -> Iterator[set[int]]:
    """Those that were there before the test, which leaves none."""
    before = children()
    yield before
    gc.collect()  # an error that was raised knows what it was raised in
    assert children() <= before


@pytest.mark.parametrize(
    "text",
    [
        "{% if messages | length > 3 %}" + LOOP + "{% endif %}",
        "{{ 7 ** (9 ** 9) }}",
        "{% set n = 7 ** (9 ** (messages | length + 4)) %}",
    ],
    ids=["loops", "in Python's own arithmetic as it is compiled", "in Python's own arithmetic"],
)
def test_a_template_without_end_is_ended(text: str, others: set[int]) -> None:
    endless = template(text)
    with pytest.raises(
        UnreadableModel, match=r"model/chat_template\.jinja computes for more than 0\.5 seconds"
    ) as error:
        endless.render(TALK)
    assert "publisher" in error.value.hint
    assert children() <= others
    with pytest.raises(UnreadableModel, match=r"computes for more than 0\.5 seconds"):
        endless.render(TALK[:2])
    assert children() <= others, "it is not tried again"


@pytest.mark.parametrize("text", [OPEN + "{{ 'x' * 100000 }}" + CLOSE, "{{ 'x' * 10 ** 10 }}"])
def test_a_template_that_builds_gigabytes_is_ended(text: str) -> None:
    with pytest.raises(UnreadableModel, match="jinja takes more than 512 MiB of memory with one conversation"):
        template(text, seconds=20.0, memory=512 * 1024**2).render(TALK)


def test_a_template_with_a_text_beyond_all_bounds_is_ended() -> None:
    with pytest.raises(UnreadableModel, match="jinja makes a text of more than 67,108,864 characters"):
        template("{{ 'x' * 100000000 }}", seconds=20.0).render(TALK)


def test_a_template_that_fails_refuses_the_conversation_and_shows_none_of_it(renderer: Renderer) -> None:
    cases = "".join(f"{{% if messages[0].role == '{n}' %}}{text}{{% endif %}}" for n, text in enumerate(FAILING))
    chat = Chat(tokenizer("{% macro again() %}{{ again() }}{% endmacro %}" + cases), [0], renderer=renderer)
    for number in range(len(FAILING)):
        with pytest.raises(Unmaskable, match=r"^the chat template refuses it$") as error:
            chat.prompt([{"role": str(number), "content": "secret"}])
        assert "secret" not in repr(error.value.__cause__)
    assert chat.prompt([{"role": "user", "content": "secret"}]) == []


def test_a_text_that_is_no_template_is_named_with_its_line() -> None:
    with pytest.raises(
        UnreadableModel, match=r"model/chat_template\.jinja is no template: line 2: Expected an expression"
    ):
        template("{% for m in messages %}\n{% if %}{% endfor %}").render(TALK)


def test_ordinary_templates_render_as_in_transformers(renderer: Renderer) -> None:
    whole, ours = tokenizer("".join(ORDINARY)), Template("".join(ORDINARY), VARIABLES, "x", renderer)
    for talk in (TALK, TALK[:2], TALK):
        for ask in (True, False):
            messages = [dict(message) for message in talk]
            theirs = whole.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask)
            assert ours.render(talk, ask=ask).text == theirs


def test_the_marked_answers_are_those_of_transformers(renderer: Renderer) -> None:
    found = tokenizer(MARKED)
    talk = [dict(message) for message in TALK]
    encoded = found.apply_chat_template(talk, return_dict=True, return_assistant_tokens_mask=True)
    last = len(encoded["input_ids"]) - 1 - encoded["assistant_masks"][::-1].index(1)
    (_, turn) = Chat(found, [int(found.convert_tokens_to_ids("<end>"))], renderer=renderer).turns(TALK)
    assert turn.prompt + turn.answer == encoded["input_ids"][: last + 2]
    assert len(turn.answer) == len("Ochsen.") + 1
    assert encoded["assistant_masks"][len(turn.prompt) - 1 :] == [0, *[1] * 7, 0]


def test_several_threads_get_their_own_answers(others: set[int]) -> None:
    ours = template("{{ messages[0].content }}", seconds=20.0)
    asked = [str(number) * 50 for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda text: ours.render([{"role": "user", "content": text}]).text, asked))
    assert got == asked
    assert len(children() - others) == 1


def test_a_fork_of_a_process_that_renders_has_its_own(renderer: Renderer) -> None:
    """Of one that both wrote to, neither would know which template it has."""
    ours, others = (Template(text, {}, "x", renderer) for text in ("ours", "others"))
    assert ours.render(TALK).text == "ours"
    child = multiprocessing.get_context("fork").Process(target=others.render, args=(TALK,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert ours.render(TALK).text == "ours"


def test_an_interrupted_rendering_ends_and_is_no_answer_to_the_next(others: set[int]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    ours = template(
        "{% if messages[0].content == 'slow' %}" + LOOP + "{% endif %}{{ messages[0].content }}", seconds=30.0
    )
    ours.render([{"role": "user", "content": "first"}])
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            ours.render([{"role": "user", "content": "slow"}])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert children() <= others
    assert ours.render([{"role": "user", "content": "fast"}]).text == "fast"


@pytest.mark.parametrize("own_file", [True, False])
def test_the_file_of_a_hostile_template_is_named(tmp_path: Path, own_file: bool) -> None:
    shutil.copytree(TARGET, tmp_path / "target")
    config = tmp_path / "target" / "tokenizer_config.json"
    if own_file:
        (tmp_path / "target" / "chat_template.jinja").write_text("{{ 'x' * 10 ** 10 }}")
    else:
        config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": "{{ 'x' * 10 ** 10 }}"}))
    name = "chat_template.jinja" if own_file else "tokenizer_config.json"
    with pytest.raises(UnreadableModel, match=f"the chat template in {tmp_path}/target/{name} takes more than"):
        load_chat(str(tmp_path / "target"), renderer=Renderer()).prompt(TALK)


def test_a_process_that_renders_ends_with_the_one_that_was_killed() -> None:
    program = (
        "import sys, time\nfrom toolkit.training.template import Renderer, Template\n"
        "ours = Template('{{ messages[0].content }}', {}, 'x', Renderer())\n"
        "print(ours.render([{'role': 'user', 'content': 'Hi'}]).text, ours._renderer._child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as asks:
        assert asks.stdout
        said, pid = asks.stdout.readline().split()
        asks.kill()
    assert said == "Hi"
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
