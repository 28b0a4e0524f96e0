"""Random ops have torch's distributions: moments, supports and independence of calls, through kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import graphwright as gw  # noqa: E402

COUNT = 100_000


class Draws(torch.nn.Module):
    """One result for each kind of draw; each as many as `x` has elements, on average."""

    def forward(self, x):
        return {
            "rand": torch.rand_like(x),
            "randn": torch.randn_like(x),
            "randint": torch.randint(3, 9, (COUNT,)),
            "uniform": torch.empty_like(x).uniform_(-2.0, 3.0),
            "normal": torch.empty_like(x).normal_(1.0, 2.0),
            "bernoulli": torch.bernoulli(torch.full_like(x, 0.3)),
            "dropout": torch.nn.functional.dropout(torch.ones_like(x), 0.25, training=True),
            "exponential": torch.empty_like(x).exponential_(2.0),
            "multinomial": torch.multinomial(
                torch.tensor([1.0, 0.0, 3.0]), COUNT, replacement=True
            ),
            "chosen": torch.multinomial(torch.tensor([2.0, 0.0, 1.0, 5.0]), 3),
            "randperm": torch.randperm(1000),
        }


# Mean, standard deviation, least, greatest.
WANT = {
    "rand": (0.5, 12**-0.5, 0.0, 1.0),
    "randn": (0.0, 1.0, None, None),
    "randint": (5.5, (35 / 12) ** 0.5, 3, 8),
    "uniform": (0.5, 5 / 12**0.5, -2.0, 3.0),
    "normal": (1.0, 2.0, None, None),
    "bernoulli": (0.3, 0.21**0.5, 0, 1),
    "exponential": (0.5, 0.5, 0.0, None),
    "multinomial": (1.5, 0.75**0.5, 0, 2),
    "dropout": (1.0, (4 / 3 - 1) ** 0.5, 0, 4 / 3),
}


@pytest.fixture(scope="module")
def draws():
    model = gw.compile(Draws().eval(), (torch.zeros(COUNT),), target="cpu:native")
    return model(torch.zeros(COUNT)), model(torch.zeros(COUNT))


@pytest.mark.parametrize("name", WANT)
def test_distribution(draws, name: str) -> None:
    mean, deviation, least, greatest = WANT[name]
    first, second = (d[name].double() for d in draws)
    assert first.numel() == COUNT
    # Five standard errors: one in two million runs is further away, and the seed is fixed.
    assert abs(first.mean() - mean) < 5 * deviation / COUNT**0.5
    assert abs(first.std() - deviation) < 0.02 * deviation
    assert least is None or least <= first.min()
    assert greatest is None or first.max() <= greatest + 1e-6
    gaps = (first - mean) * (second - mean)
    assert abs(gaps.mean()) < 5 * deviation**2 / COUNT**0.5  # calls are independent
    assert (first != second).double().mean() > 0.2
    neighbours = (first[1:] - mean) * (first[:-1] - mean)
    assert abs(neighbours.mean()) < 5 * deviation**2 / COUNT**0.5


def test_normal_tails(draws) -> None:
    """Kolmogorov and Smirnov's distance from the normal distribution, at one in ten thousand."""
    values = draws[0]["randn"].double().sort().values
    exact = torch.special.ndtr(values)
    steps = torch.arange(1, COUNT + 1, dtype=torch.float64) / COUNT
    assert (exact - steps).abs().max() < 2.23 / COUNT**0.5


def test_without_replacement(draws) -> None:
    """What has no weight is never chosen, nothing twice."""
    for made in draws:
        assert sorted(made["chosen"].tolist()) == [0, 2, 3]


def test_permutation(draws) -> None:
    first, second = (d["randperm"] for d in draws)
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert not torch.equal(first, second)


def test_through_the_hook() -> None:
    """Draws differ from call to call; dropout in eval mode draws nothing."""
    compiled = torch.compile(lambda x: torch.rand_like(x), backend="graphwright")
    x = torch.zeros(1000)
    with torch.no_grad():
        first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    assert first.min() >= 0 and first.max() < 1
    dropped = torch.nn.Dropout(0.5).eval()
    with torch.no_grad():
        assert torch.equal(torch.compile(dropped, backend="graphwright")(first), first)
