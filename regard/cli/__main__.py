"""`python -m regard.cli`, where the command itself is not on the path."""

from regard.cli import main

main()
