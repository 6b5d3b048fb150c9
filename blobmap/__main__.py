"""`python -m blobmap` does what the console script does."""

import sys

from blobmap.cli import main

sys.exit(main())
