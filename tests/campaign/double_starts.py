"""Two starts of one run at random moments, the second one killed soon after the first has ended: double_starts.py PROGRAM [N]

After each of the N pairs (30), all checkpoints that a single start leaves must be there, and after a third start the record
must be the single start's, line by line. Offsets are drawn with a fixed seed, but what they meet depends on the machine. The
exit code is 1 where something was lost or doubled.
"""

import os
import random
import signal
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import common

OPTIONS = ("--network small_cnn --width 16 --attack-steps 2 --eval pgd2 --limit-train 64 --limit-test 32 --batch 8 --epochs 30 "
           "--warmup-epochs 0 --eval-every 5 --threads 1 --checkpoint-every 7 --quiet").split()


def start(folder):
    return common.Running(["train", *OPTIONS, "--out", folder], 2)


def record(folder):
    return [(row["kind"], row.get("step")) for row in common.rows(folder) if row["kind"] != "ranks"]  # one for each part of a run


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    drawn, bad, waited = random.Random(7), 0, 0
    with tempfile.TemporaryDirectory() as top:
        os.chdir(top)
        begin = time.monotonic()
        start("alone").wait()
        length = time.monotonic() - begin
        expected, checkpoints = record("alone"), set(os.listdir("alone/ckpt"))
        for pair in range(pairs):
            folder = f"pair-{pair}"
            first = start(folder)
            time.sleep(drawn.random() * length)
            second = start(folder)
            first.wait()
            time.sleep(drawn.random() * length / 2)
            os.killpg(second.process.pid, signal.SIGKILL)
            waited += "waiting for its end" in second.wait().text
            time.sleep(0.3)  # mpirun's children are killed one after the other
            lost = checkpoints - set(os.listdir(f"{folder}/ckpt"))
            third = start(folder).wait()
            after = set(os.listdir(f"{folder}/ckpt"))
            if lost or third.code != 0 or after != checkpoints or record(folder) != expected:
                bad += 1
                print(f"pair {pair}: lost {sorted(lost)}, then {sorted(after)}, exit code {third.code}")
    print(f"{pairs} double starts, {bad} bad; the second one has waited in {waited}")
    sys.exit(bad > 0)


main()
