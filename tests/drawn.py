"""Parts of tables, drawn by DAT_SEED: 1, so that a commit has the same tests every time; nightly.sh gives the date. With
DAT_ALL_CASES the whole."""

import os
import random

ALL_CASES = "DAT_ALL_CASES" in os.environ
SEED = int(os.environ.get("DAT_SEED") or 1)


def drawn(items, count):
    """So many of them, in their order; with DAT_ALL_CASES all."""
    items = list(items)
    return items if ALL_CASES else [items[k] for k in sorted(random.Random(SEED).sample(range(len(items)), count))]
