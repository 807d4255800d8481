"""A web page in a real browser on this machine tries the daemon of its user: nothing answers it, nothing changes."""

from __future__ import annotations

import html
import http.client
import http.server
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from daemon_state import state
from local_account import Account
from system_packages import install

PAGE = """<!doctype html><title>page</title><form id=form method=post enctype=text/plain target=frame></form>
<iframe name=frame></iframe><pre id=said></pre><script>
const said = {};
async function attempt(name, url, options) {
  try {
    const answer = await fetch(url, options);
    said[name] = [answer.type, answer.status, (await answer.text()).slice(0, 200)];
  } catch (error) { said[name] = String(error); }
}
async function submit(url) {
  form.action = url;
  form.innerHTML = '<input name=\\'{"Action":"\\' value=\\'CreateModel"}\\'>';
  const loaded = new Promise(resolve => document.querySelector("iframe").onload = resolve);
  form.submit();
  await loaded;
}
async function attack() {
  for (const base of BASES) {
    for (const mode of ["cors", "no-cors", "same-origin"]) {
      const name = `${base} ${mode}`;
      await attempt(`${name} put`, `${base}/models/evil/sitecustomize.py`, {mode, method: "PUT", body: "import os"});
      await attempt(`${name} post`, `${base}/`, {mode, method: "POST", body: "Action=CreateUser&UserName=evil"});
      await attempt(`${name} reset`, `${base}/moto-api/reset`, {mode, method: "POST"});
      await attempt(`${name} read`, `${base}/models/target/config.json`, {mode});
      await attempt(`${name} invoke`, `${base}/endpoints/chat/invocations`, {mode, method: "POST", body: "{}"});
      await attempt(`${name} openai`, `${base}/endpoints/chat/openai/v1/chat/completions`,
        {mode, method: "POST", body: "{}", headers: mode == "no-cors" ? {} : {Authorization: "Bearer any"}});
    }
    await submit(`${base}/moto-api/reset`);
    await submit(`${base}/endpoints/chat/invocations`);
  }
  document.getElementById("said").textContent = JSON.stringify(said);
  document.title = "done";
}
attack();
</script>"""


class Page(http.server.BaseHTTPRequestHandler):
    """Serves `page` at /page.html. All else it sends on to `behind`, unchanged, when it has one."""

    page = b""
    behind: tuple[str, int] | None = None

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/page.html":
            self._answer(200, self.page)
        elif self.behind:
            self._forward(*self.behind)
        else:
            self._answer(404, b"")

    do_POST = do_PUT = do_OPTIONS = do_GET  # noqa: N815

    def _forward(self, host: str, port: int) -> None:
        connection = http.client.HTTPConnection(host, port)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        self._answer(answer.status, answer.read())
        connection.close()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(address: tuple[str, int], bases: list[str], behind: tuple[str, int] | None = None) -> Iterator[int]:
    """Serve the page that attacks `bases`; gives the port."""
    handler = type("Page", (Page,), {"page": PAGE.replace("BASES", json.dumps(bases)).encode(), "behind": behind})
    with http.server.ThreadingHTTPServer(address, handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def said_by(url: str, folder: Path, resolver: str = "") -> dict[str, Any]:
    """What each attempt of the page gave, in Chromium."""
    install("chromium-headless-shell")
    command = ["chromium-headless-shell", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += [f"--host-resolver-rules={resolver}", "--virtual-time-budget=60000", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="said">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, "the page came to its end"
    said: dict[str, Any] = json.loads(html.unescape(found[1]))
    return said


def ports(account: Account) -> list[int]:
    return [urlsplit(url).port or 0 for url in (account.daemon.control_url, account.daemon.runtime_url)]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "evil.example"])
def test_a_page_of_another_origin_gets_nothing(account: Account, tmp_path: Path, name: str) -> None:
    """By fetch with and without CORS, and by a form."""
    before = state(account)
    bases = [f"http://{name}:{port}" for port in ports(account)]
    with serving(("127.0.0.1", 0), bases) as port:
        said = said_by(f"http://127.0.0.1:{port}/page.html", tmp_path, "MAP evil.example 127.0.0.1")
    assert len(said) == len(bases) * 3 * 6, "every attempt was made"
    assert [answer for answer in said.values() if "TypeError" not in answer and answer != ["opaque", 0, ""]] == []
    assert state(account) == before


@pytest.mark.parametrize("which", [0, 1], ids=["control", "runtime"])
def test_a_page_whose_name_becomes_this_machines_gets_nothing(account: Account, tmp_path: Path, which: int) -> None:
    """DNS rebinding: the page comes from the attacker's machine, and then its name is the daemon's address.

    To the browser it is one origin, so that the page may send and read everything.
    """
    before = state(account)
    port = ports(account)[which]
    base = f"http://evil.example:{port}"
    with serving(("127.0.0.2", port), [base], behind=("127.0.0.1", port)):
        said = said_by(f"{base}/page.html", tmp_path, "MAP evil.example 127.0.0.2")
    assert len(said) == 3 * 6
    answered = {name: answer[1] for name, answer in said.items() if isinstance(answer, list)}
    assert len(answered) > 12, "the page reads the answers"
    assert set(answered.values()) <= {403, 404, 405}
    assert state(account) == before
