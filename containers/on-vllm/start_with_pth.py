"""vLLM's server, after the `.pth` files of the packages that the image adds: `python -m start_with_pth ARGUMENTS`.

Python reads such files in its own site-packages only, not in a folder of PYTHONPATH, and a sitecustomize.py of ours
would take the place of the base's. vLLM's own processes import this module too, as the main module of their parent.
"""

from __future__ import annotations

import runpy
import site
from pathlib import Path

site.addsitedir(str(Path(__file__).resolve().parent / "site-packages"))

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
