"""The quickstart notebook, with the endpoint that other tests share: its `deploy` finds no changes were needed.

That the same cells deploy what is not there yet is shown on AWS's stand-in, in tests/aws/test_notebook_on_sagemaker.py.
The notebook removes the endpoint, so it is best the last module of those that share it: another would deploy it again.
"""

from __future__ import annotations

import pytest
from run_notebook import output, run

import toolkit
from toolkit.api.endpoint import Endpoint

pytestmark = [
    pytest.mark.serving,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_the_quickstart_runs_to_its_end(endpoint: Endpoint) -> None:
    notebook = run("01_quickstart")

    assert "Its answers are the target model" in output(notebook, "prove(")
    assert "tiny-p-eagle" not in [found.name for found in toolkit.endpoints(platform="local")]
