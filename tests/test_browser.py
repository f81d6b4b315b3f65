"""The pages in a real browser, with the network off: nothing overflows, formulas have a size, numbers are those of the arrays.

Needs Chromium (`apt-get install chromium`), and for the accessibility check axe-core's `axe.min.js`, whose path AXE_CORE names
(`npm pack axe-core`). Skipped where there is none.
"""

import json
import os
import re
import shutil
import subprocess
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped
from test_pages import Text, page_of, written
from test_questions import page as question_page
from test_questions import questions
from test_worksheets import ALL, pages_of, sheet_of

from worked_attention.pages.language import languages, speak

BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
AXE = os.environ.get("AXE_CORE", "")
WIDTHS = (360, 1280)
SHOWN = {"handworked": ["two_heads", "batched"], "masks": ["causal_top_left"], "gradients": ["cross"], "positions": ["rotary_half"]}
ASKED = ("who_hears_whom", "who_may_connect", "one_query", "shapes_on_the_way", "dot_product", "without_softmax", "without_the_scale")
HEADS = {"qk": "raw", "scaled": "scaled", "weights": "weights"}  # names of arrays, ours and in the golden file

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

HARNESS = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>harness</title><body><pre id="found"></pre><script>
const pages = PAGES, widths = WIDTHS, unfold = UNFOLD, axe = AXE_SOURCE, found = [];
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page;
  document.body.append(frame);
  await loaded;
  const doc = frame.contentDocument, root = doc.documentElement;
  if (unfold) for (const fold of doc.querySelectorAll("details")) fold.open = true;
  const outside = e => !e.closest(".w, .f, math, svg") && e.getBoundingClientRect().right > width + 1;
  const wide = [...doc.querySelectorAll("body *")].filter(outside);
  const maths = [...doc.querySelectorAll("math")].map(m => m.getBoundingClientRect());
  const result = {page, width, scroll: root.scrollWidth, wide: wide.slice(0, 3).map(e => e.outerHTML.slice(0, 120)),
    flat: maths.filter(m => m.width < 5 || m.height < 5).length, maths: maths.length,
    cells: Object.fromEntries([...doc.querySelectorAll("td a[href^='#']")].map(a => [a.getAttribute("href").slice(1), a.textContent])),
    folds: doc.querySelectorAll("details").length, paper: getComputedStyle(doc.body).backgroundColor,
    shut: [...doc.querySelectorAll("details > :not(summary)")].filter(e => !e.checkVisibility()).length,
    tables: Math.max(0, ...[...doc.querySelectorAll("table")].map(t => t.getBoundingClientRect().right)),
    targets: [...doc.querySelectorAll("a[href^='#']")].filter(a => !doc.getElementById(a.getAttribute("href").slice(1))).length};
  if (axe && width === Math.max(...widths)) {
    const script = doc.createElement("script");
    script.textContent = axe;
    doc.head.append(script);
    const said = await frame.contentWindow.axe.run(doc, {resultTypes: ["violations"]});
    const serious = said.violations.filter(v => ["serious", "critical"].includes(v.impact));
    result.axe = serious.map(v => v.id + ": " + v.nodes[0].html.slice(0, 150));
  }
  found.push(result);
  frame.remove();
}
(async () => {
  try { for (const page of pages) for (const width of widths) await look(page, width); }
  catch (error) { found.push({error: String(error)}); }
  document.getElementById("found").textContent = JSON.stringify(found);
  document.title = "done";
})();
</script></body></html>"""


def looked_at(
    pages: list[Path], folder: Path, dark: bool = False, widths: tuple[int, ...] = WIDTHS, unfold: bool = True
) -> tuple[list[dict], str]:
    """What a browser finds on `pages` at each width, with every fold open (`unfold`) or as it is, and what its console says."""
    axe = json.dumps(Path(AXE).read_text("utf-8")).replace("</", "<\\/") if AXE else "null"
    harness = HARNESS.replace("PAGES", json.dumps([page.as_uri() for page in pages])).replace("WIDTHS", json.dumps(widths))
    harness = harness.replace("UNFOLD", json.dumps(unfold))
    (folder / "harness.html").write_text(harness.replace("AXE_SOURCE", axe, 1), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", "--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND"]
    flags += ["--enable-logging=stderr", "--virtual-time-budget=200000", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run([BROWSER, *flags, (folder / "harness.html").as_uri()], capture_output=True, timeout=240)
    page = done.stdout.decode("utf-8")
    console = "\n".join(line for line in done.stderr.decode("utf-8", "replace").splitlines() if "CONSOLE" in line)
    return json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', page, re.DOTALL)[1])), console


@pytest.fixture(scope="module")
def pages(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind: of cases with all sorts of options, one in each further language, the front page of a run."""
    found, folder = {"index": built / "results" / "index.html"}, tmp_path_factory.mktemp("pages")
    for suite, names in SHOWN.items():
        cases = shipped(suite)["cases"]
        for name in names:
            found[f"{suite}/{name}"] = path = folder / f"{suite}_{name}.html"
            path.write_text(page_of(cases[name])[0], "utf-8")
    for language in [language for language in languages() if language != "en"]:
        found[language] = path = folder / f"{language}.html"
        speak(language)
        path.write_text(page_of(shipped("positions")["cases"]["rotary_half"])[0], "utf-8")
        speak("en")
    for name in ASKED:
        found[f"questions/{name}"] = path = folder / f"{name}.html"
        path.write_text(question_page(questions()[name])[0], "utf-8")
    found["questions/mistakes"] = built / "results" / "questions" / "three_shape_mistakes.html"
    for key in (False, True):
        found[f"worksheet {key}"] = path = folder / f"worksheet_{key}.html"
        path.write_text(pages_of(sheet_of("masks/causal_top_left", **ALL), key)[0], "utf-8")
    return found


@pytest.fixture(scope="module")
def seen(pages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict], str]:
    return looked_at(list(pages.values()), tmp_path_factory.mktemp("browser"))


def test_nothing_overflows_and_formulas_have_a_size(pages: dict, seen: tuple):
    results, console = seen
    assert len(results) == len(pages) * len(WIDTHS) and not console
    for result in results:
        assert "error" not in result, result
        assert result["scroll"] <= result["width"] and not result["wide"], result
        assert result["flat"] == 0 and result["targets"] == 0, result
    assert sum(result["maths"] for result in results) > 50


def test_the_browser_would_have_seen_it(tmp_path: Path):
    """The same checks on a page that is too wide, has an empty formula, a dead link and an error."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!DOCTYPE html><html lang="en"><title>x</title><body><div style="width:2000px">wide</div><math></math><a href="#no">x</a>'
        '<img src="x.png"><script>missing()</script></body></html>',
        "utf-8",
    )
    results, console = looked_at([bad], tmp_path)
    assert all(
        result["scroll"] > result["width"] and result["wide"] and result["flat"] == 1 and result["targets"] == 1 for result in results
    )
    assert "missing is not defined" in console
    assert not AXE or any(said.startswith("image-alt") for said in results[-1]["axe"])


@pytest.mark.skipif(not AXE, reason="AXE_CORE does not name axe.min.js")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_serious_for_readers_with_other_senses(pages: dict, seen: tuple, tmp_path: Path, dark: bool):
    results, _ = looked_at(list(pages.values()), tmp_path, dark, WIDTHS[-1:]) if dark else seen
    results = [result for result in results if result["width"] == WIDTHS[-1]]
    assert len(results) == len(pages) and all("axe" in result for result in results)
    assert not [(result["page"].rsplit("/", 1)[1], result["axe"]) for result in results if result["axe"]]


def test_golden_numbers_are_read_back_from_the_page(pages: dict, seen: tuple):
    golden = json.loads((ROOT / "tests" / "data" / "handworked.json").read_text("utf-8"))
    result = next(result for result in seen[0] if result["page"].endswith("handworked_two_heads.html"))
    arrays = {name: np.array(golden[name]) for name in ("q", "k", "v", "output")}
    arrays |= {ours: np.array([head[theirs] for head in golden["per_head"]]) for ours, theirs in HEADS.items()}
    for name, array in arrays.items():
        for index, value in np.ndenumerate(array):
            cell = result["cells"]["-".join([name, *map(str, index)])]
            assert abs(float(cell.replace("−", "-")) - value) <= 0.00005 + 1e-9, (name, index, cell)


def test_links_of_a_run_lead_somewhere(built: Path):
    read, results = cache(lambda page: Text(page.read_text("utf-8"))), (built / "results").resolve()
    checked = 0
    for page in [results / "index.html", *sorted(results.glob("*/pages/*.html")), *sorted(results.glob("questions/*.html"))]:
        for link in read(page).links:
            path, _, anchor = link.partition("#")
            target = page.parent / unquote(path) if path else page
            assert target.is_file(), (page.name, link)
            assert not anchor or anchor in read(target.resolve()).ids, (page.name, link)
            checked += 1
    assert checked > 300


def test_hostile_titles_run_nothing(tmp_path: Path):
    case = written(
        tmp_path,
        "  a:\n    title: '<img src=x onerror=missing()>'\n    tokens: ['<script>missing()</script>']\n    parameters: {x: [[1]]}\n",
    )
    page = tmp_path / "hostile.html"
    page.write_text(page_of(case["a"])[0], "utf-8")
    results, console = looked_at([page], tmp_path)
    assert not console and all("error" not in result for result in results)


# On paper


SHEET = 688  # pixels between the margins of A4: 210 mm less 2 x 14 mm


def printed(page: Path, folder: Path, style: tuple[str, str] = ("", "")) -> list[dict]:
    """What a browser finds if the style for paper holds on the screen, with every fold as it is; `style` is changed in it."""
    text = page.read_text("utf-8")
    assert text.count("@media print {") == 1 and style[0] in text
    copy = folder / "on_paper.html"
    copy.write_text(text.replace("@media print {", "@media all {").replace(*style), "utf-8")
    return looked_at([copy], folder, dark=True, widths=(SHEET,), unfold=False)[0]


@pytest.mark.parametrize("page", ["cache/second_to_fifth", "gradients/cross"])
def test_on_paper_folds_are_open_and_tables_fit(page: str, tmp_path: Path):
    suite, name = page.split("/")
    path = tmp_path / "page.html"
    path.write_text(page_of(shipped(suite)["cases"][name])[0], "utf-8")
    (result,) = printed(path, tmp_path)
    assert result["folds"] > 20 and result["shut"] == 0 and result["paper"] == "rgb(255, 255, 255)"
    assert result["tables"] <= SHEET + 1, result["tables"]
    # the same with a style that lacks each of these
    (result,) = printed(path, tmp_path, ("details::details-content {", "details::no-such-part {"))
    assert result["shut"] > 0
    (result,) = printed(path, tmp_path, ("--paper: #fff;", ""))
    assert result["paper"] != "rgb(255, 255, 255)"
    if suite == "cache":
        (result,) = printed(path, tmp_path, (".wide, .wide th { font-size: 6.2pt; }", ""))
        assert result["tables"] > SHEET + 1
