"""``from_stan``, and the same for a program that is compiled already."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isvi.core.errors import ConfigurationError, ModelError, require
from isvi.frontends.stan.building import Builder, build_program
from isvi.frontends.stan.program import StanModel, StanProgram
from isvi.frontends.stan.reading import as_json, code_of
from isvi.model.external import External, ExternalModel, no_log_prior


def from_stan(
    program: str | Path, data: Mapping[str, Any] | str | Path | None = None, *, builder: Builder = "auto"
) -> ExternalModel:
    """A Stan program and its data as a model for :func:`isvi.fit`. Needs the extra ``isvi[stan]`` and a C++ compiler.

    Results are in the program's own names and constrained space, with transformed parameters; ``Fit.predict`` gives
    its generated quantities. Every evaluation uses all the data.

    Args:
        program: Stan code, or the path of a file that ends in ``.stan``.
        data: a dict of numbers and arrays, or the path of a JSON file.
        builder: ``"bridgestan"``, which downloads Stan's sources on first use; ``"httpstan"``, whose package carries
            them; ``"auto"`` takes BridgeStan if it is installed, except if its sources would have to be downloaded and
            httpstan is there.
    """
    require(
        builder in ("auto", "bridgestan", "httpstan"),
        ConfigurationError,
        f"builder must be 'auto', 'bridgestan' or 'httpstan'; got {builder!r}.",
    )
    return from_stan_model(build_program(builder, code_of(program), as_json(data)))


def from_stan_model(model: StanModel) -> ExternalModel:
    """An already compiled ``bridgestan.StanModel`` as a model for :func:`isvi.fit`."""
    program = StanProgram(model)
    latents = program.latents
    require(len(latents) > 0, ModelError, "The Stan program has no parameters: nothing to fit.")
    return ExternalModel(
        latents,
        no_log_prior,
        report=program.report,
        unreport=program.unreport,
        predict=program.predict,
        external=External(program.value_and_grad, door="isvi.from_stan"),
    )
