"""How Open MPI runs ranks on a machine with fewer cores than ranks, as any user, root included. As a program it prints this
for a shell: eval "$(python3 tests/mpi_environment.py)"
"""

import functools
import tempfile
import threading

# Waiting ranks must not take the time of working ones; and containers often forbid reading another process's memory, of
# which Open MPI then complains with each message.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    # Looking for fabrics that a node has not is a fifth of the time that a small run takes.
    "OMPI_MCA_pml": "ob1",
}


LOCK = threading.Lock()


@functools.cache
def sessions():
    # What an mpirun removes itself may vanish in between.
    return tempfile.TemporaryDirectory(prefix="dat-mpirun-", ignore_cleanup_errors=True)


def own_session():
    """Where one mpirun keeps its files, for its environment: of two that begin or end at the same moment in the one place
    that Open MPI has for a user, the second may find that it is there, or gone (open-mpi/ompi issue 8510).
    """
    with LOCK:  # of two first calls at once, one would keep a folder that goes with the other call's
        folder = sessions().name
    return {"OMPI_MCA_orte_tmpdir_base": tempfile.mkdtemp(dir=folder)}


if __name__ == "__main__":
    print("export", *(f"{name}={value}" for name, value in MPI_ENVIRONMENT.items()))
