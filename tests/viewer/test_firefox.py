"""The page in Firefox without a window, over its own remote protocol (Marionette): no driver needed."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_models import block

from graphwright import compilation
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.trace import read_trace
from graphwright.compiler.viewer import payload_of, render_page

BROWSER = shutil.which("firefox-esr") or shutil.which("firefox")
if BROWSER is None:
    pytest.skip("no Firefox (on Debian: apt-get install firefox-esr)", allow_module_level=True)


class Firefox:
    """One session: commands as `LENGTH:[0, id, name, parameters]`, answers likewise."""

    def __init__(self, profile: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (profile / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
        self.process = subprocess.Popen(
            [str(BROWSER), "--headless", "--marionette", "--no-remote", "--profile", str(profile)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = time.monotonic() + 60
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                break
            except OSError:
                assert time.monotonic() < end, "Firefox does not answer"
                time.sleep(0.2)
        self.data, self.count = b"", 0
        self._read()
        self("WebDriver:NewSession", {})

    def _read(self) -> Any:
        while b":" not in self.data:
            self.data += self.socket.recv(1 << 16)
        size, _, rest = self.data.partition(b":")
        while len(rest) < int(size):
            rest += self.socket.recv(1 << 16)
        self.data = rest[int(size) :]
        return json.loads(rest[: int(size)])

    def __call__(self, name: str, parameters: dict[str, Any]) -> Any:
        self.count += 1
        text = json.dumps([0, self.count, name, parameters]).encode()
        self.socket.sendall(str(len(text)).encode() + b":" + text)
        _, _, error, result = self._read()
        assert error is None, error
        return result

    def js(self, text: str) -> Any:
        script = {"script": f"return {text}", "args": [], "sandbox": None}
        return self("WebDriver:ExecuteScript", script)["value"]

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=30)


@pytest.fixture
def firefox(tmp_path: Path) -> Iterator[Firefox]:
    profile = tmp_path / "profile"
    profile.mkdir()
    made = Firefox(profile)
    yield made
    made.close()


def test_firefox(firefox: Firefox, tmp_path: Path) -> None:
    file = tmp_path / "m.trace"
    compilation.run_passes(block(3), CompileOptions.make(trace=file))
    page = tmp_path / "m.html"
    page.write_text(render_page(payload_of(read_trace(file), title="m")), encoding="utf-8")
    firefox("WebDriver:Navigate", {"url": page.as_uri()})
    assert firefox.js("document.body.dataset.ready") == "true"
    listen = "(window.faults = [], addEventListener('error', e => faults.push(e.message)), 1)"
    assert firefox.js(listen) == 1
    press = (
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', bubbles: true}}))"
    )
    before = firefox.js("location.hash")
    # The remote side sees the document, not the page's own variables.
    text = "document.getElementById('{}').textContent"
    for key in ("ArrowUp", "ArrowRight", "ArrowLeft", "z", "x", "r", "r", "n", "1", "3", "4", "5",
                "6", "7", "f", "b", "b", "b"):  # fmt: skip
        firefox.js(press.format(key))
    assert firefox.js("location.hash") != before
    firefox.js(press.format("2"))
    assert "matmul" in firefox.js(text.format("pane-text"))
    assert firefox.js(text.format("details"))
    assert firefox.js("window.faults") == []
    firefox.js(press.format("1"))
    picture = firefox("WebDriver:TakeScreenshot", {"full": False})["value"]
    assert len(picture) > 10_000
