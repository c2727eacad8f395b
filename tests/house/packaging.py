#!/usr/bin/env python3
"""What jobs/packages promises against what CMake does: packaging.py ROOT BUILD

The module file is loaded from an installation of BUILD, by the real modulecmd.tcl where there is one (MODULECMD, or Debian's
environment-modules), else by tclsh with stand-ins. The Spack package and EasyBuild's recipes are read with stand-ins, the
Apptainer definitions as text: none of these programs is needed. packages.py tries out what can be, at night.
"""

import json
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
CMAKE = "".join((ROOT / file).read_text() for file in ("CMakeLists.txt", "src/backend/cuda/device.cmake", "src/backend/cuda/cudnn.cmake"))
VERSION = re.search(r"project\(dat_hpc VERSION (\S+)", CMAKE)[1]
TOP = ROOT / "jobs/packages"
PRESET = next(one for one in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"] if one["name"] == "deb")
# What CMake looks for: programs and libraries, but for OpenMP, which comes with the compiler; and its settings.
LOOKED_FOR = (set(re.findall(r"find_package\((\w+)", CMAKE)) | set(re.findall(r"find_path\(\w+ (\w+)\.h", CMAKE))) - {"OpenMP"}
SETTINGS = set(re.findall(r"(?:option\(|set\()(DAT_\w+) ", CMAKE)) | {"BUILD_TESTING", "CMAKE_BUILD_TYPE", "CMAKE_CUDA_ARCHITECTURES"}
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
            before = set(BUILD.glob("shell-*"))
            subprocess.run(["cmake", "--install", BUILD, "--prefix", folder], check=True, stdout=subprocess.DEVNULL)
            # Who installs may be root, and the build folder another user's.
            self.assertEqual(set(BUILD.glob("shell-*")), before)
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


@unittest.skipUnless(shutil.which("dpkg"), "no dpkg")
class Packages(unittest.TestCase):
    def test_an_archive_and_a_package_of_any_build(self):
        with tempfile.TemporaryDirectory() as folder:
            for generator, listed in ("TGZ", ["tar", "tzf"]), ("DEB", ["dpkg", "-c"]):
                # Ninja: what is built already is not looked at once more.
                packed = subprocess.run(["cpack", "-G", generator, "--config", BUILD / "CPackConfig.cmake", "-B", f"{folder}/{generator}",
                                         "-D", "CPACK_CMAKE_GENERATOR=Ninja", "-D", "CPACK_DEBIAN_PACKAGE_SHLIBDEPS=OFF"],
                                        capture_output=True, text=True, check=False)
                self.assertEqual(packed.returncode, 0, packed.stdout + packed.stderr)
                package, = (file for file in pathlib.Path(folder, generator).iterdir() if file.is_file())
                files = subprocess.run([*listed, package], capture_output=True, text=True, check=True).stdout.splitlines()
                top, doc = (f"{package.name[:-7]}/", "dat_hpc/LICENSE") if generator == "TGZ" else ("./usr/", "dat-hpc/copyright")
                for name in "bin/dat_hpc", "share/dat_hpc/jobs/madry.toml", f"share/doc/{doc}":
                    self.assertIn(top + name, [line.split(" ")[-1] for line in files])


class Spack(unittest.TestCase):
    # What CMake looks for: the name of the Spack package.
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
        self.assertEqual(LOOKED_FOR, set(self.NAMES))
        tools = {"c", "cxx", "cmake", "gnuplot", "catch2"}
        self.assertEqual(set(self.found["depends_on"]), set(self.NAMES.values()) | tools)

    def test_the_versions_are_those_that_cmake_asks_for(self):
        least = re.search(r"cmake_minimum_required\(VERSION (\S+)\)", CMAKE)[1]
        self.assertEqual(self.found["depends_on"]["cmake"][0], f"cmake@{least}:")
        self.assertIn("find_package(CUDAToolkit 12 ", CMAKE)
        self.assertEqual(self.found["depends_on"]["cuda"], ("cuda@12:", {"when": "+cuda"}))
        needed = re.search(r"oneDNN (\S+) or newer", (ROOT / "jobs/install.sh").read_text())
        self.assertEqual(self.found["depends_on"]["onednn"][0], f"onednn@{needed[1]}:")

    def test_its_settings_are_options_of_cmake(self):
        package = self.package()
        package.run_tests = False
        package.define = lambda name, value: name
        package.define_from_variant = lambda name, variant: name
        package.spec = type("Spec", (), {"__contains__": lambda self, word: True,
                                         "variants": {"cuda_arch": types.SimpleNamespace(value=("80",))}})()
        self.assertLessEqual(set(package.cmake_args()), SETTINGS)


class EasyBuild(unittest.TestCase):
    # What CMake looks for, but for MPI, which the toolchain has, and CUDA: the name of EasyBuild's recipe.
    NAMES = {"HDF5": "HDF5", "dnnl": "oneDNN", "CLI11": "CLI11", "nlohmann_json": "nlohmann_json", "fmt": "fmt", "OpenSSL": "OpenSSL",
             "xxhash": "xxHash", "ZLIB": "zlib", "JPEG": "libjpeg-turbo", "PNG": "libpng", "LibArchive": "libarchive"}

    @staticmethod
    def read(file):
        """A recipe as EasyBuild's parser reads it, in the Python that DAT_EASYBUILD names (packages.py), or with stand-ins."""
        if "DAT_EASYBUILD" in os.environ:
            words = ("import json, sys\nfrom easybuild.framework.easyconfig.parser import EasyConfigParser as Parser\n"
                     "print(json.dumps(Parser(sys.argv[1]).get_config_dict()))")
            return json.loads(subprocess.run([os.environ["DAT_EASYBUILD"], "-c", words, file], stdout=subprocess.PIPE, check=True).stdout)
        recipe = {"SYSTEM": {}, "SOURCE_TAR_GZ": "", "SHLIB_EXT": "so"}
        exec(compile(file.read_text(), file, "exec"), recipe)
        return recipe

    def test_recipes_say_what_cmake_does(self):
        files = sorted((TOP / "easybuild").glob("*.eb"))
        recipes = [self.read(file) for file in files]
        for file, recipe in zip(files, recipes):
            toolchain = f"{recipe['toolchain']['name']}-{recipe['toolchain']['version']}"
            self.assertEqual(file.stem, f"{recipe['name']}-{recipe['version']}-{toolchain}")
        ours, = (recipe for recipe in recipes if recipe["name"] == "dat_hpc")
        self.assertEqual(ours["version"], VERSION)
        self.assertEqual(LOOKED_FOR - {"MPI", "CUDAToolkit", "cudnn"}, set(self.NAMES))
        versions = {one[0]: one[1] for one in ours["dependencies"] + ours["builddependencies"]}
        self.assertEqual(set(versions) - {"CMake", "Ninja"}, set(self.NAMES.values()))
        self.assertLessEqual({recipe["name"]: recipe["version"] for recipe in recipes if recipe is not ours}.items(), versions.items())
        least = {"CMake": re.search(r"cmake_minimum_required\(VERSION (\S+)\)", CMAKE)[1],
                 "oneDNN": re.search(r"oneDNN (\S+) or newer", (ROOT / "jobs/install.sh").read_text())[1],
                 "nlohmann_json": re.search(r"find_package\(nlohmann_json (\S+) ", CMAKE)[1]}
        for name, version in least.items():
            self.assertGreaterEqual([int(part) for part in versions[name].split(".")], [int(part) for part in version.split(".")], name)
        self.assertLessEqual(set(re.findall(r"-D(\w+)=", ours["configopts"])), SETTINGS)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cmake", "--install", BUILD, "--prefix", folder], check=True, stdout=subprocess.DEVNULL)
            for kind, there in ("files", os.path.isfile), ("dirs", os.path.isdir):
                for name in ours["sanity_check_paths"][kind]:
                    self.assertTrue(there(f"{folder}/{name}"), name)


class Apptainer(unittest.TestCase):
    def setUp(self):
        self.stages = {}
        for name in ("dat_hpc", "dat_hpc_cuda"):
            for text in (TOP / f"{name}.def").read_text().split("Bootstrap: docker\n")[1:]:
                parts = re.split(r"^%(\w+)(?: from build)?\n", text, flags=re.MULTILINE)
                self.stages[name, re.search("Stage: (.*)", parts[0])[1]] = dict(zip(parts[1::2], parts[2::2]))
        self.assertEqual(len(self.stages), 4)

    def test_their_scripts_are_scripts(self):
        for stage, parts in self.stages.items():
            for name in {"post", "environment", "test", "runscript"} & set(parts):
                checked = subprocess.run(["sh", "-n"], input=parts[name], capture_output=True, text=True, check=False)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""), (stage, name))

    def test_they_build_from_what_they_take_along(self):
        # All that CMake reads without tests and benchmarks.
        read = set(re.findall(r"\$\{CMAKE_SOURCE_DIR\}/(\w+)", CMAKE)) - {"tests", "bench"}
        read |= set(re.findall(r"^add_\w+\([^)]*?(?:STATIC|dat_hpc) (\w+)/", CMAKE, flags=re.MULTILINE))
        read |= {"jobs", "CMakeLists.txt", "CMakePresets.json", "LICENSE", "CHANGELOG.md"}
        for name in ("dat_hpc", "dat_hpc_cuda"):
            build = self.stages[name, "build"]
            taken = {line.split()[0] for line in build["files"].strip().splitlines()}
            for file in taken:
                self.assertTrue((ROOT / file).exists(), file)
            self.assertLessEqual(read, taken)
            self.assertIn("bash jobs/install.sh deb\n", build["post"])
            self.assertLessEqual(set(re.findall(r"-D(\w+)=", build["post"])), SETTINGS)

    def test_what_is_nvidias_is_for_one_cuda(self):
        named = [name for stage in ("build", "final") for name in re.findall(r"\b(?:cuda-|lib)[\w*+=.-]*\d", self.stages["dat_hpc_cuda", stage]["post"])
                 if not name.startswith("cuda-keyring")]
        cuda = re.search(r"cuda-nvcc-(\d+)-(\d+)", " ".join(named))
        for name in named:
            self.assertTrue(name.endswith((f"-{cuda[1]}-{cuda[2]}", f"-cuda-{cuda[1]}", f"+cuda{cuda[1]}.{cuda[2]}")), name)
        self.assertEqual(len(named), 8)

    def test_their_preset_has_settings_of_cmake(self):
        self.assertLessEqual({name for name in PRESET["cacheVariables"] if not name.startswith("CMAKE_")}, SETTINGS)


if __name__ == "__main__":
    unittest.main(verbosity=2)
