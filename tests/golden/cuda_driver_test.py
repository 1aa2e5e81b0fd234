"""Goal: what the plug-in cuda declares of the driver is what the toolkit's cuda.h declares.
Method: each function is called once through the one's type with values of the other's types, both
ways, and compiled as C with all warnings as errors; names and constants are compared. Skipped where
there is no cuda.h."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from typing import List

_ROOT = pathlib.Path(__file__).absolute().parents[2]
_SOURCE = _ROOT / "ops" / "devices" / "cuda"
# Ours -> the toolkit's.
_TYPES = {
    "CudaContext": "CUcontext",
    "CudaStream": "CUstream",
    "CudaEvent": "CUevent",
    "CudaAddress": "CUdeviceptr",
    "CudaModule": "CUmodule",
    "CudaFunction": "CUfunction",
}
_HANDLE = ("CudaIpcHandle", "CUipcMemHandle")
_CONSTANTS = {
    "kCudaSuccess": "CUDA_SUCCESS",
    "kCudaNotReady": "CUDA_ERROR_NOT_READY",
    "kCudaStreamNonBlocking": "CU_STREAM_NON_BLOCKING",
    "kCudaEventDisableTiming": "CU_EVENT_DISABLE_TIMING",
    "kCudaHostRegisterPortable": "CU_MEMHOSTREGISTER_PORTABLE",
    "kCudaIpcLazyEnablePeerAccess": "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS",
}


def _include() -> str:
    """The folder of cuda.h; empty: there is none."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        homes.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    found = [home for home in homes if home and os.path.exists(f"{home}/include/cuda.h")]
    return f"{found[0]}/include" if found else ""


def _check() -> str:
    """C that compiles if the declarations agree."""
    names = re.findall(r'^    "(cu\w+)",$', (_SOURCE / "driver.c").read_text("utf-8"), re.M)
    waiting, _, others = (
        (_SOURCE / "driver.h").read_text("utf-8").partition("typedef struct CudaDriver {")
    )
    members = [
        (path + name, parameters)
        for path, text in (("waiting.", waiting), ("", others))
        for name, parameters in re.findall(r"^  int \(\*(\w+)\)\(([^)]*)\);", text, re.M)
    ]
    assert len(names) == len(members) == 30, (names, members)
    lines = ["#include <cuda.h>", '#include "ops/devices/cuda/driver.h"']
    lines += [
        f'_Static_assert((int){ours} == (int){theirs}, "{ours}");'
        for ours, theirs in _CONSTANTS.items()
    ]
    for what in ("sizeof", "_Alignof"):
        lines.append(f'_Static_assert({what}({_HANDLE[0]}) == {what}({_HANDLE[1]}), "{what}");')
    lines.append("int Check(const CudaDriver* d) {\n  int failed = 0;")
    for name, (member, parameters) in zip(names, members):
        ours: List[str] = []
        theirs: List[str] = []
        for parameter in parameters.split(","):
            kind = re.sub(r"\w+$", "", parameter.strip()).strip()
            of_cuda = kind
            for own, other in _TYPES.items():
                of_cuda = of_cuda.replace(own, other)
            if _HANDLE[0] in kind:  # a struct of each side's own, as long as the other
                nothing = "0" if "*" in kind else "{{0}}"
                ours.append(f"({kind.replace(*_HANDLE)}){nothing}")
                theirs.append(f"({kind}){nothing}")
                continue
            ours.append(f"({kind})0")
            theirs.append(f"({of_cuda})0")
        lines.append(f"  failed |= (int){name}({', '.join(ours)});")
        lines.append(f"  failed |= d->{member}({', '.join(theirs)});")
    return "\n".join([*lines, "  return failed;", "}", ""])


@unittest.skipUnless(_include(), "skipped: no CUDA toolkit")
class CudaDriverTest(unittest.TestCase):
    def compile(self, text: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "check.c")
            source.write_text(text, encoding="utf-8")
            flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
            return subprocess.run(
                ["gcc", *flags, f"-isystem{_include()}", f"-I{_ROOT}", str(source)],
                capture_output=True,
                text=True,
                check=False,
            )

    def test_every_function_is_as_declared(self) -> None:
        done = self.compile(_check())
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_wrong_declaration_is_seen(self) -> None:
        wrong = _check().replace("cuEventRecord((CudaEvent)0", "cuEventRecord((CudaStream)0")
        self.assertNotEqual(wrong, _check())
        self.assertNotEqual(self.compile(wrong).returncode, 0)

    def test_names_are_those_the_header_uses(self) -> None:
        """cuda.h gives a name of today the version it means: cuCtxPushCurrent -> ..._v2."""
        header = pathlib.Path(_include(), "cuda.h").read_text(encoding="utf-8", errors="replace")
        define = re.compile(r"^\s*#\s*define\s+(cu\w+)\s+(?:\w+\()?(cu\w+)\)?\s*$", re.M)
        means = dict(define.findall(header))
        text = (_SOURCE / "driver.c").read_text(encoding="utf-8")
        for name in re.findall(r'^    "(cu\w+)",$', text, re.M):
            plain = re.sub(r"_v\d+$", "", name)
            self.assertEqual(name, means.get(plain, plain))


if __name__ == "__main__":
    unittest.main()
