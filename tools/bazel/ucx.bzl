"""ucx_of_the_system: a repository that says whether this machine can build the plug-in ucx.

  @covey_ucx//:has.bzl  HAS_UCX: 1 when UCX's headers and libraries are there (in Debian:
                        libucx-dev), else 0

Users build the plug-in with `covey build ucx`; here only its tests are linked with UCX.
"""

_LIBRARIES = ["/usr/lib/x86_64-linux-gnu/libucp.so", "/usr/lib64/libucp.so", "/usr/lib/libucp.so"]

def _ucx_of_the_system_impl(ctx):
    has = ctx.path("/usr/include/ucp/api/ucp.h").exists and bool(
        [path for path in _LIBRARIES if ctx.path(path).exists],
    )
    ctx.file("BUILD", "")
    ctx.file("has.bzl", "HAS_UCX = {}\n".format(1 if has else 0))

ucx_of_the_system = repository_rule(
    implementation = _ucx_of_the_system_impl,
    configure = True,
    local = True,
)
