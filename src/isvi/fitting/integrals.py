"""Were the integrals over local latents precise enough for what a fit is about to promise? If not: more nodes.

Records hold gradients of integrals that are sums over nodes. How precise these must be depends on where the fit ends,
so that is where they are looked at: on a sample of the groups, which is enough for errors that many groups have in
common. ``fit.diagnose()`` looks at all of them.
"""

import logging

from isvi.diagnosis.integrals import SHIFT_OFF, Integrals, check_integrals
from isvi.fitting.loop import make_start
from isvi.fitting.outcome import Outcome
from isvi.fitting.setup import Setup
from isvi.model.local import Marginal, marginal_of
from isvi.results.fit import Fit
from isvi.results.status import NOT_CONVERGED, Status

log = logging.getLogger("isvi")

SAMPLE = 2_000
"""Groups, about. The mean of errors that spread as much as they are large is known to 2% then."""
SHIFT_TO_MEND = 0.05
"""Posterior sds by which errors of the integrals may move a mean before more nodes are taken. What is left of the tenth
that "converged" promises is the method's."""


def more_nodes(setup: Setup, outcome: Outcome) -> bool:
    """Whether the run should go on, with the nodes that the outcome then asks for. Where it should and cannot, its
    status is made to say so."""
    if outcome.status.kind not in ("converged", "settled") or not isinstance(setup.model.log_likelihood, Marginal):
        return False
    found = check_integrals(as_fit(setup, outcome), SAMPLE)
    assert found is not None
    if found.shift <= SHIFT_TO_MEND:
        return False
    finer = marginal_of(setup.model).rule.next(elsewhere=found.elsewhere + found.lost > 0)
    if finer is None or outcome.gradients >= setup.budget:
        if found.shift > SHIFT_OFF:
            outcome.status = Status("settled", f"{NOT_CONVERGED}: {_words(found)}")
        return False
    log.info("%s: going on with more nodes", _words(found))
    outcome.nodes = finer.count, finer.everywhere
    return True


def again_from_here(setup: Setup, outcome: Outcome) -> Outcome:
    """The outcome as the start of another run, with what is left of the budget: records of other integrals do not go
    together, so that those there are cannot be kept."""
    spent = outcome.loop.state
    loop = make_start(setup.method(), setup.dataset, setup.run_key)(spent.params)
    state = loop.state._replace(gradients=spent.gradients, steps=spent.steps)
    outcome.loop = loop._replace(state=state, schedule=outcome.loop.schedule)
    return outcome


def as_fit(setup: Setup, outcome: Outcome) -> Fit:
    """As far as the check of its integrals needs it."""
    params = setup.own(outcome.loop.state.params)
    model, approximation = setup.model, setup.approximation
    return Fit(model, approximation, setup.dataset, params, outcome.history, outcome.status, outcome.gradients, 0)


def _words(found: Integrals) -> str:
    told = f"errors of the integrals over local latents move the mean of {found.entry} by {found.shift:.2f} sds"
    if found.lost:
        told += f"; in {found.lost:,} of {found.groups:,} groups no mode was found"
    if found.elsewhere:
        told += f"; in {found.elsewhere:,} of {found.groups:,} groups there is mass away from the mode"
    return told
