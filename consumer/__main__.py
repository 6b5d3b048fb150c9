"""`python -m consumer` does what the console script `blobmap-consumer` does."""

import sys

from consumer.cli import main

sys.exit(main())
