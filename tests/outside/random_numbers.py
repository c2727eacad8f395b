"""Counted random numbers: docs/design.md, section 10, has the table of counters."""

import numpy as np


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011) on arrays of 32-bit words held in uint64."""
    low = np.uint64(0xFFFFFFFF)
    c, k = [np.asarray(word, np.uint64) for word in counter], [np.uint64(word) for word in key]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def words(seed, purpose, time, number, index):
    """The four words of each counter, [4, ...]. `number` and `index` may be arrays."""
    number, index = np.broadcast_arrays(np.asarray(number, np.uint64), np.asarray(index, np.uint64))
    high = np.uint64(purpose << 24) ^ (number >> np.uint64(32))
    return np.stack(philox([index, number & np.uint64(0xFFFFFFFF), np.full_like(index, time), high],
                           [seed & 0xFFFFFFFF, seed >> 32]))


def uniform(word):
    """In [0, 1), 24 bits."""
    return (word >> np.uint64(8)) / 2.0**24


def uniforms(seed, purpose, time, number, count):
    """`count` numbers in [0, 1): element i is word i mod 4 of index i / 4."""
    return uniform(words(seed, purpose, time, number, np.arange((count + 3) // 4)).T.ravel()[:count])


def normals(seed, purpose, time, number, count):
    """`count` normal numbers by Box and Muller: of words 0 and 1 of each index two, cosine first, then of words 2 and 3."""
    u = uniforms(seed, purpose, time, number, -(-count // 4) * 4)
    radius, angle = np.sqrt(-2 * np.log(u[0::2] + 2.0**-24)), 2 * np.pi * u[1::2]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()[:count]


assert [int(word) for word in philox([0] * 4, [0] * 2)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
