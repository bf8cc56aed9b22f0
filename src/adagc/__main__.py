"""`python -m adagc` is `adagc`."""

import sys

from adagc.cli import main

sys.exit(main())
