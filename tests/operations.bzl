"""tensorflow_operations: a folder with the operations of covey.tensorflow, compiled once for all
tests. It is empty where TensorFlow is not installed. Bazel's stable status, which
tools/bazel/environment writes before each build, says when that has changed."""

def _tensorflow_operations_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        executable = ctx.executable._build_operations,
        arguments = [out.path],
        inputs = [ctx.info_file],
        outputs = [out],
        mnemonic = "TensorflowOperations",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

tensorflow_operations = rule(
    implementation = _tensorflow_operations_impl,
    attrs = {
        "_build_operations": attr.label(
            cfg = "target",  # With the libcovey.so of the tests: another one takes minutes.
            default = "//tests:build_operations",
            executable = True,
        ),
    },
)
