#!/usr/bin/env python3
"""Checks that no file, function, class or room of the sources is larger than a newcomer can take in.

usage: sizes.py ROOT        the sources below ROOT; prints what is too large; the exit code is 1 where something is
       sizes.py --self-test  the rules against trees that break them
Functions and data members are counted by Universal Ctags; the exit code is 77 where there is none.
"""

import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import checker

FILE_LINES, FUNCTION_LINES, MEMBERS, ROOM_LINES = 450, 80, 25, 2500
# What may be larger, and why. At most five.
EXCEPTIONS = {
    "src/backend/cpu/winograd_simd.hpp": "one algorithm, whose stages are inlined into each other",
}
WHOLE = {"src/backend/cpu", "src/backend/cuda"}  # rooms of any size: a device each
assert len(EXCEPTIONS) <= 5


def tags(root):
    """The functions and data members below src/ and include/, as Ctags tells them."""
    text = subprocess.run(
        ["ctags", "-R", "--languages=C++", "--langmap=C++:.hpp.cpp", "--kinds-C++=fm", "--fields=+neZ", "--output-format=json", "-f", "-",
         *(top for top in ("src", "include") if (root / top).exists())],
        cwd=root, capture_output=True, text=True, check=True).stdout
    return [tag for tag in map(json.loads, text.splitlines()) if tag["_type"] == "tag"]


def check(root):
    """What is too large, a line each."""
    found, rooms, used = [], collections.Counter(), set()

    def is_fine(name):
        used.update({name} & EXCEPTIONS.keys())
        return name in EXCEPTIONS

    for file in sorted((root / "src").rglob("*")):
        if file.suffix in (".hpp", ".cpp"):
            path, lines = file.relative_to(root).as_posix(), len(file.read_text().splitlines())
            rooms[file.relative_to(root).parent.as_posix()] += lines
            if lines > FILE_LINES and not is_fine(path):
                found.append(f"{path}: {lines} lines, {FILE_LINES} are the most of a file")
    for room, lines in sorted(rooms.items()):
        if lines > ROOM_LINES and room not in WHOLE:
            found.append(f"{room}: {lines} lines, {ROOM_LINES} are the most of a room")
    members = collections.defaultdict(list)
    for tag in tags(root):
        place = f"{tag['path']}:{tag['line']}"
        if tag["kind"] == "function" and tag["path"].startswith("src/"):
            lines = tag.get("end", tag["line"]) - tag["line"] + 1
            if lines > FUNCTION_LINES:
                found.append(f"{place}: {tag['name']} has {lines} lines, {FUNCTION_LINES} are the most of a function")
        if tag["kind"] == "member" and not re.search(r"\bstatic\b", tag.get("pattern", "")):
            members[tag["path"], re.sub(r"__anon\w+::", "", tag.get("scope", "?"))].append(place)
    for (_, name), places in sorted(members.items()):
        if len(places) > MEMBERS and not is_fine(name):
            found.append(f"{places[0]}: {name} has {len(places)} data members, {MEMBERS} are the most of a class")
    return found + [f"{name} needs no exception any more" for name in sorted(EXCEPTIONS.keys() - used)]


def self_test():
    """Trees that are refused for the wrong number of reasons."""
    problems = []
    body = "\n".join(f"  f({i});" for i in range(FUNCTION_LINES - 1))
    for path, text, wanted in [
        ("src/a/file.cpp", "//\n" * FILE_LINES, 0),
        ("src/a/file.cpp", "//\n" * (FILE_LINES + 1), 1),
        ("src/a/function.cpp", f"void g() {{\n{body}\n}}\n", 1),
        ("src/a/function.cpp", "void g() {\n" + body.split("\n", 1)[1] + "\n}\n", 0),
        ("src/a/class.hpp", "class A {\n" + "".join(f"  int m{i}_ = 0;\n" for i in range(MEMBERS)) + "  static constexpr int k = 1;\n};\n", 0),
        ("include/dat/class.hpp", "class A {\n" + "".join(f"  int m{i}_ = 0;\n" for i in range(MEMBERS + 1)) + "};\n", 1),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src").mkdir()
            checker.write(root, path, text)
            found = [line for line in check(root) if "no exception" not in line]
            if len(found) != wanted:
                problems.append(f"{path}: {wanted} expected, found {found}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in range(ROOM_LINES // FILE_LINES + 1):
            checker.write(root, f"src/a/{name}.cpp", "//\n" * FILE_LINES)
        if len([line for line in check(root) if "of a room" in line]) != 1:
            problems.append("a large room is accepted")
    return problems


if shutil.which("ctags") is None:
    print("sizes.py: NOT RUN: there is no ctags (Debian: universal-ctags)")
    sys.exit(77)
checker.main(__doc__, check, self_test)
