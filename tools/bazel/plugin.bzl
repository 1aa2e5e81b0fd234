"""covey_plugin: libcovey_<name>.so, opened by libcovey.so when asked for (core/run/plugin.h)."""

def covey_plugin(name, deps, linkopts = [], **kwargs):
    """The plug-in `name`: `deps` are files of ops that register themselves (alwayslink), `linkopts`
    the libraries of the machine that they need. Its own part of libstdc++ is linked in."""
    native.cc_binary(
        name = "libcovey_{}.so".format(name),
        additional_linker_inputs = ["//tools/bazel:plugin_exports.lds"],
        linkopts = [
            "-fuse-ld=bfd",
            "-Wl,--gc-sections",
            "-Wl,--version-script=$(location //tools/bazel:plugin_exports.lds)",
            "-Wl,-soname,libcovey_{}.so".format(name),
            "-Wl,-Bsymbolic",
            "-Wl,--as-needed",
            "-Wl,-z,defs",
            "-static-libgcc",
            "-l:libstdc++.a",
            "-lm",
        ] + linkopts,
        linkshared = True,
        deps = deps + [
            "//core/base:find_object",
            "//core/run:plugin_entry",
        ],
        **kwargs
    )
