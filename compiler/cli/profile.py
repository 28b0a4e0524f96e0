"""bench --profile: which kernels take the time, and how near each is to what the machine can do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphwright.compiler.cli.artifact_graph import read_graph
from graphwright.compiler.cli.console import Console, seconds_text, table, write_file, write_json
from graphwright.compiler.machine import Machine, measure_device, measure_machine
from graphwright.compiler.profile import LaunchProfile, Profile, profile_model
from graphwright.runtime import CompiledModel
from graphwright.runtime.executor import CpuExecutor

SHOWN = 30
UNEXPLAINED = 0.15


def run_profile(
    model: CompiledModel,
    feed: Mapping[str, np.ndarray],
    duration: float,
    chrome_trace: Path | None,
    console: Console,
    json_to: str | None,
) -> None:
    """Profiles, prints a table by kernel, writes the files asked for."""
    graph, ops = read_graph(model.artifact)
    with console.stage("measuring the machine", still=True):
        machine = _machine(model)
    with console.stage("timing kernels", still=True):
        profile = profile_model(model, feed, duration, graph=graph, ops=ops)
    if json_to:
        write_json(profile.to_json(machine), json_to)
    if chrome_trace is not None:
        write_file(chrome_trace, json.dumps(profile.to_chrome()).encode())
        console.say(f"wrote {chrome_trace}")
    if json_to != "-":
        show(profile, machine, console)


def _machine(model: CompiledModel) -> Machine | None:
    """Rates of what the model runs on; None where they cannot be measured."""
    executor = model.executor
    if isinstance(executor, CpuExecutor):
        return measure_machine(executor.pool.threads)
    try:
        return measure_device()
    except (ImportError, RuntimeError):
        return None


def show(profile: Profile, machine: Machine | None, console: Console) -> None:
    """Kernels by time, equal ones together."""
    groups: dict[str, list[LaunchProfile]] = {}
    for launch in profile.launches:
        groups.setdefault(launch.kernel, []).append(launch)
    ordered = sorted(groups.items(), key=lambda g: -sum(x.seconds for x in g[1]))
    rows: list[list[object]] = []
    for kernel, members in ordered[:SHOWN]:
        seconds = sum(x.seconds for x in members)
        moved, flops = (sum(getattr(x, n) for x in members) for n in ("bytes", "flops"))
        whole = LaunchProfile(0, kernel, (), (), seconds, 1, moved, flops)
        layers = [name for x in members for name in x.layers if not name.startswith("Constant")]
        shown = layers[-1] + (" ..." if len(members) > 1 else "") if layers else ""
        rows.append([
            seconds_text(seconds), f"{100 * seconds / (profile.explained or 1):.1f} %", len(members),
            f"{moved / seconds / 1e9:.1f}" if seconds and moved else "",
            f"{flops / seconds / 1e9:.0f}" if seconds and flops else "",
            f"{100 * whole.roofline(machine):.0f} %" if moved and machine else "", kernel, shown,
        ])  # fmt: skip
    columns = [
        ">time",
        ">share",
        ">launches",
        ">GB/s",
        ">GFLOP/s",
        ">of the roofline",
        "kernel",
        "last layer",
    ]
    console.show(table(columns, rows))
    if len(ordered) > SHOWN:
        rest = sum(x.seconds for _, members in ordered[SHOWN:] for x in members)
        console.show(f"{len(ordered) - SHOWN} more kernels take {seconds_text(rest)}")
    console.show(
        f"kernels {seconds_text(profile.explained)} of {seconds_text(profile.end_to_end)} a call, "
        f"{seconds_text(max(profile.gaps, 0))} between them; medians of {profile.runs} runs"
    )
    if machine is None:
        console.say("the roofline is not known: measuring a GPU takes torch")
    else:
        console.say(
            f"the machine: {machine.flops / 1e9:.0f} GFLOP/s, {machine.bandwidth / 1e9:.1f} GB/s (measured; "
            "more than all of the roofline: from a cache, or in narrower numbers)"
        )
    if abs(profile.explained - profile.end_to_end) > UNEXPLAINED * profile.end_to_end:
        console.warn(
            "the kernels do not add up to a call: this machine is busy, or its clock changes"
        )
