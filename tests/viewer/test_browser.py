"""The viewer's page in a real browser: Chromium without a window, driven as a person drives it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_models import block, write

from graphwright import compilation
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.trace import Trace, read_trace
from graphwright.compiler.trace.writer import tuning_records
from graphwright.compiler.viewer import payload_of, render_page
from graphwright.compiler.viewer.compare import compare
from graphwright.frontends.onnx.describe import describe

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if BROWSER is None or DRIVER is None:
    pytest.skip(
        "no Chromium (on Debian: apt-get install chromium chromium-driver)", allow_module_level=True
    )
HOSTILE = 'a</script><script>document.title="broken"</script>'


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1400,900", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.set_page_load_timeout(60)
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three blocks with a hostile node name, compiled with a trace."""
    folder = tmp_path_factory.mktemp("viewer")
    model = write(folder / "m.onnx", block(3, first=HOSTILE))
    compilation.build(str(model), CompileOptions.make(trace=folder / "m.trace"))
    target = folder / "m.html"
    trace = read_trace(folder / "m.trace")
    payload = payload_of(
        trace, title="m", subtitle="cpu", profile=profile(trace), errors=errors(trace)
    )
    target.write_text(render_page(payload), encoding="utf-8")
    return target


def launches(trace: Trace) -> list[Any]:
    return trace.of_kind("artifact")[0]["manifest"]["variants"][0]["launches"]


def profile(trace: Trace) -> dict[str, Any]:
    """As `bench --profile --json` writes it: every launch takes a microsecond more than the last."""
    rows = [
        {"launch": n, "kernel": f"kernel{n}", "ops": step["ops"], "layers": step["origins"],
         "seconds": (n + 1) * 1e-6, "runs": 1, "bytes": 1000, "flops": 2000, "roofline": 0.5}
        for n, step in enumerate(launches(trace))
    ]  # fmt: skip
    total = sum(r["seconds"] for r in rows)
    return {"end_to_end": total, "explained": total, "runs": 3, "launches": rows}


def errors(trace: Trace) -> dict[str, Any]:
    """As `verify --layers --json` has it under "kernels"; the first is far off."""
    rows = [
        {"launch": n, "op": step["ops"][0], "kernel": f"kernel{n}", "layers": step["origins"],
         "relative": 0.5 if n == 0 else 1e-7, "max": 1.0, "strange": 0}
        for n, step in enumerate(launches(trace))
    ]  # fmt: skip
    return {"checked": len(rows), "skipped": 0, "faults": rows[:1], "layers": rows}


def visit(driver: Any, path: Path, fragment: str = "") -> None:
    driver.get("about:blank")
    driver.get_log("browser"), driver.get_log("performance")
    driver.get(path.as_uri() + fragment)
    assert driver.execute_script("return document.body.dataset.ready") == "true"


def js(driver: Any, text: str) -> Any:
    return driver.execute_script(f"return {text}")


def press(driver: Any, *keys: str) -> None:
    for key in keys:
        driver.execute_script(
            "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))",
            key,
        )


def clean(driver: Any, path: Path) -> None:
    """No error on the console, no request but the page itself."""
    errors = [e for e in driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
    assert not errors, errors
    events = [json.loads(e["message"])["message"] for e in driver.get_log("performance")]
    asked = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    outside = [u for u in asked if not u.startswith((path.as_uri(), "data:", "about:", "blob:"))]
    assert not outside, outside


def test_opens_without_errors_or_requests(driver: Any, page: Path) -> None:
    visit(driver, page)
    assert js(driver, "document.title") == "m"  # the hostile name stayed a name
    assert js(driver, "place.pass") == js(driver, "lastChange()")
    assert js(driver, "view.nodes.length") > 3
    clean(driver, page)


def test_keys_step_through_passes_and_rewrites(driver: Any, page: Path) -> None:
    visit(driver, page, "#pass=-1")
    assert js(driver, "place.pass") == -1
    press(driver, "ArrowDown")
    first = js(driver, "place.pass")
    assert first >= 0 and js(driver, "frame.marks.size") > 0
    while js(driver, "DATA.passes[place.pass].steps.length") < 2:
        press(driver, "ArrowDown")
    first = js(driver, "place.pass")
    press(driver, "ArrowRight", "ArrowRight")
    assert js(driver, "place.step") == 1
    one = js(driver, "DATA.passes[place.pass].steps[1].produced[0]")
    if one is not None:
        assert js(driver, f"frame.marks.get({one}).mark") == "added"
    press(driver, "ArrowLeft", "ArrowLeft")
    assert js(driver, "place.step") == -1
    press(driver, "ArrowUp")
    assert js(driver, "place.pass") < first
    clean(driver, page)


def test_unchanged_ops_stay_where_they_are(driver: Any, page: Path) -> None:
    """Over the steps of a pass always; between passes with the gaps left in."""
    visit(driver, page, "#pass=fuse&step=0")
    where = (
        "Object.fromEntries(view.nodes.filter(n => n.mark === null).map(n => [n.key, [n.x, n.y]]))"
    )
    before = js(driver, where)
    press(driver, "ArrowRight")
    after = js(driver, where)
    common = before.keys() & after.keys()
    assert common and all(before[k] == after[k] for k in common)
    press(driver, "ArrowLeft", "ArrowLeft", "q")
    wide = js(driver, where)
    press(driver, "ArrowUp")
    earlier = js(driver, where)
    common = wide.keys() & earlier.keys()
    assert common and all(wide[k] == earlier[k] for k in common)


def test_replay_in_the_page_is_exact(driver: Any, page: Path) -> None:
    """The states that the page calculates are those that Python does."""
    visit(driver, page)
    trace = read_trace(page.with_suffix(".trace"))
    for n, state in enumerate(trace.states()):
        got = json.loads(
            js(
                driver,
                f"JSON.stringify((s => s.order.map(i => s.ops.get(i)))(history_.before({n})))",
            )
        )
        assert got == json.loads(json.dumps(state.graph()["ops"])), n


def test_search_selects_and_shows_history(driver: Any, page: Path) -> None:
    visit(driver, page)
    press(driver, "/")
    field = driver.switch_to.active_element
    assert field.get_attribute("id") == "search"
    field.send_keys("softmax\n")
    node = js(driver, "place.node")
    assert node is not None
    details = js(driver, "document.getElementById('details').textContent")
    assert "softmax" in details and "History" in details and "Runs as" in details
    assert f"node={node}" in driver.current_url
    clean(driver, page)


def test_panes(driver: Any, page: Path) -> None:
    visit(driver, page, "#tab=memory")
    assert js(driver, "document.querySelectorAll('#pane-memory rect.buffer').length") >= 1
    press(driver, "4")
    assert "GW_EXPORT" in js(driver, "document.querySelector('#pane-kernels .source').textContent")
    press(driver, "5")
    assert "N" in js(driver, "document.getElementById('pane-shapes').textContent")
    press(driver, "2")
    lines = js(driver, "document.querySelectorAll('#pane-text .line.added').length")
    assert lines == js(driver, "[...frame.marks.values()].filter(m => m.mark === 'added').length")
    driver.execute_script("document.querySelector('#pane-text .line.added').click()")
    assert js(driver, "place.node") is not None
    clean(driver, page)


def test_deep_link(driver: Any, page: Path) -> None:
    visit(driver, page)
    node = js(driver, "String(frame.after.order[frame.after.order.length - 1])")
    number = js(driver, "DATA.passes.findLastIndex(p => p.name === 'fuse')")
    visit(driver, page, f"#pass=fuse&node={node}&tab=text&mode=after")
    assert js(driver, "[place.pass, place.node, place.tab, place.mode]") == [
        number, node, "text", "after",
    ]  # fmt: skip


def test_folding_modules(driver: Any, page: Path) -> None:
    visit(driver, page, "#pass=-1")
    everything = js(driver, "view.nodes.filter(n => !n.group).length")
    press(driver, "z")
    assert js(driver, "view.groups.size") >= 1
    assert js(driver, "view.nodes.filter(n => !n.group).length") < everything
    press(driver, "x")
    assert js(driver, "view.groups.size") == 0


def test_heat(driver: Any, page: Path) -> None:
    """The slowest launch is hottest, in the last graph and on the ops that it was made from."""
    visit(driver, page, "#heat=time&mode=after")
    last = js(driver, "DATA.profile.launches.at(-1).ops[0]")
    assert js(driver, f"view.heat.get('{last}')") == 1
    consumed = js(
        driver,
        f"DATA.passes.flatMap(p => p.steps).findLast(s => s.produced.includes({last})).consumed",
    )
    assert consumed and js(driver, f"view.heat.get('{consumed[0]}')") == 1
    assert "time" in js(driver, "document.getElementById('heat-legend').textContent")
    press(driver, "t", "t", "t")
    assert js(driver, "place.heat") == "error"
    first = js(driver, "DATA.errors.layers[0].op")
    assert js(driver, f"view.heat.get('{first}')") == 1
    assert js(driver, f"view.heat.get('{last}')") < 0.6
    driver.execute_script(f"select('{first}')")
    assert "Measured" in js(driver, "document.getElementById('details').textContent")
    press(driver, "7")
    rows = js(driver, "document.querySelectorAll('#pane-profile td.meter').length")
    assert rows == js(driver, "DATA.profile.launches.length")
    clean(driver, page)


def test_cuda_graphs_and_candidates(driver: Any, tmp_path: Path) -> None:
    """A manifest for a GPU: what is captured, why the rest is not, the ways that were timed."""
    file = tmp_path / "m.trace"
    compilation.build(block(2), CompileOptions.make(trace=file))
    trace = read_trace(file)
    (artifact,) = trace.of_kind("artifact")
    variant = artifact["manifest"]["variants"][0]
    variant["target"] = "cuda:sm_90"
    variant["launches"].insert(1, {"kind": "branch", "pointers": [], "jump": 1, "ops": []})
    summary = variant["kernels"][0]["summary"]
    lock = {"kernels": {"k": {"what": summary, "by": "timing", "chosen": "128x64",
            "times": {"128x64": 4.0, "64x64": 6.0}, "refused": {"256x128": "too large"}}}}  # fmt: skip
    trace.others += [{"record": "tuning", **r} for r in tuning_records(json.dumps(lock).encode())]
    target = tmp_path / "m.html"
    target.write_text(render_page(payload_of(trace, title="m")), encoding="utf-8")
    visit(driver, target, "#tab=graphs")
    text = js(driver, "document.getElementById('pane-graphs').textContent")
    assert "2 graphs of" in text and "a condition that the run decides" in text
    assert js(driver, "document.querySelectorAll('.strip .break').length") == 1
    assert "128x64" in text and "4 µs" in text and "1.50×" in text
    press(driver, "4")
    kernels = js(driver, "document.getElementById('pane-kernels').textContent")
    assert "3 candidates" in kernels and "failed" in kernels and "256x128" in kernels
    clean(driver, target)


def test_costs_are_shown(driver: Any, page: Path) -> None:
    visit(driver, page, "#pass=fuse")
    details = js(driver, "document.getElementById('details').textContent")
    assert "bytes moved" in details and "kernels" in details
    rail = js(driver, "document.querySelector('nav [aria-current]').textContent")
    assert "kernels" in rail and "moves −" in rail
    visit(driver, page, "#pass=fuse&step=1")
    assert "bytes moved" in js(driver, "document.getElementById('details').textContent")


def test_why_not(driver: Any, page: Path) -> None:
    """Two regions in a row: not fused, not in place, not laid out, each with words."""
    visit(driver, page)
    chain = js(
        driver,
        "variant.launches.map(l => l.ops[0]).filter(i => frame.after.ops.get(i).op === 'fused')",
    )
    a, b = chain[0], chain[1]
    driver.execute_script(f"select('{a}'); pick('{b}')")
    text = js(driver, "document.getElementById('details').textContent")
    for heading in ("Why not fused", "Why not in place", "Why not laid out alike"):
        assert heading in text
    assert "2 ops selected" in text and "undefined" not in text and "NaN" not in text
    visit(driver, page, f"#node={a}")
    press(driver, "y")
    driver.execute_script(f"select('{b}')")
    press(driver, "y")
    assert js(driver, "picked.size") == 2
    driver.execute_script("select(null); edgeDetails(view.edges.find(e => e.from.record))")
    assert "Why not fused" in js(driver, "document.getElementById('details').textContent")
    clean(driver, page)


def test_the_selection_is_a_test_case(driver: Any, page: Path) -> None:
    """Every op of every graph, alone and with its readers, is text that the compiler reads."""
    visit(driver, page)
    seen = 0
    for n in range(-1, js(driver, "DATA.passes.length")):
        if n >= 0 and not js(driver, f"DATA.passes[{n}].end.changed"):
            continue
        texts = js(
            driver,
            f"""(s => s.order.filter(i => s.ops.get(i).op !== "constant").flatMap(i => [
                [i], [i, ...s.order.filter(o => (s.ops.get(o).in || []).some(r => keyOf(r) === String(i)))]
            ]).map(ids => caseText(s, ids)))(history_.before({n + 1}))""",
        )
        for text in texts:
            graph = parse_graph(text, registry=REGISTRY)
            verify(graph)
            seen += len(graph.outputs) > 0
    assert seen > 40
    press(driver, "Escape")
    driver.execute_script("select(String(variant.launches[0].ops[0]))")
    press(driver, "e")
    assert js(driver, "document.getElementById('case').open")
    assert "graph @case" in js(driver, "document.getElementById('case-text').value")
    assert js(driver, "document.getElementById('case-save').href").startswith("blob:")
    clean(driver, page)


def test_repeated_blocks_fold(driver: Any, tmp_path: Path) -> None:
    """Six equal layers without module paths are found, and their rows become one a layer."""
    model = block(6)
    for node in model.graph.node:
        node.name = node.name.replace("/", "_")
    (tmp_path / "m.trace").unlink(missing_ok=True)
    compilation.run_passes(model, CompileOptions.make(trace=tmp_path / "m.trace"))
    target = tmp_path / "m.html"
    payload = payload_of(read_trace(tmp_path / "m.trace"), title="m")
    target.write_text(render_page(payload), encoding="utf-8")
    visit(driver, target, "#pass=-1")
    tall = js(driver, "Math.max(...view.nodes.map(n => n.y))")
    press(driver, "r")
    groups = js(driver, "[...view.groups.keys()]")
    assert len(groups) == 6 and groups[0].endswith("block A 1 of 6")
    assert js(driver, "Math.max(...view.nodes.map(n => n.y))") <= tall - 5 * 2 * 64
    press(driver, "r")
    assert js(driver, "view.groups.size") == 0
    clean(driver, target)


def test_two_files(driver: Any, tmp_path: Path) -> None:
    """Of two models the one node that was added is marked, and nothing else but its reader."""
    first, second = describe(block(2)), describe(block(2, extra=True))
    trace = compare(first, second, {})
    target = tmp_path / "diff.html"
    target.write_text(render_page(payload_of(trace, title="a → b", start="a")), encoding="utf-8")
    visit(driver, target)
    marks = js(driver, "[...frame.marks.values()].map(m => m.mark).sort()")
    assert marks == ["added", "rewired"]
    details = js(driver, "document.getElementById('details').textContent")
    assert "Added" in details and "Tanh" in details and "Rewired" in details
    clean(driver, target)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_are_told_apart_by_shape(driver: Any, page: Path, theme: str) -> None:
    visit(driver, page, "#pass=fuse")
    driver.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
    badges = js(driver, "Object.values(BADGES)")
    assert len(set(badges)) == 5
    colours = js(
        driver,
        "MARKS.map(m => getComputedStyle(document.documentElement).getPropertyValue('--' + m).trim())",
    )
    assert len(set(colours)) == 5
