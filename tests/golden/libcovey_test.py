"""Goal: the binaries of the wheel load on any Linux and show nothing but the C API.
Method: read what they need and export, compare with what is allowed."""

from __future__ import annotations

import os
import pathlib
import re
import unittest
from typing import List

from tools import elf

_ROOT = pathlib.Path(__file__).absolute().parents[2]
_LIBRARY = str(_ROOT / "libcovey.so")
_EXTENSION = str(_ROOT / "frameworks/covey/_native.abi3.so")
_TCP = str(_ROOT / "frameworks/covey/libcovey_tcp.so")
_PLUGIN = str(_ROOT / "ops/control/libcovey_grpc.so")
_PARTS = ("", "_control", "_methods", "_neighbors", "_rounds", "_trainer", "_values",
          "_waiting")
_HEADERS = [_ROOT / f"core/api/covey{part}.h" for part in _PARTS]

# libpthread and libdl are part of libc since glibc 2.34, and names that older binaries look for.
_SYSTEM = {"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0"}


def _declared() -> set:
    """The functions of the C API's headers: names after COVEY_API."""
    text = "\n".join(header.read_text(encoding="utf-8") for header in _HEADERS)
    return set(re.findall(r"^COVEY_API\b[^(;]*?\b(covey_\w+)\s*\(", text, re.MULTILINE))


def _prototypes() -> List[str]:
    """The functions as they are declared, a line each, in the order of their names."""
    text = "\n".join(header.read_text(encoding="utf-8") for header in _HEADERS)
    found = re.findall(r"^COVEY_API\b\s*([^;]*);", text, re.MULTILINE)
    lines = [re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", one, flags=re.S)) for one in found]
    return sorted(lines, key=lambda line: re.findall(r"covey_\w+(?=\()", line)[0])


class ApiVersionTest(unittest.TestCase):
    """api_N.txt has the functions of version N of the C API. API_REWRITE=1 writes it anew."""

    def test_a_function_that_changes_or_goes_has_a_new_version(self) -> None:
        header = _HEADERS[0].read_text(encoding="utf-8")
        (version,) = re.findall(r"#define COVEY_API_VERSION (\d+)", header)
        path = pathlib.Path(__file__).resolve().with_name(f"api_{version}.txt")
        now = _prototypes()
        if os.environ.get("API_REWRITE"):
            path.write_text("\n".join(now) + "\n", encoding="utf-8")
        kept = path.read_text(encoding="utf-8").splitlines()
        gone = sorted(set(kept) - set(now))
        self.assertEqual(gone, [], "raise COVEY_API_VERSION, then run this with API_REWRITE=1")
        self.assertEqual(now, kept, "new functions: run this with API_REWRITE=1")
        self.assertGreater(len(now), 50)


class LibraryTest(unittest.TestCase):
    def test_needs_only_what_every_linux_has(self) -> None:
        self.assertLessEqual(elf.needed(_LIBRARY), _SYSTEM)

    def test_shows_exactly_what_the_header_declares(self) -> None:
        self.assertEqual(elf.exported(_LIBRARY), _declared())

    def test_names_no_folder_of_the_machine_that_built_it(self) -> None:
        self.assertEqual(elf.search_paths(_LIBRARY), [])

    def test_needs_no_glibc_after_2_28(self) -> None:
        """Nor does any other binary of the wheel."""
        paths = sorted(str(path) for path in (_ROOT / "frameworks/covey").glob("*.so"))
        self.assertIn(_EXTENSION, paths)
        floors = {path: elf.glibc_floor(path) for path in [_LIBRARY, *paths]}
        major, minor = max(floors.values())
        print(f"the wheel needs glibc {major}.{minor}")
        # Since glibc 2.38 headers give C++ code the strtoul of C23: what is built there needs it.
        here = tuple(int(part) for part in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))
        self.assertLessEqual((major, minor), (2, 28) if here < (2, 38) else (2, 38), floors)


@unittest.skipUnless(os.path.exists(_TCP), "not built: OpenSSL's static libraries are missing")
class TcpTest(unittest.TestCase):
    """The plug-in tcp, whose OpenSSL nothing else may see, and which sees no other."""

    def test_needs_only_what_every_linux_has(self) -> None:
        self.assertLessEqual(elf.needed(_TCP), _SYSTEM)
        self.assertEqual(elf.search_paths(_TCP), [])

    def test_shows_only_its_door(self) -> None:
        self.assertEqual(elf.exported(_TCP), {"covey_open_link"})


@unittest.skipUnless(os.path.exists(_PLUGIN), "not built: there is no gRPC on this machine")
class ControlPlaneTest(unittest.TestCase):
    """The plug-in grpc, which is in no wheel."""

    def test_shows_only_what_the_loader_asks_for(self) -> None:
        names = {"covey_plugin_abi", "covey_plugin_find_control", "covey_plugin_find_transport"}
        self.assertEqual(elf.exported(_PLUGIN), names)

    def test_finds_the_libraries_of_the_machine_where_the_system_does(self) -> None:
        self.assertEqual(elf.search_paths(_PLUGIN), [])
        self.assertIn("libprotobuf-lite", " ".join(elf.needed(_PLUGIN)))
        self.assertNotIn("libprotobuf.so", " ".join(elf.needed(_PLUGIN)), "it brings descriptors")


class ExtensionTest(unittest.TestCase):
    def test_needs_the_library_beside_it(self) -> None:
        self.assertEqual(elf.needed(_EXTENSION) - _SYSTEM, {"libcovey.so"})
        self.assertEqual(elf.search_paths(_EXTENSION), ["$ORIGIN"])

    def test_shows_only_its_entry(self) -> None:
        self.assertEqual(elf.exported(_EXTENSION), {"PyInit__native"})


if __name__ == "__main__":
    unittest.main()
