"""Did it work? The diagnosis of a fit."""

from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from isvi.diagnosis.entries import Entries, PerEntry, number, weigh_entries
from isvi.diagnosis.integrals import Integrals, check_integrals, judge_integrals
from isvi.diagnosis.modes import ANOTHER_MODE, ONE_MODE, another_mode, images
from isvi.diagnosis.motion import Motion, watch
from isvi.diagnosis.stationarity import Slope, Trend, slope, trend
from isvi.diagnosis.verdict import Evidence, Verdict, judge
from isvi.results.weights.evaluation import ElboEstimate
from isvi.results.weights.importance import Importance

if TYPE_CHECKING:
    from isvi.results.fit import Fit

ROWS_SHOWN = 5


@dataclass(frozen=True)
class Diagnosis:
    """How far an approximation can be trusted, and what to do about it.

    What the verdict promises is in ``docs/diagnosis.md``. A mode that has no draws near is invisible to all of this.

    Attributes:
        verdict: ``"good"``, ``"usable"`` (after importance resampling) or ``"poor"``.
        reasons: why, the most important first.
        advice: what to try, in order; empty if there is nothing to do.
        k_hat: the shape of the tail of all draws' weights (PSIS).
        k_threshold: above it, this many draws cannot be trusted as a rule: min(1 - 1/log10(draws), 0.7).
        elbo: with its standard error.
        log_evidence: log p(x) by the smoothed weights; None where they cannot be trusted.
        draws: how many draws were weighed, of q and from around it.
        passes: passes over the data that it took: one per draw, those a nudge away, and those with gradients, of which
            chains take most.
        effective_draws: the draws' worth after weighting.
        largest_weight: the share of the heaviest draw.
        failed_draws: draws at which the log joint is not a number.
        reuse: effective fraction of the weights of the records that the fit remembered at its end.
        slope: the ELBO's gradient in q's mean, and the noise of a single one.
        trend: the ELBO's rise over the last third of the fit.
        entries: what the weights say about every entry, or the chains where these tell and the weights do not.
        status: how the fit ended.
        integrals: what more nodes say about the integrals over local latents; None if there are none.
        motion: where short chains went; None where the weights could tell, and none were needed.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    advice: tuple[str, ...]
    k_hat: float
    k_threshold: float
    elbo: ElboEstimate
    log_evidence: float | None
    draws: int
    passes: int
    effective_draws: float
    largest_weight: float
    failed_draws: int
    reuse: float | None
    slope: Slope | None
    trend: Trend | None
    entries: Entries
    status: str
    integrals: Integrals | None = None
    motion: Motion | None = None

    @property
    def good(self) -> bool:
        return self.verdict == "good"

    @property
    def gap(self) -> float | None:
        """How many nats the ELBO is below the log evidence: KL(q || posterior)."""
        return None if self.log_evidence is None else self.log_evidence - self.elbo.value

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON; None stands for what is unknown or not finite."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "advice": list(self.advice),
            "k_hat": number(self.k_hat),
            "k_threshold": self.k_threshold,
            "elbo": number(self.elbo.value),
            "elbo_standard_error": number(self.elbo.standard_error),
            "log_evidence": number(self.log_evidence),
            "draws": self.draws,
            "passes": self.passes,
            "effective_draws": number(self.effective_draws),
            "largest_weight": number(self.largest_weight),
            "failed_draws": self.failed_draws,
            "reuse": number(self.reuse),
            "slope": None if self.slope is None else number(self.slope.value),
            "slope_standard_error": None if self.slope is None else number(self.slope.standard_error),
            "gradient_noise": None if self.slope is None else number(self.slope.noise),
            "trend": None if self.trend is None else number(self.trend.value),
            "trend_standard_error": None if self.trend is None else number(self.trend.standard_error),
            "status": self.status,
            "entries": self.entries.to_dict(),
            "integrals": None if self.integrals is None else asdict(self.integrals),
            "motion": None if self.motion is None else self.motion.to_dict(),
        }

    def lines(self) -> list[tuple[str, str]]:
        """Names and values of everything but the entries, as shown."""
        gap = "" if self.gap is None else f", {max(self.gap, 0.0):.2f} below the log evidence"
        lines = [
            ("k-hat", f"{self.k_hat:.2f} (threshold {self.k_threshold:.2f})"),
            ("ELBO", f"{self.elbo}{gap}"),
            (
                "weights",
                f"{self.effective_draws:,.0f} of {self.draws:,} draws effective, the largest {self.largest_weight:.1%}",
            ),
        ]
        if self.reuse is not None:
            lines.append(("records", f"{self.reuse:.0%} of the weight of those remembered was effective at the end"))
        if self.slope is not None:
            lines.append(("slope", f"{self.slope.value:.3f} ± {self.slope.standard_error:.3f} nats per sd"))
            lines.append(("gradient noise", f"{self.slope.noise:.1f} nats per sd, in one mini-batch and draw"))
        if self.trend is not None:
            rise = f"{self.trend.value:+,.2f} ± {self.trend.standard_error:.2f}"
            lines.append(("tail of the fit", f"{rise} nats over its last third"))
        if self.integrals is not None:
            lines.append(("integrals", str(self.integrals)))
        if self.motion is not None:
            lines.append(("chains", str(self.motion)))
        return [*lines, ("passes", f"{self.passes:,} over the data"), ("ended by", self.status)]

    def table(self) -> Table:
        """The entries that are most off."""
        table = Table()
        table.add_column("latent")
        for column in self._columns():
            table.add_column(column, justify="right")
        for row in self._rows():
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        console = Console(width=100, no_color=True)
        with console.capture() as capture:
            console.print(self.table())
        told = [f"{self.verdict}: {'; '.join(self.reasons)}.", *(f"  {name:16}{value}" for name, value in self.lines())]
        shown = [f"{self._caption()}:", capture.get().rstrip("\n")]
        return "\n".join([*told, *shown, *(f"try: {one}." for one in self.advice)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in self.lines())
        head = "".join(f"<th>{name}</th>" for name in ("", *self._columns()))
        cells = "".join(
            f"<tr><th>{escape(row[0])}</th>" + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>"
            for row in self._rows()
        )
        advice = "".join(f"<li>{escape(one)}</li>" for one in self.advice)
        return (
            f"<p><b>{self.verdict}</b>: {escape('; '.join(self.reasons))}.</p><table>{facts}</table>"
            f"<table><tr>{head}</tr>{cells}</table><p>{self._caption()}</p><ul>{advice}</ul>"
        )

    def _columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._numbers())

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (self.entries.names[row], *(f"{column[row]:.2f}" for _, column in self._numbers()))
            for row in self.entries.worst(ROWS_SHOWN)
        ]

    def _numbers(self) -> list[tuple[str, PerEntry]]:
        """What is known about the entries: columns with their names."""
        entries = self.entries
        off = [("mean off by (sds)", entries.mean_error), ("sd ratio", entries.sd_ratio)]
        known = [("k-hat", entries.k_hat)] if not np.isnan(entries.k_hat).all() else []
        return [*(off if entries.trusted else []), *known]

    def _caption(self) -> str:
        count = len(self.entries.names)
        which = "entries" if count <= ROWS_SHOWN else f"the {ROWS_SHOWN} of {count:,} entries that are most off"
        by_chains = self.motion is not None and self.motion.tells
        return f"{which}, as {'short chains' if by_chains else 'the importance weights'} see them"


def diagnose(fit: "Fit", weighted: Importance, reported: dict[str, np.ndarray], seed: int) -> Diagnosis:
    """Judge a fit by the importance weights of its draws, ``reported`` being what the user sees of these."""
    steepness, tail = slope(fit, seed), trend(fit.history)
    entries = weigh_entries(reported, weighted)
    evidence = Evidence(
        fit.approximation, fit.status, fit.gradients, weighted, entries, steepness, tail, _finite(fit, weighted)
    )
    motion = watch(fit, weighted.candidates.passes, seed) if evidence.open else None
    evidence = evidence._replace(motion=motion)
    integrals = check_integrals(fit)
    verdict, reasons, advice = judge_integrals(integrals, *judge(evidence))
    other = another_mode(fit, weighted.candidates.evaluation.elbo.value)
    if other is True:
        verdict, reasons, advice = "poor", [*reasons, ANOTHER_MODE], [*advice, ONE_MODE]
    elif other:
        reasons = [*reasons, images(other)]
    return Diagnosis(
        verdict=verdict,
        reasons=tuple(reasons),
        advice=tuple(advice),
        k_hat=weighted.k_hat,
        k_threshold=weighted.threshold,
        elbo=weighted.candidates.evaluation.elbo,
        log_evidence=number(weighted.log_evidence) if entries.trusted else None,
        draws=weighted.num_draws,
        passes=weighted.candidates.passes + sum(one.passes for one in (steepness, motion) if one is not None),
        effective_draws=weighted.effective,
        largest_weight=float(weighted.weights.max()),
        failed_draws=weighted.failed,
        reuse=number(fit.history.effective[-1]) if len(fit.history) else None,
        slope=steepness,
        trend=tail,
        entries=motion.entries if motion is not None and motion.tells else entries,
        status=str(fit.status),
        integrals=integrals,
        motion=motion,
    )


def _finite(fit: "Fit", weighted: Importance) -> bool:
    """Whether the parameters of q are, and its draws."""
    own = weighted.candidates.evaluation.draws
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in [*jax.tree.leaves(fit.params), own])
