"""How far a network's results may be from those of double precision: relative L2 errors of logits and input gradient, and
the share of the gradient's signs that differ.

ReLUs flip (see tests/golden/full_size.py), more of them with fewer digits. On a CPU 16-bit floats gave 8e-4, 5e-2, 0.009;
bfloat16 4e-3, 0.14, 0.035.
"""

kFloat32, kTenBits, kBfloat16 = (1e-5, 3e-2, 0.01), (1e-2, 0.2, 0.03), (2e-2, 0.4, 0.08)
