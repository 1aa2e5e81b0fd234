"""`python -m covey SUBCOMMAND ...`: the command `covey` where no script is installed."""

import sys

from covey.cli import main

if __name__ == "__main__":
    sys.exit(main())
