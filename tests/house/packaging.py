#!/usr/bin/env python3
"""What jobs/packages promises against what CMake does: packaging.py ROOT BUILD

The module file is loaded from an installation of BUILD, by the real modulecmd.tcl where there is one (MODULECMD, or Debian's
environment-modules), else by tclsh with stand-ins. The Spack package is read with stand-ins for Spack, the Apptainer definition
as text: neither Spack nor Apptainer is needed, and neither is tested beyond that.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

ROOT, BUILD = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
CMAKE = (ROOT / "CMakeLists.txt").read_text() + (ROOT / "src/backend/cuda/device.cmake").read_text()
VERSION = re.search(r"project\(dat_hpc VERSION (\S+)", CMAKE)[1]
TOP = ROOT / "jobs/packages"
MODULECMD = os.environ.get("MODULECMD", "/usr/lib/x86_64-linux-gnu/modulecmd.tcl")
STAND_INS = """
proc module-whatis args {}
proc conflict args {}
proc prepend-path {name value} { puts "$name='$value:$::env($name)'; export $name" }
proc setenv {name value} { puts "$name='$value'; export $name" }
set ModulesCurrentModulefile [lindex $argv 0]
source $ModulesCurrentModulefile
"""


class ModuleFile(unittest.TestCase):
    def test_it_makes_the_installed_program_and_its_scripts_known(self):
        tcl = shutil.which("tclsh")
        if tcl is None:
            self.skipTest("no tclsh")
        with tempfile.TemporaryDirectory(prefix="a b") as folder:
            subprocess.run(["cmake", "--install", BUILD, "--prefix", folder], check=True, stdout=subprocess.DEVNULL)
            modules = f"{folder}/share/dat_hpc/modulefiles"
            if os.path.exists(MODULECMD):
                command = [tcl, MODULECMD, "bash", "load", f"dat_hpc/{VERSION}"]
            else:
                stand_ins = pathlib.Path(folder) / "modules.tcl"
                stand_ins.write_text(STAND_INS)
                command = [tcl, stand_ins, f"{modules}/dat_hpc/{VERSION}"]
            loaded = subprocess.run(command, env=os.environ | {"MODULEPATH": modules}, capture_output=True, text=True, check=True)
            self.assertEqual(loaded.stderr, "")
            shell = loaded.stdout + '\ncommand -v dat_hpc; echo "$DAT_HPC"; ls "$DAT_ROOT/jobs/slurm/common.sh"; dat_hpc --version'
            said = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout.splitlines()
            self.assertEqual(said[:3], [f"{folder}/bin/dat_hpc"] * 2 + [f"{folder}/share/dat_hpc/jobs/slurm/common.sh"])
            self.assertIn(VERSION, said[3])
            for place, words in [("man/man1/dat_hpc.1", ["help", "--man"]), ("bash-completion/completions/dat_hpc", ["completion", "bash"]),
                                 ("zsh/site-functions/_dat_hpc", ["completion", "zsh"])]:
                printed = subprocess.run([f"{folder}/bin/dat_hpc", *words], capture_output=True, text=True, check=True).stdout
                self.assertEqual(pathlib.Path(folder, "share", place).read_text(), printed)


class Spack(unittest.TestCase):
    # What CMake looks for: the name of the Spack package. openmp comes with the compiler.
    NAMES = {"MPI": "mpi", "HDF5": "hdf5", "dnnl": "onednn", "CLI11": "cli11", "nlohmann_json": "nlohmann-json", "fmt": "fmt", "OpenSSL": "openssl",
             "xxhash": "xxhash", "CUDAToolkit": "cuda", "cudnn": "cudnn", "ZLIB": "zlib-api",
             "JPEG": "libjpeg-turbo", "PNG": "libpng", "LibArchive": "libarchive"}

    def setUp(self):
        found = {"depends_on": {}, "version": [], "class": None}
        bases = types.SimpleNamespace(CMakePackage=type("CMakePackage", (), {}), CudaPackage=type("CudaPackage", (), {}))
        directives = types.ModuleType("spack.package")
        directives.depends_on = lambda spec, **how: found["depends_on"].setdefault(re.match(r"[\w-]+", spec)[0], (spec, how))
        directives.version = lambda *words, **how: found["version"].append(words[0])
        for name in ("license", "conflicts"):
            setattr(directives, name, lambda *words, **how: None)
        modules = {"spack": types.ModuleType("spack"), "spack.package": directives,
                   "spack_repo.builtin.build_systems.cmake": bases, "spack_repo.builtin.build_systems.cuda": bases}
        for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
            modules[name] = types.ModuleType(name)
        sys.modules.update(modules)
        scope = {}
        exec(compile((TOP / "package.py").read_text(), "package.py", "exec"), scope)
        self.found, self.package = found, scope["DatHpc"]

    def test_the_version_is_that_of_the_project(self):
        self.assertEqual(self.found["version"], [VERSION])

    def test_it_depends_on_what_cmake_looks_for(self):
        wanted = set(re.findall(r"find_package\((\w+)", CMAKE)) - {"OpenMP"}
        wanted |= {name for name in re.findall(r"find_path\(\w+ (\w+)\.h", CMAKE)}
        self.assertEqual(wanted, set(self.NAMES))
        tools = {"c", "cxx", "cmake", "gnuplot", "catch2"}
        self.assertEqual(set(self.found["depends_on"]), set(self.NAMES.values()) | tools)

    def test_the_versions_are_those_that_cmake_asks_for(self):
        least = re.search(r"cmake_minimum_required\(VERSION (\S+)\)", CMAKE)[1]
        self.assertEqual(self.found["depends_on"]["cmake"][0], f"cmake@{least}:")
        self.assertIn("find_package(CUDAToolkit 12 ", CMAKE)
        self.assertEqual(self.found["depends_on"]["cuda"], ("cuda@12:", {"when": "+cuda"}))
        needed = re.search(r"oneDNN (\S+) or (\S+)", (ROOT / "jobs/install.sh").read_text())
        self.assertEqual(self.found["depends_on"]["onednn"][0], f"onednn@{needed[1]}:{needed[2]}")

    def test_its_settings_are_options_of_cmake(self):
        package = self.package()
        package.run_tests = False
        package.define = lambda name, value: name
        package.define_from_variant = lambda name, variant: name
        package.spec = type("Spec", (), {"__contains__": lambda self, word: True,
                                         "variants": {"cuda_arch": types.SimpleNamespace(value=("80",))}})()
        known = set(re.findall(r"(?:option\(|set\()(DAT_\w+) ", CMAKE)) | {"BUILD_TESTING", "CMAKE_CUDA_ARCHITECTURES"}
        self.assertLessEqual(set(package.cmake_args()), known)


class Apptainer(unittest.TestCase):
    def setUp(self):
        parts = re.split(r"^%(\w+)\n", (TOP / "dat_hpc.def").read_text(), flags=re.MULTILINE)
        self.parts = dict(zip(parts[1::2], parts[2::2]))

    def test_its_scripts_are_scripts(self):
        for name in ("post", "environment", "test", "runscript"):
            checked = subprocess.run(["bash", "-n"], input=self.parts[name], capture_output=True, text=True, check=False)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""), name)

    def test_it_builds_from_what_it_takes_along(self):
        taken = {line.split()[0] for line in self.parts["files"].strip().splitlines()}
        for name in taken:
            self.assertTrue((ROOT / name).exists(), name)
        # All that CMake reads without tests and benchmarks.
        read = set(re.findall(r"\$\{CMAKE_SOURCE_DIR\}/(\w+)", CMAKE)) - {"tests", "bench"}
        read |= set(re.findall(r"^add_\w+\([^)]*?(?:STATIC|dat_hpc) (\w+)/", CMAKE, flags=re.MULTILINE))
        self.assertLessEqual(read | {"jobs", "CMakeLists.txt"}, taken)
        self.assertIn("bash jobs/install.sh\n", self.parts["post"])

    def test_its_settings_are_options_of_cmake(self):
        known = set(re.findall(r"(?:option\(|set\()(DAT_\w+) ", CMAKE)) | {"BUILD_TESTING", "CMAKE_BUILD_TYPE"}
        self.assertLessEqual(set(re.findall(r"-D(\w+)=", self.parts["post"])), known)


if __name__ == "__main__":
    unittest.main(verbosity=2)
