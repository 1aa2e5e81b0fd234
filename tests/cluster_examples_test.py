"""Goal: examples/kubernetes and examples/slurm train as their READMEs say. Method: a pod's command
runs on a host of tools/cluster with the environment that Kubernetes makes of job.yaml; sbatch runs
the scripts on such hosts where Slurm is installed."""

from __future__ import annotations

import os
import pathlib
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, List, Tuple

import yaml
from cluster_hosts_test import Hosts
from cluster_test import _CLUSTER, _LIMIT_S, _ROOT, need, until

_KUBERNETES = _ROOT / "examples" / "kubernetes"
_SLURM = _ROOT / "examples" / "slurm"
_SCRIPT = str(_ROOT / "examples" / "pytorch_minimal.py")
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_SLURM_TOOLS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol")
_PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
_CONF = """
ClusterName=test
SlurmctldHost=a
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/dev/shm/slurmctld
SlurmdSpoolDir=/dev/shm/slurmd
SlurmctldPidFile=/dev/shm/slurmctld.pid
SlurmdPidFile=/dev/shm/slurmd.pid
SlurmctldLogFile=/dev/shm/slurmctld.log
SlurmdLogFile=/dev/shm/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
NodeName=a,b CPUs=2
PartitionName=all Nodes=a,b Default=YES
"""


class Manifest(unittest.TestCase):
    """job.yaml, read."""

    def setUp(self) -> None:
        text = (_KUBERNETES / "job.yaml").read_text(encoding="utf-8")
        self.service, self.job = yaml.safe_load_all(text)
        self.pod = self.job["spec"]["template"]["spec"]
        (self.container,) = self.pod["containers"]

    def environment(self, index: int) -> Dict[str, str]:
        """The environment of a pod, as Kubernetes makes it."""
        limits = self.container["resources"]["limits"]
        found = {"JOB_COMPLETION_INDEX": str(index)}
        for one in self.container["env"]:
            source = one.get("valueFrom", {})
            if "fieldRef" in source:
                self.assertEqual(source["fieldRef"]["fieldPath"], _INDEX)
                found[one["name"]] = str(index)
            elif "resourceFieldRef" in source:
                kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
                self.assertEqual(kind, "limits")
                found[one["name"]] = limits[name]
            else:
                found[one["name"]] = one["value"]
        return found


class ManifestTest(Manifest):
    def test_names_agree(self) -> None:
        service, job = (it["metadata"]["name"] for it in (self.service, self.job))
        self.assertEqual(self.service["spec"]["clusterIP"], "None")
        self.assertEqual(self.service["spec"]["selector"], {"job-name": job})
        self.assertEqual(self.pod["subdomain"], service)
        said = {one["name"]: one.get("value") for one in self.container["env"]}
        self.assertEqual(said["MASTER_ADDR"], f"{job}-0.{service}")
        spec = self.job["spec"]
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual({spec["completions"], spec["parallelism"]}, {int(said["WORLD_SIZE"])})
        self.assertEqual((spec["backoffLimit"], self.pod["restartPolicy"]), (0, "Never"))
        self.assertEqual(self.container["resources"]["requests"],
                         self.container["resources"]["limits"])

    def test_the_key_is_a_file_for_one_user(self) -> None:
        mounts = {one["name"]: one for one in self.container["volumeMounts"]}
        volumes = {one["name"]: one for one in self.pod["volumes"]}
        self.assertEqual(set(mounts), set(volumes))
        said = {one["name"]: one.get("value") for one in self.container["env"]}
        self.assertEqual(mounts["key"]["mountPath"], said["COVEY_SECRET_FILE"])
        self.assertEqual(volumes["key"]["secret"]["defaultMode"], 0o400)
        made = f"generic {volumes['key']['secret']['secretName']} "
        made += f"--from-literal={mounts['key']['subPath']}="
        self.assertIn(made, (_KUBERNETES / "README.md").read_text(encoding="utf-8"))

    def test_the_image_has_what_the_command_needs(self) -> None:
        lines = (_KUBERNETES / "Dockerfile").read_text(encoding="utf-8").splitlines()
        steps = [line.split() for line in lines]
        self.assertEqual([step[0] for step in steps], ["FROM", "COPY", "RUN", "COPY"])
        copied = {words[-1]: words[1:-1] for words in steps if words[0] == "COPY"}
        self.assertEqual(copied[self.container["command"][-1]], [pathlib.Path(_SCRIPT).name])
        readme = (_KUBERNETES / "README.md").read_text(encoding="utf-8")
        self.assertIn(f"cp ../{pathlib.Path(_SCRIPT).name} ../../bazel-bin/wheel/covey-", readme)
        self.assertIn(f"--tag {self.container['image']} ", readme)


class PodsTest(Hosts, Manifest):
    """The pods of job.yaml as hosts: a is pod 0."""

    HOSTS = "2"

    def setUp(self) -> None:
        need()
        Manifest.setUp(self)

    def train(self) -> List[Tuple[int, str]]:
        """Exit code and output of each pod."""
        place = {"/app/train.py": _SCRIPT, "python": sys.executable}
        command = [place.get(word, word) for word in self.container["command"]]
        key, pods = secrets.token_hex(32), []
        with tempfile.TemporaryDirectory() as folder:
            for index, host in enumerate("ab"):
                env = self.environment(index)
                env["MASTER_ADDR"] = "a"  # By the DNS of the Service.
                env["COVEY_SECRET_FILE"] = f"{folder}/key-{index}"
                pathlib.Path(env["COVEY_SECRET_FILE"]).write_text(key, encoding="ascii")
                os.chmod(env["COVEY_SECRET_FILE"], 0o400)
                words = [sys.executable, _CLUSTER, "exec", host, *command]
                pods.append(subprocess.Popen(
                    words, env={**self.env, **env}, text=True, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            said = [pod.communicate(timeout=_LIMIT_S)[0] for pod in pods]
        return [(pod.returncode, text) for pod, text in zip(pods, said)]

    def test_the_job_trains(self) -> None:
        ends = self.train()
        self.assertEqual([code for code, _ in ends], [0, 0], ends)
        for rank, (_, said) in enumerate(ends):
            self.assertRegex(said, rf"rank {rank} of 2: loss 0\.0\d+, weight 8\.")


def _has_slurm() -> bool:
    return all(shutil.which(tool, path=_PATH) for tool in _SLURM_TOOLS)


@unittest.skipIf(os.geteuid(), "the daemons of Slurm are root's here")
@unittest.skipUnless(_has_slurm(), "there is no Slurm (slurm-wlm)")
class SlurmTest(Hosts):
    """Hosts a and b as nodes of Slurm."""

    HOSTS = "2"

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.folder = tempfile.mkdtemp(prefix="covey")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for name, words in (
            ("python", ""), ("torchrun", "-m torch.distributed.run"),
            ("covey", "-m covey.cli"), ("coveyrun", "-m covey.cli run"),
        ):
            path = pathlib.Path(cls.folder, name)
            path.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n', encoding="utf-8")
            path.chmod(0o755)
        conf = pathlib.Path(cls.folder, "slurm.conf")
        conf.write_text(_CONF, encoding="ascii")
        path = os.pathsep.join([cls.folder, _PATH])
        # Nodes that are namespaces of one machine share its /tmp.
        own = {"TMPDIR": "/dev/shm", "SLURM_PMIX_TMPDIR": "/dev/shm"}
        cls.env = {**cls.env, **own, "PATH": path, "SLURM_CONF": str(conf)}
        make = "mkdir /dev/shm/slurmctld /dev/shm/slurmd && slurmd -N $(hostname)"
        for host, command in (("a", f"{make} && slurmctld"), ("b", make)):
            words = [sys.executable, _CLUSTER, "exec", host, "sh", "-c", command]
            subprocess.run(words, env=cls.env, check=True, timeout=_LIMIT_S)

    def train(self, script: str, **env: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            env["COVEY_SECRET_FILE"] = f"{folder}/key"
            pathlib.Path(env["COVEY_SECRET_FILE"]).write_text(secrets.token_hex(32), "ascii")
            os.chmod(env["COVEY_SECRET_FILE"], 0o400)
            number = self.on_a(f"sbatch --parsable -o {log} {script} {_SCRIPT}", **env).strip()
            until(lambda: not self.on_a(f"squeue --noheader --jobs {number}"), f"{script} ends")
            said = log.read_text(encoding="utf-8")
        # torchrun's ranks share a stream: a line's end may come behind the next line.
        ends = {int(rank): weight for rank, weight in re.findall(
            r"rank (\d) of 4: loss 0\.0\d+, weight (\d+\.\d{4})", said)}
        self.assertEqual((sorted(ends), len({*ends.values()})), ([0, 1, 2, 3], 1), said)
        self.assertIn("JobState=COMPLETED", self.on_a(f"scontrol show job {number}"))

    def on_a(self, command: str, **env: str) -> str:
        words = [sys.executable, _CLUSTER, "exec", "a", *shlex.split(command)]
        ran = subprocess.run(words, env={**self.env, **env}, cwd=_SLURM, text=True, check=False,
                             timeout=_LIMIT_S, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        return ran.stdout

    def test_a_store(self) -> None:
        self.train("store.sbatch")

    def test_torchrun(self) -> None:
        self.train("torchrun.sbatch")

    def test_coveyrun(self) -> None:
        self.train("coveyrun.sbatch")

    @unittest.skipUnless(shutil.which("mpicc"), "there is no mpicc")
    def test_mpi(self) -> None:
        build = [sys.executable, "-m", "covey.cli", "build", "mpi", "--out", self.folder]
        subprocess.run(build, env=self.env, check=True, timeout=_LIMIT_S, capture_output=True)
        self.train("mpi.sbatch", COVEY_PLUGIN_PATH=self.folder, OMPI_MCA_btl="self,tcp")


if __name__ == "__main__":
    unittest.main()
