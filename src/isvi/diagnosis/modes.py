"""Did another start of the fit find another mode that is as good?"""

from typing import TYPE_CHECKING

import numpy as np

from isvi.diagnosis.mirrors import mirrored
from isvi.results.weights.exploration import Frame

if TYPE_CHECKING:
    from isvi.results.fit import Fit

AS_GOOD = 5.0
"""Nats: a mode with an ELBO lower than that by more holds less than a hundredth of the mass."""
FAR = 25.0
"""Nats, and two more for each entry, that q's own density loses on the way to where the other start ended."""
DRAWS = 10_000
"""Of q, for its mean and covariance."""
ANOTHER_MODE = "another start ended far away with an ELBO as good: the posterior has more than one mode, and q has one"
ONE_MODE = "an order or a prior that tells the modes apart (isvi.ordered for the means of a mixture), or MCMC"


def another_mode(fit: "Fit", elbo: float) -> bool | tuple[str, ...]:
    """Whether some start led to a place that q rules out, with an ELBO that rules it in; or, if all such places are
    mirror images of q, the latents whose entries are exchanged there."""
    if not fit.starts:
        return False
    frame = Frame.of(np.asarray(fit._draw(DRAWS, seed=0, antithetic=False), np.float64))
    if frame is None:
        return False
    good = [np.asarray(one.location, np.float64) for one in fit.starts if one.elbo > elbo - AS_GOOD]
    names: tuple[str, ...] = ()
    for place in good:
        if _far(frame, place):
            image = mirrored(fit, place)
            if image is None or _far(frame, image[0]):
                return True
            names = image[1]
    return names or False


def _far(frame: Frame, place: np.ndarray) -> bool:
    """Whether q rules it out."""
    distance = frame.enter(place[None])[0]
    return bool(0.5 * float(distance @ distance) > FAR + 2 * len(distance))


def images(names: tuple[str, ...]) -> str:
    """A word about mirror images."""
    return (
        f"q has one of several modes that are mirror images: the model is the same if entries of {' and '.join(names)} "
        "are exchanged, and so is all that does not depend on their order"
    )
