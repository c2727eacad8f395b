"""PyTorch's own convolutions of ResNet-18, each shape alone, with the algorithms that its benchmark mode chooses: one line
of JSON for each shape, under the names of bench_layers' rows.

Forward pass with bias, and input gradient, channels_last. Some calls are one CUDA graph, so that nobody waits for the
host. The 3-channel images are padded to 8 channels, as tensor cores want them; rates count 3. Before it is timed, each
result is compared with float32's on the same numbers: the last rounding of bf16 is 2^-8 relative at most, and twice that
is allowed to all, since some algorithms round on the way, too (Winograd's). --names adds the kernels' names, as PyTorch's
profiler has them.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

kTypes = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
kAllowed = 2.0**-7
kCalls, kWarmUp = 10, 0.3  # calls in a graph; seconds


def shapes(width):
    """(c_in, c_out, kernel, stride, size of the map) of each shape, and how often the network has it."""
    counts = {(3, width, 3, 1, 32): 1}
    c_in, size = width, 32
    for stage in range(4):
        c_out = width << stage
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            found = [(c_in, c_out, 3, stride, size), (c_out, c_out, 3, 1, size // stride)]
            found += [(c_in, c_out, 1, stride, size)] if stride > 1 else []
            for shape in found:
                counts[shape] = counts.get(shape, 0) + 1
            c_in, size = c_out, size // stride
    return counts


class Convolution:
    def __init__(self, shape, batch, dtype, device):
        c_in, c_out, kernel, stride, size = shape
        padded = 8 if c_in == 3 else c_in
        generator = torch.Generator(device).manual_seed(1)

        def draw(*shape):
            drawn = torch.rand(*shape, generator=generator, device=device) - 0.5
            return drawn.to(dtype).contiguous(memory_format=torch.channels_last) if len(shape) == 4 else drawn.to(dtype)

        self.x, self.w, self.bias = draw(batch, padded, size, size), draw(c_out, padded, kernel, kernel), draw(c_out)
        self.dy = draw(batch, c_out, size // stride, size // stride)
        self.options = [stride, stride], [kernel // 2, kernel // 2], [1, 1], False, [0, 0], 1

    def forward(self, x, w, bias):
        return F.conv2d(x, w, bias, self.options[0], self.options[1])

    def gradient(self, dy, x, w):
        return torch.ops.aten.convolution_backward(dy, x, w, None, *self.options, [True, False, False])[0]

    def passes(self):
        yield "frozen_forward", lambda: self.forward(self.x, self.w, self.bias)
        yield "frozen_input_gradient", lambda: self.gradient(self.dy, self.x, self.w)

    def errors(self):
        """Relative to float32 on some images: forward, input gradient."""
        x, dy, w, bias = self.x[:4].float(), self.dy[:4].float(), self.w.float(), self.bias.float()
        pairs = (
            (self.forward(self.x, self.w, self.bias)[:4], self.forward(x, w, bias)),
            (self.gradient(self.dy, self.x, self.w)[:4], self.gradient(dy, x, w)),
        )
        return [float((found.float() - wanted).norm() / wanted.norm()) for found, wanted in pairs]


def milliseconds(work, device, repeat):
    """Of one call: the median."""
    if device.type != "cuda":
        times = []
        for _ in range(repeat):
            begin = time.perf_counter()
            work()
            times.append(1000 * (time.perf_counter() - begin))
        return statistics.median(times)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # chooses the algorithm
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kCalls):
            work()
    end = time.perf_counter() + kWarmUp
    while time.perf_counter() < end:
        graph.replay()
        torch.cuda.synchronize()
    times = []
    for _ in range(repeat):
        begin, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        done.record()
        done.synchronize()
        times.append(begin.elapsed_time(done) / kCalls)
    return statistics.median(times)


def kernels(work, device):
    """Names of the kernels of one call, the longest first."""
    if device.type != "cuda":
        return []
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        work()
        torch.cuda.synchronize()
    found = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return [event.name for event in sorted(found, key=lambda event: -event.time_range.elapsed_us())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", default="f16", choices=list(kTypes))
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("convolutions.py: PyTorch finds no CUDA device here; --device cpu tests the script without one")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    about = {"batch": arguments.batch, "precision": arguments.precision, "torch": torch.__version__}
    about["cudnn"] = torch.backends.cudnn.version()
    for shape, count in shapes(arguments.width).items():
        c_in, c_out, kernel, stride, size = shape
        convolution = Convolution(shape, arguments.batch, kTypes[arguments.precision], device)
        macs = arguments.batch * c_in * c_out * kernel**2 * (size // stride) ** 2
        line = {"row": f"{c_in}-{c_out} {kernel}x{kernel}/{stride} @{size}", "count": count, "gmac": 1e-9 * macs}
        for (name, work), error in zip(convolution.passes(), convolution.errors()):
            if not error <= kAllowed:
                sys.exit(f"convolutions.py: {line['row']}, {name} is wrong: relative error {error:.1e}")
            ms = milliseconds(work, device, arguments.repeat)
            line[name] = {"ms": ms, "tflops": 2e-9 * macs / ms}
            if arguments.names:
                line[name]["kernels"] = kernels(work, device)
        print(json.dumps({**line, **about}), flush=True)


if __name__ == "__main__":
    main()
