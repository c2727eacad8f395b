"""gpu_slot.sh rehearse: every entry on the double of CUDA's libraries, where nothing is that the programs were built with.

In namespaces of its own: no network, the project out of sight, and of the system's libraries those of C and of the shell's
commands. Python has its libraries in a folder that no other program looks into, and there, as its wheels have them, CUDA's.
Where a GPU's tools would be are stand-ins: they say that nothing is wrong, and run what they are given.

Then faults, each of which must be seen: no GPU, a wrong number, a program that hangs, a missing library.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pack

kCommands = "bash sh env dirname cat ls mkdir rm cp mv chmod sleep tar split stat cmp gzip xz grep sed ldd mount".split()
kModules = ("numpy", "h5py", "torch")
kStandIns = {
    "nvidia-smi": "echo 'Driver Version: none (a stand-in)'",
    "compute-sanitizer": 'while [ "${1#--}" != "$1" ]; do [ "$1" = --tool ] && tool=$2; shift 2; done\n"$@" || exit\n'
                         '[ "$tool" = racecheck ] && echo "RACECHECK SUMMARY: 0 hazards displayed (a stand-in)" ||\n'
                         '  echo "ERROR SUMMARY: 0 errors (a stand-in)"',
    "python3": 'exec {loader} --argv0 {python} --library-path /mnt/python /mnt/python/python3 "$@"',
}
kEnter = """set -e
"$PYTHON" -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP'
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
mount --bind "$ROOT" /mnt
mount --bind "$CUDA" /mnt/modules/nvidia/cu/lib
mount -t tmpfs tmpfs "$PROJECT"
mount --bind /mnt/base "$LIBRARIES"
cd /mnt
exec env -i PATH=/mnt/bin:/usr/bin:/bin HOME=/mnt PYTHONPATH=/mnt/modules OUT=/mnt/out bash -c "$1"
"""
kSlot, kUnpacked = "bash /mnt/checkout/tests/gpu_slot.sh", "/mnt/checkout/build/gpu_slot"  # with the double's archive
kReal = "bash /mnt/real/gpu_slot/tests/gpu_slot.sh"
kSteps = (  # name, script, exit status, what it must print
    ("the programs for GPUs start", f"mkdir real && tar -xf real.tar.xz -C real && {kReal} check", 0, ""),
    ("fault: there is no GPU", f"{kReal} laws", 1, "^doctor +WRONG"),
    ("no time, then data in pieces", f"{kSlot} run laws_golden --seconds 5; {kUnpacked}/bin/dat_hpc data synthetic whole.h5 --train "
     f"256 --test 16; split -n 3 whole.h5 piece; ls piecea?", 0, "^machine +skipped +needs"),
    ("fault: pieces in another order", f"{kSlot} full --data pieceaa pieceac pieceab", 1, "pieceab: .*It takes data files"),
    ("every entry, unpacked before", f"touch {kUnpacked}/mine; {kSlot} all --seconds 3000 --data piecea? && ls {kUnpacked}/mine", 0, ""),
    ("fault: a wrong number", f"""python3 -c "import h5py; h5py.File('{kUnpacked}/tests/golden/small_cnn.h5', 'a')[
        'expected/logits_eval'][0] *= 1.01"; {kSlot} run laws_golden""", 1, "^laws_golden +WRONG"),
    ("fault: a program hangs", f"printf '#!/bin/sh\\nsleep 1000\\n' >{kUnpacked}/bin/dat_tests; {kSlot} run laws_optimizer", 3,
     "^laws_optimizer +time-out"),
    ("fault: a missing library", f"rm {kUnpacked}/lib/libhdf5*; {kSlot} laws", 1, r"dat_hpc: libhdf5\S* => not found"),
)


def libraries(paths):
    """Paths of what the loader takes for them."""
    return {pathlib.Path(place) for found in pack.needed(paths).values() for _, place in found if place}


def make_root(root):
    """The commands' libraries, Python's, and stand-ins. Returns the folder of the system's libraries."""
    shutil.rmtree(root, ignore_errors=True)
    for name in "bin base python modules/nvidia/cu/lib out checkout/build".split():
        (root / name).mkdir(parents=True)
    loader = next(word for line in pack.run("ldd", sys.executable).splitlines() for word in line.split() if "ld-linux" in word)
    base = libraries(path for path in map(shutil.which, kCommands) if pack.is_elf(path)) | {pathlib.Path(loader).resolve()}
    folder = next(path.resolve().parent for path in base if path.name.startswith("libc.so"))
    base.update(path for path in folder.iterdir() if pack.kSystem.match(path.name))
    for path in base:
        shutil.copy(path, root / "base")
    (root / "modules/nvidia/__init__.py").touch()
    script = (f"import {', '.join(kModules)}, sys\n"
              "print(*{module.__file__ for module in list(sys.modules.values()) if getattr(module, '__file__', None)}, sep='\\n')")
    places = {re.sub(r"(-packages/[^/]+).*", r"\1", path) for path in pack.run(sys.executable, "-c", script).splitlines()}
    places.add(f"{os.path.dirname(os.__file__)}/lib-dynload")
    extensions = [path for place in map(pathlib.Path, places) for path in (place.rglob("*.so*") if place.is_dir() else [place])
                  if ".so" in path.name and "/test" not in str(path) and path.is_file() and pack.is_elf(path)]
    for path in libraries([sys.executable, *extensions]):
        shutil.copy(path, root / "python")
    shutil.copy(os.path.realpath(sys.executable), root / "python/python3")
    for name, text in kStandIns.items():
        text = text.replace("{loader}", loader).replace("{python}", sys.executable)
        (root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (root / "bin" / name).chmod(0o755)
    return folder


def rehearse(keep):
    begin, root = time.monotonic(), pack.kBuild / "root"
    cuda = next((path.resolve() for path in (pathlib.Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "lib64"),) if path.is_dir()),
                None) or sys.exit("gpu_slot.sh: the rehearsal needs CUDA's libraries in CUDA_PATH")
    folder = make_root(root)
    pack.pack(root / "real.tar.xz", "90-real", root / "checkout/build/gpu_slot.tar.xz")
    packed = time.monotonic()
    shutil.copytree(pack.kRoot / "tests/slot", root / "checkout/tests/slot", ignore=shutil.ignore_patterns("__pycache__"))
    for name in "gpu_slot.sh", "mpi_environment.py":
        shutil.copy(pack.kRoot / "tests" / name, root / "checkout/tests")
    environment = {**os.environ, "PYTHON": sys.executable, "ROOT": str(root), "CUDA": str(cuda), "PROJECT": str(pack.kRoot),
                   "LIBRARIES": str(folder)}
    rows = []
    for name, script, code, says in kSteps:
        print(f"== {name}", flush=True)
        start, text = time.monotonic(), ""
        words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                 *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", kEnter, "sh", script]
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        for line in process.stdout:
            print(line, end="", flush=True)
            text += line
        good = process.wait() == code and re.search(says, text, re.MULTILINE)
        end = (re.findall(r"^\w+: .*, \d+ s$|^results: .*", text, re.MULTILINE) or text.splitlines() or ["no output"])[-2:]
        rows.append(f"{name:<34}{'ok' if good else 'FAILED':<8}{time.monotonic() - start:>6.0f}  {'; '.join(end)}")
    failed = [row for row in rows if " FAILED " in row]
    print("", *rows, f"{f'{len(failed)} FAILED' if failed else 'all as it should be'}, {time.monotonic() - begin:.0f} s, of it "
          f"{packed - begin:.0f} s for building and packing", sep="\n")
    if keep or failed:
        print(f"what it ran in, with results in out/: {root}")
    else:
        shutil.rmtree(root)
    return 1 if failed else 0
