"""openssl_of_the_system: a repository that says whether this machine can build the plug-in tcp.

  @covey_openssl//:has.bzl  HAS_OPENSSL: 1 when OpenSSL's headers and static libraries are there (in
                            Debian: libssl-dev), else 0
  @covey_openssl//:ssl      these libraries, of version 3.0 or later

COVEY_OPENSSL=/prefix names another OpenSSL, which an `make install` has put there. From 3.5 on
AES-GCM is faster where the processor has VAES.
"""

_SYSTEM = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]

_BUILD = """\
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "crypto",
    srcs = ["lib/libcrypto.a"],
    linkopts = ["-ldl", "-lpthread"],
)

cc_library(
    name = "ssl",
    srcs = ["lib/libssl.a"],
    hdrs = glob(["include/**/*.h"]),
    includes = {includes},
    deps = [":crypto"],
)
"""

def _openssl_of_the_system_impl(ctx):
    prefix = ctx.os.environ.get("COVEY_OPENSSL", "")
    headers = (prefix or "/usr") + "/include"
    folders = [prefix + "/lib64", prefix + "/lib"] if prefix else _SYSTEM
    found = [
        folder
        for folder in folders
        if ctx.path(folder + "/libssl.a").exists and ctx.path(folder + "/libcrypto.a").exists
    ]
    has = bool(found) and ctx.path(headers + "/openssl/core_names.h").exists
    if prefix and not has:
        fail("COVEY_OPENSSL={}: no static libraries and headers of OpenSSL 3 there".format(prefix))
    if has:
        ctx.symlink(found[0] + "/libssl.a", "lib/libssl.a")
        ctx.symlink(found[0] + "/libcrypto.a", "lib/libcrypto.a")
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
