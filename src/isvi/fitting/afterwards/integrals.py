"""Were the integrals over local latents precise enough for what a fit is about to promise? If not: more nodes.

Records hold gradients of integrals that are sums over nodes. How precise these must be depends on where the fit ends,
so that is where they are looked at: on a sample of the groups, which is enough for errors that many groups have in
common. ``fit.diagnose()`` looks at all of them.
"""

import logging
from dataclasses import replace

from isvi.diagnosis.integrals import SHIFT_OFF, Integrals, check_integrals
from isvi.fitting.options import usual_with_integrals
from isvi.fitting.outcome import Outcome
from isvi.fitting.running.loop import make_start
from isvi.fitting.setup import Setup
from isvi.model.local import Marginal, marginal_of
from isvi.model.local.nodes import Nodes
from isvi.results.fit import Fit
from isvi.results.history import History
from isvi.results.status import NOT_CONVERGED, Status

log = logging.getLogger("isvi")

SAMPLE = 1_000
"""Groups, about. The mean of errors that spread as much as they are large is known to 3% then."""
LATE = 4
"""Times as many gradients as are usual."""
SHIFT_TO_MEND = 0.05
"""Posterior sds by which errors of the integrals may move a mean before more nodes are taken. What is left of the tenth
that "converged" promises is the method's."""


def first_look(setup: Setup) -> int:
    """After how many gradients to look whether nodes are why a run has not come to rest: where they see one mode of
    several, a group's integral jumps from one to the other."""
    if not isinstance(setup.model.log_likelihood, Marginal):
        return setup.budget_of_method
    return min(setup.budget_of_method, LATE * usual_with_integrals(setup.dataset, setup.estimator))


def more_nodes(setup: Setup, outcome: Outcome) -> bool:
    """Whether the run should begin again, with the nodes that the outcome then asks for. Where it should and cannot,
    its status is made to say so."""
    if not isinstance(setup.model.log_likelihood, Marginal) or outcome.error is not None:
        return False
    rule = marginal_of(setup.model).rule
    if outcome.gave_up or outcome.status.kind == "diverged":
        # Gradients of what nodes around one mode see may lead anywhere.
        return not rule.everywhere and _begins_again(setup, outcome, rule.next(elsewhere=True))
    if outcome.status.kind == "interrupted":
        return False
    found = check_integrals(as_fit(setup, outcome), SAMPLE)
    assert found is not None
    if found.shift <= SHIFT_TO_MEND:
        return False
    if _begins_again(setup, outcome, rule.next(elsewhere=found.elsewhere + found.lost > 0)):
        log.info("%s: going on with more nodes", _words(found))
        return True
    if found.shift > SHIFT_OFF and outcome.status.kind != "budget":
        outcome.status = Status("settled", f"{NOT_CONVERGED}: {_words(found)}")
    return False


def _begins_again(setup: Setup, outcome: Outcome, finer: Nodes | None) -> bool:
    if finer is None or outcome.gradients >= setup.budget_of_method:
        return False
    outcome.nodes = finer.count, finer.everywhere
    return True


def begin_again(setup: Setup, outcome: Outcome) -> Outcome:
    """The outcome as the start of another run, with what is left of the budget: from where it ended, if that is
    anywhere. Records of other integrals do not go together, so that those there are cannot be kept."""
    spent = outcome.loop.state
    params = spent.params if outcome.status.kind in ("converged", "settled") else setup.start()
    loop = make_start(setup.method(), setup.dataset, setup.run_key)(params)
    state = loop.state._replace(gradients=spent.gradients, steps=spent.steps)
    outcome.loop = loop._replace(state=state, schedule=outcome.loop.schedule)
    outcome.gave_up = False
    outcome.history = History()  # ELBOs by other integrals are not comparable
    return outcome


def no_worse(before: Outcome, outcome: Outcome) -> Outcome:
    """What the run came to with more nodes; or what there was before, if that had come to rest and this fails."""
    if outcome.status.kind != "diverged" or before.status.kind not in ("converged", "settled"):
        return outcome
    told = "with more nodes for the integrals over local latents, which were not precise enough, the fit failed"
    spent = outcome.loop.state
    state = before.loop.state._replace(gradients=spent.gradients, steps=spent.steps)
    kept = replace(before, loop=before.loop._replace(state=state), status=Status("settled", f"{NOT_CONVERGED}: {told}"))
    return replace(kept, seconds=outcome.seconds, compile_seconds=outcome.compile_seconds, signal=outcome.signal)


def as_fit(setup: Setup, outcome: Outcome) -> Fit:
    """As far as the check of its integrals needs it."""
    params = setup.own(outcome.loop.state.params, outcome.loop.state.memory)
    model, approximation = setup.model, setup.approximation
    return Fit(model, approximation, setup.dataset, params, outcome.history, outcome.status, outcome.gradients, 0)


def _words(found: Integrals) -> str:
    told = f"errors of the integrals over local latents move the mean of {found.entry} by {found.shift:.2f} sds"
    if found.lost:
        told += f"; in {found.lost:,} of {found.groups:,} groups no mode was found"
    if found.elsewhere:
        told += f"; in {found.elsewhere:,} of {found.groups:,} groups there is mass away from the mode"
    return told
