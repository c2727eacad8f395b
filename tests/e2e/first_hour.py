"""docs/first-hour.md, typed as it stands: each step's commands end well, and with the line that the page shows, but for
numbers and names of machines. What the first step builds is built already, and is only installed. The step with PyTorch needs
torch (DAT_PYTHON_PACKAGES), and is left out without."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import common

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = ["bash jobs/install.sh", "cmake --preset cpu -G Ninja -DBUILD_TESTING=OFF", "cmake --build build/cpu --target dat_hpc"]


def steps():
    """(title, commands, last line) of each section that has blocks."""
    for section in re.split(r"^## ", (ROOT / "docs/first-hour.md").read_text(), flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        blocks = [re.sub(r"^    ", "", block, flags=re.M).strip("\n") for block in re.findall(r"(?:^    .*\n)+", text, flags=re.M)]
        yield title, blocks[0], blocks[-1], len(blocks)


def pattern(line):
    """The line with any figures, and, of the first step, any machine and instructions."""
    if line.startswith("rank 0 on "):
        return r"rank 0 on \S+: \S.*"
    figures = re.sub(r"(?<==)\d+(?!\d)(?!\\\.)|-?\d+\\\.\d+", r"-?\\d+(\\.\\d+)?", re.escape(line))
    return re.sub(r"(\\ )+", " +", figures)


class FirstHour(unittest.TestCase):
    def test_each_step_ends_with_its_line(self):
        build = next(folder for folder in pathlib.Path(common.PROGRAM).parents if (folder / "cmake_install.cmake").exists()
                     and (folder / "CMakeCache.txt").exists())
        pages = list(steps())
        self.assertGreater(len(pages), 6)
        first = pages[0][1].splitlines()
        self.assertEqual(first[:3], BUILT)
        packages = os.environ.get("DAT_PYTHON_PACKAGES", ROOT / "build/python")
        with tempfile.TemporaryDirectory() as home:
            (pathlib.Path(home) / "build").mkdir()
            (pathlib.Path(home) / "build/cpu").symlink_to(build)
            (pathlib.Path(home) / "bin").mkdir()
            (pathlib.Path(home) / "bin/python3").symlink_to(sys.executable)
            environment = os.environ | common.own_session() | {
                "HOME": home, "PATH": f"{home}/bin:{os.environ['PATH']}", "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"}
            script, without = "set -e -o pipefail\n", ""
            lacks = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True, check=False)
            for number, (title, commands, _, blocks) in enumerate(pages):
                self.assertEqual(blocks, 2, title)
                if "import model, torch" in commands and lacks.returncode != 0:
                    without = title
                    continue
                lines = first[3:] if number == 0 else commands.splitlines()
                script += "{\n" + "\n".join(lines) + f"\n}} >{home}/{number}.txt\n"
            ended = subprocess.run(["bash", "-c", script], cwd=home, env=environment, capture_output=True, text=True,
                                   timeout=common.LIMIT_S, check=False)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            for number, (title, _, last, _) in enumerate(pages):
                if title == without:
                    continue
                text = pathlib.Path(f"{home}/{number}.txt").read_text()
                self.assertRegex(text.rstrip("\n").rsplit("\n", 1)[-1], f"^{pattern(last)}$", title)
        if without:
            self.skipTest(f"NOT RUN: '{without}': torch is missing")


if __name__ == "__main__":
    common.main()
