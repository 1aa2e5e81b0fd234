"""A function in a process of its own, for namespaces that a process cannot leave again."""

from __future__ import annotations

import json
import os
from typing import Callable, Optional

from lab.refusal import Refused


def refusal_of(function: Callable[[], None]) -> Optional[Refused]:
    """Runs the function in a child. None, or why it failed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            function()
        except (Refused, OSError) as error:
            os.write(write, json.dumps([str(error), getattr(error, "status", 1)]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as report:
        said = report.read()
    os.waitpid(child, 0)
    return Refused(*json.loads(said)) if said else None
