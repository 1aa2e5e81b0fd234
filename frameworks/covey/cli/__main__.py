"""`python -m covey.cli SUBCOMMAND ...`: the command `covey` where no script is installed."""

import sys

from covey.cli import main

sys.exit(main())
