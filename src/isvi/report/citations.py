"""What to cite: BibTeX for what a fit used."""

from typing import TYPE_CHECKING

from isvi.model.local import Marginal

if TYPE_CHECKING:
    from isvi.results.fit import Fit

ENTRIES = {
    "sakaya2017importance": """@inproceedings{sakaya2017importance,
  author    = {Sakaya, Joseph and Klami, Arto},
  title     = {Importance Sampled Stochastic Optimization for Variational Inference},
  booktitle = {Proceedings of the Thirty-Third Conference on Uncertainty in Artificial Intelligence},
  year      = {2017},
}""",
    "mokhtari2018iqn": """@article{mokhtari2018iqn,
  author  = {Mokhtari, Aryan and Eisen, Mark and Ribeiro, Alejandro},
  title   = {{IQN}: An Incremental Quasi-{N}ewton Method with Local Superlinear Convergence Rate},
  journal = {SIAM Journal on Optimization},
  volume  = {28},
  number  = {2},
  pages   = {1670--1698},
  year    = {2018},
}""",
    "kovalev2019stochastic": """@article{kovalev2019stochastic,
  author  = {Kovalev, Dmitry and Mishchenko, Konstantin and Richt{\\'a}rik, Peter},
  title   = {Stochastic {N}ewton and Cubic {N}ewton Methods with Simple Local Linear-Quadratic Rates},
  journal = {arXiv preprint arXiv:1912.01597},
  year    = {2019},
}""",
    "schmidt2017sag": """@article{schmidt2017sag,
  author  = {Schmidt, Mark and Le Roux, Nicolas and Bach, Francis},
  title   = {Minimizing Finite Sums with the Stochastic Average Gradient},
  journal = {Mathematical Programming},
  volume  = {162},
  pages   = {83--112},
  year    = {2017},
}""",
    "kingma2015adam": """@inproceedings{kingma2015adam,
  author    = {Kingma, Diederik P. and Ba, Jimmy},
  title     = {Adam: A Method for Stochastic Optimization},
  booktitle = {International Conference on Learning Representations},
  year      = {2015},
}""",
    "ranganath2014black": """@inproceedings{ranganath2014black,
  author    = {Ranganath, Rajesh and Gerrish, Sean and Blei, David M.},
  title     = {Black Box Variational Inference},
  booktitle = {Artificial Intelligence and Statistics},
  year      = {2014},
}""",
    "figurnov2018implicit": """@inproceedings{figurnov2018implicit,
  author    = {Figurnov, Michael and Mohamed, Shakir and Mnih, Andriy},
  title     = {Implicit Reparameterization Gradients},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {31},
  year      = {2018},
}""",
    "pinheiro1995approximations": """@article{pinheiro1995approximations,
  author  = {Pinheiro, Jos{\\'e} C. and Bates, Douglas M.},
  title   = {Approximations to the Log-Likelihood Function in the Nonlinear Mixed-Effects Model},
  journal = {Journal of Computational and Graphical Statistics},
  volume  = {4},
  number  = {1},
  pages   = {12--35},
  year    = {1995},
}""",
    "vehtari2024pareto": """@article{vehtari2024pareto,
  author  = {Vehtari, Aki and Simpson, Daniel and Gelman, Andrew and Yao, Yuling and Gabry, Jonah},
  title   = {Pareto Smoothed Importance Sampling},
  journal = {Journal of Machine Learning Research},
  volume  = {25},
  number  = {72},
  pages   = {1--58},
  year    = {2024},
}""",
}
OF_ALGORITHMS = {
    "Auto": ("mokhtari2018iqn", "kovalev2019stochastic"),
    "SGD": ("kingma2015adam",),
    "SAG": ("schmidt2017sag", "kingma2015adam"),
    "SRA": ("schmidt2017sag", "kingma2015adam"),
    "ISGD": ("kingma2015adam",),
    "ISAG": ("schmidt2017sag", "kingma2015adam"),
}
WITHOUT_A_MAP = ("Gamma(", "Beta(", "Dirichlet(", "StudentT(")
"""Families with implicit path derivatives."""


def cite(fit: "Fit | None" = None) -> None:
    """Print BibTeX for what was used.

    Args:
        fit: what its method, family and integrals build on is printed; without it, the paper behind isvi and the
            diagnosis, which concern every fit.
    """
    print("\n\n".join(ENTRIES[key] for key in ENTRIES if key in _used(fit)))


def _used(fit: "Fit | None") -> set[str]:
    used = {"sakaya2017importance", "vehtari2024pareto"}
    if fit is None:
        return used
    used.update(OF_ALGORITHMS.get(str(fit.settings.get("algorithm", "")).split("(")[0], ()))
    if "handed over to Adam" in fit.status.message:
        used.add("kingma2015adam")
    if "ScoreFunction" in str(fit.settings.get("estimator", "")):
        used.add("ranganath2014black")
    if any(name in str(fit.settings.get("family", "")) for name in WITHOUT_A_MAP):
        used.add("figurnov2018implicit")
    if isinstance(fit.model.log_likelihood, Marginal):
        used.add("pinheiro1995approximations")
    return used
