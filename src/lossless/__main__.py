"""`python -m lossless` is `lossless`."""

from lossless.cli.main import main

main()
