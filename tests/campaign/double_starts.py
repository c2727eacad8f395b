"""Two starts of one run at random moments, the second one killed soon after the first has ended: double_starts.py PROGRAM [N]

After each of the N pairs (30), all checkpoints that a single start leaves must be there, and after a third start the record
must be the single start's, line by line. Offsets are drawn with a fixed seed, but what they meet depends on the machine. The
exit code is 1 where something was lost or doubled.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from mpi_environment import MPI_ENVIRONMENT, own_session

OPTIONS = ("--network small_cnn --width 16 --attack-steps 2 --eval pgd2 --limit-train 64 --limit-test 32 --batch 8 --epochs 30 "
           "--warmup-epochs 0 --eval-every 5 --threads 1 --checkpoint-every 7 --quiet").split()


def start(program, folder):
    command = ["mpirun", "-np", "2", program, "train", *OPTIONS, "--out", folder]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True,
                            env=os.environ | own_session())


def record(folder):
    with open(f"{folder}/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    return [(line["kind"], line.get("step")) for line in lines if line["kind"] != "ranks"]  # one for each part of a run


def main():
    program, pairs = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30
    os.environ.update(MPI_ENVIRONMENT)
    drawn, bad, waited = random.Random(7), 0, 0
    with tempfile.TemporaryDirectory() as top:
        begin = time.monotonic()
        start(program, f"{top}/alone").communicate()
        length = time.monotonic() - begin
        expected, checkpoints = record(f"{top}/alone"), set(os.listdir(f"{top}/alone/ckpt"))
        for pair in range(pairs):
            folder = f"{top}/{pair}"
            first = start(program, folder)
            time.sleep(drawn.random() * length)
            second = start(program, folder)
            first.communicate()
            time.sleep(drawn.random() * length / 2)
            os.killpg(second.pid, signal.SIGKILL)
            waited += "waiting for its end" in second.communicate()[0]
            time.sleep(0.3)  # mpirun's children are killed one after the other
            lost = checkpoints - set(os.listdir(f"{folder}/ckpt"))
            third = start(program, folder)
            third.communicate()
            after = set(os.listdir(f"{folder}/ckpt"))
            if lost or third.returncode != 0 or after != checkpoints or record(folder) != expected:
                bad += 1
                print(f"pair {pair}: lost {sorted(lost)}, then {sorted(after)}, exit code {third.returncode}")
    print(f"{pairs} double starts, {bad} bad; the second one has waited in {waited}")
    sys.exit(bad > 0)


main()
