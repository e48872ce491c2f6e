"""`python -m lossless` runs the command line, like `lossless`."""

from lossless.cli.entry import main

main()
