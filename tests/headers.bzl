"""headers_of: what a file that uses these libraries includes, for a test that compiles one."""

def _headers_of_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    headers = depset(transitive = [context.headers for context in contexts])
    return [DefaultInfo(files = headers, runfiles = ctx.runfiles(transitive_files = headers))]

headers_of = rule(
    implementation = _headers_of_impl,
    attrs = {"deps": attr.label_list(mandatory = True, providers = [CcInfo])},
)
