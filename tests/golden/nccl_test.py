"""Goal: what ops/devices/cuda/nccl.h declares of NCCL is what its header has.
Method: where there is an nccl.h (NCCL_HOME, the system's, PyPI's wheel) and a toolkit, a C compiler
reads both: constants are asserted, and each function is called with what the other declares. Else
`skipped: no NCCL`. Nothing runs."""

from __future__ import annotations

import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from typing import List

_ROOT = pathlib.Path(__file__).absolute().parents[2]
_SOURCE = _ROOT / "ops" / "devices" / "cuda"

_CONSTANTS = {
    "kNcclSuccess": "ncclSuccess",
    "kNcclInProgress": "ncclInProgress",
    "kNcclInt8": "ncclInt8",
    "kNcclUint8": "ncclUint8",
    "kNcclInt32": "ncclInt32",
    "kNcclInt64": "ncclInt64",
    "kNcclFloat16": "ncclFloat16",
    "kNcclFloat32": "ncclFloat32",
    "kNcclFloat64": "ncclFloat64",
    "kNcclBfloat16": "ncclBfloat16",
    "kNcclSum": "ncclSum",
    "kNcclProd": "ncclProd",
    "kNcclMax": "ncclMax",
    "kNcclMin": "ncclMin",
    "kNcclAvg": "ncclAvg",
}
# As an argument: ours -> NCCL's.
_ARGUMENTS = {
    "int* version": "(int*)0",
    "int* result": "(ncclResult_t*)0",
    "NcclComm comm": "(ncclComm_t)0",
    "NcclComm* comm": "(ncclComm_t*)0",
    "NcclId* id": "(ncclUniqueId*)0",
    "NcclId id": "id",
    "NcclConfig* config": "(ncclConfig_t*)0",
    "const void* from": "(const void*)0",
    "void* to": "(void*)0",
    "size_t count": "(size_t)0",
    "int type": "(ncclDataType_t)0",
    "int op": "(ncclRedOp_t)0",
    "int root": "0",
    "int rank": "0",
    "int size": "0",
    "int result": "(ncclResult_t)0",
    "CudaStream stream": "(cudaStream_t)0",
}
_CHECKS = [
    "sizeof(NcclId) == sizeof(ncclUniqueId)",
    "offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic)",
    "offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version)",
    "offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking)",
    "kNcclConfigMagic == NCCL_API_MAGIC",
    "kNcclLeastVersion <= NCCL_VERSION_CODE",
]


def _includes() -> List[str]:
    """The folders of nccl.h and of the toolkit; empty: one is missing."""
    nccl = [f"{os.environ.get('NCCL_HOME', '')}/include", "/usr/include", "/usr/local/include"]
    for folder in sys.path:
        nccl += glob.glob(f"{folder}/nvidia/nccl/include")
    cuda = [f"{os.environ.get('CUDA_HOME', '')}/include", "/usr/local/cuda/include"]
    of_nccl = [folder for folder in nccl if os.path.exists(f"{folder}/nccl.h")]
    of_cuda = [folder for folder in cuda if os.path.exists(f"{folder}/cuda_runtime.h")]
    return [of_nccl[0], of_cuda[0]] if of_nccl and of_cuda else []


def _check() -> str:
    """C that compiles if the declarations agree."""
    header = (_SOURCE / "nccl.h").read_text("utf-8")
    names = re.findall(r'"(nccl\w+)"', (_SOURCE / "nccl.c").read_text("utf-8"))
    struct = header[header.index("typedef struct NcclLibrary") :]
    members = re.findall(r"^  (?:int|const char\*) \(\*\w+\)\(([^)]*)\);", struct, re.M)
    assert len(names) == len(members) == 14, (names, members)
    lines = ["#include <nccl.h>", "#include <stddef.h>", '#include "ops/devices/cuda/nccl.h"']
    checks = [f"(int){ours} == (int){theirs}" for ours, theirs in _CONSTANTS.items()] + _CHECKS
    lines += [f'_Static_assert({check}, "{check}");' for check in checks]
    lines.append("void Check(ncclUniqueId id);\nvoid Check(ncclUniqueId id) {")
    for name, parameters in zip(names, members):
        ours = [" ".join(one.split()) for one in parameters.split(",") if one != "void"]
        lines.append(f"  (void){name}({', '.join(_ARGUMENTS[one] for one in ours)});")
    return "\n".join([*lines, "  (void)id;", "}", ""])


@unittest.skipUnless(_includes(), "skipped: no NCCL")
class NcclTest(unittest.TestCase):
    def compile(self, text: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "check.c")
            source.write_text(text, encoding="utf-8")
            system = [f"-isystem{folder}" for folder in _includes()]
            return subprocess.run(
                ["gcc", "-std=gnu11", "-Werror", "-fsyntax-only", *system, f"-I{_ROOT}", source],
                capture_output=True,
                text=True,
                check=False,
            )

    def test_everything_is_as_declared(self) -> None:
        done = self.compile(_check())
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_wrong_declaration_is_seen(self) -> None:
        for right, wrong in (("(size_t)0", "(void*)0"), ("ncclFloat16", "ncclFloat32")):
            self.assertNotEqual(self.compile(_check().replace(right, wrong)).returncode, 0, wrong)


if __name__ == "__main__":
    unittest.main()
