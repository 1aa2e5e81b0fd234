"""openssl_of_the_system: a repository that says whether this machine can build the plug-in tcp.

  @covey_openssl//:has.bzl  HAS_OPENSSL: 1 when OpenSSL's headers and static libraries are there (in
                            Debian: libssl-dev), else 0
  @covey_openssl//:ssl      these libraries, of version 3.0 or later; for another processor,
                            Debian's, such as those of libssl-dev:arm64

COVEY_OPENSSL=/prefix names another OpenSSL, which an `make install` has put there. From 3.5 on
AES-GCM is faster where the processor has VAES.
"""

_DEBIAN = "/usr/lib/{}-linux-gnu"
_PROCESSORS = ["aarch64", "x86_64"]

_BUILD = """\
load("@covey_workspace//tools/bazel:processor.bzl", "by_processor")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "crypto",
    srcs = by_processor(
        aarch64 = ["aarch64/libcrypto.a"],
        x86_64 = ["x86_64/libcrypto.a"],
    ),
    linkopts = ["-ldl", "-lpthread"],
)

cc_library(
    name = "ssl",
    srcs = by_processor(
        aarch64 = ["aarch64/libssl.a"],
        x86_64 = ["x86_64/libssl.a"],
    ),
    hdrs = glob(["include/**/*.h"]),
    includes = {includes},
    deps = [":crypto"],
)
"""

def _has_libraries(ctx, folder):
    return ctx.path(folder + "/libssl.a").exists and ctx.path(folder + "/libcrypto.a").exists

def _link_libraries(ctx, folder, processor):
    for name in ["libssl.a", "libcrypto.a"]:
        ctx.symlink(folder + "/" + name, processor + "/" + name)

def _openssl_of_the_system_impl(ctx):
    own = ctx.execute(["uname", "-m"]).stdout.strip()
    prefix = ctx.os.environ.get("COVEY_OPENSSL", "")
    headers = (prefix or "/usr") + "/include"
    folders = [prefix + "/lib64", prefix + "/lib"]
    if not prefix:
        folders = [_DEBIAN.format(own), "/usr/lib64", "/usr/lib"]
    found = [folder for folder in folders if _has_libraries(ctx, folder)]
    has = bool(found) and ctx.path(headers + "/openssl/core_names.h").exists
    if prefix and not has:
        fail("COVEY_OPENSSL={}: no static libraries and headers of OpenSSL 3 there".format(prefix))
    if has:
        _link_libraries(ctx, found[0], own)
        for other in _PROCESSORS:
            if other != own and _has_libraries(ctx, _DEBIAN.format(other)):
                _link_libraries(ctx, _DEBIAN.format(other), other)
    if has and prefix:
        ctx.symlink(headers, "include")
    ctx.file("BUILD", _BUILD.format(includes = ["include"] if prefix else []) if has else "")
    ctx.file("has.bzl", "HAS_OPENSSL = {}\n".format(1 if has else 0))

openssl_of_the_system = repository_rule(
    implementation = _openssl_of_the_system_impl,
    configure = True,
    environ = ["COVEY_OPENSSL"],
    local = True,
)
