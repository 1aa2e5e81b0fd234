"""Targets that are built for one processor only. x86_64 is every one but aarch64."""

_AARCH64 = "@covey_workspace//tools/bazel:aarch64"  # also in the BUILD of another repository
_OTHER = "//conditions:default"

def by_processor(aarch64, x86_64):
    """The value for the processor that is built for."""
    return select({_AARCH64: aarch64, _OTHER: x86_64})

def only_on(processor):
    """target_compatible_with of a target for `processor`: with another, `//...` leaves it out."""
    no = ["@platforms//:incompatible"]
    return by_processor(
        aarch64 = [] if processor == "aarch64" else no,
        x86_64 = [] if processor == "x86_64" else no,
    )
