"""Jobs of `covey bench` on several hosts, which coveyrun starts as users' jobs are started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from covey.bench.contest import Effort, Row
from covey.bench.job import Found, Work, rank_main
from covey.launch.spec import JobFailed

KINDS = ("latency", "allreduce", "step", "fusion", "model", "methods")
PEERS = ("gloo", "ddp")
"""Those that need no launcher of their own."""


class Where(NamedTuple):
    """The hosts of a job, as coveyrun takes them.

    Attributes:
        hosts: of -H.
        network: of --network; None: as coveyrun finds it.
        security: of --network-security.
    """

    hosts: str
    network: Optional[str] = None
    security: str = "tls"

    def options(self) -> List[str]:
        """Of coveyrun."""
        network = [] if self.network is None else ["--network", self.network]
        return ["-H", self.hosts, *network, "--network-security", self.security]


def last_line(where: Where, module: str, argument: Any) -> Any:
    """Runs a module on these hosts with its argument as JSON. Returns the last line that rank 0
    prints, which is JSON, too. Raises JobFailed."""
    with tempfile.TemporaryDirectory(prefix="covey-bench-") as folder:
        command = [sys.executable, "-m", "covey", "run", *where.options(), "--quiet"]
        command += ["--output-dir", folder, sys.executable, "-m", module, json.dumps(argument)]
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        )
        if ran.returncode != 0:
            raise JobFailed("the job on several hosts has failed", -1, ran.returncode)
        path = os.path.join(folder, "rank.0", "stdout")
        with open(path, encoding="utf-8") as file:
            return json.loads(file.read().splitlines()[-1])


def measure(work: Work, where: Where, peers: Sequence[str]) -> Found:
    """As job.measure, on these hosts. `peers`: of PEERS. Raises JobFailed."""
    found = last_line(where, __name__, {"work": asdict(work), "peers": list(peers)})
    return [Row(**row) for row in found["rows"]], found["versions"]


def _fields(row: Row) -> Dict[str, Any]:
    fields = asdict(row)
    return {name: value for name, value in fields.items() if not name.startswith("_")}


def main(argument: str) -> None:
    """A rank: prints what all have found, if it is the first."""
    import covey

    asked = json.loads(argument)
    fields = asked["work"]
    sizes: List[int] = fields["sizes"]
    fields.update(effort=Effort(**fields["effort"]), sizes=None if sizes is None else tuple(sizes))
    covey.init()
    is_first = covey.rank() == 0
    rows, versions = rank_main(Work(**fields), asked["peers"], None)
    if is_first:
        print(json.dumps({"rows": [_fields(row) for row in rows], "versions": versions}))


if __name__ == "__main__":
    main(sys.argv[1])
