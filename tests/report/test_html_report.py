"""The report: one file, the verdict first, everything escaped, and a browser that agrees."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from support.fixed_fit import fixed_fit

import isvi

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'isvi[plots]'")

VOID = {"meta", "input", "br", "path", "use", "rect", "line", "image"}
CHROMIUM = shutil.which("chromium")


class Page(HTMLParser):
    """What a page holds; raises if its elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def standing(latents: dict, **options) -> isvi.Fit:
    """q = N(0, 1) for every entry of a standard normal posterior."""
    model = isvi.Model(latents, lambda z: sum(norm.logpdf(value).sum() for value in z.values()), **options)
    return fixed_fit(model, isvi.MeanField(), lambda q: q.init(jnp.zeros(q.dim), jnp.ones(q.dim)))


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "fit.html"
    standing({"w": isvi.real(2), "<b>": isvi.real()}).report(path, 200)
    return path


def test_one_file_with_the_verdict_first(written):
    text = written.read_text()
    page = Page(text)
    assert page.text.index("good: every mean") < page.text.index("What the verdict is made from")
    # Nothing is fetched: all links are within the page's own figures.
    assert all(link.startswith("#") for link in page.links)
    assert not re.search(r"url\((?!#)", text)
    assert page.tags.count("svg") == 3  # weights, marginals, forest: this fit has no history
    assert "<b>" not in page.text.replace("&lt;", "<") or "<td><b></td>" not in text
    assert "&lt;b&gt;" in text
    assert "log_prior" not in page.open
    assert "norm.logpdf" in page.text


def test_the_table_has_every_entry(written):
    data = re.search(r'id="entries-data">(.*?)</script>', written.read_text())[1]
    rows = json.loads(data)
    assert [row[0] for row in rows] == ["w[0]", "w[1]", "<b>"]
    assert rows[0][1] == pytest.approx(0.0, abs=0.1)
    assert rows[0][2] == pytest.approx(1.0, abs=0.1)


def test_a_fit_without_its_model_is_not_judged(tmp_path):
    fit = standing({"w": isvi.real(2)})
    fit.save(tmp_path / "fit.isvi")
    isvi.load(tmp_path / "fit.isvi").report(tmp_path / "fit.html")
    assert "not judged" in Page((tmp_path / "fit.html").read_text()).text


@pytest.mark.slow
def test_a_hundred_thousand_latents(tmp_path):
    """The file stays small enough to open (6 MB of numbers), and only the first rows are part of the page."""
    fit = standing({"w": isvi.real(100_000)})
    fit.report(tmp_path / "fit.html", 50)
    text = (tmp_path / "fit.html").read_text()
    assert len(text) < 10e6
    assert text.count("<tr>") < 200
    assert len(json.loads(re.search(r'id="entries-data">(.*?)</script>', text)[1])) == 100_000


def test_no_folder(tmp_path):
    with pytest.raises(isvi.ConfigurationError, match="there is no folder"):
        standing({"w": isvi.real()}).report(tmp_path / "missing" / "fit.html")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine: apt-get install chromium")
def test_in_a_browser(tmp_path):
    """The script runs: it counts the rows, sorts by a click and finds by a search."""
    standing({"w": isvi.real(300)}).report(tmp_path / "fit.html", 50)
    clicks = (
        "<script>document.querySelectorAll('th button')[1].click();"
        "const s = document.getElementById('search'); s.value = 'w[29'; s.dispatchEvent(new Event('input'));</script>"
    )
    page = tmp_path / "clicked.html"
    page.write_text((tmp_path / "fit.html").read_text().replace("</body>", f"{clicks}</body>"))
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --dump-dom"
    )
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", f"file://{page}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "11 of 11 shown" in shown  # w[29] and w[290] to w[299]
    body = re.search(r'id="entries">.*?<tbody>(.*?)</tbody>', shown, re.DOTALL)[1]
    means = [float(row) for row in re.findall(r"<tr><td>[^<]*</td><td>([^<]*)</td>", body)]
    assert len(means) == 11
    assert means == sorted(means, reverse=True)
    assert np.isfinite(means).all()
