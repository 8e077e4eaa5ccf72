"""Fitting data larger than memory: how much memory it takes, and what it costs next to data in memory.

Writes Parquet files of standard normal predictors and a binary outcome (by default 8 GB: 20 million rows of 100
float32 columns, in 8 files), and fits them in three ways, each fit in a process of its own whose peak of resident
memory is read at the end: streamed from Parquet, one pass over all rows; the same from a cache (isvi.data.Cached) that
an earlier fit filled; and as many of the rows as fit in memory. Four cases:

    light    logistic regression, plain SGD with one draw: a row is read from disk for one cheap gradient
    default  logistic regression, with no options: two gradients for every row
    heavy    a network with 256 hidden units, plain SGD with one draw
    heavier  the same with 512

    python -m benchmarks.large_data --gigabytes 8 --folder /tmp/large --report benchmarks/results/large_data.md

The data and the cache, which takes as much of the disk again, are deleted afterwards, unless ``--keep`` is given.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

COLUMNS = 100
FILES = 8
ROW_GROUP = 20_000
BATCH_SIZE = 10_000
HIDDEN = {"heavy": 256, "heavier": 512}
BAR_GIGABYTES, BAR_SHARE = 1.5, 0.7
CASES = {
    "light": "logistic regression, SGD, one draw",
    "default": "logistic regression, default",
    **{case: f"network with {hidden} hidden units, SGD, one draw" for case, hidden in HIDDEN.items()},
}


def generate(folder: Path, gigabytes: float) -> int:
    """Write the files; returns the number of rows."""
    import numpy as np
    import pyarrow
    from pyarrow import parquet

    groups = max(1, round(gigabytes * 1e9 / (4 * COLUMNS) / FILES / ROW_GROUP))
    weights = np.random.default_rng(0).normal(size=COLUMNS).astype(np.float32) / np.sqrt(COLUMNS)
    names = [f"x{j}" for j in range(COLUMNS)]
    schema = pyarrow.schema([*((name, pyarrow.float32()) for name in names), ("y", pyarrow.float32())])
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        generator = np.random.default_rng((1, number))
        with parquet.ParquetWriter(folder / f"part-{number}.parquet", schema, use_dictionary=False) as writer:
            for _ in range(groups):
                x = generator.standard_normal((COLUMNS, ROW_GROUP), dtype=np.float32)
                y = (generator.random(ROW_GROUP) < 1 / (1 + np.exp(-(weights @ x)))).astype(np.float32)
                writer.write_table(pyarrow.table([*x, y], schema=schema), row_group_size=ROW_GROUP)
    return FILES * groups * ROW_GROUP


def make_model(case: str) -> Any:
    import jax.numpy as jnp
    from jax.nn import log_sigmoid
    from jax.scipy.stats import norm

    import isvi

    def bernoulli(rows: dict, logits: Any) -> Any:
        return jnp.sum(log_sigmoid((2 * rows["y"] - 1) * logits))

    if case not in HIDDEN:
        return isvi.Model(
            {"w": isvi.real(COLUMNS)},
            lambda z: norm.logpdf(z["w"]).sum(),
            lambda z, rows: bernoulli(rows, rows["x"] @ z["w"]),
        )
    return isvi.Model(
        {"inner": isvi.real(COLUMNS, HIDDEN[case]), "outer": isvi.real(HIDDEN[case])},
        lambda z: norm.logpdf(z["inner"], scale=0.1).sum() + norm.logpdf(z["outer"]).sum(),
        lambda z, rows: bernoulli(rows, jnp.tanh(rows["x"] @ z["inner"]) @ z["outer"]),
    )


def measure(folder: Path, case: str, cache: Path | None = None, rows_in_memory: int | None = None) -> dict[str, Any]:
    """Fit once, streamed (with a cache or not) or from memory; the rate leaves compilation out, and counts waiting."""
    import isvi

    source: Any = isvi.data.Parquet(folder, {"x": [f"x{j}" for j in range(COLUMNS)], "y": "y"})
    if cache is not None:
        source = isvi.data.Cached(source, cache)
    data = source if rows_in_memory is None else source.head(rows_in_memory)
    options: dict[str, Any] = {} if case == "default" else {"algorithm": isvi.SGD()}
    draws = 2 if case == "default" else 1
    fit = isvi.fit(
        make_model(case),
        data,
        batch_size=BATCH_SIZE,
        budget=draws * (source.num_rows // BATCH_SIZE),
        progress=False,
        **options,
    )
    seconds = fit.history.seconds[-1]
    return {
        "rows": source.num_rows if rows_in_memory is None else len(data["y"]),
        "gradients": fit.gradients,
        "seconds": seconds,
        "rate": fit.gradients * BATCH_SIZE / seconds,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "status": str(fit.status),
    }


class Results(NamedTuple):
    """What :func:`measure` found for one case, in three ways."""

    streamed: dict[str, Any]
    cached: dict[str, Any]
    resident: dict[str, Any]


def in_process(folder: Path, case: str, *options: object) -> dict[str, Any]:
    """:func:`measure` in a process of its own."""
    arguments = ["--folder", folder, "--measure", case, *options]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.large_data", *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    print(case, *options, found, flush=True)
    return found


def compare(folder: Path, cases: list[str], rows_in_memory: int) -> tuple[dict[str, Any], dict[str, Results]]:
    """The fit that fills the cache, which is that of the first case; and all cases."""
    cache = folder / "cache"
    filling = in_process(folder, cases[0], "--cache", cache)
    results = {
        case: Results(
            in_process(folder, case),
            in_process(folder, case, "--cache", cache),
            in_process(folder, case, "--rows-in-memory", rows_in_memory),
        )
        for case in cases
    }
    return filling, results


def report(rows: int, cores: int, filling: dict[str, Any], results: dict[str, Results]) -> str:
    first = next(iter(results))
    lines = [
        "# Data larger than memory",
        "",
        f"`python -m benchmarks.large_data`: {rows:,} rows of {COLUMNS} float32 predictors and an outcome, "
        f"{rows * 4 * (COLUMNS + 1) / 1e9:.1f} GB in {FILES} Parquet files (row groups of {ROW_GROUP:,}, pyarrow's "
        f"default compression), mini-batches of {BATCH_SIZE:,}, one pass, windows of 64 MB, {cores} core(s) for "
        "computing and reading together.",
        "",
        "The rate is rows times model gradients per second, with waiting for data, without compilation. *Streamed* "
        "reads Parquet. *From cache* is a fit of its own, with `isvi.data.Cached` and a folder that an earlier fit "
        "filled. The rate in memory is that of the same model and options on the number of rows given. Shares are of "
        "that rate.",
        "",
        f"The fit that filled the cache ({CASES[first]}) ran at {filling['rate']:,.0f} rows/s, "
        f"{filling['rate'] / results[first].streamed['rate']:.0%} of the same without a cache.",
        "",
        f"Bars: peak below {BAR_GIGABYTES} GB, and at least {BAR_SHARE:.0%} of the rate in memory.",
        "",
        "| case | peak streamed, GB | peak from cache, GB | streamed, rows/s | from cache, rows/s | in memory, "
        "rows/s | rows in memory | share streamed | share from cache |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case, (streamed, cached, resident) in results.items():
        lines.append(
            f"| {CASES[case]} | {streamed['peak']:.2f} | {cached['peak']:.2f} | {streamed['rate']:,.0f} | "
            f"{cached['rate']:,.0f} | {resident['rate']:,.0f} | {resident['rows']:,} | "
            f"{streamed['rate'] / resident['rate']:.0%} | {cached['rate'] / resident['rate']:.0%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gigabytes", type=float, default=8.0)
    options.add_argument("--folder", type=Path, default=Path("/tmp/isvi-large-data"))
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options.add_argument("--rows-in-memory", type=int, default=None, help="for comparison; by default 2 million")
    options.add_argument("--report", type=Path, default=None, help="write a table here")
    options.add_argument("--keep", action="store_true", help="do not delete the data and the cache")
    options.add_argument("--cache", type=Path, default=None, help="with --measure: keep windows in this folder")
    options.add_argument("--measure", choices=CASES, help="only one fit, in this process")
    chosen = options.parse_args()
    if chosen.measure is not None:
        print(json.dumps(measure(chosen.folder, chosen.measure, chosen.cache, chosen.rows_in_memory)))
        return
    try:
        rows = generate(chosen.folder, chosen.gigabytes)
        resident_rows = min(rows, chosen.rows_in_memory or 2_000_000)
        filling, results = compare(chosen.folder, chosen.cases, resident_rows)
    finally:
        if not chosen.keep:
            shutil.rmtree(chosen.folder, ignore_errors=True)
    text = report(rows, len(os.sched_getaffinity(0)), filling, results)
    print(text)
    if chosen.report is not None:
        chosen.report.write_text(text)


if __name__ == "__main__":
    main()
