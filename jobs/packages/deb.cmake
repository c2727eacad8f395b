# Packages of what `cmake --install` installs. `cmake --workflow --preset deb` makes Debian's, build/deb/dat-hpc_VERSION_
# ARCHITECTURE.deb; `cpack -G TGZ` an archive that can be unpacked anywhere. CMakeLists.txt includes this file, and cpack
# once more, before it packs.
if(CPACK_TEMPORARY_DIRECTORY)
  if(NOT CPACK_GENERATOR STREQUAL DEB)
    return()
  endif()
  # What Debian wants otherwise than other systems: its own words on the licence, and texts packed.
  set(share ${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share)
  file(REMOVE_RECURSE ${share}/doc)
  file(MAKE_DIRECTORY ${share}/doc/dat-hpc)
  file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/copyright ${share}/doc/dat-hpc/copyright)
  file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/../../CHANGELOG.md ${share}/doc/dat-hpc/changelog)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${share}/doc/dat-hpc/changelog.Debian "dat-hpc (${CPACK_PACKAGE_VERSION}-1) unstable; urgency=medium\n\n\
  * What the sources say in changelog.gz.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  file(GLOB texts ${share}/doc/dat-hpc/changelog* ${share}/man/man*/*.[1-9])
  execute_process(COMMAND gzip --best --no-name ${texts} COMMAND_ERROR_IS_FATAL ANY)
  return()
endif()

set(CPACK_PACKAGE_NAME dat-hpc)  # names of Debian know no underscore
set(CPACK_PACKAGE_CONTACT "whoever built it <root@localhost>" CACHE STRING "Maintainer of the Debian package")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed adversarial training of image classifiers")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Trains networks that withstand adversarial attacks, on any number of MPI ranks,
on CPUs that have AVX2 and, if built for them, on NVIDIA GPUs; measures and
certifies what the networks withstand.")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS gnuplot-nox)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "environment-modules | lmod, python3, slurm-client")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_FILE})
include(CPack)
