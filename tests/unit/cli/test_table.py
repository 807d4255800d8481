"""Tables: whole in a log, within the terminal's width on a terminal, and no word broken that fits."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from toolkit.cli.table import table

HEAD = ("recipe", "K", "description")
ROWS = [
    ("qwen3-8b/p-eagle", "7", "Qwen3 8B with Red Hat's P-EAGLE head in speculators format"),
    ("tiny/pard", "12", "[red]no markup[/red] :smile:"),
]

cells = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.sampled_from("ab \n"), max_size=30)


def test_in_a_log_nothing_wraps_whatever_the_terminal_was() -> None:
    program = f"from toolkit.cli.table import table; print(table({HEAD}, {ROWS}))"
    environment = {**os.environ, "COLUMNS": "40", "FORCE_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == [
        "recipe            K   description",
        "----------------  --  ----------------------------------------------------------",
        "qwen3-8b/p-eagle  7   Qwen3 8B with Red Hat's P-EAGLE head in speculators format",
        "tiny/pard         12  [red]no markup[/red] :smile:",
    ]


def test_on_a_terminal_it_wraps_between_words() -> None:
    lines = table(HEAD, ROWS, room=50).splitlines()
    assert lines == [
        "recipe            K   description",
        "----------------  --  ----------------------------",
        "qwen3-8b/p-eagle  7   Qwen3 8B with Red Hat's",
        "                      P-EAGLE head in speculators",
        "                      format",
        "tiny/pard         12  [red]no markup[/red] :smile:",
    ]


def test_where_the_longest_words_do_not_fit_each_row_becomes_a_block() -> None:
    assert table(HEAD, ROWS, room=30).split("\n\n") == [
        "recipe       qwen3-8b/p-eagle\nK            7\ndescription  Qwen3 8B with Red\n"
        "             Hat's P-EAGLE\n             head in\n             speculators\n             format",
        "recipe       tiny/pard\nK            12\n"
        "description  [red]no\n             markup[/red]\n             :smile:",
    ]


def test_a_word_longer_than_the_terminal_is_folded_and_whole() -> None:
    name = "x" * 50
    assert "".join(table(("name",), [(name,)], room=20).split()) == f"name{name}"


def on_a_terminal(columns: int, program: str) -> str:
    """What a program writes on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    subprocess.run([sys.executable, "-c", program], stdout=theirs, check=False, env=environment)
    os.close(theirs)
    with os.fdopen(ours, "rb", closefd=True) as terminal:
        return terminal.read1().decode().replace("\r\n", "\n")


def test_the_terminals_own_width_counts() -> None:
    program = f"from toolkit.cli.table import table; print(table({HEAD}, {ROWS}))"
    assert on_a_terminal(50, program) == table(HEAD, ROWS, room=50) + "\n"


def test_findings_and_a_plans_notes_wrap_between_words(tmp_path: Path) -> None:
    recipe = tmp_path / "a.yaml"
    recipe.write_text("name: a\ntarget: {model: Qwen/Qwen3-8B}\nengine: {}\nplatform: {name: sagemaker}\n")
    for command in (f"check {recipe}", "plan qwen3-8b/p-eagle"):
        program = f"from toolkit.cli.main import run; run({command.split()})"
        shown = on_a_terminal(60, program)
        assert all(len(line) <= 60 or " " not in line.strip() or "toolkit " in line for line in shown.splitlines()), (
            shown
        )


def test_an_error_wraps_between_words_and_a_command_stays_whole() -> None:
    hint = "Correct the name of the endpoint, or see which there are. Run: toolkit status --platform local"
    error = f"UsageError('{'there is no such endpoint; ' * 4}', hint='{hint}')"
    program = f"from toolkit.cli.output import explain; from toolkit.errors import UsageError; print(explain({error}))"
    *wrapped, last = on_a_terminal(60, program).splitlines()
    assert len(wrapped) == 2
    assert all(len(line) <= 60 for line in wrapped)
    assert last == f"  {hint}"


def test_a_command_without_a_table_does_not_load_rich() -> None:
    program = "import sys; from toolkit.cli.main import run; run(['plan', 'tiny/p-eagle', '--json'])"
    loaded = "print(*sorted({'rich', 'pydantic'} & sys.modules.keys()), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", f"{program}; {loaded}"], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["pydantic"]


@given(st.lists(st.tuples(cells, cells, cells), max_size=4), st.integers(20, 120))
def test_no_line_is_wider_than_the_room_and_no_word_is_lost(rows: list[tuple[str, str, str]], room: int) -> None:
    from rich.cells import cell_len

    shown = table(HEAD, rows, room)
    assert max(map(cell_len, shown.splitlines()), default=0) <= room
    for word in (word for row in rows for cell in row for word in cell.split()):
        assert cell_len(word) > room - len("description") - 2 or word in shown
