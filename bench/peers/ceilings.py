"""What a GPU can do at most, measured with PyTorch: one line of JSON for each ceiling.

    gemm_*             8192^3 matrix product of random data: TFLOP/s
    copy               one array to another: GB/s, bytes read and written both counted
    launch_eager       small kernels one by one from Python: microseconds each
    launch_graph       the same in a CUDA graph of 1000

The median of some repeats, and the best. GEMMs are warmed up for a second, so that clocks are those of long work.
"""

import argparse
import json
import statistics
import sys
import time

import torch

kGemms = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "f32": torch.float32}
kTolerance = {"f16": 2e-3, "bf16": 2e-2, "tf32": 2e-3, "f32": 1e-5}
kLaunches = 1000


class Clock:
    def __init__(self, device):
        self.wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def seconds(self, work, repeat, times):
        """Of one call, for each repeat; each repeat calls `times` times."""
        results = []
        for _ in range(repeat):
            self.wait()
            begin = time.perf_counter()
            for _ in range(times):
                work()
            self.wait()
            results.append((time.perf_counter() - begin) / times)
        return results

    def warm_up(self, work, seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            work()
            self.wait()


def gemm(name, device, n):
    """A product of random matrices, checked on its first rows."""
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    a, b = (torch.randn(n, n, device=device).to(kGemms[name]) for _ in range(2))
    out = torch.empty_like(a)
    torch.matmul(a, b, out=out)
    exact = a[:4].double() @ b.double()
    error = float((out[:4].double() - exact).norm() / exact.norm())
    if not error < kTolerance[name]:
        sys.exit(f"ceilings.py: the {name} product is wrong: relative error {error:.1e}")
    return lambda: torch.matmul(a, b, out=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=8192, help="rows of the matrices")
    parser.add_argument("--megabytes", type=int, default=2048, help="of the array that is copied")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    if cuda and not torch.cuda.is_available():
        sys.exit("ceilings.py: PyTorch finds no CUDA device here; --device cpu tests the script without one")
    about = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
    }
    clock, n, repeat = Clock(device), arguments.size, arguments.repeat

    def report(name, unit, values, best):
        line = {"ceiling": name, "median": round(statistics.median(values), 3), "best": round(best(values), 3)}
        print(json.dumps({**line, "unit": unit, **about}), flush=True)

    for name in kGemms:
        try:
            work = gemm(name, device, n)
        except RuntimeError as error:
            print(json.dumps({"ceiling": f"gemm_{name}_{n}", "skipped": str(error)}), flush=True)
            continue
        clock.warm_up(work, 1 if cuda else 0.01)
        times = clock.seconds(work, repeat, 10)
        report(f"gemm_{name}_{n}", "TFLOP/s", [2 * n**3 / t / 1e12 for t in times], max)

    source = torch.randint(256, (arguments.megabytes << 20,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    clock.warm_up(lambda: target.copy_(source), 0.1)
    times = clock.seconds(lambda: target.copy_(source), repeat, 10)
    report("copy", "GB/s", [2 * source.numel() / t / 1e9 for t in times], max)

    one = torch.zeros(1, device=device)
    clock.warm_up(lambda: one.add_(1), 0.1)
    times = clock.seconds(lambda: one.add_(1), repeat, kLaunches)
    report("launch_eager", "us", [1e6 * t for t in times], min)
    if not cuda:
        print(json.dumps({"ceiling": "launch_graph", "skipped": "needs CUDA"}))
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kLaunches):
            one.add_(1)
    graph.replay()
    times = clock.seconds(graph.replay, repeat, 10)
    report("launch_graph", "us", [1e6 * t / kLaunches for t in times], min)


if __name__ == "__main__":
    main()
