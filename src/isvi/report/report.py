"""The report: what is said, in which order, as one HTML file that needs no other."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isvi.core.errors import ConfigurationError, require
from isvi.core.extras import import_extra
from isvi.core.files import write_atomically
from isvi.report import contents
from isvi.report.figures import figures

if TYPE_CHECKING:
    from isvi.diagnosis import Diagnosis
    from isvi.results.fit import Fit

FIRST_ROWS = 100
"""Of the table of entries, which are part of the page also where no script runs."""
MEANS = {
    "good": "every mean of a latent is within a quarter of the posterior's sd, and every sd within 25%.",
    "usable": "q is off by more than it should be; draws of fit.resample() are not.",
    "poor": "neither q nor its resampled draws can be relied on.",
}


def write_report(fit: "Fit", path: Path, seed: int = 0, draws: int | None = None, source: str | None = None) -> None:
    """Write the report of a fit; see :meth:`isvi.Fit.report`. ``source`` is the model's text, if it is known better."""
    import_extra("matplotlib", "plots", "A report")
    require(
        path.parent.is_dir(),
        ConfigurationError,
        f"cannot write to {path}: there is no folder {path.parent}. Make it first.",
    )
    told = None if fit.dataset is None else fit.diagnose(draws, seed)
    write_atomically(path, page(fit, told, seed, draws, source).encode())


def page(fit: "Fit", told: "Diagnosis | None", seed: int, draws: int | None, source: str | None) -> str:
    """The whole file."""
    title = f"Posterior of {', '.join(list(fit.model.latents)[:6])}{', ...' if len(fit.model.latents) > 6 else ''}"
    columns, rows = contents.entries_table(fit, told, seed)
    texts = [source] if source is not None else contents.sources(fit)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="faint">isvi, {contents.today()}</p>',
        _verdict(told),
        *_section("The fit", _facts(contents.facts(fit))),
        *([] if told is None else _section("What the verdict is made from", _facts(told.lines()))),
        *_section("Figures", _figures(figures(fit, told, seed, draws))),
        *_section("Latents", _entries(columns, rows)),
        *_section("Model", _latents(contents.latents(fit)), *map(_code, texts), *([] if texts else [_no_source()])),
        *_section("To reproduce it", _facts([*contents.settings(fit), *contents.versions()])),
    ]
    return _document(title, "\n".join(parts), rows)


def _document(title: str, body: str, rows: list[list[Any]]) -> str:
    own = files("isvi.report")
    style, script = (own.joinpath(name).read_text() for name in ("page.css", "page.js"))
    data = json.dumps(rows, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f'<script type="application/json" id="entries-data">{data}</script>\n<script>\n{script}</script>\n'
        "</body>\n</html>\n"
    )


def _verdict(told: "Diagnosis | None") -> str:
    if told is None:
        return (
            '<div class="verdict unknown"><b>not judged</b>: that needs the model and the data, and this fit was '
            "loaded without them.</div>"
        )
    reasons = "".join(f"<li>{escape(one)}</li>" for one in told.reasons)
    advice = "".join(f"<li>{escape(one)}</li>" for one in told.advice)
    tried = f"<p>What to do:</p><ul>{advice}</ul>" if advice else ""
    said = f"<b>{told.verdict}</b>: {MEANS[told.verdict]}"
    return f'<div class="verdict {told.verdict}">{said}<ul>{reasons}</ul>{tried}</div>'


def _section(heading: str, *parts: str) -> list[str]:
    return [f"<section>\n<h2>{heading}</h2>", *parts, "</section>"]


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>\n" for name, value in pairs)
    return f'<table class="facts">\n{rows}</table>'


def _figures(drawn: Sequence[tuple[str, str, str]]) -> str:
    shown = "\n".join(
        f'<figure class="{kind}">{svg}<figcaption>{escape(caption)}</figcaption></figure>'
        for caption, svg, kind in drawn
    )
    return f'<div class="figures">\n{shown}\n</div>'


def _entries(columns: list[str], rows: list[list[Any]]) -> str:
    head = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{'' if cell is None else escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows[:FIRST_ROWS]
    )
    return (
        '<div class="tools" hidden><input id="search" type="search" placeholder="search latents" '
        'aria-label="search latents"><span id="count" class="faint"></span></div>\n'
        f'<div class="scroll"><table class="entries" id="entries">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>\n"
        '<button class="more" id="more" type="button" hidden>more rows</button>\n'
        f'<noscript><p class="faint">{len(rows):,} entries in all; the first {min(FIRST_ROWS, len(rows))} are shown '
        "where scripts do not run.</p></noscript>"
    )


def _latents(rows: Iterable[tuple[str, str, str]]) -> str:
    head = "<tr><th>latent</th><th>shape</th><th>support</th></tr>"
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="scroll"><table>\n{head}\n{body}</table></div>'


def _code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def _no_source() -> str:
    return '<p class="faint">The source of the model is not known here.</p>'
