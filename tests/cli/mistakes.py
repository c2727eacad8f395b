#!/usr/bin/env python3
"""What a newcomer mistypes, and what the program says: mistakes.py PROGRAM

Types every command of mistakes.txt in a folder with a data file, a run and some files that are none, and looks at the exit code,
at the words of the message, and whether it is one line.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX", "SLURM_"))}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def rows():
    """(exit code, command, pattern): "CODE COMMAND" and, after a tab, words of the message; -: the code alone."""
    for line in (pathlib.Path(__file__).parent / "mistakes.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            command, _, pattern = line.partition("\t")
            code, command = command.split(" ", 1)
            yield int(code), command, pattern.strip()


def typed(program, command):
    words = shlex.split(command)
    assert words[0] == "dat_hpc", command
    ended = subprocess.run([program, *words[1:]], capture_output=True, text=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                           check=False, timeout=120)
    return ended.returncode, ended.stderr.rstrip("\n")


def furnish(program):
    """What the commands of mistakes.txt find in the folder where they are typed."""
    def run(*words):
        subprocess.run([program, *words], check=True, capture_output=True, env=ENVIRONMENT)
    run("data", "synthetic", "set.h5", "--train", "16", "--test", "8", "--size", "8", "--classes", "2")
    run("train", "--data", "set.h5", "--network", "small_cnn", "--width", "16", "--activation", "silu", "--max-steps", "1",
        "--batch", "4", "--attack", "fgsm", "--eval", "fgsm", "--selector", "all", "--threads", "1", "--out", "run")
    run("export", "run", "--out", "model.safetensors")
    run("export", "run", "--format", "onnx", "--out", "model.onnx")
    pathlib.Path("model.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    pathlib.Path("old.pth").write_bytes(b"\x80\x02}q\x00." + bytes(100))
    pathlib.Path("notes.txt").write_text("not what it should be\n")
    pathlib.Path("empty").mkdir()
    pathlib.Path("typo.toml").write_text("lr = 0.1\nepoch = 3\n")
    pathlib.Path("section.toml").write_text("[train]\nlr = 0.1\n")
    pathlib.Path("bare.toml").write_text("network = resnet18\n")
    with open("set.h5", "rb") as whole:
        pathlib.Path("cut.h5").write_bytes(whole.read()[:-1])


def problem(program, code, command, pattern):
    """What is wrong with the answer; empty: nothing."""
    found, message = typed(program, command)
    if found != code:
        return f"exit code {found}, not {code}"
    if pattern == "-":
        return ""
    begin = "dat_hpc: warning: " if code == 0 else "dat_hpc: error: "
    if message.count("\n") > 0 or not message.startswith(begin):
        return "not one line that begins as errors do"
    return "" if re.search(pattern, message) else f"no '{pattern}' in it"


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        furnish(program)
        failures = [(command, wrong) for code, command, pattern in rows() if (wrong := problem(program, code, command, pattern))]
        for command, wrong in failures:
            print(f"{command}\n    {wrong}: {typed(program, command)}")
        print(f"{len(list(rows()))} mistakes, {len(failures)} of them answered otherwise")
        os.chdir("/")
    sys.exit(bool(failures))


main()
