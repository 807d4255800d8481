"""What the job in the account runs: `python -m toolkit.platforms.sagemaker.staging_program request.json`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import boto3

from toolkit.apply.progress import Silent
from toolkit.errors import ToolkitError
from toolkit.platforms.elsewhere import open_files
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.staging import stage_weights

FAILED = "toolkit-failed "
"""How the line begins that says why; message and hint as JSON follow."""

_EVERY_SECONDS = 5.0


class LogLines(Silent):
    """Progress as lines of a log, one every five seconds."""

    def __init__(self) -> None:
        self._said = float("-inf")

    def update(self, text: str, detail: str = "") -> None:
        if time.monotonic() - self._said >= _EVERY_SECONDS:
            self._said = time.monotonic()
            self.say(text)

    def say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def main(request_file: str) -> int:
    """Stage what the request says, with the credentials of the job's role; the exit status."""
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    log = LogLines()
    try:
        with aws_errors(f"staging {request['Hub']}"):
            stage_weights(Clients(boto3.Session()), request, log, open_files)
    except ToolkitError as error:
        log.say(FAILED + json.dumps({"message": error.message, "hint": error.hint}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
