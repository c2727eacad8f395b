#!/usr/bin/env python3
"""Packages of jobs/packages from clean roots, as their users would have them: packages.py ROOT PROGRAM [PART...]

PARTS, below, says what is tried. The Apptainer definitions are played without Apptainer: read by spython, each stage
in a root of its own, made by debootstrap and entered by chroot. All of it lies in a folder that is removed at the end
(6 GB for a while). Programs come from Debian's mirror (DAT_DEBIAN_MIRROR) and from the package index that pip knows;
nothing is installed on the machine itself. Exit status: 0 all that could be tried passed, and what could not is named;
1 something failed; 77 nothing could be tried.
"""

import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT, PROGRAM = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TOP = ROOT / "jobs/packages"
MIRROR = os.environ.get("DAT_DEBIAN_MIRROR", "http://deb.debian.org/debian")
SUITES = {"debian:12": "bookworm", "debian:13": "trixie"}
WORK = pathlib.Path(tempfile.mkdtemp(prefix="dat_packages."))
# More ranks than cores, for Open MPI 4 and 5.
MPI = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
       "OMP_NUM_THREADS": "1"}


class NotHere(Exception):
    """Why something cannot be tried on this machine."""


class Failed(Exception):
    pass


def run(*command, **options):
    """Runs it and returns what it prints."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        last = "\n  ".join(done.stdout.splitlines()[-30:])
        raise Failed(f"{' '.join(map(str, command))[-300:]}: exit status {done.returncode}\n  {last}")
    return done.stdout


def got(why, *command, **options):
    try:
        return run(*command, **options)
    except (Failed, FileNotFoundError) as error:
        raise NotHere(f"{why}: {str(error).splitlines()[0]}") from error


def from_index(*packages):
    """The folder of programs of these Python packages."""
    folder = WORK / packages[0]
    if not folder.exists():
        got("no virtual environments of Python", sys.executable, "-m", "venv", folder)
        got("the package index", folder / "bin/pip", "install", "--quiet", *packages)
    return folder / "bin"


def unpacked(package):
    """The folder in which a Debian package lies unpacked."""
    folder = WORK / package
    if not folder.exists():
        folder.mkdir()
        got("Debian's mirror", "apt-get", "download", package, cwd=folder)
        run("dpkg-deb", "-x", *folder.glob("*.deb"), folder)
    return folder


class Root:
    """A Debian of its own."""

    def __init__(self, path):
        self.path = path

    @staticmethod
    def empty(image, name):
        """A fresh copy of what an image of this name has."""
        base, path = WORK / image.replace(":", ""), WORK / name
        if os.geteuid() != 0:
            raise NotHere("roots are made by the superuser")
        got("no mount namespaces", "unshare", "--mount", "--pid", "--fork", "true")
        if not base.exists():
            tool, environment = shutil.which("debootstrap"), dict(os.environ)
            if tool is None:
                tool = unpacked("debootstrap") / "usr/sbin/debootstrap"
                environment["DEBOOTSTRAP_DIR"] = str(WORK / "debootstrap/usr/share/debootstrap")
            got("Debian's mirror", tool, "--variant=minbase", SUITES[image], base, MIRROR, env=environment)
            for file in ("/etc/resolv.conf", "/etc/hosts"):
                shutil.copy(file, base / "etc")
        run("cp", "-a", "--reflink=auto", base, path)
        return Root(path)

    def run(self, command, user="root", **environment):
        """Runs a script as Apptainer does. What is mounted vanishes with the process."""
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        home = "/root" if user == "root" else f"/home/{user}"
        environment |= {"HOME": home, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"} | proxies
        settings = [f"{name}={value}" for name, value in environment.items()]
        enter = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" env -i "$@"'
        return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", enter, self.path, *settings,
                   "runuser", "-u", user, "--", "sh", "-ec", f"cd {home}\n{command}")


def play(definition, **arguments):
    """Does what Apptainer would do with a definition, and returns the roots of its stages."""
    text = (TOP / definition).read_text()
    for name, value in arguments.items():
        text = text.replace("{{ %s }}" % name, value)
    filled = WORK / "filled.def"
    filled.write_text(text)
    read = """if True:
        import json, sys
        from spython.main.parse.parsers import get_parser
        stages = get_parser("singularity")(sys.argv[1]).recipe.items()
        print(json.dumps({name: [s.fromHeader, s.files, s.layer_files, s.install, s.test] for name, s in stages}))"""
    stages = json.loads(run(from_index("spython") / "python", "-c", read, filled).splitlines()[-1])
    roots = {}
    for name, (image, files, layers, install, test) in stages.items():
        root = roots[name] = Root.empty(image, f"{definition}.{'.'.join(arguments.values())}.{name}")
        for start, lines in [(ROOT, files), *((roots[layer].path, lines) for layer, lines in layers.items())]:
            for line in lines:
                source, target = line.split()
                (root.path / target.strip("/")).mkdir(parents=True, exist_ok=True)
                run("cp", "-rL", start / source.strip("/"), root.path / target.strip("/"))
        root.run("\n".join(install))
        if test:
            print(root.run(test), end="")
    return roots["build"], roots["final"]


def check_package(build, final):
    """The package in a root that has nothing else."""
    build.run("apt-get install -y --no-install-recommends lintian", DEBIAN_FRONTEND="noninteractive")
    # The maintainer is whoever builds the package, CPACK_PACKAGE_CONTACT, and Debian has no request for it.
    print(build.run("dpkg-deb --info /opt/dat-hpc.deb control\n"
                    "lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,"
                    "root-in-contact,initial-upload-closes-no-bugs /opt/dat-hpc.deb"), end="")
    files = final.run("dpkg -L dat-hpc; dpkg --verify dat-hpc").splitlines()
    for name in ("bin/dat_hpc", "share/dat_hpc/jobs/madry.toml", "share/dat_hpc/jobs/slurm/common.sh",
                 "share/doc/dat-hpc/copyright"):
        if f"/usr/{name}" not in files:
            raise Failed(f"the package lacks /usr/{name}")
    final.run("useradd --create-home user")
    command = "mpirun -np 2 dat_hpc train --network small_cnn --width 16 --attack-steps 2 --max-steps 16 --out run"
    said = final.run(f"{command}; dat_hpc plot run", "user", **MPI)
    print(said[: said.find("\n")])
    if " 2 ranks, " not in said or not re.search(r"^Final: .* VALID$", said, flags=re.MULTILINE):
        raise Failed(f"{command}:\n{said}")
    final.run("apt-get purge -y dat-hpc; test -z \"$(find / -xdev -path '*dat[_-]hpc*' -not -path '/home/*')\"")


def debian12():
    check_package(*play("dat_hpc.def", debian="12"))


def debian13():
    """Debian 13's libraries, oneDNN 3 among them, and what the tests of the backend say to these."""
    build, final = play("dat_hpc.def", debian="13")
    check_package(build, final)
    run("cp", "-r", ROOT / "tests", ROOT / "bench", build.path / "opt/dat_hpc")
    print(build.run("""apt-get install -y --no-install-recommends python3 >/dev/null
        cd /opt/dat_hpc
        cmake --preset deb -DBUILD_TESTING=ON '-DDAT_TEST_FILES=unit/(backend|network)/|test_canary'
        cmake --build build/deb --target dat_tests
        build/deb/tests/dat_tests '[backend],[network]' | tail -3""", OMP_NUM_THREADS="2", DEBIAN_FRONTEND="noninteractive"), end="")


def cuda():
    address = re.search(r"https://\S+", (TOP / "dat_hpc_cuda.def").read_text())[0]
    got("NVIDIA's packages", "wget", "-q", "--timeout=20", "--tries=1", "--spider", address)
    play("dat_hpc_cuda.def")


def easybuild():
    """All that our recipes depend on, found by EasyBuild among its own and ours; then what they say, read by its parser,
    beside what the project has."""
    if shutil.which("tclsh") is None:
        raise NotHere("no tclsh, for EasyBuild's modules")
    modules, folder = unpacked("environment-modules"), TOP / "easybuild"
    path = os.pathsep.join([str(from_index("easybuild")), os.environ["PATH"]])
    environment = os.environ | {"MODULES_CMD": glob.glob(f"{modules}/usr/lib/*/modulecmd.tcl")[0], "PATH": path}
    for recipe in sorted(folder.glob("*.eb")):
        said = run("eb", "--modules-tool=EnvironmentModules", "--allow-modules-tool-mismatch", "--module-syntax=Tcl",
                   "--allow-use-as-root-and-accept-consequences", f"--prefix={WORK}/eb", f"--robot={folder}:",
                   "--dry-run", recipe, env=environment)
        print(f"{recipe.name}: with {said.count('(module: ')} recipes")
    run(sys.executable, ROOT / "tests/house/packaging.py", ROOT, PROGRAM.parent, "EasyBuild",
        env=os.environ | {"DAT_EASYBUILD": str(from_index("easybuild") / "python")})


def reframe():
    """Our test, run by ReFrame, by which the program's figures are those of the reference."""
    settings = WORK / "settings.py"
    settings.write_text("""site_configuration = {"environments": [{"name": "builtin"}], "systems": [{
        "name": "night", "hostnames": [".*"],
        "partitions": [{"name": "default", "scheduler": "local", "launcher": "mpirun", "environs": ["builtin"]}]}]}""")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    said = run(from_index("reframe-hpc") / "reframe", "-C", settings, "-c", TOP / "reframe_checks.py", "--prefix",
               WORK / "reframe", "--nocolor", "-r", env=os.environ | MPI | allowed | {"DAT_HPC": str(PROGRAM)})
    print("\n".join(line for line in said.splitlines() if line.startswith("P: ") or "Ran " in line))


def spack():
    raise NotHere("Spack is not on the package index; house_packaging reads its recipe with stand-ins")


PARTS = [debian12, debian13, cuda, easybuild, reframe, spack]


def main():
    os.environ["TMPDIR"] = str(WORK)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted, passed, failed, not_here = sys.argv[3:], 0, 0, []
    try:
        for part in [part for part in PARTS if not wanted or part.__name__ in wanted]:
            print(f"-- {part.__name__}", flush=True)
            try:
                part()
                passed += 1
                print(f"passed   {part.__name__}", flush=True)
            except NotHere as why:
                not_here.append(part.__name__)
                print(f"not run  {part.__name__}: {why}", flush=True)
            except Failed as why:
                failed += 1
                print(f"FAILED   {part.__name__}: {why}", flush=True)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    if not_here:
        print(f"not everything could be tried here: {', '.join(not_here)}")
    return 1 if failed else 0 if passed else 77


if __name__ == "__main__":
    sys.exit(main())
