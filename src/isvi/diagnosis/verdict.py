"""From numbers to a verdict, the reasons for it, and what to do: in plain words."""

from typing import Literal, NamedTuple

import numpy as np

from isvi.diagnosis.entries import Entries, bearable, off
from isvi.diagnosis.motion import MOST_MEMORY, PASSES_PER_DRAW, Motion
from isvi.diagnosis.stationarity import Slope, Trend
from isvi.families.approximation import Approximation
from isvi.results.status import Status
from isvi.results.weights.importance import Importance

Verdict = Literal["good", "usable", "poor"]
Judgement = tuple[Verdict, list[str], list[str]]
"""With the reasons and the advice."""

STEEP = 1.0
"""Nats per sd of q. Means off by a quarter of an sd give 0.25 if q has the posterior's curvature, and up to about this
if it is too wide along some axis; what is more contradicts weights that see nothing wrong."""
LARGEST_ROUNDING = 0.1
"""Nats by which the log joint may be wrong for its rounding: a tenth of the weights of the draws then is noise."""
FEWEST_TO_DISPUTE = 100
"""Effective draws that weights, whose tails cannot be trusted, must have to contradict chains."""
LARGEST_FULL_RANK = 500
"""Entries for which a full covariance, of half their square, is still something to try."""
MANY_ENTRIES = 30
TOO_MANY = 1_000
"""Latents beyond which q would have to be exact for the weights of its draws to be alike."""
HELD_OUT = "hold rows out and compare their log density, under fit.sample, with that of another fit or model"
RESAMPLE = "fit.resample(n), which gives draws that are corrected for it"
RIGHT = "where there are draws, the posterior's means and sds are as q has them"
BY_MOTION = "as short chains from draws of q tell, which move by the posterior"
STAYED = "short chains from draws of q, which move by the posterior, keep the means and sds that q has"
CREEPING = "the chains went on to where q should be, but did not come to rest: fit.resample() may miss some of it"
DISPUTED = "by the weights of draws all around q, compared with where short chains go: these may miss some of it"
SHARPER = "take constants out of the log density, and compute it in double precision: only its differences count"


class Evidence(NamedTuple):
    """All that a verdict is made from."""

    approximation: Approximation
    status: Status
    gradients: int
    weighted: Importance
    entries: Entries
    slope: Slope | None
    trend: Trend | None
    finite: bool
    motion: Motion | None = None

    @property
    def open(self) -> bool:
        """Whether nothing is known from the weights, and more of them would not tell: that is what chains are for."""
        known = not self.finite or self.rounding > LARGEST_ROUNDING or self.entries.trusted
        return not known and (self.approximation.dim > TOO_MANY or _more_draws(self) is None)

    @property
    def disputed(self) -> str | None:
        """What chains have elsewhere than weights of draws from all around q, by more than a standard error: mass that
        no chain gets to, such as a wide skirt around a narrow middle."""
        explored = self.weighted.candidates.own < self.weighted.num_draws
        if self.motion is None or not explored or self.weighted.effective < FEWEST_TO_DISPUTE:
            return None
        return off(self.entries.against(self.motion.entries), errors=-1.0)

    @property
    def sloping(self) -> bool:
        """Whether the ELBO's gradient says that the mean of q is off by more than it may be."""
        return self.slope is not None and self.slope.significant

    @property
    def steep(self) -> bool:
        """Whether that gradient is more than any q with right means and sds can have."""
        return self.sloping and self.slope is not None and self.slope.value > STEEP

    @property
    def on_the_way(self) -> bool:
        """Whether the ELBO is still to be raised by the same fit, given more model gradients."""
        return self.sloping or (self.trend is not None and self.trend.rising)

    @property
    def rounding(self) -> float:
        """What the log joint may be wrong by, in nats: as its neighbouring values say, and as its size says."""
        values = self.weighted.candidates.evaluation.log_joint
        largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
        return max(np.nan_to_num(self.weighted.candidates.noise), float(np.finfo(np.float64).eps * largest))


def judge(evidence: Evidence) -> Judgement:
    """The verdict, its reasons and the advice, the most important first.

    What cannot be trusted leaves nothing to say that q is right. If the weights can be, they may also say that q is off
    by more than it should be, and importance resampling then mends it.
    """
    reasons, advice = _how_it_ended(evidence)
    if not evidence.finite:
        reasons.append("the parameters of q are not all finite")
        return "poor", reasons, [*advice, "look at the model where the fit started; a latent may have a flat posterior"]
    if evidence.rounding > LARGEST_ROUNDING:
        return "poor", [*reasons, _blurred(evidence)], [*advice, SHARPER]
    if not evidence.entries.trusted:
        return _by_chains(evidence, reasons, advice)
    wrong = off(evidence.entries)
    if wrong:
        more = [] if evidence.on_the_way else _fuller(evidence.approximation)
        return "usable", [*reasons, wrong], [*advice, RESAMPLE, *more]
    if evidence.steep:
        return (
            "usable",
            [*reasons, "the weights see no mean or sd that is off, so the two disagree"],
            [*advice, RESAMPLE],
        )
    return _unless_it_failed(evidence, [*reasons, RIGHT], advice)


def _unless_it_failed(evidence: Evidence, reasons: list[str], advice: list[str]) -> Judgement:
    """Where nothing speaks against q but perhaps how the fit ended."""
    failed = evidence.status.kind == "diverged" or evidence.weighted.failed
    return "usable" if failed and evidence.entries.trusted else "poor" if failed else "good", reasons, advice


def _by_chains(evidence: Evidence, reasons: list[str], advice: list[str]) -> Judgement:
    """Where the weights cannot tell: by where short chains went."""
    motion = evidence.motion
    if motion is None or not motion.tells:
        return "poor", [*reasons, _distrust(evidence)], [*advice, *_if_poor(evidence)]
    if evidence.disputed:
        return "poor", [*reasons, f"{evidence.disputed} {DISPUTED}"], [*advice, *_if_poor(evidence)]
    if motion.wrong is None and motion.sure:
        return _unless_it_failed(evidence, [*reasons, STAYED], advice)
    row = int(np.argmax(motion.entries.error_noise))
    too_few = f"{motion.chains} chains are too few to be sure of {motion.entries.names[row]}"
    reasons = [*reasons, f"{motion.wrong or too_few}, {BY_MOTION}"]
    more = [] if motion.wrong else [_more_chains(motion)]
    if motion.mended:
        return "usable", reasons, [*advice, RESAMPLE, *more, *_fuller(evidence.approximation)]
    if motion.turns:
        reasons.append(CREEPING)
    return "poor", reasons, [*advice, *more, *_if_poor(evidence)]


def _more_chains(motion: Motion) -> str:
    short = float(motion.entries.error_noise.max() / motion.entries.largest_noise)  # falls with the root of the chains
    return (
        f"more chains: fit.diagnose(num_samples={_round_up(int(1.5 * motion.passes / PASSES_PER_DRAW * short**2)):_})"
    )


def _blurred(evidence: Evidence) -> str:
    size = np.nanmax(np.abs(evidence.weighted.candidates.evaluation.log_joint))
    return (
        f"the log joint, of size {size:.2g}, is known to {evidence.rounding:.2g} nats only, for rounding: not enough "
        "to weigh draws by"
    )


def _distrust(evidence: Evidence) -> str:
    weighted, entries, dim = evidence.weighted, evidence.entries, evidence.approximation.dim
    slow = _slow(evidence.motion)
    if dim > TOO_MANY:
        return (
            f"{dim:,} latents are too many for importance weights, of which one draw has nearly all, however good q "
            f"is{slow}: nothing here says that q is right, nor that it is wrong"
        )
    missed = f"q misses mass of the posterior, and the draws cannot say how much{slow}"
    if not weighted.trusted:
        return f"k-hat {weighted.k_hat:.2f} is above {weighted.threshold:.2f}: {missed}"
    row = int(np.argmax(entries.resampled_noise))
    if not entries.precise:
        return (
            f"{weighted.num_draws:,} draws are worth {weighted.effective:,.0f} of the posterior's: too few to say "
            f"where {entries.names[row]} is{slow}"
        )
    row = int(np.argmax(entries.k_hat))
    return f"k-hat of {entries.names[row]} is {entries.k_hat[row]:.2f}: {missed}"


def _slow(motion: Motion | None) -> str:
    """Why chains, if there were any, do not tell."""
    if motion is None:
        return ""
    where = "many latents together" if motion.memory <= MOST_MEMORY else motion.slowest
    return f", and short chains from draws of q do not tell: they move too slowly along {where}"


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
        if evidence.status.kind in ("converged", "settled"):
            advice.append("another seed, or algorithm=isvi.ISGD(): it stopped too early")
        else:
            advice.append(f"a larger budget: isvi.fit(..., budget={_round_up(4 * evidence.gradients)})")
    return reasons, advice


def _motion(evidence: Evidence) -> str:
    if evidence.trend is not None and evidence.trend.rising:
        return f"the ELBO was still rising: by {evidence.trend.value:,.1f} nats over the last third of the fit"
    assert evidence.slope is not None
    return f"the ELBO still has a slope: {evidence.slope.value:.2f} nats per sd in the mean of q"


def _if_poor(evidence: Evidence) -> list[str]:
    approximation = evidence.approximation
    if approximation.dim > TOO_MANY:
        return [HELD_OUT, *_fuller(approximation)]
    more_draws = _more_draws(evidence)
    advice = [more_draws] if more_draws else _fuller(approximation)
    if not advice:
        advice.append(
            "MCMC, with chains started at fit.sample(4), as fit.resample() is not to be relied on here; or the model "
            "in other parameters (non-centred, on a log scale), in which the posterior is closer to a Gaussian"
        )
    if approximation.dim >= MANY_ENTRIES and not more_draws:
        advice.append(
            f"in {approximation.dim:,} dimensions k-hat is strict: small errors of many entries add up in the joint "
            "density, so single means and sds may be right all the same. Check those that matter against MCMC, or "
            "against a fuller family"
        )
    return advice


def _more_draws(evidence: Evidence) -> str | None:
    """Where nothing speaks against q but that there were too few draws to be sure: how many to take."""
    entries, weighted = evidence.entries, evidence.weighted
    known = np.isfinite(entries.resampled_noise).all()
    if entries.precise or not known or not bearable(weighted, entries.k_hat):
        return None
    short = float(entries.resampled_noise.max() / entries.largest_noise)  # falls with the root of the draws
    needed = _round_up(int(np.ceil(1.5 * weighted.num_draws * short**2)))
    return f"more draws: fit.diagnose(num_samples={needed:_}), a pass over the data each"


def _fuller(approximation: Approximation) -> list[str]:
    """Families with more of the posterior's dependence than this one, the nearest first."""
    if approximation.num_factors == 1 and not approximation.low_rank:
        return []
    if approximation.dim <= LARGEST_FULL_RANK:
        return ["family=isvi.FullRank(), which has the correlations between latents that this family leaves out"]
    if approximation.low_rank:
        return []
    return ["family=isvi.LowRank(5), which has the flattest directions that many latents share"]


def _round_up(budget: int) -> int:
    """To one digit."""
    unit = 10 ** (len(str(budget)) - 1)
    return -(-budget // unit) * unit
