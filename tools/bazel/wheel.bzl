"""wheel: a folder with one wheel in it. Its name depends on what the binaries ask of glibc, so it
is known only after they are built, and Bazel's output is the folder."""

def _wheel_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add("--header", ctx.file.header)
    args.add("--license", ctx.file.license)
    args.add("--description", ctx.file.description)
    args.add("--out", out.path)
    args.add("--processor", ctx.attr.processor)
    for file in ctx.files.package:
        name = file.short_path
        if name.startswith(ctx.attr.strip_prefix):
            name = name[len(ctx.attr.strip_prefix):]
        args.add("{}={}".format(name, file.path))
    ctx.actions.run(
        executable = ctx.executable._build_wheel,
        arguments = [args],
        inputs = ctx.files.package + [ctx.file.description, ctx.file.header, ctx.file.license],
        outputs = [out],
        mnemonic = "Wheel",
        use_default_shell_env = True,
    )
    return [DefaultInfo(
        files = depset([out]),
        runfiles = ctx.runfiles([out]),
    )]

wheel = rule(
    implementation = _wheel_impl,
    attrs = {
        "description": attr.label(allow_single_file = True, mandatory = True),
        "header": attr.label(allow_single_file = True, mandatory = True),
        "license": attr.label(allow_single_file = True, mandatory = True),
        "package": attr.label_list(allow_files = True, mandatory = True),
        "processor": attr.string(mandatory = True),
        "strip_prefix": attr.string(),
        "_build_wheel": attr.label(
            cfg = "exec",
            default = "//tools:build_wheel",
            executable = True,
        ),
    },
)
