"""Joins the page's parts into one HTML file without any reference to elsewhere."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

SCRIPTS = (
    "history.js",
    "blocks.js",
    "canvas.js",
    "panes.js",
    "device.js",
    "heat.js",
    "cases.js",
    "whynot.js",
    "details.js",
    "app.js",
)


def render_page(payload: Mapping[str, Any]) -> str:
    """The HTML text.  What comes from a model (names, sources) is data there, never markup."""
    folder = files("graphwright.compiler.viewer") / "static"

    def part(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    # Inside <script> only "</" and "<!--" could end or hide it; JSON may escape every "<".
    data = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return Template(part("page.html")).substitute(
        title=html.escape(str(payload["title"])),
        style=part("style.css"),
        script="\n".join(part(name) for name in SCRIPTS),
        data=data,
    )
