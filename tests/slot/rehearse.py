"""gpu_slot.sh rehearse: every entry on the double of CUDA's libraries, where nothing is that the programs were built with.

In namespaces of its own: no network, the project out of sight, of the system's libraries those of C and of shell commands
alone. Python finds all of them, where no other program looks, and CUDA's where its wheels have them. Where a GPU's tools
would be are stand-ins, which say that nothing is wrong and run what they are given. Then faults: each must be seen.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pack

kCommands = "awk bash sh env dirname cat ls mkdir rm cp mv chmod sleep tar split touch gzip xz grep sed mount".split()
kStandIns = {
    "nvidia-smi": "echo 'Driver Version: none (a stand-in)'",
    "compute-sanitizer": 'while [ "${1#--}" != "$1" ]; do [ "$1" = --tool ] && tool=$2; shift 2; done\n"$@" || exit\n'
                         '[ "$tool" = racecheck ] && echo "RACECHECK SUMMARY: 0 hazards displayed (a stand-in)" ||\n'
                         '  echo "ERROR SUMMARY: 0 errors (a stand-in)"',
    "python3": 'exec /mnt/python/${LOADER##*/} --argv0 /mnt/bin/python3 --library-path "/mnt/python$(printf :%s '
               '/mnt/python/*/)" "$PYTHON" "$@"',
}
kEnter = """set -e
"$PYTHON" -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP'
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
mount --bind "$ROOT" /mnt
mount --bind "$CUDA" /mnt/modules/nvidia/cu/lib
mount --bind "$LIBRARIES" /mnt/python
mount -t tmpfs tmpfs "$PROJECT"
mount --bind /mnt/base "$LIBRARIES"
cd /mnt
exec env -i PATH=/mnt/bin:/usr/bin:/bin HOME=/mnt PYTHONHOME="$PREFIX" PYTHONPATH=/mnt/modules OUT=/mnt/out \\
  PYTHON="$PYTHON" LOADER="$LOADER" bash -c "$1"
"""
kSlot, kUnpacked = "bash /mnt/checkout/tests/gpu_slot.sh", "/mnt/checkout/build/gpu_slot"  # with the double's archive
kReal = "bash /mnt/real/gpu_slot/tests/gpu_slot.sh"
kSteps = (  # name, script, exit status, what it must print
    ("the programs for GPUs start", f"mkdir real && tar -xf real.tar.xz -C real && {kReal} check", 0, ""),
    ("fault: there is no GPU", f"{kReal} laws", 1, "^doctor +WRONG"),
    ("no time; data in pieces", f"{kSlot} run laws_golden --seconds 5; {kUnpacked}/bin/dat_hpc data synthetic whole.h5 "
     "--size 8 --train 256 --test 16; split -n 3 whole.h5 piece; ls piecea?", 0, "^doctor +skipped +needs"),
    ("fault: pieces in another order", f"{kSlot} full --data pieceaa pieceac pieceab", 1, "pieceab: .*It takes data files"),
    ("every entry, unpacked once", f"touch {kUnpacked}/mine; {kSlot} all --seconds 4000 --data piecea? && "
     f"{kSlot} run ceilings && ls {kUnpacked}/mine", 0, "^ceilings +ok +measured before"),
    ("fault: a wrong number", f"""python3 -c "import h5py; h5py.File('{kUnpacked}/tests/golden/small_cnn.h5', 'a')[
        'expected/logits_eval'][0] *= 1.01"; {kSlot} run laws_golden""", 1, "^laws_golden +WRONG"),
    ("fault: a program hangs", f"printf '#!/bin/sh\\nsleep 1000\\n' >{kUnpacked}/bin/dat_tests; {kSlot} run laws_optimizer",
     3, "^laws_optimizer +time-out"),
    ("fault: a missing library", f"rm {kUnpacked}/lib/libhdf5*; {kSlot} laws", 1, r"^doctor +WRONG .*libhdf5"),
)


def make_root(root):
    """Libraries of the commands, and stand-ins. Returns what the namespaces are made with."""
    shutil.rmtree(root, ignore_errors=True)
    for name in "bin base python modules/nvidia/cu/lib out checkout/build".split():
        (root / name).mkdir(parents=True)
    (root / "modules/nvidia/__init__.py").touch()
    loader = re.search(r"/\S*ld-linux\S*", pack.run("ldd", sys.executable))[0]
    base = {pathlib.Path(loader).resolve()}
    base.update(pathlib.Path(place) for name in kCommands for _, place in pack.needed(shutil.which(name)))
    folder = next(path.resolve().parent for path in base if path.name.startswith("libc.so"))
    base.update(path for path in folder.iterdir() if pack.kSystem.match(path.name) or "torch_global_deps" in path.name)
    for path in base:  # PyTorch names one of its libraries by its place
        shutil.copy(path, root / "base")
    for name, text in kStandIns.items():
        (root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (root / "bin" / name).chmod(0o755)
    cuda = pathlib.Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "lib64").resolve()
    return {"PYTHON": os.path.realpath(sys.executable), "PREFIX": sys.prefix, "ROOT": root, "CUDA": cuda,
            "PROJECT": pack.kRoot, "LIBRARIES": folder, "LOADER": loader}


def rehearse():
    begin, root, rows = time.monotonic(), pack.kBuild / "root", []
    environment = {**os.environ, **{name: str(value) for name, value in make_root(root).items()}}
    pack.pack(root / "real.tar.xz", "90-real", root / "checkout/build/gpu_slot.tar.xz")
    pack.run("cp", "-r", "--parents", "tests/slot", "tests/gpu_slot.sh", "tests/mpi_environment.py", root / "checkout",
             cwd=pack.kRoot)
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
        end = (re.findall(r"^\w+: .*, \d+ s$", text, re.MULTILINE) or text.splitlines() or ["no output"])[-1]
        rows.append(f"{name:<34}{'ok' if good else 'FAILED':<8}{time.monotonic() - start:>6.0f}  {end}")
    failed = sum(" FAILED " in row for row in rows)
    print("", *rows, f"{failed or 'none'} FAILED, {time.monotonic() - begin:.0f} s; results: {root}/out", sep="\n")
    return 1 if failed else 0
