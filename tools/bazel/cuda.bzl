"""cuda_of_the_system: a repository that says whether this machine compiles kernels of CUDA.

  @covey_cuda//:nvcc.bzl  NVCC: the path of an nvcc of version 12 or later that compiles with this
                          machine's C++ compiler; "" where there is none
"""

_TRIAL = "#include <cstdint>\nextern \"C\" __global__ void trial(uint32_t* x) { *x = 1; }\n"

def _is_new_enough(ctx, nvcc):
    said = ctx.execute([nvcc, "--version"])
    _, _, after = said.stdout.partition("release ")
    major = after.partition(".")[0]
    return said.return_code == 0 and major.isdigit() and int(major) >= 12

def _cuda_of_the_system_impl(ctx):
    ctx.file("BUILD", "")
    ctx.file("trial.cu", _TRIAL)
    homes = [ctx.os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    found = [str(ctx.which("nvcc") or "")]
    found += [home + "/bin/nvcc" for home in homes if home and ctx.path(home + "/bin/nvcc").exists]
    nvcc = ""
    for path in found:
        if nvcc or not path or not _is_new_enough(ctx, path):
            continue
        if ctx.execute([path, "-ptx", "trial.cu", "-o", "trial.ptx"]).return_code == 0:
            nvcc = path
    ctx.file("nvcc.bzl", "NVCC = {}\n".format(repr(nvcc)))

cuda_of_the_system = repository_rule(
    implementation = _cuda_of_the_system_impl,
    configure = True,
    environ = [
        "CUDA_HOME",
        "PATH",
    ],
    local = True,
)

def cuda_text(name, nvcc, src, hdrs, out, **kwargs):
    """`out`: C that defines kCudaImage, the kernels of `src` as text for the driver; empty without
    `nvcc`. No instruction in it is younger than PTX 7.0 and sm_70 (`golden/cuda_kernels_test.py`),
    so the text says that, and any driver since CUDA 11 takes it, not only one as new as nvcc."""
    empty = "echo 'const char kCudaImage[] = \"\";' > $@"
    edits = [
        "s/^\\.version .*/.version 7.0/",
        "s/^\\.target .*/.target sm_70/",
        "/^[[:space:]]*\\/\\//d",  # comments
        "/^$$/d",
        "s/[\\\\\"]/\\\\&/g",  # as C writes it
        "s/.*/\"&\\\\n\"/",
    ]
    lines = " && ".join([
        nvcc + " -ptx -arch=compute_75 -std=c++17 -O3 -fmad=false -ftz=false" +
        " --expt-relaxed-constexpr -I. $(location {}) -o $@.ptx".format(src),
        "echo 'const char kCudaImage[] =' > $@",
        "sed " + " ".join(["-e '{}'".format(edit) for edit in edits]) + " $@.ptx >> $@",
        "echo ';' >> $@",
    ])
    native.genrule(
        name = name,
        srcs = [src] + hdrs,
        outs = [out],
        cmd = lines if nvcc else empty,
        **kwargs
    )
