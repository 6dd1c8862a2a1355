"""The page of a report: what it says, and how a real browser shows it on a desk and on a phone."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from conformance import cli
from conformance.compare import Closeness, Difference
from conformance.outcome import Outcome, Status
from conformance.report import Report, badge, page
from conformance.report.plots import place

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=3000"
)
# A page that shows the report in a frame of a given width and writes what it measures into itself.
PROBE = """<!doctype html><meta charset="utf-8"><body><iframe id="f" style="width:%dpx;height:3000px;border:0"
 src="report.html"></iframe><pre id="measured"></pre><script>
const frame = document.getElementById("f");
frame.onload = () => {
  const page = frame.contentDocument, seen = (what) => [...page.querySelectorAll(what)];
  seen("details").forEach((part) => { part.open = true; });
  const shown = (node) => { const b = node.getBoundingClientRect(); return b.width > 0 && b.height > 0; };
  document.getElementById("measured").textContent = JSON.stringify({
    width: page.documentElement.scrollWidth,
    widest: Math.max(...seen("body *").map((node) => node.getBoundingClientRect().right)),
    font: parseFloat(frame.contentWindow.getComputedStyle(page.body).fontSize),
    headings: seen("h2").filter(shown).map((node) => node.textContent),
    failures: seen("pre").filter(shown).map((node) => node.textContent),
    dots: seen(".strip circle").filter(shown).length,
    bounds: seen("line.bound").filter((node) => node.getBoundingClientRect().height > 0).length,
    heads: seen("thead").filter(shown).length,
    letters: Math.min(...seen(".strip text").filter(shown).map((node) => node.getBoundingClientRect().height)),
    fetched: frame.contentWindow.performance.getEntriesByType("resource").map((entry) => entry.name),
  });
};
</script>"""


@pytest.fixture
def report() -> Report:
    long_name = "sigmoid_cross_entropy_loss_with_a_name_that_nobody_would_give_to_a_layer/case"
    wrong = Difference("s0.data.<y>[0, 1]", "1.0", "2.0 & more" + " and more" * 60)
    outcomes = [
        Outcome("layer", f"softmax/{i}", Status.PASSED, worst={"blas": Closeness("blas", 10.0**-i, 1.0, "x")})
        for i in range(6)
    ]
    outcomes += [
        Outcome("layer", long_name, Status.PASSED, worst={"bitwise": Closeness("bitwise")}),
        Outcome("layer", "relu/wrong", Status.FAILED, differences=[wrong], count=3, worst={
            "bitwise": Closeness("bitwise", float("inf"), 0.0, "x")}),
        Outcome("teleport", "a/b", Status.UNSUPPORTED, "the suite has no runner for kind 'teleport'"),
    ]  # fmt: skip
    provenance = {
        "recorded": "2026",
        "environment": {"blas": "a BLAS", "compiler": "a compiler"},
        "upstreams": {"one": {"source": "S", "version": "1.0", "build": "-O2"}},
    }
    engine = {"engine": "refcaffe", "device": "cpu"}
    return Report(outcomes, engine, provenance, {"layer": Counter(one=8)}, {"BLAS": "another BLAS"})


def test_the_page_says_everything_and_loads_nothing(report: Report) -> None:
    html = page(report)
    for text in ("7 of 9 cases equal, 1 failed, 1 not yet supported", "layer/relu/wrong", "2.0 &amp; more",
                 "s0.data.&lt;y&gt;", "… and 2 more differences", "no runner for kind &#x27;teleport&#x27;",
                 "a BLAS", "another BLAS", "a compiler", "-O2", "one (8)", 'name="viewport"'):  # fmt: skip
        assert text in html, text
    assert not re.search(r"(?:src|href)=\"(?!#)|url\(|@import|<script|<link", html)


@pytest.mark.parametrize(
    ("ratio", "percent"), [(0.0, 2), (1e-9, 2), (1e-4, 2), (1.0, 78.8), (10.0, 98), (float("inf"), 98)]
)
def test_places_on_the_scale(ratio: float, percent: float) -> None:
    assert place(ratio) == pytest.approx(percent)


def test_a_badge_is_a_picture_with_the_counts(report: Report) -> None:
    picture = ElementTree.fromstring(badge(report))
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["original Caffe", "7 of 9 equal, 1 failed"]


def test_the_command_writes_all_forms(rng_case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {option: tmp_path / f"out.{option}" for option in ("report", "badge", "json")}
    words = [word for option, file in files.items() for word in (f"--{option}", str(file))]
    assert cli.main(["--fixtures", str(rng_case), "--by-group", *words]) == 0  # without `run`
    out = capsys.readouterr().out
    assert re.search(r"│\s+raw\s+│\s+1 │", out) and "recorded from bvlc-1.0-cpu: 1 cases" in out
    assert "1 of 1 cases equal" in files["report"].read_text(encoding="utf-8")
    assert "1 of 1 equal" in files["badge"].read_text()
    document = json.loads(files["json"].read_text())
    assert document["kinds"]["rng"]["groups"]["raw"]["equal"] == 1
    assert document["kinds"]["rng"]["recorded_from"] == {"bvlc-1.0-cpu": 1} and document["environment"]["python"]


Look = Callable[[Path, int], dict[str, Any]]


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Look]:
    """Show ``report.html`` of a folder in a browser, in a frame so many pixels wide, and say what is seen."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is on the path (Debian's package: chromium)")
    servers = []

    def measure(folder: Path, width: int) -> dict[str, Any]:
        (folder / "probe.html").write_text(PROBE % width, encoding="utf-8")
        handler = functools.partial(_Quiet, directory=str(folder))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [browser, *QUIET.split(), f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
                   "--window-size=1200,3000", f"http://127.0.0.1:{server.server_port}/probe.html"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        found = re.search(r'<pre id="measured">(.+?)</pre>', done.stdout, re.DOTALL)
        assert found, f"the browser shows no page: {done.stderr[-2000:]}"
        return json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))

    yield measure
    for server in servers:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize("width", [390, 1100])
def test_a_browser_shows_it(report: Report, tmp_path: Path, look: Look, width: int) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "report.html").write_text(page(report), encoding="utf-8")
    seen = look(folder, width)
    assert seen["width"] <= width and seen["widest"] <= width + 1  # nothing sticks out to the side
    assert seen["font"] >= 16 and seen["letters"] >= 11
    assert seen["headings"][:4] == ["At a glance", "How close is equal", "Failed (1)", "Not yet supported"]
    assert "layer/relu/wrong: failed" in seen["failures"][0] and "2.0 & more" in seen["failures"][0]
    assert seen["dots"] == 8 and seen["bounds"] >= 3
    assert (seen["heads"] == 0) == (width < 640)  # a phone gets cards instead of columns
    assert seen["fetched"] == []
