"""The verbs of gpu_slot.sh: python3 tests/slot VERB [options]. gpu_slot.sh says what they do."""

import argparse
import os
import pathlib
import shutil
import sys
import tarfile

import parts
import runner

kArchive = parts.kRoot / "build" / "gpu_slot.tar.xz"
kSeconds = 520  # of a slot, below 9 minutes with what it takes to end one
kSlowDouble = 5  # times as long as on a GPU may the parts take: the double computes on two threads


def unpack(archive, arguments):
    """Beside it; goes on with the archive's own script."""
    if not archive.exists():
        sys.exit(f"gpu_slot.sh: this is no unpacked archive, and there is no {archive}: run `bash tests/gpu_slot.sh pack` "
                 "where the project can be built, and bring its archive here")
    folder = archive.parent / "gpu_slot"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extraction_filter = lambda member, path: member  # it is our own
        file.extractall(archive.parent)
    os.execvp("bash", ["bash", str(folder / "tests" / "gpu_slot.sh"), *arguments])


def run(verb, options):
    here = parts.Here(options.data)
    slot = runner.Slot(verb, options.out, options.seconds, here.environment,
                       [name for name in options.only.split(",") if name], kSlowDouble if here.double else 1)
    slot.environment["TMPDIR"] = str(slot.scratch)
    try:
        parts.kSlots[verb](slot, here)
    except runner.Stopped as stopped:
        slot.stopped = True
        slot.head.append(f"the slot was {stopped}")
    return slot.finish()


def main():
    parser = argparse.ArgumentParser(prog="gpu_slot.sh", description="One command for each slot of GPU time")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in parts.kSlots:
        verb = verbs.add_parser(name)
        verb.add_argument("--out", default=os.environ.get("OUT", "."), help="folder of the results; default $OUT, or this one")
        verb.add_argument("--seconds", type=float, default=kSeconds, help="after which it ends itself")
        verb.add_argument("--only", default="", help="parts, separated by commas")
        verb.add_argument("--archive", type=pathlib.Path, default=kArchive, help="what pack has made")
        verb.add_argument("--data", type=os.path.abspath, help="CIFAR-10 as a data file, for full and table")
    verbs.add_parser("versions")
    verb = verbs.add_parser("pack")
    verb.add_argument("--out", type=pathlib.Path, default=kArchive)
    verb.add_argument("--architectures", default="90-real", help="CMAKE_CUDA_ARCHITECTURES")
    verb = verbs.add_parser("rehearse")
    verb.add_argument("--keep", action="store_true", help="the root in which it ran")
    options = parser.parse_args()

    if options.verb in parts.kSlots:
        if not (parts.kRoot / "about.json").exists():
            unpack(options.archive.resolve(), sys.argv[1:])
        return run(options.verb, options)
    if options.verb == "versions":
        return parts.print_versions()
    import pack  # only where the project is

    if options.verb == "pack":
        return pack.pack(options.out.resolve(), options.architectures)
    import rehearse

    return rehearse.rehearse(options.keep)


if __name__ == "__main__":
    sys.exit(main())
