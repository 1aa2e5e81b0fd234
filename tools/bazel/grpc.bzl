"""grpc_of_the_system: a repository that says whether this machine can build the plug-in grpc.

  @covey_grpc//:has.bzl  HAS_GRPC: 1 when the compilers of protobuf and gRPC, their headers and
                         libcrypto's are there (GRPC_PACKAGES of tools/setup), else 0
"""

_PROGRAMS = ["protoc", "grpc_cpp_plugin"]
_HEADERS = ["google/protobuf/message_lite.h", "grpcpp/grpcpp.h", "openssl/hmac.h"]

def _grpc_of_the_system_impl(ctx):
    missing = [name for name in _PROGRAMS if ctx.which(name) == None]
    missing += [name for name in _HEADERS if not ctx.path("/usr/include/" + name).exists]
    ctx.file("BUILD", "")
    ctx.file("has.bzl", "HAS_GRPC = {}\n".format(0 if missing else 1))

grpc_of_the_system = repository_rule(
    implementation = _grpc_of_the_system_impl,
    configure = True,
    local = True,
)
