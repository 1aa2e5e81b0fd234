"""covey_with: the package covey for tests, with a libcovey.so that holds what they use of the
catalogue. So Bazel knows which tests a changed op can change; one that uses another op finds that
it is not there."""

load("//tools/bazel:libcovey.bzl", "libcovey")

_PATH = "frameworks/covey/libcovey.so"

def _package_impl(ctx):
    package = ctx.attr._package
    runfiles = ctx.runfiles(ctx.files.others, symlinks = {_PATH: ctx.file.library})
    return [
        DefaultInfo(runfiles = runfiles.merge(package[DefaultInfo].default_runfiles)),
        package[PyInfo],
    ]

_package = rule(
    implementation = _package_impl,
    attrs = {
        "library": attr.label(allow_single_file = True, mandatory = True),
        "others": attr.label_list(allow_files = True),
        "_package": attr.label(default = "//frameworks:package", providers = [PyInfo]),
    },
)

def covey_with(name, ops, others = []):
    """//frameworks:covey with these ops and other files: plug-ins, what `covey build` compiles."""
    libcovey(
        name = name + "/libcovey.so",
        testonly = True,
        ops = ops,
    )
    _package(
        name = name,
        testonly = True,
        library = name + "/libcovey.so",
        others = others,
    )
