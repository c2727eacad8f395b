"""Tests of an installation, for ReFrame 4: with your site's configuration, and the program as its module says or in
PATH, `reframe -C SITE.py -c jobs/packages/reframe_checks.py -r`. Figures of your systems go into `reference`, by name.
"""

import os

import reframe as rfm
import reframe.utility.sanity as sn


class OfDatHpc(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = os.environ.get("DAT_HPC", "dat_hpc")
    num_cpus_per_task = 1

    @run_before("run")
    def a_thread_a_core(self):
        self.env_vars["OMP_NUM_THREADS"] = str(self.num_cpus_per_task)


@rfm.simple_test
class Training(OfDatHpc):
    """A small network learns the built-in images: the same figures on any number of ranks."""

    ranks = parameter([1, 2])
    executable_opts = (
        "train --deterministic --total-batch 32 --micro-batch 8 --network small_cnn --width 16 --selector all "
        "--optimizer sgd --lr 0.01 --attack-steps 2 --epochs 4 --eval pgd10 --out run"
    ).split()
    keep_files = ["run/SUMMARY.txt"]
    # Means of both instruction sets, AVX2 and AVX-512. An image of the 256 is 0.4 points; chance is 10.
    reference = {"*": {"clean": (62.5, -0.1, 0.1, "%"), "pgd10": (20.9, -0.15, 0.15, "%")}}

    @run_before("run")
    def as_many_ranks(self):
        self.num_tasks = self.ranks

    @sanity_function
    def all_is_well(self):
        ended = sn.assert_found(r"^Final: .* VALID$", self.stdout)
        return sn.all([ended, sn.assert_found(rf" {self.ranks} ranks?,", self.stdout)])

    @performance_function("%")
    def clean(self):
        return 100 * sn.extractsingle(r"^Final: clean_acc=(\S+)", self.stdout, 1, float)

    @performance_function("%")
    def pgd10(self):
        return 100 * sn.extractsingle(r"^Final: .* pgd10_acc=(\S+)", self.stdout, 1, float)


@rfm.simple_test
class Step(OfDatHpc):
    """A PGD-10 step of ResNet-18 on two cores, and its convolutions against the multiply-adds of these cores."""

    executable_opts = "bench --device cpu --batch 64 --seconds 20".split()
    num_cpus_per_task = 2
    time_limit = "10m"
    # docs/results/2026-11-20-bench-cpu-winograd.txt, of an idle machine; other processors with AVX-512 within a factor.
    reference = {
        "two_cores_avx512": {"forward": (242, -0.2, None, "%"), "speed": (41.4, -0.2, None, "images/s")},
        "*": {"forward": (242, -0.5, None, "%")},
    }

    @sanity_function
    def the_attack_attacks(self):
        return sn.assert_found(r"^checked: the attack raises the loss", self.stdout)

    @performance_function("%")
    def forward(self):
        return sn.extractsingle(r"^sum +\d+ +\S+ +\S+ +(\d+) %", self.stdout, 1, float)

    @performance_function("images/s")
    def speed(self):
        return sn.extractsingle(r"^images/s, all ranks +(\S+)", self.stdout, 1, float)
