"""What the documents say exists: files they link or name, flags of the command line."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from graphwright.compiler.cli.command import graphwright

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / n for n in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    broken = [x for x in links if "://" not in x and not (document.parent / x).exists()]
    assert not broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_paths_named_in_code_exist(document: Path) -> None:
    tops = "compiler|runtime|frontends|graphwright|tests|scripts|benchmarks|examples|docs"
    named = re.findall(rf"`((?:{tops})/[A-Za-z0-9_./-]+)`", document.read_text())
    broken = [n for n in named if not (ROOT / n).exists()]
    # What the README adds for the sake of example; a folder of another project.
    elsewhere = {
        "compiler/passes/tidy_up.py",
        "tests/passes/tidy_up/NAME.ir",
        "benchmarks/challenging",
    }
    broken = [n for n in broken if n not in elsewhere]
    assert not broken


def known_commands() -> dict[str, click.Command]:
    """Every command, those of groups as well, by name."""
    found: dict[str, click.Command] = {}
    for name in graphwright.list_commands(click.Context(graphwright)):
        command = graphwright.get_command(click.Context(graphwright), name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {n}": c for n, c in command.commands.items()}
    return found


def known_flags() -> set[str]:
    flags = {"--help", "--version"}
    for command in known_commands().values():
        for parameter in command.params:
            flags |= {o for o in parameter.opts if o.startswith("--")}
    return flags


def test_flags_exist() -> None:
    flags = known_flags()
    for name in ("README.md", "docs/command-line.md"):
        text = re.sub(r"`scripts/[^`]*`", "", (ROOT / name).read_text())
        said = set(re.findall(r"--[a-zA-Z][a-zA-Z-]+", text)) - {"--a"}
        assert said <= flags, said - flags


def test_every_flag_has_a_help_text() -> None:
    for name, command in known_commands().items():
        assert command.help
        bare = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
        assert not bare, f"{name}: {bare}"
