"""ops: the files of a catalogue, each a library, so that what uses some links those alone."""

load(":covey_library.bzl", "covey_library")

_VISIBILITY = [
    "//ops:__pkg__",
    "//tests:__subpackages__",
]

def ops(name, deps, seldom = [], has_own_options = False):
    """A library for each .cc of the folder, with its name, and `name`, which is all of them.
    NAME_often lacks the files of `seldom`. `has_own_options`: .bazelrc has an -O for the folder."""
    library = native.cc_library if has_own_options else covey_library
    headers = native.glob(["*.h"], allow_empty = True)
    files = native.glob(["*.cc"])
    for file in seldom:
        if file not in files:
            fail("there is no " + file)
    for file in files:
        library(
            name = _name(file),
            srcs = [file] + headers,
            visibility = _VISIBILITY,
            alwayslink = True,
            deps = deps,
        )
    native.cc_library(
        name = name,
        visibility = _VISIBILITY,
        deps = [_name(file) for file in files],
    )
    if seldom:
        native.cc_library(
            name = name + "_often",
            visibility = _VISIBILITY,
            deps = [_name(file) for file in files if file not in seldom],
        )

def _name(file):
    return file[:-len(".cc")]
