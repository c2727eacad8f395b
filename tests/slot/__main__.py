"""The verbs of gpu_slot.sh: python3 tests/slot VERB [options]. gpu_slot.sh says what they do."""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import entries
import runner

kArchive = entries.kRoot / "build" / "gpu_slot.tar.xz"
kPatience = 6  # times as long as on a GPU may entries take on the double, which computes on two threads


def unpack(archive):
    """The folder beside it that has its content: unpacked once."""
    if not archive.exists():
        sys.exit(f"gpu_slot.sh: this is no unpacked archive, and there is no {archive}: run `bash tests/gpu_slot.sh pack` "
                 "where the project can be built, and bring its archive here; or name a build folder with --build")
    folder, digest = archive.parent / "gpu_slot", hashlib.sha256(archive.read_bytes()).hexdigest()
    stamp = folder / "unpacked"
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(archive) as file:
            file.extraction_filter = lambda member, path: member  # it is our own
            file.extractall(archive.parent)
        stamp.write_text(digest)
    return folder


def output_of(here, *words, **environment):
    """Exit status and output of a command."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**here.environment, **environment})
    return done.returncode, done.stdout


def make_data(here, paths, folder):
    """CIFAR-10 as data files: such files, the pieces of one, or a folder of official files. Ends where it is none."""
    files, whole = [path.resolve() for path in paths], folder / "data.h5"
    absent = [path for path in files if not path.exists()]
    code, text = 1, f"there is no {absent[0]}" if absent else "a folder stands alone"
    if not absent and len(files) == 1 and files[0].is_dir():
        code, text = output_of(here, here.program("dat_hpc"), "data", "convert", files[0], whole)
        files = [whole]
    elif not absent and all(path.is_file() for path in files):
        if len(files) > 1 and files[1].open("rb").read(4) != b"\x89HDF":
            with whole.open("wb") as to:
                for path in files:
                    with path.open("rb") as piece:
                        shutil.copyfileobj(piece, to)
            files = [whole]
        code, text = output_of(here, here.program("dat_hpc"), "data", "inspect", *files)
    if code != 0:
        sys.exit(f"gpu_slot.sh: --data {' '.join(map(str, paths))}: {runner.last_line(text)}. It takes data files of `dat_hpc "
                 "data convert`, the pieces of one by `split` in their order, or a folder of CIFAR-10's binary files")
    return files


def chosen(options, groups):
    """The entries of a slot, or those that are named; how many at once, and the slot's seconds."""
    known, slots = {entry.name: entry for group in groups for entry in group}, entries.make_slots(groups)
    names, at_once, seconds = slots.get(options.verb) or (list(dict.fromkeys(options.names)), 1, 520)
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"gpu_slot.sh: there is no {', '.join(unknown)} among {', '.join(known)}")
    return [known[name] for name in names], at_once, options.seconds or seconds


def run(options):
    """With a build folder as ctest does it: without an archive of results, exit status 77 where this machine cannot."""
    devices = [*map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")), shutil.which("nvidia-smi")]
    if options.build and not options.double and not any(devices):
        print("NOT RUN on a GPU, there is none here:", *options.names or [options.verb])
        return 1 if os.environ.get("DAT_REQUIRE_CUDA") == "1" else 77
    here = entries.Here(options.build, options.double)
    patience = kPatience if here.double else 1
    those, at_once, seconds = chosen(options, entries.make_entries(here))
    seconds = sum(entry.limit for entry in those) * patience if options.build and not options.seconds else seconds
    slot = runner.Slot(options.verb, seconds, here.environment, None if options.build else options.out, here.missing, patience)
    if options.data:  # before anything runs
        here.data = make_data(here, options.data, slot.folder)
    groups = entries.make_entries(here)
    those = chosen(options, groups)[0]
    if options.build:
        slot.run(those, at_once)
        for row in slot.rows.values():
            if row.status in (runner.kWrong, runner.kTimeOut):
                print(f"\n== {row.name}\n{slot.log(row.name).read_text(errors='replace')[-20000:]}")
        code = slot.finish()
        return 77 if {row.status for row in slot.rows.values()} == {runner.kNotHere} else code
    print(f"tests/gpu_slot.sh {options.verb}, commit {here.about['commit']}"
          + (", ON THE DOUBLE of CUDA's libraries: no figure means anything" if here.double else ""))
    if slot.run([entry for entry in groups[-1] if entry.name == "machine" or any(each.gpu for each in those)]):
        # They are measured once on a machine, and kept beside the archive.
        kept, machine = entries.kRoot.parent / "gpu_slot_ceilings.txt", output_of(here, "sh", "-c", "nvidia-smi -L")[1]
        before, _, figure = (kept.read_text() if kept.exists() else "").rpartition("\n")
        if before + "\n" == machine and "ceilings" in [entry.name for entry in those]:
            slot.add(runner.Row("ceilings", runner.kOk, f"{figure} (measured before)"))
            those = [entry for entry in those if entry.name != "ceilings"]
        slot.run(those, at_once)
        row = slot.rows.get("ceilings")
        if row and row.status == runner.kOk and row.seconds:
            kept.write_text(machine + row.figure)
    return slot.finish()


def half(which, program):
    """Writes the names of one half of the kernels' laws into names.txt, a line each."""
    here, tags = entries.Here(entries.kRoot), "[kernels]~[cpu]"
    for words in ["--list-test-names-only"], ["--list-tests", "--verbosity", "quiet"]:  # Catch2 2; 3
        names = [line.strip() for line in output_of(here, program, tags, *words, DAT_TEST_DEVICE="cpu")[1].splitlines()]
        if len(names) > 3:
            pathlib.Path("names.txt").write_text("".join(f"{name}\n" for name in names[which - 1::2]))
            return 0
    sys.exit(f"gpu_slot.sh: {program} does not list its laws: {' '.join(names)}")


def machine():
    """Prints what it has, and which libraries the loader does not find for an archive's programs and MPI's plugins."""
    here = entries.Here()
    files = sorted([*(entries.kRoot / "libexec").iterdir(), *(entries.kRoot / "mpi").rglob("*.so")])
    code, text = output_of(here, "ldd", *files, **here.loader)
    wanting, file = [], ""
    for line in text.splitlines():
        file = pathlib.Path(line[:-1]).name if line.endswith(":") else file
        wanting += [f"{file}: {line.strip()}"] if "not found" in line else []  # a library, or a version of the C library
    driver = re.search(r"Driver Version: (\S+)", output_of(here, "sh", "-c", "nvidia-smi")[1])
    try:
        import torch

        peer = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    except ImportError:
        peer = "no PyTorch"
    print(f"driver {driver[1] if driver else 'none'}; {peer}; Python {sys.version.split()[0]}; {os.cpu_count()} cores; glibc "
          f"{os.confstr('CS_GNU_LIBC_VERSION').split()[-1]}, {here.about['glibc']} needed", *wanting, sep="\n")
    return 1 if wanting or code else 0


def main():
    parser = argparse.ArgumentParser(prog="gpu_slot.sh", description="What needs a GPU, in slots of its time")
    verbs = parser.add_subparsers(dest="verb", required=True)
    groups = entries.make_entries(entries.Here(entries.kRoot))
    for name in [*entries.make_slots(groups), "run"]:
        verb = verbs.add_parser(name)
        verb.set_defaults(names=[])
        if name == "run":
            verb.add_argument("names", nargs="+", help="entries; `list` prints most of them")
        verb.add_argument("--out", default=os.environ.get("OUT", "."), help="folder of the results; default $OUT, or this one")
        verb.add_argument("--seconds", type=float, help="after which it ends itself")
        verb.add_argument("--archive", type=pathlib.Path, default=kArchive, help="what pack has made")
        verb.add_argument("--data", nargs="+", type=pathlib.Path, help="CIFAR-10: data files, pieces of one, or a folder")
        verb.add_argument("--build", type=pathlib.Path, help="programs of this build folder, in place of an archive's")
        verb.add_argument("--double", action="store_true", help="with --build: on the double of CUDA's libraries")
    verbs.add_parser("list", help="entries that need no data, seconds for ctest, whether alone")
    verbs.add_parser("machine")
    verb = verbs.add_parser("half")
    verb.add_argument("which", type=int, choices=(1, 2))
    verb.add_argument("program")
    verb = verbs.add_parser("pack")
    verb.add_argument("--out", type=pathlib.Path, default=kArchive)
    verb.add_argument("--architectures", default="90-real", help="CMAKE_CUDA_ARCHITECTURES")
    verb = verbs.add_parser("rehearse")
    verb.add_argument("--keep", action="store_true", help="where it ran")
    options = parser.parse_args()

    if options.verb == "list":
        for entry in [*groups[0], *groups[1]]:
            print(entry.name, int(entry.limit) + 60, int(entry.alone))
        return 0
    if options.verb == "machine":
        return machine()
    if options.verb == "half":
        return half(options.which, options.program)
    if options.verb in ("pack", "rehearse"):
        import pack  # only where the project is
        import rehearse

        return (pack.pack(options.out.resolve(), options.architectures) if options.verb == "pack"
                else rehearse.rehearse(options.keep))
    if options.build or (entries.kRoot / "about.json").exists():
        return run(options)
    script = unpack(options.archive.resolve()) / "tests" / "gpu_slot.sh"
    os.execvp("bash", ["bash", str(script), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
