"""Chromium without a window, whose every request goes to a proxy of ours that notes it."""

from __future__ import annotations

import http.server
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from system_packages import install

ADDRESS = "http://page.example/"


@dataclass
class Browser:
    """Shows one page. `asked` are the requests it made, `console` what it wrote to its console."""

    folder: Path
    proxy: str
    asked: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def document(self) -> str:
        """The document as it is once everything has loaded and run."""
        return self._run("--dump-dom").stdout

    def picture(self, dark: bool = False) -> Image.Image:
        """The first screen."""
        path = self.folder / f"{'dark' if dark else 'light'}.png"
        theme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        self._run(theme, "--window-size=1280,720", "--hide-scrollbars", f"--screenshot={path}")
        return Image.open(path).convert("RGB")

    def _run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        command = ["chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
        command += [f"--user-data-dir={self.folder / 'profile'}", f"--proxy-server={self.proxy}"]
        command += ["--disable-background-networking", "--virtual-time-budget=3000", *flags, ADDRESS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        self.console += [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        return done


@contextmanager
def browser(page: str, folder: Path) -> Iterator[Browser]:
    """A browser on its way to that page. Every other address is answered with 404."""
    install("chromium-headless-shell")
    asked: list[str] = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path}")
            body = page.encode() if self.path == ADDRESS else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_CONNECT = do_POST = do_GET  # noqa: N815

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Browser(folder, f"127.0.0.1:{server.server_port}", asked)
        finally:
            server.shutdown()
            thread.join()
