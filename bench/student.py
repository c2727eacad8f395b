"""Student's t: how far a mean of few values may be off."""

import math
import statistics


def quantile_of_t(freedom, p=0.975):
    """By bisection on the integral of the density, by Simpson's rule."""
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    density = lambda x: norm * (1 + x * x / freedom) ** (-(freedom + 1) / 2)

    def below(t, n=2000):
        h = t / n
        return 0.5 + h / 3 * sum((1 if k in (0, n) else 4 if k % 2 else 2) * density(k * h) for k in range(n + 1))

    low, high = 0.0, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < p else (low, middle)
    return high


def interval(values):
    """Their mean, and half the width of its 95 % interval: of one value, infinity."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return mean, math.inf
    return mean, quantile_of_t(count - 1) * statistics.stdev(values) / math.sqrt(count)
