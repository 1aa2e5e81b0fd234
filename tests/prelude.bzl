"""The headers of tests in C++ that are compiled once: see //tools/bazel:prelude.bzl."""

# Headers that most tests in C++ include.
STANDARD_HEADERS = [
    "algorithm",
    "array",
    "atomic",
    "cstdint",
    "cstring",
    "functional",
    "map",
    "memory",
    "span",
    "string",
    "string_view",
    "utility",
    "vector",
]

COMMON_HEADERS = ["gtest/gtest.h"] + STANDARD_HEADERS

# What runs for long in tests alone: the simulator, and sources with mutants, most of which do
# without GoogleTest. GCC may crash over a header that was made with another -O.
QUICK_COPTS = ["-O1", "-include", "$(GENDIR)/tests/quick_prelude.h", "-Winvalid-pch"]
