"""The benchmark of data larger than memory, on data that are not."""

from pathlib import Path

import pytest

from benchmarks import large_data


def test_it_measures_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": 3, "FILES": 2, "ROW_GROUP": 50, "BATCH_SIZE": 40}.items():
        monkeypatch.setattr(large_data, name, value)
    rows = large_data.generate(tmp_path, gigabytes=4 * 3 * 400 / 1e9)
    assert rows == 400
    cache = tmp_path / "cache"
    streamed, filling, cached = (large_data.measure(tmp_path, "light", kept) for kept in (None, cache, cache))
    resident = large_data.measure(tmp_path, "light", rows_in_memory=120)
    assert (streamed["rows"], resident["rows"]) == (400, 120)
    assert streamed["gradients"] == cached["gradients"] == resident["gradients"] == 10
    assert streamed["peak"] > 0
    text = large_data.report(rows, 1, filling, {"light": large_data.Results(streamed, cached, resident)})
    for found in (streamed, filling, cached, resident):
        assert f"{found['rate']:,.0f}" in text
    assert "400 rows" in text
