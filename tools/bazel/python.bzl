"""The Python that builds and tests use: the one of .venv, or the one named by COVEY_PYTHON.

python_environment makes a repository with the targets
  :toolchain  what py_test and py_binary run with
  :headers    the C headers of this Python, for the extension module
"""

_BUILD = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

py_runtime(
    name = "runtime",
    interpreter_path = "{python}",
    stub_shebang = "#!{python}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)

cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
)
"""

def _python_environment_impl(ctx):
    root = ctx.path(Label("//:WORKSPACE")).dirname
    python = ctx.os.environ.get("COVEY_PYTHON", "")
    if not python:
        python = str(root.get_child(".venv").get_child("bin").get_child("python"))
        if not ctx.path(python).exists:
            fail("there is no .venv here: run tools/setup first, or name a Python in COVEY_PYTHON")
        ctx.path(Label("//:.venv/pyvenv.cfg"))  # another .venv, another repository
    ask = "import sysconfig; print(sysconfig.get_path('include'))"
    result = ctx.execute([python, "-c", ask])
    if result.return_code != 0:
        fail("{} does not run: {}".format(python, result.stderr))
    headers = ctx.path(result.stdout.strip())
    if headers.get_child("Python.h").exists:
        ctx.symlink(headers, "include")
    ctx.file("BUILD", _BUILD.format(python = python))

python_environment = repository_rule(
    implementation = _python_environment_impl,
    configure = True,
    environ = ["COVEY_PYTHON"],
    local = True,
)
