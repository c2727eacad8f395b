"""How far a network's results may be from those of double precision: relative L2 errors of logits and input gradient, and
the share of the gradient's signs that differ.

ReLUs flip (see tests/golden/full_size.py), more of them with fewer digits. On a CPU 16-bit floats gave 8e-4, 5e-2, 0.009;
bfloat16 4e-3, 0.14, 0.035. On batch statistics (PreActResNet-18, networks at their initial weights, width 16 to 64, batch 16 to
32) more of them do: TF32, emulated, gave 2e-3, 0.12, 0.035, bfloat16 2e-2, 0.37, 0.12, float32 7e-6, 6e-3, 4e-4.
"""

kFloat32, kTenBits, kBfloat16 = (1e-5, 3e-2, 0.01), (1e-2, 0.2, 0.03), (2e-2, 0.4, 0.08)
kTenBitsInBatch, kBfloat16InBatch = (1e-2, 0.25, 0.07), (4e-2, 0.6, 0.2)
