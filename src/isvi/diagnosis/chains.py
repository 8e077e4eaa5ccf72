"""Does the posterior's own motion leave q where it is? Short chains that begin at draws of q.

Importance weights are of whole draws: in hundreds of dimensions small errors of many entries add up in them, until one
draw has all of the weight, although every mean and sd is right. Chains can be asked entry by entry. They begin at draws
of q and move by steps that leave the posterior as it is (Hamiltonian Monte Carlo): where q has an entry's mean and sd
right they stay, where it is too narrow they spread (Wang, Kasprzak and Huggins 2023, A targeted accuracy diagnostic for
variational approximations, AISTATS).

Each chain has a twin, with the same start and the same randomness, that moves by steps that leave *q* as it is. Where
the twins are on average is known exactly; so only the difference of each chain to its twin counts, and that is all
but zero where q is right: a few dozen chains are then as good as thousands.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isvi.data.dataset import Batch
from isvi.diagnosis.drift import JUDGED, TRAJECTORIES
from isvi.diagnosis.dynamics import Density, Kick, Place, Stride, Values, move
from isvi.diagnosis.passes import over_batches
from isvi.diagnosis.stretch import Stretched, stretched
from isvi.model.binding import make_target
from isvi.results.weights.evaluation import in_float64, in_one_precision
from isvi.results.weights.exploration import Frame
from isvi.results.weights.standard import standard
from isvi.results.weights.unconstrained import Unconstrained

if TYPE_CHECKING:
    from isvi.results.fit import Fit

QUARTER_TURN = np.pi / 2
"""How long a trajectory is: for a posterior as q has it, its end does not depend on its start."""
FIRST_STRIDE = 1.2
"""Length of a step, in sds, times size^(1/4): for a Gaussian, about nine of ten trajectories are taken."""
MOST_LEAPS = 64
"""Steps of a trajectory, at most: where it needs more, q is several times too wide somewhere."""
WORTH_TAKING = 0.65
"""The share of trajectories that must be taken for a length of steps to do."""
VARIED = (0.6, 1.1)
"""Shares of that length: where q is twice too wide, quarter turns of q would end where they began, or opposite."""
FEWEST_CHAINS, MOST_CHAINS = 16, 1024
"""The number of chains is a multiple of the first."""
LARGEST_SIZE = 100_000
"""Latents up to which there are chains: beyond, their states would fill the memory."""
MOST_STRETCHES = 3
"""How often chains that are slow are run anew in other coordinates."""
MOST_BLOCKS = 4
"""How often as many chains again may be run, with the first ones."""
MOST_TURNS = 2
"""How often chains whose ends are to stand for the posterior go on, for twice as many trajectories as the last time,
until these ends are where the ones before were."""

Moved = Float[np.ndarray, "trajectories chains size"]
Ends = Float[np.ndarray, "_ chains size"]


@dataclass(frozen=True)
class Chains:
    """What the chains did.

    Attributes:
        path: where every trajectory of every chain ended, in coordinates in which q is standard.
        twins: where those of its twin did.
        log_joint: of the posterior, there.
        acceptance: the share of trajectories that were taken.
        passes: passes over the data, each with a gradient.
        space: the coordinates.
        first: how many chains there were before others joined them.
        further: where they ended when they went on, turn by turn: of each the judged trajectories.
    """

    path: Moved
    twins: Moved
    log_joint: Float[np.ndarray, "trajectories chains"]
    acceptance: float
    passes: int
    space: "_Space"
    first: int
    further: tuple[Ends, ...] = ()

    @property
    def count(self) -> int:
        return self.path.shape[1]

    @property
    def ends(self) -> tuple[Ends, ...]:
        """Those that are judged, turn by turn."""
        return self.path[-JUDGED:], *self.further

    def joined(self, more: "Chains") -> "Chains":
        """With further chains of the same kind."""
        share = self.count / (self.count + more.count)
        return replace(
            self,
            path=np.concatenate([self.path, more.path], axis=1),
            twins=np.concatenate([self.twins, more.twins], axis=1),
            log_joint=np.concatenate([self.log_joint, more.log_joint], axis=1),
            acceptance=share * self.acceptance + (1 - share) * more.acceptance,
            passes=self.passes + more.passes,
        )


Judge = Callable[[Chains], bool]


def run_chains(fit: "Fit", passes: int, seed: int, fast: Judge, enough: Judge, resting: Judge) -> Chains | None:
    """Chains that take about so many passes over the data, with gradients, or what sixteen of them take; None where
    there can be none.

    The length of the steps is halved until most trajectories are taken. Chains that are slow are
    run anew in coordinates that are stretched by what they have shown; and as many again, up to three times, while
    there are not enough. Those that are not ``resting`` go on.
    """
    if fit.approximation.dim > LARGEST_SIZE:
        return None

    def compute() -> Chains | None:
        with jax.enable_x64(True):
            return _run(fit, passes, np.random.default_rng([seed, fit.approximation.dim]), fast, enough, resting)

    on_host = make_target(fit.model, fit.approximation.coordinates).on_host
    return compute() if on_host else in_one_precision(compute)


def _run(
    fit: "Fit", passes: int, random: np.random.Generator, fast: Judge, enough: Judge, resting: Judge
) -> Chains | None:
    space, spent = _Space.of(fit), 0
    ran, stride = _first(space, passes, random)
    for _ in range(MOST_STRETCHES):
        if ran is None or fast(ran):
            break
        frame = stretched(space.frame, ran.path, space.unconstrained.plain, QUARTER_TURN)
        if frame is None:
            break
        space, spent = replace(space, frame=frame), spent + ran.passes
        again, stride = _first(space, passes, random)
        ran = ran if again is None else again
    for _ in range(MOST_BLOCKS - 1):
        if ran is None or stride is None or enough(ran):
            break
        ran = ran.joined(_block(space, stride, ran.first, random))
    for _ in range(MOST_TURNS):
        if ran is None or stride is None or resting(ran):
            break
        ran = _onward(ran, stride, random)
    return None if ran is None else replace(ran, passes=ran.passes + spent)


def _first(space: "_Space", passes: int, random: np.random.Generator) -> tuple[Chains | None, Stride | None]:
    """The first chains in these coordinates, and the steps that they took."""
    x = space.draws(random, FEWEST_CHAINS)
    stride, spent = _stride(space.posterior, x, random) if np.isfinite(x).all() else (None, 0)
    if stride is None:
        return None, None
    ran = _block(space, stride, _number(passes / (TRAJECTORIES * stride.leaps)), random)
    return replace(ran, passes=ran.passes + spent), stride


def _block(space: "_Space", stride: Stride, number: int, random: np.random.Generator) -> Chains:
    """Some chains, and their twins."""
    x = space.draws(random, number)
    place, twin = Place.at(x, space.posterior), Place.at(x, space.own)
    places, twins, taken = [], [], []
    for _ in range(TRAJECTORIES):
        kick = Kick.draw(random, *x.shape)
        varied = Stride(stride.length * random.uniform(*VARIED), stride.leaps)
        place, odds = move(space.posterior, place, kick, varied)
        twin, _ = move(space.own, twin, kick, varied)
        places.append(place)
        twins.append(twin.x)
        taken.append(odds.mean())
    return Chains(
        path=np.stack([one.x for one in places]),
        twins=np.stack(twins),
        log_joint=np.stack([one.value for one in places]),
        acceptance=float(np.mean(taken)),
        passes=len(x) * (1 + TRAJECTORIES * stride.leaps),
        space=space,
        first=len(x),
    )


def _onward(ran: Chains, stride: Stride, random: np.random.Generator) -> Chains:
    """The same chains, later."""
    place, places = Place.at(ran.ends[-1][-1], ran.space.posterior), []
    judged = 2 * len(ran.ends[-1])
    trajectories = judged * TRAJECTORIES // JUDGED
    for _ in range(trajectories):
        varied = Stride(stride.length * random.uniform(*VARIED), stride.leaps)
        place, _ = move(ran.space.posterior, place, Kick.draw(random, *place.x.shape), varied)
        places.append(place.x)
    passes = ran.passes + ran.count * (1 + trajectories * stride.leaps)
    return replace(ran, further=(*ran.further, np.stack(places[-judged:])), passes=passes)


def _stride(density: Density, x: np.ndarray, random: np.random.Generator) -> tuple[Stride | None, int]:
    """The longest steps that do, by halving, and the passes that it took to find out; None if none do."""
    start, spent = Place.at(x, density), len(x)
    length = FIRST_STRIDE * x.shape[1] ** -0.25
    while (leaps := int(np.ceil(QUARTER_TURN / length))) <= MOST_LEAPS:
        stride = Stride(QUARTER_TURN / leaps, leaps)
        _, odds = move(density, start, Kick.draw(random, *x.shape), stride)
        spent += len(x) * leaps
        if odds.mean() >= WORTH_TAKING:
            return stride, spent
        length /= 2
    return None, spent


@dataclass(frozen=True)
class _Space:
    """Coordinates x in which q is standard, or was before they were stretched, and both densities there."""

    fit: "Fit"
    unconstrained: Unconstrained
    frame: Frame | Stretched
    of_posterior: Density
    of_q: Density
    """In unconstrained space."""

    @classmethod
    def of(cls, fit: "Fit") -> "_Space":
        space = Unconstrained(fit.approximation.coordinates)
        return cls(fit, space, standard(fit), _posterior(fit, space), _own(fit, space))

    def draws(self, random: np.random.Generator, number: int) -> np.ndarray:
        """Of q."""
        key, params = jax.random.key(int(random.integers(2**31))), in_float64(self.fit.params)
        z = np.asarray(self.fit.approximation.draw(key, params, number))
        return self.frame.enter(self.unconstrained.enter(z)[0])

    def leave(self, x: np.ndarray) -> np.ndarray:
        """From x to the coordinates of the approximation, point by point."""
        return self.unconstrained.leave(self.frame.leave(x.reshape(-1, x.shape[-1])))[0]

    def posterior(self, x: np.ndarray) -> tuple[Values, np.ndarray]:
        values, gradients = self.of_posterior(self.frame.leave(x))
        return values, self.frame.along(gradients)

    def own(self, x: np.ndarray) -> tuple[Values, np.ndarray]:
        """The density of q."""
        values, gradients = self.of_q(self.frame.leave(x))
        return values, self.frame.along(gradients)


def _posterior(fit: "Fit", space: Unconstrained) -> Density:
    """The posterior's log density. A pass over the data for each point."""
    target, data = make_target(fit.model, space.plain), fit.data()

    def each(draws: Array, batch: Batch) -> tuple[Array, Array]:
        return target.values_and_gradients(draws, batch)

    everywhere = over_batches(target, each)

    def density(u: np.ndarray) -> tuple[Values, np.ndarray]:
        few = np.split(u, len(u) // FEWEST_CHAINS)  # as many at once as there ever are: one program is compiled
        parts = [everywhere(jnp.asarray(piece), data) for piece in few]
        values, gradients = (np.concatenate(part) for part in zip(*parts, strict=True))
        return values, gradients

    return density


def _own(fit: "Fit", space: Unconstrained) -> Density:
    """The log density of q."""
    approximation, params = fit.approximation, in_float64(fit.params)

    def one(u: Array) -> Array:
        z, log_jacobian = space.leaving(u)
        return approximation.log_density(params, z).sum() + log_jacobian

    both = jax.jit(jax.vmap(jax.value_and_grad(one)))

    def density(u: np.ndarray) -> tuple[Values, np.ndarray]:
        values, gradients = both(jnp.asarray(u))
        return np.asarray(values), np.asarray(gradients)

    return density


def _number(chains: float) -> int:
    return int(np.clip(FEWEST_CHAINS * int(chains / FEWEST_CHAINS), FEWEST_CHAINS, MOST_CHAINS))
