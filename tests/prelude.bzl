"""The headers of tests in C++ that are compiled once: see //tools/bazel:prelude.bzl."""

# Headers that most tests in C++ include.
COMMON_HEADERS = [
    "gtest/gtest.h",
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

# What runs for long in tests alone: the simulator, and sources with mutants. GCC may crash over a
# header that was made with another -O.
QUICK_COPTS = ["-O1", "-include", "$(GENDIR)/tests/quick_prelude.h", "-Winvalid-pch"]
