"""A training step of TensorFlow that is bound by communication: Covey's tape, and in turns with it
TensorFlow's own MultiWorkerMirroredStrategy and Covey's optimizer of PyTorch, on this machine.

    python tensorflow_peers.py --ranks 2 --model resnet50

Each process has the model's parameters as variables, and a loss whose gradient costs next to
nothing; a step is the gradient, its mean over the processes, and an update; with TensorFlow in one
tf.function.
Under Keras 3 the strategy runs in a loop of one's own only, so both are measured there.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List

COVEY, STRATEGY, TORCH = "covey", "MultiWorkerMirroredStrategy", "covey.torch"
RATE = 0.01
Shape = List[int]


def resnet(blocks: List[int], is_bottleneck: bool) -> List[Shape]:
    """The shapes of a residual network's parameters for 1,000 classes (He et al., 2016,
    doi:10.1109/CVPR.2016.90), normalisation's among them."""
    shapes = [[64, 3, 7, 7], [64], [64]]
    inputs, growth = 64, 4 if is_bottleneck else 1
    for width, count in zip((64, 128, 256, 512), blocks):
        outputs = width * growth
        for block in range(count):
            sizes = [(width, inputs, 1), (width, width, 3), (outputs, width, 1)]
            if not is_bottleneck:
                sizes = [(width, inputs, 3), (width, width, 3)]
            if block == 0 and inputs != outputs:
                sizes.append((outputs, inputs, 1))
            for to, of, size in sizes:
                shapes += [[to, of, size, size], [to], [to]]
            inputs = outputs
    return [*shapes, [1000, inputs], [1000]]


MODELS: Dict[str, Callable[[], List[Shape]]] = {
    "resnet50": lambda: resnet([3, 4, 6, 3], True),
    "resnet18": lambda: resnet([2, 2, 2, 2], False),
    "tiny": lambda: [[64, 64], [64]],
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Steps of TensorFlow, bound by communication.")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", choices=list(MODELS), default="resnet50")
    parser.add_argument("--steps", type=int, default=20, help="that are timed, in each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--in-job", choices=[COVEY, STRATEGY, TORCH], help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- In a process of a job ---------------------------------------------------------------------


def timed(arguments: argparse.Namespace) -> List[float]:
    """Seconds of each step, on this process."""
    make = torch_step if arguments.in_job == TORCH else tensorflow_step
    step = make(arguments)
    seconds = []
    for number in range(3 + arguments.steps):
        begun = time.perf_counter()
        step()
        if number >= 3:
            seconds.append(time.perf_counter() - begun)
    return seconds


def torch_step(arguments: argparse.Namespace) -> Callable[[], Any]:
    import torch

    import covey.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    shapes = MODELS[arguments.model]()
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    factors = [torch.randn(shape) for shape in shapes]
    named = [(str(number), parameter) for number, parameter in enumerate(parameters)]
    sgd = torch.optim.SGD(parameters, lr=RATE)
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=named)
    hvd.broadcast_parameters(dict(named), root_rank=0)

    def step() -> None:
        optimizer.zero_grad()
        sum((a * b).sum() for a, b in zip(parameters, factors)).backward()
        optimizer.step()

    return step


def tensorflow_step(arguments: argparse.Namespace) -> Callable[[], Any]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    shapes = MODELS[arguments.model]()
    is_covey = arguments.in_job == COVEY
    scope: Any = None
    if is_covey:
        import covey.tensorflow as hvd

        hvd.init()
    else:
        scope = tf.distribute.MultiWorkerMirroredStrategy()

    def made() -> List[Any]:
        return [tf.Variable(tf.ones(shape)) for shape in shapes]

    if is_covey:
        variables = made()
    else:
        with scope.scope():
            variables = made()
    factors = [tf.random.normal(shape) for shape in shapes]

    def gradients() -> List[Any]:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(variables, factors)])
        if is_covey:
            return list(hvd.DistributedGradientTape(tape).gradient(loss, variables))
        here = tf.distribute.get_replica_context()
        return list(here.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, variables)))

    def update() -> None:
        for variable, gradient in zip(variables, gradients()):
            variable.assign_sub(RATE * gradient)

    step: Callable[[], Any] = tf.function(update if is_covey else lambda: scope.run(update))
    return step


# ---- Turns -------------------------------------------------------------------------------------


def free_ports(count: int) -> List[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run(name: str, arguments: argparse.Namespace) -> List[float]:
    """Seconds of the steps of a job's first process."""
    settings = ["--model", arguments.model, "--steps", str(arguments.steps)]
    script = [sys.executable, os.path.abspath(__file__), *settings, "--in-job", name]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    if name != STRATEGY:
        launcher = [sys.executable, "-m", "covey.cli", "run", "-np", str(arguments.ranks)]
        jobs = [(launcher + script, environment)]
    else:
        workers = [f"127.0.0.1:{port}" for port in free_ports(arguments.ranks)]
        jobs = [
            (script, {**environment, "TF_CONFIG": json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            )})
            for index in range(arguments.ranks)
        ]  # fmt: skip
    running = [
        subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for command, env in jobs
    ]
    texts = [process.communicate()[0] for process in running]
    lines = [line.split("seconds ")[1] for line in texts[0].splitlines() if "seconds [" in line]
    if not lines or any(process.returncode != 0 for process in running):
        raise SystemExit(f"{name}: the job has failed")
    found: List[float] = json.loads(lines[0])
    return found


def main() -> None:
    arguments = parse_arguments()
    if arguments.in_job:
        seconds = timed(arguments)
        print(f"seconds {json.dumps(seconds)}", flush=True)
        return
    found: Dict[str, List[float]] = {COVEY: [], STRATEGY: [], TORCH: []}
    for _ in range(arguments.turns):
        for name, seconds in found.items():
            seconds += run(name, arguments)
    print(f"{arguments.model}, {arguments.ranks} processes, ms of a step (min / median):")
    for name, seconds in found.items():
        print(f"  {name:28} {1e3 * min(seconds):8.1f} / {1e3 * statistics.median(seconds):.1f}")
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    print(
        f"  steps per second: {medians[STRATEGY] / medians[COVEY]:.2f} times those of the strategy"
    )
    print(f"  a step takes {medians[COVEY] / medians[TORCH]:.2f} times that of {TORCH} (medians)")


if __name__ == "__main__":
    main()
