"""Wrong use is met at the door, with an error that says what to do."""

import numpy as np
import pytest
from jax.scipy.stats import norm

import isvi

ROWS = {"y": np.arange(6.0), "group": [0, 0, 1, 1, 2, 2]}


def model(**changes) -> isvi.Model:
    parts = {
        "latents": {"m": isvi.real(), "tau": isvi.positive()},
        "log_prior": lambda z: norm.logpdf(z["m"]) + norm.logpdf(z["tau"]),
        "log_likelihood": lambda z, row: norm.logpdf(row["y"], z["m"] + z["u"]),
        "local": {"u": isvi.real()},
        "log_local_prior": lambda z: norm.logpdf(z["u"], 0, z["tau"]),
    }
    return isvi.Model(**{**parts, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_local_prior": lambda z: norm.logpdf(z["u"])}, "'tau' is used by log_prior only"),
        ({"log_local_prior": lambda z: norm.logpdf(z["tau"])}, "log_local_prior does not use local latent 'u'"),
        (
            {"log_likelihood": lambda z, row: norm.logpdf(row["y"], z["m"])},
            "log_likelihood does not use local latent 'u'",
        ),
        ({"local": {"m": isvi.real()}}, "in latents and in local"),
        ({"local": {"u": isvi.real(3)}}, "as many entries, 3, as there are groups"),
        ({"local": {"u": isvi.real(50)}}, "have 50 entries in all"),
        ({"local": None}, "come with their density"),
        ({"log_local_prior": None}, "come with their density"),
        ({"log_likelihood": None}, "needs a log_likelihood"),
        ({"nodes": 1}, "nodes must be a whole number, for 1 local entries of at least 3"),
        ({"log_likelihood": lambda z, row: norm.logpdf(row["yy"], z["u"])}, "asks for 'yy'.*data columns"),
        ({"log_local_prior": lambda z: norm.logpdf(z["v"], 0, z["tau"])}, "asks for 'v'"),
    ],
)
def test_models_that_cannot_be_meant(changes, message):
    if changes.get("local", {}) and "u" in changes["local"] and changes["local"]["u"].shape:
        changes = {
            **changes,
            "log_local_prior": lambda z: norm.logpdf(z["u"], 0, z["tau"]).sum(),
            "log_likelihood": lambda z, row: norm.logpdf(row["y"], z["m"] + z["u"].sum()),
        }
    with pytest.raises(isvi.ModelError, match=message):
        isvi.fit(model(**changes), isvi.data.grouped(ROWS, by="group"), progress=False)


def test_grouped_data_need_local_latents_and_local_latents_need_data():
    plain = isvi.Model(
        {"m": isvi.real()}, lambda z: norm.logpdf(z["m"]), lambda z, rows: norm.logpdf(rows["y"], z["m"]).sum()
    )
    with pytest.raises(isvi.ConfigurationError, match="no local latents"):
        isvi.fit(plain, isvi.data.grouped(ROWS, by="group"))
    with pytest.raises(isvi.ConfigurationError, match="no data was given"):
        isvi.fit(model())


def test_asking_for_what_is_not_there():
    fit = isvi.fit(model(), isvi.data.grouped(ROWS, by="group"), budget=20, progress=False)
    with pytest.raises(isvi.DataError, match="no group 9"):
        fit.local([9])
    with pytest.raises(isvi.DataError, match="groups is empty"):
        fit.local([])
    with pytest.raises(isvi.ConfigurationError, match="positive number of groups"):
        fit.local(new=0)
    with pytest.raises(isvi.ConfigurationError, match="neither groups nor data"):
        fit.local([0], new=1)
    with pytest.raises(isvi.ConfigurationError, match="cannot simulate"):
        fit.predict()
