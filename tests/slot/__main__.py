"""The verbs of gpu_slot.sh: python3 tests/slot VERB [options]. gpu_slot.sh says what they do."""

import argparse
import hashlib
import os
import pathlib
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


def make_data(here, paths, folder):
    """CIFAR-10 as data files: such files, the pieces of one, or a folder of official files. Ends where it is none."""
    files, whole, verb = [path.resolve() for path in paths], folder / "data.h5", "inspect"
    if len(files) == 1 and files[0].is_dir():
        verb, files = "convert", [*files, whole]
    elif len(files) > 1 and all(path.is_file() for path in files) and files[1].open("rb").read(4) != b"\x89HDF":
        whole.write_bytes(b"".join(path.read_bytes() for path in files))
        files = [whole]
    done = subprocess.run([here.program("dat_hpc"), "data", verb, *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=here.environment)
    if done.returncode != 0:
        sys.exit(f"gpu_slot.sh: --data {' '.join(map(str, paths))}: {runner.last_line(done.stdout)}. It takes data files "
                 "of `dat_hpc data convert`, the pieces of one by `split` in order, or a folder of CIFAR-10's binary files")
    return files[-1:] if verb == "convert" else files


def run(options):
    """With a build folder as ctest does it: without an archive of results, exit status 77 where this machine cannot."""
    devices = map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))  # the latter under Windows
    if options.build and not options.double and not any(devices):
        print("NOT RUN on a GPU, there is none here:", *options.names or [options.verb])
        return 1 if os.environ.get("DAT_REQUIRE_CUDA") == "1" else 77
    here = entries.Here(options.build, options.double)
    patience = kPatience if here.double else 1
    names, at_once, seconds = entries.make_slots(entries.make_entries(here)).get(options.verb) or (options.names, 1, 520)
    slot = runner.Slot(options.verb, options.seconds or (3600 if options.build else seconds), here.environment,
                       None if options.build else options.out, here.missing, patience)
    if options.data:  # before anything runs
        here.data = make_data(here, options.data, slot.folder)
    groups = entries.make_entries(here)
    known = {entry.name: entry for group in groups for entry in group}
    slot.say(f"tests/gpu_slot.sh {options.verb}, commit {here.about['commit']}"
             + (", ON THE DOUBLE of CUDA's libraries: no figure means anything" if here.double else ""))
    if options.build or {*names} <= {entry.name for entry in groups[3]} or slot.run([known["doctor"]]):
        kept = entries.kRoot / "ceilings.txt"  # of an archive that is unpacked: once on a machine
        if "ceilings" in names and kept.exists():
            slot.add(runner.Row("ceilings", runner.kOk, f"measured before: {kept.read_text()}"))
            names.remove("ceilings")
        slot.run([known[name] for name in dict.fromkeys(names)], at_once)
        if not options.build and "ceilings" in names and slot.rows["ceilings"].status == runner.kOk:
            kept.write_text(slot.rows["ceilings"].figure)
    for row in slot.rows.values():
        if options.build and row.status in (runner.kWrong, runner.kTimeOut):
            print(f"\n== {row.name}\n{slot.log(row.name).read_text(errors='replace')[-20000:]}")
    code = slot.finish()
    return 77 if options.build and {row.status for row in slot.rows.values()} == {runner.kNotHere} else code


def main():
    parser = argparse.ArgumentParser(prog="gpu_slot.sh", description="What needs a GPU, in slots of its time")
    verbs = parser.add_subparsers(dest="verb", required=True)
    groups = entries.make_entries(entries.Here(entries.kRoot))
    for name in [*entries.make_slots(groups), "run"]:
        verb = verbs.add_parser(name)
        verb.set_defaults(names=[])
        if name == "run":
            verb.add_argument("names", nargs="+", metavar="NAME", choices=[each.name for group in groups for each in group])
        verb.add_argument("--out", default=os.environ.get("OUT", "."), help="folder of the results; $OUT, or this one")
        verb.add_argument("--seconds", type=float, help="after which it ends itself")
        verb.add_argument("--archive", type=pathlib.Path, default=kArchive, help="what pack has made")
        verb.add_argument("--data", nargs="+", type=pathlib.Path, help="CIFAR-10: data files, pieces of one, or a folder")
        verb.add_argument("--build", type=pathlib.Path, help="programs of this build folder, in place of an archive's")
        verb.add_argument("--double", action="store_true", help="with --build: on the double of CUDA's libraries")
    verbs.add_parser("list", help="entries that need no data, seconds for ctest, whether alone")
    verb = verbs.add_parser("pack")
    verb.add_argument("--out", type=pathlib.Path, default=kArchive)
    verb.add_argument("--architectures", default="90-real", help="CMAKE_CUDA_ARCHITECTURES")
    verbs.add_parser("rehearse")
    options = parser.parse_args()

    if options.verb == "list":
        for entry in [*groups[0], *groups[1]]:
            print(entry.name, int(entry.limit) + 60, int(entry.alone))
    elif options.verb in ("pack", "rehearse"):
        import pack  # only where the project is
        import rehearse

        return rehearse.rehearse() if options.verb == "rehearse" else pack.pack(options.out.resolve(), options.architectures)
    elif options.build or (entries.kRoot / "about.json").exists():
        return run(options)
    else:
        script = unpack(options.archive.resolve()) / "tests" / "gpu_slot.sh"
        os.execvp("bash", ["bash", str(script), *sys.argv[1:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
