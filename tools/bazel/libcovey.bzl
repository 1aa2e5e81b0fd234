"""libcovey: core with some of the catalogue, as one shared library."""

load("//tools/bazel/glibc:older.bzl", "OLDER_GLIBC_INPUTS", "OLDER_GLIBC_LINKOPTS")

def libcovey(name, ops, **kwargs):
    """The library `name`, with what `ops` names of the catalogue.

    It installs anywhere: nothing is needed but libc, libm and libpthread, nothing is shown but
    covey_*. tests/golden checks both. The bfd linker, because gold's --gc-sections keeps parts of
    libstdc++ that nothing calls and that ask for a newer glibc."""
    native.cc_binary(
        name = name,
        additional_linker_inputs = ["//tools/bazel:exports.lds"] + OLDER_GLIBC_INPUTS,
        linkopts = [
            "-fuse-ld=bfd",
            "-Wl,--gc-sections",
            "-Wl,--version-script=$(location //tools/bazel:exports.lds)",
            "-Wl,-soname,libcovey.so",
            "-Wl,-Bsymbolic",
            "-Wl,--as-needed",
            "-Wl,-z,defs",
            "-static-libgcc",
            "-l:libstdc++.a",
        ] + OLDER_GLIBC_LINKOPTS,
        linkshared = True,
        deps = [
            "//core/api:c_api",
            "//core/base:older_glibc",
        ] + ops,
        **kwargs
    )
