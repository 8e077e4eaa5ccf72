"""From numbers to a verdict, the reasons for it, and what to do: in plain words."""

from typing import Literal, NamedTuple

import numpy as np

from isvi.families.approximation import Approximation
from isvi.fitting.entries import Entries
from isvi.fitting.importance import Importance
from isvi.fitting.stationarity import Slope, Trend
from isvi.fitting.status import Status

Verdict = Literal["good", "usable", "poor"]

MEAN_OFF, SD_OFF = 0.25, 1.25
"""A mean off by this many sds, or an sd off by this factor, is more than a good fit should be."""
LARGEST_FULL_RANK = 500
"""Entries for which a full covariance, of half their square, is still something to try."""
MANY_ENTRIES = 30


class Evidence(NamedTuple):
    """All that a verdict is made from."""

    approximation: Approximation
    status: Status
    gradients: int
    weighted: Importance
    entries: Entries
    slope: Slope | None
    trend: Trend | None

    @property
    def on_the_way(self) -> bool:
        """Whether the ELBO is still to be raised by the same fit, given more model gradients."""
        moving = self.slope is not None and self.slope.significant
        return moving or (self.trend is not None and self.trend.rising)


def judge(evidence: Evidence) -> tuple[Verdict, list[str], list[str]]:
    """The verdict, its reasons and the advice, the most important first.

    k-hats rule: weights that cannot be trusted leave nothing to say that q is right. If they can be, they may also say
    that q is off by more than it should be, and importance resampling then mends it.
    """
    reasons, advice = _how_it_ended(evidence)
    if not evidence.entries.trusted:
        return "poor", [*reasons, _distrust(evidence)], [*advice, *_if_poor(evidence)]
    off = _off(evidence.entries, evidence.weighted)
    if off:
        more = [] if evidence.on_the_way else _fuller(evidence.approximation)
        advice += ["fit.resample(n), which gives draws that are corrected for it", *more]
        return "usable", [*reasons, off], advice
    if evidence.status.kind == "diverged" or evidence.weighted.failed:
        return "usable", [*reasons, "where q has draws, the posterior is as q has it"], advice
    return "good", [*reasons, "where q has draws, the posterior is as q has it"], advice


def _distrust(evidence: Evidence) -> str:
    weighted, entries = evidence.weighted, evidence.entries
    missed = "q misses mass of the posterior, and its own draws cannot say how much"
    if not weighted.trusted:
        return f"k-hat {weighted.k_hat:.2f} is above {weighted.threshold:.2f}: {missed}"
    row = int(np.argmax(entries.k_hat))
    return f"k-hat of {entries.names[row]} is {entries.k_hat[row]:.2f}: {missed}"


def _how_it_ended(evidence: Evidence) -> tuple[list[str], list[str]]:
    reasons, advice = [], []
    if not evidence.status.good:
        reasons.append(f"the fit {evidence.status}")
        advice.append("find out why the fit ended early, and fit again")
    if evidence.weighted.failed:
        failed, draws = evidence.weighted.failed, evidence.weighted.num_draws
        reasons.append(f"the log joint is not a number at {failed:,} of {draws:,} draws of q")
        advice.append(
            "look at the log density where fit.sample() reaches: it overflows, or its support is not declared"
        )
    if evidence.on_the_way:
        reasons.append(_motion(evidence))
        if evidence.status.kind == "converged":
            advice.append("another seed, or algorithm=isvi.ISGD(): it stopped too early")
        else:
            advice.append(f"a larger budget: isvi.fit(..., budget={_round_up(4 * evidence.gradients)})")
    return reasons, advice


def _motion(evidence: Evidence) -> str:
    if evidence.trend is not None and evidence.trend.rising:
        return f"the ELBO was still rising: by {evidence.trend.value:,.1f} nats over the last third of the fit"
    assert evidence.slope is not None
    return f"the ELBO still has a slope: {evidence.slope.value:.2f} nats per sd in the mean of q"


def _off(entries: Entries, weighted: Importance) -> str | None:
    """What is off by more than it may be and, for entries, by more than noise (3 standard errors)."""
    error, ratio = np.abs(entries.mean_error), np.maximum(entries.sd_ratio, 1 / np.maximum(entries.sd_ratio, 1e-300))
    mean, sd = int(np.argmax(error)), int(np.argmax(ratio))
    if error[mean] > MEAN_OFF + 3 / np.sqrt(weighted.effective):
        return f"the mean of {entries.names[mean]} is off by {error[mean]:.2f} of q's sds"
    if ratio[sd] > SD_OFF * (1 + 3 / np.sqrt(2 * weighted.effective)):
        return f"the sd of {entries.names[sd]} is {entries.sd_ratio[sd]:.2f} times q's"
    if weighted.effective < 0.5 * weighted.num_draws:
        return f"the weights of {weighted.num_draws:,} draws are worth {weighted.effective:,.0f}: q's shape is off"
    return None


def _if_poor(evidence: Evidence) -> list[str]:
    approximation = evidence.approximation
    advice = _fuller(approximation)
    if not advice:
        advice.append(
            "MCMC, with chains started at fit.sample(4), as fit.resample() is not to be relied on here; or the model "
            "in other parameters (non-centred, on a log scale), in which the posterior is closer to a Gaussian"
        )
    if approximation.dim >= MANY_ENTRIES:
        advice.append(
            f"in {approximation.dim:,} dimensions k-hat is strict: small errors of many entries add up in the joint "
            "density, so single means and sds may be right all the same. Check those that matter against MCMC, or "
            "against a fuller family"
        )
    return advice


def _fuller(approximation: Approximation) -> list[str]:
    """Families with more of the posterior's dependence than this one, the nearest first."""
    if approximation.num_factors == 1:
        return []
    if approximation.dim <= LARGEST_FULL_RANK:
        return ["family=isvi.FullRank(), which has the correlations between latents that this family leaves out"]
    return ["family=isvi.Block([[...], ...]), with the latents that go together in one block"]


def _round_up(budget: int) -> int:
    """To one digit."""
    unit = 10 ** (len(str(budget)) - 1)
    return -(-budget // unit) * unit
