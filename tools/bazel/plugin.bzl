"""covey_plugin: libcovey_<name>.so, opened by libcovey.so when asked for
(core/transport/plugin.h)."""

load("//tools/bazel/glibc:older.bzl", "OLDER_GLIBC_INPUTS", "OLDER_GLIBC_LINKOPTS")

def covey_plugin(name, deps, linkopts = [], shared_libstdcxx = False, is_link = False, **kwargs):
    """The plug-in `name`: `deps` are files of ops that register themselves (alwayslink), `linkopts`
    the libraries of the machine that they need. Its own part of libstdc++ is linked in, unless it
    shares that of C++ libraries of the machine. `is_link`: a network for
    core/transport/covey_link.h, which shows covey_open_link alone."""
    exports = "//tools/bazel:{}_exports.lds".format("link" if is_link else "plugin")
    runtime = [] if shared_libstdcxx else ["-static-libgcc", "-l:libstdc++.a"]
    older = ["-lm"] if shared_libstdcxx else OLDER_GLIBC_LINKOPTS
    native.cc_binary(
        name = "libcovey_{}.so".format(name),
        additional_linker_inputs = [exports] + ([] if shared_libstdcxx else OLDER_GLIBC_INPUTS),
        linkopts = [
            "-fuse-ld=bfd",
            "-Wl,--gc-sections",
            "-Wl,--version-script=$(location {})".format(exports),
            "-Wl,-soname,libcovey_{}.so".format(name),
            "-Wl,-Bsymbolic",
            "-Wl,--as-needed",
            "-Wl,-z,defs",
        ] + runtime + older + linkopts,
        linkshared = True,
        deps = deps + ([] if is_link else ["//core/transport:plugin_entry"]) +
               ([] if shared_libstdcxx else ["//core/base:older_glibc"]),
        **kwargs
    )
