"""gpu_slot.sh pack: builds the programs and packs them with all that they need on a machine that has nothing of it."""

import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

from entries import kDoubles, kPrograms, kRoot

kBuild = kRoot / "build" / "slot"
kData = ("tests/gpu_slot.sh tests/slot tests/mpi_environment.py tests/drawn.py tests/golden tests/e2e/common.py tests/e2e/cuda.py "
         "tests/outside/sixteen_bits.py "
         "bench/compare.py bench/full_size.py bench/launch.py bench/peers").split()
kOptions = ("-DCMAKE_BUILD_TYPE=Release -DDAT_CUDA=ON -DDAT_WERROR=ON -DDAT_ARCH=x86-64-v3 -DCMAKE_SKIP_RPATH=ON "
            "-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=25").split()
# The programs have most of their code in common: a window that all of them fit into.
kFilters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**27}]
# Not packed: the C library's, which must be the machine's own; CUDA's and cuDNN's; MPI plugins for networks between nodes.
kSystem = re.compile(r"(ld-linux[\w-]*|lib(c|m|mvec|dl|rt|pthread|resolv|util|nsl|anl|nss_\w+)|linux-vdso)\.so")
kCuda = re.compile(r"lib(cuda|cudart|cublas|cublasLt|cudnn\w*|cupti|nvrtc|nvJitLink)\.so")
kFabrics = re.compile(r"lib(fabric|ibverbs|rdmacm|ucp|ucs|uct|psm2|psm_infinipath|oshmem|nl-3)\.so")

kWrapper = """#!/bin/sh
here=$(cd "${0%/*}/.." && pwd)  # wherever the archive has been unpacked
export LD_LIBRARY_PATH="$here/lib${DAT_CUDA_LIBRARIES:+:$DAT_CUDA_LIBRARIES}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPAL_PREFIX="$here/mpi"
exec "$here/libexec/${0##*/}" "$@"
"""


def run(*command, **options):
    """Its output; ends this program where it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, **options)
    return done.stdout if done.returncode == 0 else sys.exit(f"{done.stdout[-4000:]}\ngpu_slot.sh: {command} ends so")


def build(architectures, double):
    """With the compiler cache where there is one: a second time takes seconds."""
    options = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX") if shutil.which("ccache")]
    options += ["-G", "Ninja"] if shutil.which("ninja") and not (kBuild / "CMakeCache.txt").exists() else []
    run("cmake", "-S", kRoot, "-B", kBuild, f"-DCMAKE_CUDA_ARCHITECTURES={architectures}", *kOptions, *options)
    targets = [*kPrograms, *(f"{name}_double" for name in kPrograms if double)]
    targets += ["kernel_names"] if "kernel_names" in run("cmake", "--build", kBuild, "--target", "help") else []
    if subprocess.run(["cmake", "--build", kBuild, "--parallel", str(os.cpu_count()), "--target", *targets]).returncode != 0:
        sys.exit("gpu_slot.sh: the build failed")


def elf_files(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]


def needed(path):
    """(name, path or "") of each library that the loader would take for a file here."""
    return re.findall(r"^\s+(\S+) => (?:(/\S+)|not found)", run("ldd", path), re.MULTILINE)


def add_mpi(stage):
    """Open MPI's launcher, its plugins for one node, and the texts of its errors: it finds them below OPAL_PREFIX."""
    launcher = shutil.which("mpiexec")
    if not launcher or not shutil.which("ompi_info"):
        sys.exit("gpu_slot.sh: pack needs Open MPI: mpiexec and ompi_info")
    for name in "mpirun", "mpiexec":
        shutil.copy(os.path.realpath(launcher), stage / "libexec" / name)

    def folder(name, **prefix):
        environment = {key: value for key, value in os.environ.items() if key != "OPAL_PREFIX"}
        return pathlib.Path(re.search(r": (/\S+)", run("ompi_info", "--path", name, env={**environment, **prefix}))[1])

    for name, pattern in (("pkglibdir", "*.so"), ("pkgdatadir", "*.txt")):
        to = folder(name, OPAL_PREFIX=str(stage / "mpi"))
        to.mkdir(parents=True)
        for path in folder(name).glob(pattern):
            if pattern == "*.txt" or not any(kFabrics.match(library) for library, _ in needed(path)):
                shutil.copy(path, to)


def make_stage(stage, double):
    """All that is packed, in a folder."""
    shutil.rmtree(stage, ignore_errors=True)
    for name in "bin", "lib", "libexec":
        (stage / name).mkdir(parents=True)
    for name, path in (kDoubles if double else kPrograms).items():
        run("strip", "-o", stage / "libexec" / name, kBuild / path)
    if (kBuild / "bench/kernel_names.so").exists() and not double:
        run("strip", "-o", stage / "lib/kernel_names.so", kBuild / "bench/kernel_names.so")
    add_mpi(stage)
    for path in elf_files(stage):
        for name, library in needed(path):
            if not (kSystem.match(name) or kCuda.match(name) or (stage / "lib" / name).exists()):
                source = library or sys.exit(f"gpu_slot.sh: {path} needs {name}, which is not found here")
                shutil.copy(source, stage / "lib" / name)
    for path in (stage / "libexec").iterdir():
        (stage / "bin" / path.name).write_text(kWrapper)
        (stage / "bin" / path.name).chmod(0o755)
    for name in kData:
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (kRoot / name).is_dir() else shutil.copy
        copy(kRoot / name, stage / name)
    versions = set(re.findall(r"\bGLIBC_(\d+(?:\.\d+)+)", run("objdump", "-T", *elf_files(stage))))
    changed = run("git", "-C", kRoot, "status", "--porcelain", "--untracked-files=no").strip()
    commit = run("git", "-C", kRoot, "rev-parse", "--short=12", "HEAD").strip() + (" with changes" if changed else "")
    about = {"commit": commit, "double": double,
             "glibc": max(versions, key=lambda version: [int(number) for number in version.split(".")])}
    (stage / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def pack(out, architectures, double=None):
    """double: where the same on the double of CUDA's libraries goes, too."""
    begin = time.monotonic()
    build(architectures, double)
    print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    for path in filter(None, (out, double)):
        begin, stage = time.monotonic(), kBuild / ("stage_double" if path == double else "stage") / "gpu_slot"
        about = make_stage(stage, path == double)
        path.parent.mkdir(parents=True, exist_ok=True)
        how = {"preset": 0} if path == double else {"filters": kFilters}  # the double's goes nowhere
        with lzma.open(path, "wb", **how) as file, tarfile.open(fileobj=file, mode="w|") as archive:
            archive.add(stage, stage.name, filter=lambda member: None if "__pycache__" in member.name else member)
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB, {about}, in {time.monotonic() - begin:.0f} s", flush=True)
    return 0
