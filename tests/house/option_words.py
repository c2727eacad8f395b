#!/usr/bin/env python3
"""Options that messages and hints name are options that there are: option_words.py PROGRAM ROOT

Every --word in a string of src/ is an option of some verb, as `PROGRAM VERB --help all` lists them, or of OTHERS.
"""

import pathlib
import re
import subprocess
import sys

OTHERS = {
    "--map-by", "--bind-to", "--mpi",  # mpirun's and srun's
    "--ntasks-per-node", "--cpus-per-task", "--mem", "--signal", "--requeue", "--open-mode", "--output", "--array", "--dependency",
    "--wrap", "--gpus", "--mem-p", "--ntasks", "--partition", "--account", "--constraint",  # sbatch's
    "--preset",  # CMake's
    "--default-settings",  # gnuplot's
    "--man",  # what `help` takes, which is no verb with options
    "--attack-batch", "--check",  # bench_step's: src/measure/training_step.cpp
}
STRING = re.compile(r'R"(\w*)\((.*?)\)\1"|"((?:[^"\\\n]|\\.)*)"|//[^\n]*|/\*.*?\*/|\'(?:[^\'\\]|\\.)\'', re.DOTALL)
WORD = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def shown(*words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


program, root = sys.argv[1:3]
verbs = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", shown("--help").split("\nVerbs", 1)[1].split("\n\n", 1)[0], re.M)
options = set(OTHERS)
for verb in verbs:
    options |= set(re.findall(r"^ +(?:-\w,)?(--[a-z][a-z0-9-]*)", shown(*verb.split(), "--help", "all"), re.M))
failures, seen = [], 0
for path in sorted(path for path in pathlib.Path(root, "src").rglob("*") if path.suffix in (".cpp", ".hpp", ".def")):
    text = path.read_text()
    for found in STRING.finditer(text):
        for word in WORD.findall(found[2] or found[3] or ""):
            seen += 1
            if word not in options:
                failures.append(f"{path.relative_to(root)}:{text.count(chr(10), 0, found.start()) + 1}: {word} is no option of any verb")
if len(verbs) < 10 or seen < 300:
    failures.append(f"only {len(verbs)} verbs and {seen} words are found")
print("\n".join(failures) or f"{seen} words are options of {len(verbs)} verbs")
sys.exit(bool(failures))
