"""Makes the wheel: the Python package, the extension, libcovey.so. Same inputs, same bytes.

Run by //:wheel. One wheel serves every CPython from 3.9 on (limited API) and every Linux whose
glibc is at least what the binaries ask for; the file's name says so.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import pathlib
import re
import sys
import zipfile
from typing import Dict, List, Tuple

from tools import elf

_OLDEST_GLIBC = (2, 17)  # no manylinux tag is older
_TIME = (1980, 1, 1, 0, 0, 0)

_METADATA = """\
Metadata-Version: 2.4
Name: covey
Version: {version}
Summary: Communication for distributed training: a late rank delays the others up to a bound
Author: The Covey authors
License-Expression: Apache-2.0
License-File: LICENSE
Keywords: distributed training,data parallel,allreduce,horovod,pytorch,tensorflow
Requires-Python: >=3.9
Classifier: Development Status :: 3 - Alpha
Classifier: Environment :: Console
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Intended Audience :: Developers
Classifier: Intended Audience :: Science/Research
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Programming Language :: Python :: Implementation :: CPython
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Topic :: System :: Distributed Computing
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{description}"""

_WHEEL = """\
Wheel-Version: 1.0
Generator: covey tools/build_wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""

# Not entry points: pip's wrappers for those import other things before a line of ours is run, and a
# Ctrl-C there shows a traceback. The ranks of `covey bench` import the command that starts them,
# hence the condition.
_SCRIPT = """\
#!python
if __name__ == "__main__":
    import covey_command

    raise SystemExit(covey_command.{function}())
"""
_SCRIPTS = {"covey": "main", "coveyrun": "coveyrun_main"}
_ENTRY_POINTS = """\
[torch.backends]
covey = covey_torch:register
"""


def version_of(header: pathlib.Path) -> str:
    """The version, from the one place that states it: core/api/covey.h."""
    found = re.search(r'#define COVEY_VERSION "([^"]+)"', header.read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"build_wheel: {header} defines no COVEY_VERSION")
    return found.group(1)


def tag_of(binaries: List[pathlib.Path], processor: str) -> str:
    """The wheel's tag, from the newest glibc symbol that any of the binaries asks for."""
    floors = [elf.glibc_floor(str(path)) for path in binaries]
    major, minor = max(floors + [_OLDEST_GLIBC])
    return f"cp39-abi3-manylinux_{major}_{minor}_{processor}"


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return "sha256=" + digest.decode("ascii")


def write_wheel(path: pathlib.Path, contents: Dict[str, bytes], dist_info: str) -> None:
    """Writes the archive, RECORD last as the format asks."""
    record = [f"{name},{_digest(data)},{len(data)}" for name, data in contents.items()]
    record.append(f"{dist_info}/RECORD,,")
    contents[f"{dist_info}/RECORD"] = ("\n".join(record) + "\n").encode("utf-8")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            is_program = name.endswith(".so") or ".data/scripts/" in name
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, data)


def _parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--header", type=pathlib.Path, required=True)
    parser.add_argument("--license", type=pathlib.Path, required=True)
    parser.add_argument("--description", type=pathlib.Path, required=True, help="Markdown")
    parser.add_argument("--processor", required=True, help="as uname -m says it")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the wheel")
    parser.add_argument("files", nargs="+", help="NAME_IN_WHEEL=PATH")
    return parser.parse_args(arguments)


def _split(item: str) -> Tuple[str, pathlib.Path]:
    name, _, path = item.partition("=")
    return name, pathlib.Path(path)


def main(arguments: List[str]) -> None:
    """Writes OUT/covey-VERSION-TAG.whl."""
    options = _parse(arguments)
    files = dict(sorted(_split(item) for item in options.files))
    version = version_of(options.header)
    binaries = [path for name, path in files.items() if name.endswith(".so")]
    tag = tag_of(binaries, options.processor)
    dist_info = f"covey-{version}.dist-info"
    contents = {name: path.read_bytes() for name, path in files.items()}
    description = options.description.read_text(encoding="utf-8")
    metadata = _METADATA.format(version=version, description=description)
    contents[f"{dist_info}/METADATA"] = metadata.encode("utf-8")
    contents[f"{dist_info}/entry_points.txt"] = _ENTRY_POINTS.encode("ascii")
    contents[f"{dist_info}/WHEEL"] = _WHEEL.format(tag=tag).encode("utf-8")
    for name, function in _SCRIPTS.items():
        script = _SCRIPT.format(function=function).encode("ascii")
        contents[f"covey-{version}.data/scripts/{name}"] = script
    contents[f"{dist_info}/licenses/LICENSE"] = options.license.read_bytes()
    options.out.mkdir(parents=True, exist_ok=True)
    write_wheel(options.out / f"covey-{version}-{tag}.whl", contents, dist_info)


if __name__ == "__main__":
    main(sys.argv[1:])
