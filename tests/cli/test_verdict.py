"""The demo's one sentence says no more than was measured."""

from types import SimpleNamespace

import pytest

from isvi.cli.demo_output import verdict


def run(gradients: int, gap: float) -> SimpleNamespace:
    return SimpleNamespace(fit=SimpleNamespace(gradients=gradients), gap=gap)


@pytest.mark.parametrize(
    ("sgd", "expected"),
    [
        ([run(100, 9.0), run(3000, 0.6)], "plain SGD not reached with 3,000 (3 times as many)"),
        ([run(3000, 0.6), run(10_000, 0.4)], "plain SGD between 3,000 and 10,000 (3 to 10 times as many)"),
        ([run(100, 0.4)], "plain SGD at most 100 (0.1 times as many)"),
    ],
)
def test_verdict(sgd: list, expected: str) -> None:
    assert verdict(run(1000, 0.5), sgd) == f"Model gradients for this ELBO: isvi 1,000; {expected}."
