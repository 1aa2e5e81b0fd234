"""prelude: headers that nearly every source in C++ includes, compiled once.

GCC reads NAME.h.gch in place of NAME.h if both lie in one folder and the options are the same. A
source names the header by `-include`; its own `#include` of one of them is then without effect.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _prelude_impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    text = "".join(["#include <%s>\n" % name for name in ctx.attr.headers])
    if ctx.attr.is_empty_in_c:
        text = "#ifdef __cplusplus\n" + text + "#endif\n"
    ctx.actions.write(header, text)
    made = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc_common.create_compile_variables(
        cc_toolchain = toolchain,
        feature_configuration = features,
        source_file = header.path,
        output_file = made.path,
        use_pic = True,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
    )
    action = "c++-compile"
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = action,
        ),
        arguments = ["-x", "c++-header"] + cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        inputs = depset([header], transitive = [toolchain.all_files]),
        outputs = [made],
        mnemonic = "CppPrelude",
    )
    files = depset([header, made])
    context = cc_common.create_compilation_context(headers = files)
    return [DefaultInfo(files = files), CcInfo(compilation_context = context)]

prelude = rule(
    implementation = _prelude_impl,
    attrs = {
        "copts": attr.string_list(),
        "headers": attr.string_list(mandatory = True),
        "is_empty_in_c": attr.bool(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
