"""Parts of tables by day, drawn by DAT_SEED or else by the date; at night (DAT_NIGHT) the whole."""

import datetime
import os
import random

NIGHT = "DAT_NIGHT" in os.environ
SEED = int(os.environ.get("DAT_SEED") or datetime.date.today().toordinal())


def drawn(items, count):
    """So many of them by day, in their order; at night all."""
    items = list(items)
    return items if NIGHT else [items[k] for k in sorted(random.Random(SEED).sample(range(len(items)), count))]
