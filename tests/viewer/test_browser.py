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
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.trace import read_trace
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
    payload = payload_of(read_trace(folder / "m.trace"), title="m", subtitle="cpu")
    target.write_text(render_page(payload), encoding="utf-8")
    return target


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


def test_two_files(driver: Any, tmp_path: Path) -> None:
    """Of two models the one node that was added is marked, and nothing else but its reader."""
    first, second = describe(block(2)), describe(block(2, extra=True))
    trace = compare(first, second, {})
    target = tmp_path / "diff.html"
    target.write_text(render_page(payload_of(trace, title="a → b", start="a")), encoding="utf-8")
    visit(driver, target)
    marks = js(driver, "[...frame.marks.values()].map(m => m.mark).sort()")
    assert marks == ["added", "rewired"]
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
