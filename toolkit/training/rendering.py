"""`python -m toolkit.training.rendering`: renders a chat template, which may be anybody's, for who starts it.

The first line of its input has the bounds. Of the others, some have a template with its variables, and each further one
a conversation for it, whose answer is a line of the output; all of them are JSON. It ends with its input, and by itself
where a bound is passed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from transformers.utils.chat_template_utils import render_jinja_template

MEMORY_EXIT, OUTPUT_EXIT = 71, 72
"""Exit codes that say which bound was passed. That of time ends it by SIGPROF."""

# Whatever a template can do wrong with a conversation: it has all of Python's operators, and methods of its values.
_REFUSED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TemplateError, TypeError, ValueError)


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the process that asks
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    given = requests.readline()
    if not given:
        return
    bounds, template = json.loads(given), {}
    _bound_memory(bounds["memory"])
    for line in requests:
        if line.startswith(b'{"text"'):
            template = json.loads(line)
            continue
        # Computing time: it passes neither while the process is stopped nor while others keep the machine busy. Python
        # has no handler for its signal, so the kernel ends also what would never come back to Python.
        signal.setitimer(signal.ITIMER_PROF, bounds["seconds"])
        answer = _answer(template, line, bounds["output"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(answer + b"\n")
        answers.flush()


def _answer(template: dict[str, Any], line: bytes, most: int) -> bytes:
    try:
        answer = json.dumps(_rendered(template, json.loads(line)), ensure_ascii=False)
        if len(answer) > most:
            os._exit(OUTPUT_EXIT)
        return answer.encode()
    except MemoryError:
        os._exit(MEMORY_EXIT)
    except UnicodeEncodeError:  # half of a surrogate pair is no text
        return b'{"refused": true}'


def _rendered(template: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """As `apply_chat_template` does it. An error of a template may show the text, so it is not told."""
    try:
        texts, marks = render_jinja_template(
            [request["messages"]],
            tools=request["tools"] or None,
            chat_template=template["text"],
            return_assistant_tokens_mask=request["marks"],
            add_generation_prompt=request["ask"],
            **template["variables"],
        )
    except TemplateSyntaxError as error:
        return {"broken": f"line {error.lineno}: {error.message}"}
    except _REFUSED:
        return {"refused": True}
    return {"text": texts[0], "marks": marks[0] if request["marks"] else []}


def _bound_memory(most: int) -> None:
    """Let it have so many bytes more than it has now."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + most
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
