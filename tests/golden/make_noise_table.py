"""Writes noise_table.txt: entries of the tables of noise (src/smoothing/grid_noise.hpp), with 60 digits.

Lines "SIGMA HALF COUNT PLACE ENTRY PLACE ENTRY...": of a table with 2 HALF entries, number PLACE is ENTRY =
floor(2^64 Phi((PLACE - HALF + 1/2) / (255 SIGMA))), SIGMA being the double. COUNT entries of the lower half; the upper
half mirrors them.
"""

import pathlib

import mpmath

mpmath.mp.dps = 60
SIGMAS = {0.12: 1, 0.25: 3, 0.3: 11, 0.5: 11, 1.0: 23, 0.0009765625: 1, 16.0: 401}  # every so many entries


def entry(sigma, place, half):
    z = (place - half + mpmath.mpf(1) / 2) / (255 * mpmath.mpf(sigma))
    return int(mpmath.floor(mpmath.ncdf(z) * 2**64))


lines = []
for sigma, every in SIGMAS.items():
    half = 1
    while entry(sigma, 0, half) > 0:
        half += 1
    places = sorted({*range(0, half, every), 0, 1, half - 1})
    lines.append(" ".join([f"{sigma} {half} {len(places)}", *(f"{place} {entry(sigma, place, half)}" for place in places)]))
pathlib.Path(__file__).with_name("noise_table.txt").write_text("\n".join(lines) + "\n")
