"""Student's t: how far a mean of few values may be off. `student.py --self-test` compares with printed tables and simulated rows."""

import functools
import math
import random
import statistics
import sys


@functools.cache
def quantile_of_t(freedom, p=0.975):
    """By bisection on the integral of the density, by Simpson's rule."""
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    density = lambda x: norm * (1 + x * x / freedom) ** (-(freedom + 1) / 2)

    def below(t, n=2000):
        h = t / n
        return 0.5 + h / 3 * sum((1 if k in (0, n) else 4 if k % 2 else 2) * density(k * h) for k in range(n + 1))

    low, high = 0.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < p else (low, middle)
    return high


def interval(values):
    """Their mean, and half the width of its 95 % interval: of one value, infinity."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return mean, math.inf
    return mean, quantile_of_t(count - 1) * statistics.stdev(values) / math.sqrt(count)


def block_interval(columns):
    """Half the width of the 95 % interval of the difference of two columns' means, from the scatter of all of them: each column has
    a value of every block (a seed), and what the blocks share and the columns' means are taken off first (randomised complete
    blocks; Montgomery and Runger, Applied Statistics, eq. 13-32). Of one block or one column, infinity."""
    count, blocks = len(columns), len(columns[0])
    freedom = (count - 1) * (blocks - 1)
    if freedom == 0:
        return math.inf
    of_block = [statistics.fmean(values) for values in zip(*columns)]
    whole = statistics.fmean(of_block)
    left = sum((value - statistics.fmean(column) - block + whole) ** 2 for column in columns for value, block in zip(column, of_block))
    return quantile_of_t(freedom) * math.sqrt(2 * left / freedom / blocks)


def self_test():
    for freedom, quantile in {1: 12.706, 2: 4.303, 17: 2.110, 34: 2.032}.items():  # of any printed table
        assert abs(quantile_of_t(freedom) - quantile) < 1e-3, freedom
    first, second = [1.0, 2.0, 4.0], [2.0, 5.0, 4.5]
    paired = interval([b - a for a, b in zip(first, second)])[1]
    assert abs(block_interval([first, second]) - paired) < 1e-9, "of two columns it is the interval of their pairs"
    assert block_interval([[1.0], [2.0]]) == block_interval([[1.0, 2.0]]) == math.inf
    draw, hits, tries = random.Random(1), 0, 2000
    for _ in range(tries):
        block = [draw.gauss(0, 5) for _ in range(2)]
        columns = [[3 * method + of_block + draw.gauss(0, 1) for of_block in block] for method in range(5)]
        hits += abs(statistics.fmean(columns[1]) - statistics.fmean(columns[0]) - 3) < block_interval(columns)
    assert abs(hits / tries - 0.95) < 0.015, f"it covers the truth in {hits} of {tries} tries"


if __name__ == "__main__":
    if sys.argv[1:] != ["--self-test"]:
        sys.exit(__doc__)
    self_test()
