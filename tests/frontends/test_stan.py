"""Stan programs, compiled offline with httpstan; BridgeStan is stood in for by an object with its methods."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import isvi
from isvi.frontends.stan import from_stan_model
from isvi.frontends.stan.building import choose
from isvi.frontends.stan.program import StanProgram, unpack
from isvi.frontends.stan.reading import as_json

PAGE = Path(__file__).parents[2] / "docs" / "frontends" / "stan.md"
PROGRAM = re.search(r'program = """(.*?)"""', PAGE.read_text(), re.DOTALL)[1]  # compiled once for all tests


class HalfNormal:
    """``s ~ half-normal`` with the methods of ``bridgestan.StanModel``: unconstrained log s, and s squared."""

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]:
        return ["s"] + ["square"] * include_tp + ["new.1", "new.2"] * include_gq

    def param_unc_names(self) -> list[str]:
        return ["s"]

    def log_density_gradient(self, theta_unc: np.ndarray) -> tuple[float, np.ndarray]:
        if theta_unc[0] > 10:
            raise RuntimeError("too large")
        s = np.exp(theta_unc)
        return float(-0.5 * s[0] ** 2 + theta_unc[0]), -(s**2) + 1

    def param_constrain(self, theta_unc: np.ndarray, **include: Any) -> np.ndarray:
        s = float(np.exp(theta_unc[0]))
        return np.array([s] + [s * s] * include.get("include_tp", False) + [s, -s] * include.get("include_gq", False))

    def param_unconstrain_json(self, theta_json: str) -> np.ndarray:
        return np.log([float(re.search(r"[\d.]+", theta_json)[0])])

    def new_rng(self, seed: int) -> int:
        return seed


def test_fits_what_bridgestan_gives() -> None:
    fit = isvi.fit(from_stan_model(HalfNormal()), algorithm=isvi.ISGD(), budget=500, num_samples=2, initial={"s": 1.0})
    assert list(fit.sample(3)) == ["s", "square"]
    np.testing.assert_allclose(fit.sample(3)["square"], fit.sample(3)["s"] ** 2, rtol=1e-6)
    assert fit.predict(num_samples=3)["new"].shape == (3, 2)
    assert 0.6 < fit.mean()["s"] < 1.0  # exact: 0.798


@pytest.fixture
def bridgestan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """What stands in for the package, and remembers what it was asked for."""
    asked: list[tuple] = []

    def compile_model(path: Path) -> None:
        asked.append(("compile", path.read_text()))
        path.with_name("program_model.so").touch()

    def stan_model(path: str, data: str, **options: Any) -> HalfNormal:
        asked.append(("open", Path(path).with_name("program.stan").read_text(), data))
        return HalfNormal()

    compiling = SimpleNamespace(get_bridgestan_path=lambda: asked.append(("find",)))
    found = SimpleNamespace(StanModel=stan_model, compile_model=compile_model, compile=compiling, asked=asked)
    monkeypatch.setitem(sys.modules, "bridgestan", found)  # type: ignore[misc]
    monkeypatch.setenv("ISVI_CACHE", str(tmp_path))
    monkeypatch.setattr("isvi.frontends.stan.building.has_sources", lambda: True)
    return found


def test_bridgestan_is_called_with_program_and_data(
    bridgestan: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """And says what it does; a program that was compiled before is only opened."""
    caplog.set_level("INFO", "isvi")
    program = "parameters { real<lower=0> s; }"
    isvi.from_stan(program, {"N": 3}, builder="bridgestan")
    assert bridgestan.asked == [("find",), ("compile", program), ("open", program, '{"N": 3}')]
    assert re.search(r"compiling the Stan program with BridgeStan \(usually .*\)(?s:.*)done in \d+ s", caplog.text)
    isvi.from_stan(program, {"N": 4}, builder="bridgestan")
    assert bridgestan.asked[3:] == [("open", program, '{"N": 4}')]


def test_bridgestan_without_sources_or_with_errors(
    bridgestan: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(error: Exception) -> Any:
        def compile_model(path: Path) -> None:
            raise error

        return compile_model

    monkeypatch.setattr(bridgestan, "compile_model", fails(RuntimeError("Syntax error in line 1")))
    with pytest.raises(isvi.ModelError, match=r"does not compile(?s:.*)Syntax error"):
        isvi.from_stan("parameters { real x }", builder="bridgestan")
    monkeypatch.setattr(bridgestan, "compile_model", fails(ValueError("Failed to download.")))
    with pytest.raises(isvi.ConfigurationError, match=r"Failed to download\. Install httpstan"):
        isvi.from_stan("parameters { real x; }", builder="bridgestan")


def test_rejections() -> None:
    """Where the fit starts they are an error; later the step is skipped."""
    program = StanProgram(HalfNormal())
    with pytest.raises(isvi.ModelError, match="too large"):
        program.value_and_grad({"s": np.array(11.0)})
    program.value_and_grad({"s": np.array(0.0)})
    value, gradient = program.value_and_grad({"s": np.array(11.0)})
    assert np.isnan(value)
    assert np.isnan(gradient["s"])


def test_names_become_arrays() -> None:
    """Stan lists matrices column by column, and counts from 1."""
    found = unpack(["a", "m.1.1", "m.2.1", "m.1.2", "m.2.2", "m.1.3", "m.2.3"], np.arange(7.0)[None])
    assert found["a"].shape == (1,)
    np.testing.assert_array_equal(found["m"][0], [[1, 3, 5], [2, 4, 6]])


def test_data_become_json() -> None:
    assert (
        as_json({"n": np.int64(2), "b": np.array([True, False]), "x": [0.5, 1]})
        == '{"n": 2, "b": [1, 0], "x": [0.5, 1.0]}'
    )
    with pytest.raises(isvi.DataError, match="'x' has dtype"):
        as_json({"x": ["a"]})
    with pytest.raises(isvi.DataError, match="no JSON file"):
        as_json("nowhere.json")


def test_missing_file_and_wrong_builder() -> None:
    with pytest.raises(isvi.ConfigurationError, match="no Stan file"):
        isvi.from_stan("nowhere.stan")
    with pytest.raises(isvi.ConfigurationError, match="builder must be"):
        isvi.from_stan("", builder="cmdstan")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def regression() -> isvi.Model:
    pytest.importorskip("httpstan", reason="httpstan is not installed: pip install httpstan")
    rng = np.random.default_rng(0)
    data = {"N": 30, "J": 3, "member": rng.integers(1, 4, size=30), "x": rng.normal(size=30), "y": rng.normal(size=30)}
    return isvi.from_stan(PROGRAM, data, builder="httpstan")


def test_compiled_program(regression: Any) -> None:
    """Names, shapes, the gradient against differences, and initial values there and back."""
    shapes = {name: latent.shape for name, latent in regression.latents.items()}
    assert shapes == {"centre": (), "spread": (), "level": (3,), "slope": (), "noise": ()}
    rng = np.random.default_rng(1)
    point = {name: rng.normal(size=(1, *shape)) for name, shape in shapes.items()}
    _, gradient = regression.external(point)
    for name in shapes:
        step = {**point, name: point[name] + 1e-6}
        back = {**point, name: point[name] - 1e-6}
        difference = (regression.external(step)[0] - regression.external(back)[0]) / 2e-6
        np.testing.assert_allclose(gradient[name].sum(), difference[0], rtol=1e-5, atol=1e-5)
    shown = regression.report(point)
    np.testing.assert_allclose(shown["noise"], np.exp(point["noise"]))
    assert "range" in shown
    assert "new_y" not in shown
    initial = {"noise": shown["noise"][0], "level": shown["level"][0]}
    again = regression.unreport(initial)
    np.testing.assert_allclose(again["noise"], point["noise"][0])
    np.testing.assert_allclose(again["level"], point["level"][0])
    assert again["slope"] == 0
    many = {name: np.repeat(value, 4, axis=0) for name, value in point.items()}
    first, second = (regression.predict(many, None, seed)["new_y"] for seed in (0, 0))
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first)) == 4


def test_compiler_messages() -> None:
    pytest.importorskip("httpstan", reason="httpstan is not installed: pip install httpstan")
    with pytest.raises(isvi.ModelError, match="stanc does not accept"):
        isvi.from_stan("parameters { real x }", builder="httpstan")
    with pytest.raises(isvi.ModelError, match=r"does not accept the data.*N"):
        isvi.from_stan(PROGRAM, {"J": 3}, builder="httpstan")
    with pytest.raises(isvi.ConfigurationError, match="initial names \\['nothing'\\]"):
        isvi.fit(
            isvi.from_stan(PROGRAM, {"N": 1, "J": 1, "member": [1], "x": [0.0], "y": [0.0]}, builder="httpstan"),
            initial={"nothing": 1.0},
        )


def test_sources_at_hand_are_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isvi.frontends.stan.building.find_spec", lambda name: None if name == "httpstan" else object())
    assert choose("auto") == "bridgestan"
    monkeypatch.setattr("isvi.frontends.stan.building.find_spec", lambda name: object())
    monkeypatch.setattr("isvi.frontends.stan.building.has_sources", lambda: False)
    assert choose("auto") == "httpstan"
