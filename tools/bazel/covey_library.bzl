"""covey_library: a cc_library of what is shipped, with the standard headers compiled once.

Parsing them is 40 % of the time in which core and ops are compiled. The sanitizers compile each
source without them (`--define=prelude=none`), so that a source which lacks an include is found.
"""

# libstdc++ silences three warnings by pragmas (bits/char_traits.h); precompiled headers lose them.
_PRELUDE = "//tools/bazel:prelude"
_COPTS = [
    "-include",
    "$(GENDIR)/tools/bazel/prelude.h",
    "-Winvalid-pch",
    "-Wno-array-bounds",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
]

def covey_library(name, copts = [], deps = [], **kwargs):
    native.cc_library(
        name = name,
        copts = copts + select({
            "//tools/bazel:without_prelude": [],
            "//conditions:default": _COPTS,
        }),
        deps = deps + select({
            "//tools/bazel:without_prelude": [],
            "//conditions:default": [_PRELUDE],
        }),
        **kwargs
    )
