"""`python -m lossless` runs the command line, like `lossless`."""

from lossless.cli.main import main

main()
