"""Build the wheel and the sdist, install them into clean environments, use them there. Not for pytest: it downloads.

python tests/wheels.py                          the wheel and the sdist, with this Python
python tests/wheels.py --python python3.13      with another; may be given several times
python tests/wheels.py --extras                 every extra alone, too
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIT = """
import jax, jax.numpy as jnp, numpy as np, isvi
model = isvi.Model(
    {"m": isvi.real()},
    lambda z: -0.5 * z["m"] ** 2,
    lambda z, rows: -0.5 * jnp.sum((rows["y"] - z["m"]) ** 2),
    simulate=lambda key, z, rows: {"y": z["m"] + jax.random.normal(key, rows["y"].shape)},
)
rows = {"y": np.linspace(-1, 3, 200)}
fit = isvi.fit(model, rows, progress=False)
assert abs(fit.mean()["m"] - 1) < 0.05, fit.mean()
"""
BASE = f"""{FIT}
assert fit.diagnose().verdict == "good"
fit.save("it.isvi")
assert isvi.load("it.isvi").mean() == fit.mean()
isvi.cite(fit)
"""
EXTRAS = {
    "plots": f"{FIT}\nfit.report('it.html')",
    "loo": f"{FIT}\nfit.loo()",
    "parquet": f"{FIT}\nimport pyarrow as pa, pyarrow.parquet as pq\npq.write_table(pa.table(rows), 'rows.parquet')\n"
    "isvi.fit(model, isvi.data.Parquet('rows.parquet'), progress=False)",
    "zarr": f"{FIT}\nfit.predict(rows, num_samples=10, to='predictions.zarr')",
    "tensorboard": f"{FIT}\nisvi.fit(model, rows, progress=False, callbacks=[isvi.TensorBoard('logs')])",
    "mlflow": "import isvi, mlflow\nisvi.MLflow()",
    "enumerate": """
import isvi, numpyro, numpyro.distributions as dist, numpy as np
def model(y):
    m = numpyro.sample("m", dist.Normal(0, 3))
    with numpyro.plate("rows", len(y)):
        k = numpyro.sample("k", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(m + 4 * k, 1), obs=y)
isvi.fit(isvi.from_numpyro(model), {"y": np.array([0.0, 4.0] * 20)}, budget=100, progress=False)
""",
    "pymc": """
import isvi, pymc as pm, numpy as np
with pm.Model() as model:
    m = pm.Normal("m", 0, 3)
    pm.Normal("y", m, 1, observed=np.ones(20))
isvi.fit(isvi.from_pymc(model), budget=100, progress=False)
""",
    "stan": "import isvi, bridgestan",
    "ray": f"{FIT}\nisvi.fit(model, rows, batch_size=50, budget=40, workers=1, progress=False)",
}


def run(*command: object, **options: object) -> None:
    subprocess.run([str(part) for part in command], check=True, **options)  # type: ignore[call-overload]


def try_out(python: str, package: str, code: str, about: str) -> None:
    """In an environment and a folder that go away."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", f"{folder}/venv")
        bin = Path(folder) / "venv" / "bin"
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
        run(bin / "python", *pip, package, stderr=subprocess.DEVNULL)
        run(bin / "python", "-W", "error::DeprecationWarning:isvi", "-c", code, cwd=folder, stdout=subprocess.DEVNULL)
        run(bin / "isvi", "--version", cwd=folder, stdout=subprocess.DEVNULL)
    print(f"{about}: fine", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", action="append", default=[])
    options.add_argument("--extras", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "build", "--outdir", folder, ROOT, stdout=subprocess.DEVNULL)
        (wheel,), (sdist,) = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
        for python in chosen.python or [sys.executable]:
            try_out(python, str(wheel), BASE, f"{python}, the wheel")
        try_out((chosen.python or [sys.executable])[0], str(sdist), BASE, "the sdist")
        for extra, code in EXTRAS.items() if chosen.extras else ():
            try_out((chosen.python or [sys.executable])[0], f"{wheel}[{extra}]", code, f"isvi[{extra}]")


if __name__ == "__main__":
    main()
