"""gpu_slot.sh rehearse: every slot on the double of CUDA's libraries, in an empty root and without a network.

The root has what any machine has (the C library, a shell, some commands, Python with PyTorch and h5py) and CUDA's
libraries, but nothing that the programs were built with. Python gets its libraries from a folder that no other program looks
into. Where a GPU's tools would be there are stand-ins: they print that nothing is wrong, and run what they are given.

Then faults, each of which must be seen: a wrong number, a missing library, no GPU, a program that hangs.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import time

import pack

kCommands = ("bash", "sh", "env", "dirname", "cat", "ls", "mkdir", "rm", "cp", "mv", "ln", "chmod", "uname", "nproc", "sleep",
             "tar", "gzip", "xz", "grep", "sed", "ldd", "date", "head", "tail", "id", "true", "false")
kModules = ("numpy", "h5py", "torch")
kPython = """#!/bin/sh
exec {loader} --argv0 /usr/bin/python3 --library-path /opt/python/lib /opt/python/python3 "$@"
"""
kStandIns = {
    "nvidia-smi": "echo 'Driver Version: none (a stand-in)'\n",
    "compute-sanitizer": 'while [ "${1#--}" != "$1" ]; do [ "$1" = --tool ] && tool=$2; shift 2; done\n"$@" || exit\n'
                         '[ "$tool" = racecheck ] && echo "RACECHECK SUMMARY: 0 hazards displayed (a stand-in)" ||\n'
                         '  echo "ERROR SUMMARY: 0 errors (a stand-in)"\n',
}
# In new namespaces, as root of them: a loopback interface, the file systems of the kernel, CUDA's libraries.
kEnter = """set -e
"$PYTHON" -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP'
mount -t proc proc "$ROOT/proc"
for name in dev sys; do mount --rbind "/$name" "$ROOT/$name"; done
mount -t tmpfs tmpfs "$ROOT/dev/shm"
mount --bind "$CUDA" "$ROOT$WHEEL"
exec chroot "$ROOT" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root "$@"
"""


def libraries(paths):
    """Paths of what the loader takes for them."""
    return {pathlib.Path(place) for found in pack.needed(paths).values() for _, place in found if place}


def copy(path, root, to=None):
    target = root / str(to or path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(path, target)


def copy_tree(path, root, *left_out):
    """Without `left_out`, and without links that lead nowhere."""

    def ignore(folder, names):
        return [name for name in names if name in ("__pycache__", *left_out) or not os.path.exists(f"{folder}/{name}")]

    shutil.copytree(path, root / str(path).lstrip("/"), ignore=ignore, dirs_exist_ok=True)


def python_packages():
    """Files and folders outside the standard library that the modules come from."""
    script = (f"import {', '.join(kModules)}, sys\n"
              "for name, module in list(sys.modules.items()):\n"
              "    if getattr(module, '__file__', None): print(name.partition('.')[0], module.__file__)")
    found = {}
    for line in pack.run(sys.executable, "-c", script).splitlines():
        name, path = line.split(maxsplit=1)
        match = re.match(r"(.*/(?:site|dist)-packages)/([^/]+)", path)
        if match:
            found[match[2]] = pathlib.Path(match[1]) / match[2]
    return found.values()


def make_root(root):
    shutil.rmtree(root, ignore_errors=True)
    for name in "proc dev sys tmp in out root etc usr/bin usr/lib64 usr/lib usr/sbin opt/python/lib".split():
        (root / name).mkdir(parents=True)
    for name in "bin", "lib", "lib64", "sbin":
        (root / name).symlink_to(f"usr/{name}")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")

    loader = next(word for line in pack.run("ldd", sys.executable).splitlines() for word in line.split()
                  if "ld-linux" in word)
    commands = {name: shutil.which(name) or sys.exit(f"gpu_slot.sh: the rehearsal needs {name}") for name in kCommands}
    for name, path in commands.items():
        copy(path, root, f"/usr/bin/{name}")
    base = {pathlib.Path(loader), *libraries(path for path in commands.values() if pack.is_elf(path))}
    folder = next(path.parent for path in base if path.name.startswith("libc.so"))
    base.update(path for path in folder.iterdir() if pack.kSystem.match(path.name))
    for path in base:
        copy(path, root)

    standard = pathlib.Path(sysconfig.get_paths()["stdlib"])
    copy_tree(standard, root, "test", "idlelib", "site-packages", "dist-packages")
    copy(os.path.realpath(sys.executable), root, "/opt/python/python3")
    places = [standard, *python_packages()]
    for path in places[1:]:
        if path.is_dir():
            copy_tree(path, root, "include")
        else:
            copy(path, root)
    extensions = [sys.executable]
    for place in places:
        extensions += [path for path in (place.rglob("*.so*") if place.is_dir() else [place])
                       if ".so" in path.name and "/test" not in str(path) and path.is_file() and pack.is_elf(path)]
    for library in libraries(extensions):
        copy(library, root, f"/opt/python/lib/{library.name}")
    for name, text in {"python3": kPython.format(loader=loader),
                       **{name: "#!/bin/sh\n" + text for name, text in kStandIns.items()}}.items():
        (root / "usr/bin" / name).write_text(text)
        (root / "usr/bin" / name).chmod(0o755)
    packages = next(path for path in places[1:] if path.name == "torch").parent
    wheel = packages / "nvidia" / "cu" / "lib"
    (root / str(wheel).lstrip("/")).mkdir(parents=True)
    return wheel, {path.name for path in base}


class Rehearsal:
    def __init__(self, root):
        self.root, self.rows = root, []
        self.wheel, self.base = make_root(root)
        cuda = next((pathlib.Path(place) for place in (os.environ.get("CUDA_PATH", ""), "/usr/local/cuda")
                     if place and pathlib.Path(place, "lib64").is_dir()), None)
        self.cuda = cuda / "lib64" if cuda else sys.exit("gpu_slot.sh: the rehearsal needs CUDA's libraries in CUDA_PATH")

    def enter(self, *command):
        """Runs it in the root; its exit status and output, which is printed as it comes."""
        environment = {**os.environ, "PYTHON": sys.executable, "ROOT": str(self.root), "CUDA": str(self.cuda.resolve()),
                       "WHEEL": str(self.wheel)}
        words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                 *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", kEnter, "sh", *map(str, command)]
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in process.stdout:
            print("    " + line, end="", flush=True)
            lines.append(line)
        return process.wait(), "".join(lines)

    def row(self, name, good, begin, what):
        self.rows.append((name, good, time.monotonic() - begin, what))
        print(f"{name}: {'ok' if good else 'FAILED'}, {what}\n", flush=True)

    def step(self, name, command, code=0, says=""):
        """Must end with `code` and print `says`, a pattern."""
        begin = time.monotonic()
        print(f"== {name}", flush=True)
        found, text = self.enter(*command)
        good = found == code and bool(re.search(says, text, re.MULTILINE))
        seen = re.search(r"^(\w+: .*, \d+ s)\nresults: \S+, (.*)$", text, re.MULTILINE)
        what = f"{seen[1]}; {seen[2]} of results" if seen else (text.strip().splitlines() or ["no output"])[-1]
        self.row(name, good, begin, what if found == code else f"exit status {found}, not {code}: {what}")

    def slot(self, place, verb, *options):
        """The command of a slot in the folder of an unpacked archive, or a checkout, in the root."""
        return ["OUT=/out", "bash", f"{place}/tests/gpu_slot.sh", verb, "--seconds", "1200", *options]


def rehearse_slots(stage):
    for name, to in (("gpu_slot.tar.xz", "/real"), ("gpu_slot_double.tar.xz", "/double")):
        stage.step(f"unpack {name}", ["sh", "-c", f"mkdir {to} && tar -xf /in/{name} -C {to}"])
    stage.step("smoke, from a checkout", stage.slot("/checkout", "smoke"))
    for verb in ("laws", "speed", "graph", "full", "table"):
        stage.step(verb, stage.slot("/double/gpu_slot", verb))
    stage.step("the programs for GPUs start", stage.slot("/real/gpu_slot", "check"))


def rehearse_faults(stage):
    """Each must be seen. They spoil the archive of the double: they come last."""
    stage.step("fault: there is no GPU", stage.slot("/real/gpu_slot", "laws"), 1, r"^doctor +WRONG .*no usable GPU")
    stage.step("fault: laws without a GPU", stage.slot("/real/gpu_slot", "laws", "--only", "laws_golden"), 1,
               r"^laws_golden +WRONG")
    spoil = ("import h5py\nwith h5py.File('/double/gpu_slot/tests/golden/small_cnn.h5', 'a') as file:\n"
             "    file['expected/logits_eval'][0] *= 1.01\n    print('one row of logits times 1.01')\n")
    stage.step("put in: a number that is 1 % off", ["python3", "-c", spoil])
    stage.step("fault: a wrong number", stage.slot("/double/gpu_slot", "laws", "--only", "laws_golden"), 1,
               r"^laws_golden +WRONG")
    hang = "printf '#!/bin/sh\\nsleep 1000\\n' > /double/gpu_slot/bin/dat_tests && echo dat_tests sleeps"
    stage.step("put in: a program that hangs", ["sh", "-c", hang])
    stage.step("fault: a program hangs", stage.slot("/double/gpu_slot", "laws", "--only", "laws_golden", "--seconds", "45"), 3,
               r"^laws_golden +time-out")
    stage.step("put in: a library less", ["sh", "-c", "rm /double/gpu_slot/lib/libhdf5* && echo libhdf5 removed"])
    stage.step("fault: a missing library", stage.slot("/double/gpu_slot", "smoke"), 1, r"dat_hpc: libhdf5\S* => not found")


def rehearse(keep):
    begin = time.monotonic()
    root = pack.kBuild / "root"
    archive, double = pack.kBuild / "gpu_slot.tar.xz", pack.kBuild / "gpu_slot_double.tar.xz"
    pack.pack(archive, "90-real", [double])
    packed = time.monotonic()
    stage = Rehearsal(root)
    hidden = stage.base & {path.name for path in (pack.kBuild / "stage/gpu_slot/lib").iterdir()}
    if hidden:
        sys.exit(f"gpu_slot.sh: the root has {', '.join(sorted(hidden))}, so nobody would miss them in the archive")
    for path in archive, double:
        shutil.copy(path, root / "in")
    checkout = root / "checkout"  # with the archive, not unpacked
    shutil.copytree(pack.kRoot / "tests/slot", checkout / "tests/slot", ignore=shutil.ignore_patterns("__pycache__"))
    for name in "tests/gpu_slot.sh", "tests/mpi_environment.py":
        copy(pack.kRoot / name, root, f"/checkout/{name}")
    copy(double, root, "/checkout/build/gpu_slot.tar.xz")
    print(f"root made in {time.monotonic() - packed:.0f} s\n", flush=True)
    rehearse_slots(stage)
    rehearse_faults(stage)

    print(f"{'rehearsal':<34}{'':8}{'s':>6}")
    for name, good, seconds, what in stage.rows:
        print(f"{name:<34}{'ok' if good else 'FAILED':<8}{seconds:>6.0f}  {what}")
    for path in archive, double:
        print(f"{path}: {path.stat().st_size / pack.kMiB:.1f} MiB")
    failed = [name for name, good, _, _ in stage.rows if not good]
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'all as it should be'}, {time.monotonic() - begin:.0f} s, of it "
          f"{packed - begin:.0f} s for building and packing")
    if keep or failed:
        print(f"the root is kept, with results in /out: {root}")
    else:
        shutil.rmtree(root)
    return 1 if failed else 0
