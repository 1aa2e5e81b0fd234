"""copied_sources: files of other folders, copied into one of this package's by their paths in the
tree, so that they find each other's headers there. For what `covey build` compiles."""

def _copied_sources_impl(ctx):
    outs = []
    for file in ctx.files.srcs:
        out = ctx.actions.declare_file(ctx.attr.folder + "/" + file.short_path)
        ctx.actions.symlink(output = out, target_file = file)
        outs.append(out)
    return [DefaultInfo(files = depset(outs), runfiles = ctx.runfiles(outs))]

copied_sources = rule(
    implementation = _copied_sources_impl,
    attrs = {
        "folder": attr.string(mandatory = True),
        "srcs": attr.label_list(allow_files = True, mandatory = True),
    },
)
