"""Goal: under Keras's fit() a rank that is stopped holds up the others once, for max_wait, and one
that is killed not at all, with --keep-going; the job's table tells of both, and of delays.
Method: a job in which one rank stops itself until the others have gone on, and another one ends."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest

from harness import TENSORFLOW, WHY_NO_TENSORFLOW, run_launcher, with_operations

SCRIPT = """
import os, pathlib, signal, sys, hashlib
import keras, numpy
import covey.keras as hvd

hvd.init()
rank, stopped = hvd.rank(), pathlib.Path(sys.argv[1])
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)


def is_stopped(process):
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(") ")[2][0] == "T"


class Faults(keras.callbacks.Callback):
    after = 0  # Steps since rank 3 is about to stop itself.

    def on_train_batch_end(self, batch, logs=None):
        if rank == 3 and batch == 5:
            partial = stopped.with_suffix(".part")
            partial.write_text(str(os.getpid()))
            partial.rename(stopped)
            os.kill(os.getpid(), signal.SIGSTOP)
        if rank == 0 and stopped.exists():
            self.after += 1
            if self.after == 20:
                process = int(stopped.read_text())
                while not is_stopped(process):
                    pass
                os.kill(process, signal.SIGCONT)
        if rank == 2 and batch == 60:
            os.kill(os.getpid(), signal.SIGKILL)


faults = Faults()
inputs = numpy.random.default_rng(rank).standard_normal((640, 4)).astype("float32")
model.fit(inputs, inputs.sum(1, keepdims=True), batch_size=8, verbose=0, callbacks=[faults])
digest = hashlib.sha256(b"".join(it.numpy().tobytes() for it in model.variables)).hexdigest()
print("end", rank, faults.after, digest[:12], flush=True)
"""


@unittest.skipUnless(TENSORFLOW, WHY_NO_TENSORFLOW)
class KerasFaultsTest(unittest.TestCase):
    def test_a_stopped_and_a_killed_rank(self) -> None:
        env = {"COVEY_PRELOAD": "tensorflow", **with_operations()}
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(SCRIPT)
            how = ["--keep-going", "--method", "eager:admit=all,max_wait=200ms",
                   "--inject", "delay:1ms@rank1"]
            command = ["-np", "4", *how, sys.executable, script, os.path.join(folder, "stopped")]
            code, out, err = run_launcher(command, env=env)
        self.assertEqual(code, 0, err)
        ends = [line.split("end ")[1].split() for line in out if " end " in f" {line}"]
        self.assertEqual(sorted(rank for rank, _, _ in ends), ["0", "1", "3"], out)
        steps = {rank: int(after) for rank, after, _ in ends}
        self.assertGreaterEqual(steps["0"], 20, "steps of rank 0 while rank 3 was stopped")
        models = {rank: model for rank, _, model in ends}
        self.assertEqual(models["0"], models["1"])
        lines = [line for line in err if line.startswith("coveyrun: ")]
        header = next(line for line in lines if " overdue" in line)
        self.assertIn("injected s", header)
        rows = {row[1]: row for row in map(str.split, lines) if row[1].isdigit()}
        self.assertEqual(sorted(rows), ["0", "1", "3"], lines)
        self.assertEqual({row[2] for row in rows.values()}, {"80"}, "steps")
        self.assertTrue(any("rank 2: killed by SIGKILL" in line for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
