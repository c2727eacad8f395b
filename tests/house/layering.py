#!/usr/bin/env python3
"""Checks who includes whom, and who prints.

usage: layering.py ROOT        every line of ROOT/{include,kernels,src} against the rules below
       layering.py --rooms ROOT  the rooms: lines of code, and whom each of them includes
       layering.py --self-test  the rules against trees that break them
Prints each offending line; the exit code is 1 where there is one.
"""

import pathlib
import re
import sys

import checker

# A library's headers, and the one place that may include them.
DOORS = [
    (r"dnnl.*|oneapi/dnnl/.*", r"src/backend/cpu/onednn\.hpp"),
    (r"hdf5.*|H5.*", r"src/hdf5/hdf5\.hpp"),
    (r"zlib\.h", r"src/data/arrays/inflate\.cpp"),
    (r"jpeglib\.h|jerror\.h|jmorecfg\.h|turbojpeg\.h", r"src/data/images/jpeg\.cpp"),
    (r"png.*\.h", r"src/data/images/(write_)?png\.cpp"),
    (r"archive.*\.h", r"src/data/(images/tar|convert/archive)\.cpp"),
    (r"mpi.*", r"include/dat/communicator\.hpp"),
    (r"dlfcn\.h", r"src/communicate/nccl/library\.cpp"),
    (r"CLI/.*", r"src/options/command_line\.cpp"),
    (r"cuda.*|cudnn.*|cublas.*", r"src/backend/cuda/.*|kernels/cuda\.cu"),
]

# Who prints otherwise than to std::cout and by say(), which are cleaned (src/printed.hpp): they clean what a file may have
# said, or print nothing of a file.
PRINTS = (r"\b(v?f?printf|v?dprintf|f?puts|f?putc|putchar|\w+_unlocked|fwrite|perror|psignal|(std|fmt)::v?print(ln)?)\(|"
          r"\b(write|writev|send)\((1|2|STD\w+),|\bstd::(clog|cerr)\b|\bSTD(OUT|ERR)_FILENO\b|/dev/(std|tty|fd/)")
PRINTERS = {"src/printed.cpp", "src/record/report.cpp", "src/measure/bench.cpp", "src/communicate/request.cpp", "src/communicate/hang/watchdog.cpp",
            "src/run/signals.cpp", "src/start.cpp", "src/verbs/results/status.cpp"}

FLOOR = {"batch", "error", "half", "logits", "needs", "norm", "number", "tensor", "random", "registry", "shell", "tick"}  # headers of include/dat/ on which everything stands
FAMILIES = {  # folder of src/ -> its headers in include/dat/
    "attack": {"attack", "attack_sequence", "objective"},
    "loss": {"loss"},
    "selector": {"selector"},
    "optimizer": {"optimizer"},
    "communicate": {"communicator"},
    "reduce": {"reducer"},
    "reduce/aggregator": {"aggregator"},
    "reduce/codec": {"codec"},
    "reduce/sums": {"node_sums"},
    "reduce/transport": {"transport_names"},
    "files": {"file", "run_lock"},
    "hdf5": set(),
    "data": {"dataset", "loader", "sampler"},
    "checkpoint": {"checkpoint"},
    "record": {"report", "events"},
    "smoothing": set(),
}
KNOWS = {  # what stands on what, among families
    "reduce": {"communicate", "reduce/aggregator", "reduce/codec", "reduce/sums", "reduce/transport"},
    "reduce/sums": {"communicate"},
    "reduce/transport": {"communicate", "reduce/aggregator", "reduce/codec", "reduce/sums"},
    "hdf5": {"files"},
    "data": {"files", "hdf5"},
    "checkpoint": {"files", "hdf5"},
    "record": {"files", "hdf5"},
}
GROUND = {"parameters": {"backend", "parameters", "planner"}}  # folders of src/ below the families -> all that they know but the floor
UPPER = ["batch", "replica", "assess", "interop", "byzantine", "train", "forecast", "measure", "run", "verbs", "main.cpp"]  # floors of src/ above the families, the lowest first
KNOW_OPTIONS = {"options", "train", "forecast", "measure", "run", "verbs", "main.cpp"}  # of the command line: dat/config.hpp, dat/options/


def includes(file):
    for number, line in enumerate(file.read_text().splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if found:
            yield number, line.strip(), found[1] == "<", found[2]


def family_of(path):
    """The family of a path below src/, the innermost one; None where there is none."""
    return max((family for family in FAMILIES if path.startswith(family + "/")), key=len, default=None)


def is_options(header):
    """Whether a header of include/dat/ is about the options of the command line."""
    return header is not None and (header == "config" or header.startswith("options/"))


def strangers(family):
    return FAMILIES.keys() - {family} - KNOWS.get(family, set())


def offence(path, angle, target, kernels):
    """Why `path` (relative to the root) must not include `target`; None where it may."""
    for library, door in DOORS:
        if angle and re.fullmatch(library, target) and not re.fullmatch(door, path):
            return f"only {door.replace(chr(92), '')} may include this library"

    folder, *rest = path.split("/")
    header = target[4:-4] if target.startswith("dat/") else None  # of include/dat/
    kernel = not angle and target in kernels
    if folder == "include":
        name = rest[-1].removesuffix(".hpp")
        if kernel or not angle and header is None:
            return "a public header includes public headers only"
        if name in FLOOR and not (header in FLOOR or angle and re.fullmatch(r"\w+", target)):
            return "the lowest headers stand on the standard library and each other"
        if is_options(header) and not (name == "config" or rest[1] == "options"):
            return "only the upper floors know the options"
        for family, own in FAMILIES.items():
            for other in strangers(family):
                if name in own and header in FAMILIES[other]:
                    return f"families do not know each other: {family}, {other}"
    if folder == "kernels" and not angle and not kernel and header not in FLOOR | {"parameters"}:
        return "kernels stand on error, half, norm, tensor, random, registry and parameters"
    if folder == "src":
        part = rest[0]
        if is_options(header) and part not in KNOW_OPTIONS:
            return "only the upper floors know the options"
        if part in GROUND and not angle and header not in FLOOR | GROUND[part] and not target.startswith(part + "/"):
            return f"{part} is below the families"
        if part == "options" and family_of(target):
            return "options know families by the headers of include/dat/"
        floor = UPPER.index(part) if part in UPPER else -1
        for above in UPPER[floor + 1 :]:
            if target.startswith(above + "/"):
                return f"nothing below {above} knows it"
        if family := family_of("/".join(rest)):
            for other in strangers(family):
                if family_of(target) == other or header in FAMILIES[other]:
                    return f"families do not know each other: {family}, {other}"
            if header in ("network", "program") or target.startswith(("network/", "backend/")):
                return "a family does not know networks"
    return None


def circle_of(rooms):
    """Folders of src/ each of which includes the next one, and the last one the first; None: there is no circle."""
    done = set()

    def visit(room, way):
        if room in way:
            return way[way.index(room) :] + [room]
        if room in done:
            return None
        found = next(filter(None, (visit(other, way + [room]) for other in sorted(rooms.get(room, ())))), None)
        done.add(room)
        return found

    return next(filter(None, (visit(room, []) for room in sorted(rooms))), None)


def rooms_of(root):
    """Folder of src/ -> those that it includes."""
    rooms = {}
    for file in sorted((root / "src").rglob("*")):
        if file.suffix in (".hpp", ".cpp"):
            room = file.relative_to(root).parent.as_posix()
            others = rooms.setdefault(room, set())
            for _, _, angle, target in includes(file):
                other = "src/" + pathlib.PurePath(target).parent.as_posix()
                if not angle and other not in (room, "src/.") and (root / other).is_dir():
                    others.add(other)
    return rooms


def drawing(root):
    """A line for each room."""
    text = []
    for room, others in sorted(rooms_of(root).items()):
        lines = sum(len(f.read_text().splitlines()) for f in (root / room).iterdir() if f.suffix in (".hpp", ".cpp"))
        names = ", ".join(sorted(other.removeprefix("src/") for other in others))
        text.append(f"{room.removeprefix('src/'):24}{lines:6}  {names}".rstrip())
    return text


def check(root):
    """Offending lines, as text."""
    kernels = {f.name for f in (root / "kernels").glob("*") if f.suffix in (".hpp", ".def")}
    found = [] if kernels else [f"{root}: no sources here"]
    for top in ("include", "kernels", "src"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".hpp", ".cpp", ".cu", ".def"):
                continue
            path = file.relative_to(root).as_posix()
            if top == "src" and path not in PRINTERS:
                found += [f"{path}:{number}: {line.strip()}: only std::cout and say() are cleaned"
                          for number, line in enumerate(file.read_text().splitlines(), 1) if re.search(PRINTS, line)]
            for number, line, angle, target in includes(file):
                why = offence(path, angle, target, kernels)
                if why:
                    found.append(f"{path}:{number}: {line}: {why}")
    if circle := circle_of(rooms_of(root)):
        found.append("rooms in a circle: " + " -> ".join(circle))
    return found


GOOD = {
    "include/dat/tensor.hpp": "#include <cstdint>\n",
    "include/dat/random.hpp": '#include "dat/tensor.hpp"\n',
    "include/dat/communicator.hpp": "#include <mpi.h>\n",
    "kernels/launch.hpp": '#include "dat/parameters.hpp"\n',
    "src/attack/pgd.cpp": '#include "launch.hpp"\n#include "dat/attack.hpp"\n',
    "include/dat/reducer.hpp": '#include "dat/communicator.hpp"\n#include "dat/codec.hpp"\n',
    "src/reduce/codec/float32.cpp": '#include "dat/codec.hpp"\n#include "reduce/codec/codecs.hpp"\n',
    "src/reduce/reducer.cpp": '#include "dat/communicator.hpp"\n#include "reduce/transport/transport.hpp"\n',
    "src/reduce/transport/gather.cpp": '#include "dat/communicator.hpp"\n#include "dat/codec.hpp"\n#include "dat/aggregator.hpp"\n',
    "src/hdf5/hdf5.hpp": '#include <hdf5.h>\n#include "dat/file.hpp"\n',
    "src/loss/cross_entropy.cpp": '#include "dat/loss.hpp"\n#include "dat/logits.hpp"\n',
    "src/replica/replica.hpp": '#include "dat/program.hpp"\n#include "replica/images.hpp"\n',
    "src/interop/onnx.cpp": '#include "dat/network.hpp"\n#include "interop/protobuf.hpp"\n',
    "src/train/trainer.cpp": '#include "assess/assessment.hpp"\n#include "dat/config.hpp"\n#include "all.hpp"\n',
    "src/verbs/training/train.cpp": '#include "train/trainer.hpp"\n#include "dat/config.hpp"\n',
    "src/verbs/help.cpp": 'std::cout << text;\nsay(text);\nwrite(file, text, bytes);\nsnprintf(text, bytes, "2");\n',
    "src/parameters/parameters.cpp": '#include "dat/parameters.hpp"\n#include "dat/backend.hpp"\n#include "dat/error.hpp"\n',
    "src/options/command_line.cpp": "#include <CLI/CLI.hpp>\n",
    "src/communicate/nccl/library.cpp": "#include <dlfcn.h>\n",
    "src/options/train/groups.hpp": '#include "dat/config.hpp"\n#include "options/table.hpp"\n',
    "include/dat/config.hpp": '#include "dat/options/attack.hpp"\n',
    "src/train/plan/plan.hpp": '#include "dat/config.hpp"\n',
    "src/train/watch/recompute.cpp": '#include "train/plan/plan.hpp"\n',
}
BAD = {
    "src/network/builder.cpp": "#include <dnnl.hpp>\n",
    "src/record/report.cpp": "#include <hdf5.h>\n",
    "src/verbs/plot.cpp": 'std::printf("%s", text);\n',
    "src/run/run.cpp": 'std::fputs(text, stderr);\n',
    "src/verbs/eval.cpp": 'std::cerr << text;\n',
    "src/verbs/bench.cpp": 'std::fputc(text[0], stdout);\n',
    "src/verbs/certify.cpp": 'vfprintf(stderr, text, list);\n',
    "src/verbs/doctor.cpp": 'std::println("{}", text);\n',
    "src/verbs/export.cpp": 'dprintf(2, "%s", text);\n',
    "src/verbs/forecast.cpp": 'if (write(1, text, bytes) < 0) return;\n',
    "src/reduce/buckets.cpp": "  #  include <mpi.h>\n",
    "src/communicate/communicator.cpp": "#include <mpi-ext.h>\n",
    "src/communicate/requests.cpp": '#include "dat/reducer.hpp"\n',
    "src/reduce/codec/sparse.cpp": '#include "dat/aggregator.hpp"\n',
    "src/reduce/transport/butterfly.cpp": '#include "dat/reducer.hpp"\n',
    "src/reduce/transport/ring.cpp": '#include "reduce/buckets.hpp"\n',
    "src/reduce/aggregator/krum.cpp": '#include "dat/communicator.hpp"\n',
    "src/reduce/aggregator/median.cpp": '#include "dat/network.hpp"\n',
    "src/optimizer/lars.cpp": '#include "reduce/codec/codecs.hpp"\n',
    "include/dat/codec.hpp": '#include "dat/reducer.hpp"\n',
    "src/data/sampler.cpp": '#include "dat/communicator.hpp"\n',
    "src/data/images/decode.cpp": "#include <jpeglib.h>\n",
    "src/data/page.cpp": "#include <png.h>\n",
    "src/data/images/members.cpp": "#include <archive_entry.h>\n",
    "src/main.cpp": "#include <CLI/CLI.hpp>\n",
    "src/communicate/nccl/group.cpp": "#include <dlfcn.h>\n",
    "src/options/table.cpp": "#include <CLI/CLI.hpp>\n",
    "src/options/table.hpp": '#include "options/train/groups.hpp"\n',
    "src/options/train/reduction.cpp": '#include "reduce/transport/transport.hpp"\n',
    "src/parameters/planner.cpp": '#include "dat/network.hpp"\n',
    "src/options/help.cpp": '#include "verbs/verbs.hpp"\n',
    "src/loss/mart.cpp": '#include "dat/options/attack.hpp"\n',
    "src/backend/cpu/backend.cpp": "#include <cuda_runtime.h>\n",
    "include/dat/error.hpp": '#include "dat/parameters.hpp"\n',
    "include/dat/registry.hpp": "#include <nlohmann/json.hpp>\n",
    "include/dat/backend.hpp": '#include "launch.hpp"\n',
    "include/dat/network.hpp": '#include "network/networks.hpp"\n',
    "include/dat/selector.hpp": '#include "dat/optimizer.hpp"\n',
    "include/dat/program.hpp": '#include "dat/config.hpp"\n',
    "src/replica/images.cpp": '#include "dat/config.hpp"\n',
    "src/assess/evaluation.cpp": '#include "train/trainer.hpp"\n',
    "src/train/learner/learner.cpp": '#include "verbs/ranks.hpp"\n',
    "src/loss/trades.cpp": '#include "replica/replica.hpp"\n',
    "kernels/loss.hpp": '#include "dat/backend.hpp"\n',
    "src/attack/fgsm.cpp": '#include "selector/selectors.hpp"\n',
    "src/attack/none.cpp": '#include "dat/network.hpp"\n',
    "src/record/onnx.cpp": '#include "dat/network.hpp"\n',
    "src/interop/state_dict.cpp": '#include "dat/config.hpp"\n',
    "src/optimizer/lamb.cpp": '#include "dat/attack.hpp"\n',
    "src/data/dataset.cpp": '#include "train/plan/splits.hpp"\n',
}


def one_each(root):
    """Of a folder that includes one above it, the circle is told, too: that counts only where it is alone."""
    lines = check(root)
    return [line for line in lines if not line.startswith("rooms in a circle")] or lines


if len(sys.argv) == 3 and sys.argv[1] == "--rooms":
    print("\n".join(drawing(pathlib.Path(sys.argv[2]))))
else:
    checker.main(__doc__, check, lambda: checker.self_test(one_each, GOOD, BAD))
