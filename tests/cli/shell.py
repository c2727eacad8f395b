#!/usr/bin/env python3
"""Completion in bash and zsh, and the manual page: shell.py PROGRAM

Shells are asked as a person asks them, by the tab key in a terminal; what they offer is compared with what --help says. zsh,
man and mandoc are passed over where they are not installed, which the test says.
"""

import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
ENVIRONMENT = {"PATH": os.environ["PATH"], "TERM": "dumb", "HISTFILE": "", "LC_ALL": "C.UTF-8"}
ENVIRONMENT |= {name: value for name, value in os.environ.items() if name.startswith("DAT_MUTANT")}  # tests/campaign/mutate.py

# What is typed after "dat_hpc ", and the words that the program gets.
TYPED = [
    ("certi\t", ["certify"]),
    ("data conv\t my\t out.h5", ["data", "convert", "my file.npz", "out.h5"]),
    ("train --selec\tfreez\t", ["train", "--selector", "freezeout"]),
    ("train --codec powersgd:ra\t4 --lr 1", ["train", "--codec", "powersgd:rank=4", "--lr", "1"]),
    ("train --codec=powers\t", ["train", "--codec=powersgd"]),
    ("train --selector freezeout:t0=0.5:lr=sc\t", ["train", "--selector", "freezeout:t0=0.5:lr=scaled"]),
    ("train --attack none,fgs\t", ["train", "--attack", "none,fgsm"]),
    ("--reci\tmadr\t -q", ["--recipe", "madry", "-q"]),
    ("train --out ru\t", ["train", "--out", "runs"]),
    ("train --resume=ne\t", ["train", "--resume=never"]),
    ("train --config=run\tc\t", ["train", "--config=runs/config.toml"]),
    ("eval run\t --eval pgd20,aa-qui\t", ["eval", "runs", "--eval", "pgd20,aa-quick"]),
]
ZSH = "autoload -U compinit; compinit -u -D; setopt no_beep; zstyle ':completion:*' menu no; PS1=; "


def said(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True).stdout


def verbs():
    return re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", said("--help").split("\nVerbs", 1)[1].split("\n\n", 1)[0], re.M)


def entries(verb):
    """The options of a verb by the help: names, the form of the values, the description."""
    lines = []
    for line in said(*verb.split(), "--help", "all").splitlines():
        if re.match(r"  (-\w,)?--|  [A-Z]", line):
            lines.append(line)
        elif line.startswith(" " * 30) and lines:
            # A form that is too long for its line goes on after a bar.
            lines[-1] += line.strip() if re.search(r"\|$", lines[-1]) else "\n" + line
        elif line:
            lines.append("")
    for line in lines:
        found = re.match(r"  ((?:[A-Z]\w*|-\w|--[\w-]+)(?:,-[\w-]+)*)(?: (\S+))?(?:\s\s+|\n|$)([\s\S]*)", line)
        if found:
            yield found[1].split(","), found[2] or "", " ".join(found[3].split())


class Completion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "runs").mkdir()
        for name in ("my file.npz", "rum", "runs/config.toml"):
            (self.folder / name).touch()

    def press(self, shell, setup, lines=TYPED):
        """Types lines in a terminal; a function in place of the program writes down what it gets."""
        stub = f"""dat_hpc() {{ if [ "$1" = completion ]; then {PROGRAM} "$@"; else printf '%s\\n' "$@" >part; mv part got; fi; }}"""
        terminal, end = pty.openpty()
        process = subprocess.Popen(shell, stdin=end, stdout=end, stderr=end, cwd=self.folder, env=ENVIRONMENT, start_new_session=True)
        os.close(end)

        def type_in(line):
            os.write(terminal, line.encode() + b"\n")
            until = time.monotonic() + 30
            while not (self.folder / "got").exists():
                self.assertLess(time.monotonic(), until, line)
                time.sleep(0.005)
            got = [word.removesuffix("/") for word in (self.folder / "got").read_text().splitlines()]  # zsh takes it back
            (self.folder / "got").unlink()
            return got

        try:
            type_in(setup + stub + "; dat_hpc begin")
            for typed, words in lines:
                with self.subTest(typed):
                    self.assertEqual(type_in("dat_hpc " + typed), words)
        finally:
            process.kill()
            process.wait()
            os.close(terminal)

    def test_bash_completes_what_is_typed(self):
        self.press(["bash", "--norc", "--noprofile", "-i"], f"source <({PROGRAM} completion bash); PS1=; ")

    def test_bash_completes_where_its_words_end_at_blanks(self):
        self.press(["bash", "--norc", "--noprofile", "-i"],
                   f"COMP_WORDBREAKS=${{COMP_WORDBREAKS//[:=@]}}; source <({PROGRAM} completion bash); PS1=; ",
                   [line for line in TYPED if "=run" not in line[0]])  # bash then takes "--config=runs" for no folder

    @unittest.skipUnless(shutil.which("zsh"), "NOT RUN: there is no zsh (Debian: zsh)")
    def test_zsh_completes_what_is_typed(self):
        self.press(["zsh", "-f", "-i"], ZSH + f"source <({PROGRAM} completion zsh); ")

    @unittest.skipUnless(shutil.which("zsh"), "NOT RUN: there is no zsh (Debian: zsh)")
    def test_zsh_completes_by_a_file_of_its_path(self):
        (self.folder / "functions").mkdir()
        (self.folder / "functions/_dat_hpc").write_text(said("completion", "zsh"))
        self.press(["zsh", "-f", "-i"], "fpath=($PWD/functions $fpath); " + ZSH)

    def offered(self, *words):
        """In bash: what may stand in place of the last word."""
        script = """compopt() { :; }; source <("$0" completion bash); COMP_LINE="$0 $*" COMP_POINT=${#COMP_LINE}
                    COMP_WORDS=("$0" "$@"); COMP_CWORD=$#; _dat_hpc; printf '%s\\n' "${COMPREPLY[@]}" """
        return subprocess.run(["bash", "--norc", "-c", script, PROGRAM, *words], capture_output=True, text=True, check=True,
                              env=ENVIRONMENT).stdout.split()

    def test_it_offers_the_options_of_the_help_and_the_words_among_their_values(self):
        self.assertEqual(set(self.offered("")), {verb.split()[0] for verb in verbs()} | {"help", "completion"})
        self.assertEqual(set(self.offered("data", "")), {verb.split()[1] for verb in verbs() if verb.startswith("data ")})
        seen = 0
        for verb in verbs():
            options = [one for one in entries(verb) if one[0][-1].startswith("--")]
            # The name of a positional argument stands alone in the help, where it has another one.
            hidden = {"--checkpoint"} if verb in ("eval", "certify") else set()
            all_options = {names[-1] for names, _, _ in options} | hidden
            self.assertEqual(set(self.offered(*verb.split(), "--")), all_options, verb)
            placed = any(names[0][0] != "-" for names, _, _ in entries(verb))  # what has no name comes first
            self.assertEqual({word for word in self.offered(*verb.split(), "") if word[0] == "-"}, set() if placed else all_options, verb)
            if verb not in ("train", "export", "data index", "plot"):
                continue
            for names, form, _ in options:
                words = {word for word in form.split("|") if re.fullmatch("[a-z0-9_-]+", word)}
                if words:
                    seen += 1
                    offered = set(self.offered(*verb.split(), names[-1], ""))
                    self.assertLessEqual(words, offered, names)
                    self.assertFalse({word for word in offered if word.startswith("-") or word in re.findall("[A-Z]+", form)}, names)
        self.assertGreater(seen, 40)


class ManualPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = said("help", "--man")

    def test_it_has_every_option_with_its_description(self):
        plain = re.sub(r"\\f[BIR]|\\&|^\.\w+ ?", "", self.page, flags=re.M).replace("\\-", "-").replace("\\e", "\\")
        words = " ".join(plain.split())
        for verb in verbs():
            self.assertIn(f"DAT_HPC {verb}", plain)
            self.assertIn(re.search(f"(?m)^  {verb}  +(.*)", said("--help"))[1], words)
            for names, form, about in entries(verb):
                self.assertIn(names[-1] + (f" {form}" if form else ""), words, verb)
                self.assertIn(about, words, verb)
        for code in ("2 options", "75 stopped early"):
            self.assertIn(code, words)

    def check(self, *command):
        if shutil.which(command[0]) is None:
            self.skipTest(f"NOT RUN: there is no {command[0]}")
        with tempfile.NamedTemporaryFile("w", suffix=".1") as file:
            file.write(self.page)
            file.flush()
            return subprocess.run([*command, file.name], capture_output=True, text=True, env=ENVIRONMENT, check=True)

    def test_man_shows_it_without_a_warning(self):
        shown = self.check("man", "--warnings", "-E", "UTF-8", "-P", "cat", "-l")
        self.assertEqual(shown.stderr, "")
        self.assertIn("DAT_HPC train", re.sub(".\b", "", shown.stdout))

    def test_mandoc_finds_no_fault(self):
        self.assertEqual(self.check("mandoc", "-T", "lint", "-W", "warning").stdout, "")


if __name__ == "__main__":
    unittest.main(verbosity=1)
