# Sourced by the scripts beside it: where the tree is, and how they talk.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

# One line on stderr, and the end.
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# The comment at the top of the calling script is its help.
help() {
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
  exit 0
}

# For people a progress bar; in a log a line every half minute.
BAZEL_OPTIONS=()
[ -t 2 ] || BAZEL_OPTIONS=(--curses=no --show_progress_rate_limit=30)
