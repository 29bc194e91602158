"""The report in a real browser: nothing is wider than the window, nothing is logged, nothing needs JavaScript."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from spanfit import files
from spanfit.report.html import render_page
from tests.unit.profiler.factory import RUN
from tests.unit.report.factory import frame, placed, weight_set

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH; install one to see the page rendered")

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
FRAME = """<!doctype html><body style="margin:0"><iframe src="page.html" style="width:{width}px;height:900px;border:0">
</iframe><p id="answer">waiting</p><script>
addEventListener("message", event => {{ document.getElementById("answer").textContent = "answer " + event.data; }});
</script>"""
PROBE = """<script>addEventListener("load", () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  const page = document.documentElement, wide = [];
  for (const each of document.querySelectorAll("main *:not(.scroll *)"))
    if (each.getBoundingClientRect().right > page.clientWidth + 1) wide.push(each.tagName);
  let cut = 0, met = 0;
  for (const svg of document.querySelectorAll(".panel svg")) {
    const card = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("text")].map(text => text.getBoundingClientRect());
    boxes.forEach((box, index) => {
      cut += box.right > card.right + 1 || box.left < card.left - 1;
      cut += box.top < card.top - 1 || box.bottom > card.bottom + 1;
      for (const other of boxes.slice(index + 1)) {
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        met += across > 1 && down > 0.3 * Math.min(box.height, other.height);
      }
    });
  }
  let small = 99;
  for (const text of document.querySelectorAll(".panel svg text")) {
    const turn = text.getScreenCTM();
    small = Math.min(small, Math.hypot(turn.a, turn.b) * parseFloat(getComputedStyle(text).fontSize));
  }
  parent.postMessage([page.scrollWidth - page.clientWidth, wide.length, cut, met, small.toFixed(1),
    document.querySelectorAll(".panel svg").length].join(" "), "*");
});</script></body>"""


def chromium(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture(scope="module")
def page() -> str:
    weights = weight_set()
    grid = [[f"core/m{row // 30}-{column // 4}" for column in range(16)] for row in range(150)]
    placement = placed(grid, weights_hash=files.digest(weights))
    free = {name: 140 for row in grid for name in row}
    at = "2026-01-03T00:00:00+00:00"
    return render_page(RUN, frame(), written_at=at, weights=weights, placement=placement, free=free)


@pytest.mark.parametrize("width", [400, 760, 1400])
def test_nothing_is_wider_than_the_window_and_labels_neither_end_early_nor_meet(
    tmp_path: Path, page: str, width: int
) -> None:
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</body>", PROBE)
    (tmp_path / "page.html").write_text(probed, encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    shown = chromium(
        tmp_path, "--virtual-time-budget=5000", "--window-size=1500,1000", "--dump-dom", f"file://{tmp_path}/frame.html"
    )
    answer = re.search(r'id="answer">answer ([^<]*)<', shown.stdout)
    assert answer, shown.stdout[-500:]
    overflow_px, wide, cut, met, smallest_px, panels = map(float, answer[1].split())
    assert (overflow_px, wide, cut, met) == (0, 0, 0, 0)
    assert smallest_px >= 8 and panels == page.count('<div class="panel">')


def test_the_page_itself_logs_nothing_and_paints_with_scripts_forbidden(tmp_path: Path, page: str) -> None:
    path, picture = tmp_path / "page.html", tmp_path / "page.png"
    path.write_text(page, encoding="utf-8")
    shown = chromium(
        tmp_path, "--enable-logging=stderr", "--window-size=1400,1000", f"--screenshot={picture}", f"file://{path}"
    )
    assert "CONSOLE" not in shown.stderr
    assert picture.stat().st_size > 20_000
