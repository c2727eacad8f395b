"""What studies share: runs of methods and seeds, each made once, and tables of means beside those of the first method with the
same seeds, with 95 % intervals of the differences (Student's t)."""

import argparse
import os
import pathlib
import re
import shlex
import statistics
import sys

import student
from launch import begin, output_of, read_json, rows, write_json

IMAGES = 50_000  # of an epoch of CIFAR-10


def parsed(doc, before=(), program="program", after=(), **options):
    """The command line of a study: by name the choices of a word before the program (or the build folder, which `program`
    says), and names of any number of words after it; by option its default, whose type a value has, or (default, help), or
    (default, help, choices); None: a text, a list: one or more, False: a switch, ...: there is none. `options`: what
    follows `--`. Returns the values and the parser."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0], epilog="\n".join(doc.splitlines()[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, choices in dict(before).items():
        parser.add_argument(name, choices=choices)
    parser.add_argument(program)
    for name in after:
        parser.add_argument(name, nargs="*")
    for name, told in options.items():
        default, text, choices = (*told, None)[:3] if isinstance(told, tuple) else (told, "", None)
        how = {"help": f"{text} ({default})" if default not in (None, False, 0, "", ..., [], [...]) else text, "default": default}
        if default in (..., [...]):
            how |= {"required": True, "nargs": None if default is ... else "+"}
        elif default is False:
            how["action"] = "store_true"
        elif isinstance(default, list):
            how |= {"nargs": "+", "type": type(default[0]) if default else str, "default": default or None}
        else:
            how |= {"type": str if default is None else type(default), "choices": choices}
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:at])
    if "options" not in options:
        arguments.options = sys.argv[at + 1:]
    return arguments, parser


def words(*values):
    return [str(value) for value in values]


def slug(name):
    return re.sub("[^A-Za-z0-9]+", "-", name)


def chosen(names, known, what):
    """Of `known` those that are named, or all; ends where one is not known."""
    unknown = set(names or []) - set(known)
    if unknown:
        sys.exit(f"no {what} is called {' or '.join(sorted(unknown))}; known: {', '.join(known)}")
    return [name for name in known if names is None or name in names]


def merged(*lists):
    """Options of all lists; of those that are given twice, the last."""
    found = {}
    for word in words(*(word for options in lists for word in options)):
        if word.startswith("--"):
            values = found[word] = []
        else:
            values.append(word)
    return [word for name, values in found.items() for word in (name, *values)]


def accuracies(folder, **names):
    """Of the last evaluation on test images, of the averaged weights where there are any, in per cent: clean, and by the name that
    each attack is given."""
    found = {}
    tests = [row for row in rows(folder, "evaluation") if row["split"] == "test"]
    averaged = [row for row in tests if row["weights"] == "average"]
    for row in averaged or tests:
        for name, attack in names.items():
            if row["attack"] == attack:
                found |= {"clean": 100 * row["clean_acc"], name: 100 * row["adv_acc"]}
    return found


class Runs:
    """Trainings below the folder `out`, each made once. launch: what is put before the program."""

    def __init__(self, out, program, launch=""):
        self.out, self.command = pathlib.Path(out), [*shlex.split(launch), os.path.abspath(program)]
        self.out.mkdir(parents=True, exist_ok=True)

    def say(self, *of):
        return output_of([*self.command, *of])

    def begin(self, name, options, **facts):
        begin(self.out / f"{name}-begun.json", {"options": words(*options), **facts}, self.out / name)

    def trained(self, name, options, figures):
        """figures(folder) of a training, which is made, or goes on, where that is not known; it must not go on with other
        options than it was begun with."""
        folder, done = self.out / name, self.out / f"{name}.json"
        self.begin(name, options)
        if not done.exists():
            self.say("train", "--out", folder, *options, "--quiet")
            write_json(done, figures(folder))
        return read_json(done)


def means(found, columns, width=10):
    """Cells of a table: the mean of each column over the rows of a method."""
    return "".join(f"{statistics.fmean(row[column] for row in found):>{width}.2f}" for column in columns)


def differences(found, first, column):
    """Mean difference from the first method with the same seeds, and half of its interval."""
    return student.interval([row[column] - other[column] for row, other in zip(found, first)])


def interval_text(mean, half):
    return f"{mean:+.2f}" + (f" [{mean - half:+.2f}, {mean + half:+.2f}]" if half < float("inf") else "")


def compared(heading, names, found, columns, wide, half=None, beside=""):
    """A table: the means of each method, and differences from the first one. names: by method, what its line begins with;
    half: by column, half of the interval, in the place of that of the pairs; beside: what the headings of differences begin with.
    Returns the differences by method and column."""
    print(f"{heading:<{wide}}" + "".join(f"{column + ' %':>10}" for column in columns) + "".join(f"{beside + column:>26}" for column in columns))
    first, told = found[next(iter(names))], {}
    for method, name in names.items():
        text = f"{name:<{wide}}" + means(found[method], columns)
        for column in columns:
            mean, own = differences(found[method], first, column)
            told[method, column] = mean, half[column] if half else own
            text += f"{'-' if found[method] is first else interval_text(*told[method, column]):>26}"
        print(text)
    return told
