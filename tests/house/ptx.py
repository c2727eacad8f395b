#!/usr/bin/env python3
"""What nvcc makes of the kernels: 128-bit loads and stores where memory is what they cost, few divisions.

usage: ptx.py ROOT [ARCHITECTURE]     compiles ROOT/kernels/cuda.cu to PTX for sm_90 and reads it; needs no GPU
The exit code is 1 where a kernel is not what it should be, 77 where there is no nvcc.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Kernels on activations: the arrays of activations that a thread loads and stores, each by one 128-bit instruction.
PIECES = {"MaskFromRelu": (1, 0), "MaskGradient": (2, 1), "AffineRelu": (1, 1), "AffineReluGradient": (2, 1),
          "AffineSilu": (1, 2), "AffineSiluGradient": (3, 1),
          "Add": (2, 1), "NormForward": (2, 1), "NormBackward": (3, 2), "ReluGradient": (2, 1), "PoolBackward": (1, 1),
          "MaxPoolForward": (1, 1), "MaxPoolBackward": (1, 1)}
# Kernels on the rows of a batch norm find a piece's channels by one division.
ROWS = ("NormForward", "NormBackward")
# Divisions of the image gradient by numbers that only the run knows: the width and the height; where the shape is not
# known either, by the channels and the stride, quotients and remainders.
DIVISIONS = {"<3, 1, 3>": range(2, 3), "<3, 1, 1>": range(2, 3), "<7, 2, 3>": range(2, 3), "<0, 0, 0>": range(4, 99)}

Kernel = collections.namedtuple("Kernel", "loads stores divisions instructions")


def find_nvcc():
    installed = pathlib.Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "bin", "nvcc")
    return str(installed) if installed.exists() else shutil.which("nvcc")


def compile_kernels(root, architecture, nvcc):
    with tempfile.TemporaryDirectory() as folder:
        ptx = pathlib.Path(folder, "kernels.ptx")
        subprocess.run([nvcc, "-std=c++20", "-O3", "-ptx", f"-arch={architecture}", f"-I{root}/include",
                        f"-I{root}/kernels", f"{root}/kernels/cuda.cu", "-o", ptx], check=True)
        return subprocess.run(["c++filt"], input=ptx.read_text(), check=True, capture_output=True, text=True).stdout


def read(ptx):
    """{name: Kernel}."""
    found = {}
    for part in re.split(r"^\s*(?:\.visible|\.weak|\.global)?\s*\.entry ", ptx, flags=re.M)[1:]:
        name, body = part.split("\n", 1)
        lines = re.findall(r"^\s+(?:@!?%\w+ )?([a-z][\w.:]*)[ ;]", body, flags=re.M)
        count = lambda pattern: sum(re.fullmatch(pattern, line) is not None for line in lines)
        found[name] = Kernel(count(r"ld\.global\.(?:nc\.)?v4\.\w*32"), count(r"st\.global\.v4\.\w*32"),
                             count(r"(?:div|rem)\.[us](?:32|64)"), len(lines))
    return found


def check(found):
    """Lines of a table, and what is wrong."""
    lines, wrong, seen = [], [], set()
    for name, kernel in sorted(found.items()):
        functor = re.search(r"kernels::(\w+)(<[^()]*?>)? *>\(", name.replace("(int)", ""))
        if functor is None:
            continue
        kind, arguments = functor[1], (functor[2] or "").replace("dat::", "").replace(" >", ">")
        line = (f"{kind}{arguments}{' and its mask' if 'and_mask' in name else ''}: {kernel.loads} loads and {kernel.stores} "
                f"stores of 128 bits, {kernel.divisions} divisions, {kernel.instructions} instructions")
        if kind == "MaskFromRelu" and "and_mask" not in name:
            continue  # it writes nothing else: never launched so
        if "each_piece" in name:
            seen.add(kind)
            loads, stores = PIECES[kind]
            if kernel.loads < loads or kernel.stores < stores:
                wrong.append(f"{line}; it needs {loads} and {stores}")
            if kind in ROWS and kernel.divisions > 1:
                wrong.append(f"{line}; it should be one")
        elif kind == "ImageGradient":
            seen.add(kind + arguments)
            if kernel.divisions not in DIVISIONS[arguments]:
                wrong.append(f"{line}; it should be {DIVISIONS[arguments]}")
        else:
            continue
        lines.append(line)
    expected = set(PIECES) | {"ImageGradient" + shape for shape in DIVISIONS}
    return lines, wrong + [f"{name}: not found" for name in sorted(expected - seen)]


def main():
    root, architecture = pathlib.Path(sys.argv[1]), (sys.argv[2:] or ["sm_90"])[0]
    nvcc = find_nvcc()
    if nvcc is None:
        print("not run: there is no nvcc")
        return 77
    lines, wrong = check(read(compile_kernels(root, architecture, nvcc)))
    print("\n".join(lines))
    for line in wrong:
        print("FAILED   " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
