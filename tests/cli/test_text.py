"""Names that others chose are shown, not obeyed."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import isvi
from isvi.cli import main as command_line
from isvi.core.text import shown

NAMES = ["\x1b[31mred\x1b[0m", "[bold]loud[/bold]", "[/nothing]", "<b>html</b>", "turned\u202earound", "new\rline"]


def fitted() -> isvi.Fit:
    model = isvi.Model({name: isvi.real() for name in NAMES}, lambda z: -sum(value**2 for value in z.values()))
    return isvi.fit(model, algorithm=isvi.SGD(), family=isvi.MeanField(), budget=5, progress=False)


def test_control_characters_are_escaped():
    assert shown("a\x1b[31mb\u202ec\r\n\td\ud800é") == "a\\x1b[31mb\\u202ec\\r\n\td\\ud800é"


def test_a_summary_shows_names_as_they_are(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    fit = fitted()
    text, html = str(fit.summary()), fit.summary()._repr_html_()
    for name in NAMES:
        assert shown(name) in text
    for whole in (text, html, repr(fit)):
        assert not {"\x1b", "\u202e", "\r"} & set(whole)
    assert "&lt;b&gt;html" in html


def test_a_summary_does_not_depend_on_the_terminal(monkeypatch):
    fit = fitted()
    wide = str(fit.summary())
    for name, value in {"COLUMNS": "20", "NO_COLOR": "1", "TERM": "dumb", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
        assert str(fit.summary()) == wide


def test_the_command_line(tmp_path, monkeypatch, capsys):
    fitted().save(tmp_path / "it.isvi")
    ran = CliRunner().invoke(command_line.app, ["summary", str(tmp_path / "it.isvi")])
    assert ran.exit_code == 0
    assert "\\x1b[31mred" in ran.output
    for arguments in (["summary", "\x1b[31m[/red]"], ["\x1b[31m[/red]"], ["fit", "--family", "[/bold]"]):
        monkeypatch.setattr(sys, "argv", ["isvi", *arguments])
        with pytest.raises(SystemExit) as stop:
            command_line.main()
        assert stop.value.code in (1, 2)
        assert "[/red]" in (said := capsys.readouterr().err) or "[/bold]" in said


def test_who_reads_the_output_may_stop(tmp_path):
    """``isvi summary run | head -1``: no traceback, and no complaint at the end."""
    fitted().save(tmp_path / "it.isvi")
    main = "from isvi.cli.main import main; main()"
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", main, "summary", str(tmp_path / "it.isvi")]
    ran = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert ran.stderr == b""
    assert ran.returncode == 1
