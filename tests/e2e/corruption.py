"""A bit that flips in the memory of a running rank is found, blamed on it, and ends the run or is repaired."""

import glob
import os
import signal

import common

# The rate is so small that no weight moves: what the first checkpoint has can be looked for in the ranks' memory.
OPTIONS = ["train", "--network", "small_cnn", "--width", "16", "--attack-steps", "2", "--eval", "pgd1", "--limit-train",
           "64", "--limit-test", "16", "--batch", "8", "--epochs", "100000", "--warmup-epochs", "0", "--milestones", "99999",
           "--eval-every", "0", "--optimizer", "sgd", "--threads", "1", "--quiet", "--check-every", "10",
           "--checkpoint-every", "7"]
STILL = [*OPTIONS, "--lr", "1e-30", "--out", "run"]


def flip_weight(pid):
    """Flips a bit of a weight wherever the process has it, while it is stopped. How often that was."""
    pattern = common.datasets(sorted(glob.glob("run/ckpt/step-*.h5"))[0])["param/linear.weight"].tobytes()[:256]
    found = 0
    os.kill(pid, signal.SIGSTOP)
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb+", buffering=0) as memory:
            for line in maps:
                place, rights, _, _, inode = line.split()[:5]
                begin, end = (int(word, 16) for word in place.split("-"))
                if rights != "rw-p" or inode != "0" or end - begin > 1 << 29:
                    continue
                try:
                    memory.seek(begin)
                    content = memory.read(end - begin)
                except OSError:
                    continue
                at = content.find(pattern)
                while at >= 0:
                    memory.seek(begin + at)
                    memory.write(bytes([content[at] ^ 1]))
                    found += 1
                    at = content.find(pattern, at + 1)
    finally:
        os.kill(pid, signal.SIGCONT)
    return found


class Corruption(common.TestCase):
    def flipped(self, *arguments, rank=1, ranks=3):
        running = common.Running([*STILL, *arguments], ranks)
        self.addCleanup(running.end)
        self.assertTrue(running.wait_for(lambda: "latest" in common.entries("run/ckpt") and len(running.ranks()) == ranks),
                        running.text())
        self.assertGreater(flip_weight(running.ranks()[rank]), 0)
        return running.wait()

    def test_abort(self):
        self.expect_error(8, r"error: silent corruption: after step \d+, rank 1 on \S+ holds other weights than most of the 3 ranks; the "
                             r"last checkpoint is good", self.flipped())
        # It is: the run goes on from it.
        self.run_well(*STILL, "--max-steps", common.steps_written("run") + 20, ranks=3)

    def test_two_ranks(self):
        ended = self.expect(8, self.flipped("--on-corruption", "repair", ranks=2))
        self.assertRegex(ended.errors[0], r"rank 0 on \S+ and rank 1 on \S+ hold different weights, and no majority")

    def test_repair(self):
        ended = self.expect(0, self.flipped("--on-corruption", "repair", "--max-steps", 600, rank=0))
        rows = common.rows("run", "corruption")
        self.assertEqual([(row["rank"], row["what"], row["done"]) for row in rows], [(0, "weights", "copied from rank 1")])
        self.assertRegex("\n".join(ended.warnings), r"silent corruption: after step \d+, rank 0 on \S+ held other weights")
        self.assertRegex(common.text_of("run/SUMMARY.txt"),
                         r"(?m)^corruption +1 of 1: step \d+, rank 0, weights; copied from rank 1$")

    def test_verify(self):
        """Recomputed micro-batches change nothing, and one rank is warned that there is no other."""
        for name, options in ("plain", []), ("verified", ["--verify", "3"]):
            self.run_well(*OPTIONS, "--lr", "0.01", "--max-steps", "10", "--out", name, *options, ranks=2)
        self.assert_same(common.state("plain"), common.state("verified"))
        ended = self.run_well(*STILL, "--max-steps", "3", "--verify", "1", ranks=1)
        self.assertRegex("\n".join(ended.warnings), "--verify has no other rank")


if __name__ == "__main__":
    common.main()
