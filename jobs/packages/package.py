"""Spack package of dat_hpc, for Spack 1.0 or newer: copy it to packages/dat_hpc/package.py of a repository of yours,
then, in the folder of the sources, `spack dev-build dat-hpc@0.1.0` (a GPU: `dat-hpc@0.1.0 +cuda cuda_arch=80`)."""

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class DatHpc(CMakePackage, CudaPackage):
    """Distributed adversarial training of image classifiers, on CPUs with oneDNN and on NVIDIA GPUs with cuDNN."""

    license("Apache-2.0")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10:~mpi")
    depends_on("onednn@2.6:")
    depends_on("cli11@2.1:2")
    depends_on("nlohmann-json@3:")
    depends_on("fmt@9:")
    depends_on("openssl")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("libjpeg-turbo@1.5:")
    depends_on("libpng@1.6:")
    depends_on("libarchive@3.4:")
    depends_on("gnuplot", type="run")
    depends_on("catch2", type="test")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cudnn@8.9:9", when="+cuda")

    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs, e.g. cuda_arch=80")

    def cmake_args(self):
        args = [
            self.define_from_variant("DAT_CUDA", "cuda"),
            self.define("DAT_BENCH", False),
            self.define("DAT_WERROR", False),
            self.define("DAT_ARCH", ""),  # Spack's compilers add the target's flags themselves
            self.define("BUILD_TESTING", self.run_tests),
        ]
        if "+cuda" in self.spec:
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args
