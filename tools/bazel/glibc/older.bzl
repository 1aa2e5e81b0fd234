"""Links with symbols of glibc as they were before versions 2.29 to 2.34, so that a binary made on a
newer system loads on an older one.

glibc 2.34 moved threads and dlopen into libc.so.6, under new versions; the old ones stay in every
glibc. A linker takes the newest unless a library before libc has the name. Each library here has
the name and the version of one of glibc 2.28, and functions without code: only a linker reads it.
It stands for the library of its name, so all that is taken of libm, libdl and libpthread is listed.
"""

load("//tools/bazel:processor.bzl", "by_processor")

_LIBRARIES = {
    "libdl.so.2": {
        "GLIBC_2.2.5": ["dladdr", "dlclose", "dlerror", "dlopen", "dlsym"],
    },
    "libm.so.6": {
        "GLIBC_2.2.5": [
            "exp",
            "ilogb",
            "ldexp",
            "ldexpf",
            "llround",
            "log",
            "nearbyint",
            "nextafterf",
            "sqrt",
        ],
    },
    "libpthread.so.0": {
        "GLIBC_2.2.5": [
            "__pthread_key_create",
            "pthread_create",
            "pthread_detach",
            "pthread_getspecific",
            "pthread_join",
            "pthread_key_create",
            "pthread_key_delete",
            "pthread_mutex_trylock",
            "pthread_once",
            "pthread_rwlock_destroy",
            "pthread_rwlock_init",
            "pthread_rwlock_rdlock",
            "pthread_rwlock_unlock",
            "pthread_rwlock_wrlock",
            "pthread_setspecific",
            "pthread_sigmask",
        ],
        "GLIBC_2.12": ["pthread_setname_np"],
    },
}

_LABELS = ["//tools/bazel/glibc:" + name for name in _LIBRARIES]

# For `additional_linker_inputs` and `linkopts` of what a wheel holds; the latter stand behind every
# library that calls these functions.
OLDER_GLIBC_INPUTS = _LABELS
OLDER_GLIBC_LINKOPTS = ["$(location {})".format(label) for label in _LABELS]

def _command(name, versions):
    script = " ".join([
        "%s { global: %s; };" % (version, "; ".join(functions))
        for version, functions in versions.items()
    ])
    code = "\\n".join([
        ".globl {0}\\n.type {0}, %function\\n{0}:".format(function)
        for functions in versions.values()
        for function in functions
    ])
    return " && ".join([
        "echo '{}' > $@.lds".format(script),
        "printf '{}\\n' > $@.s".format(code.replace("%", "%%")),
        "$(CC) -shared -nostdlib -fuse-ld=bfd -Wl,-soname,{} ".format(name) +
        "-Wl,--version-script=$@.lds -o $@ $@.s",
    ])

def older_glibc():
    """A target for each library. No function of aarch64 is older than glibc 2.17."""
    for name, versions in _LIBRARIES.items():
        functions = [function for names in versions.values() for function in names]
        native.genrule(
            name = name + "_for_linkers",
            outs = [name],
            cmd = by_processor(
                aarch64 = _command(name, {"GLIBC_2.17": functions}),
                x86_64 = _command(name, versions),
            ),
            toolchains = ["@bazel_tools//tools/cpp:current_cc_toolchain"],
        )
