"""`python -m regard.cli`."""

from regard.cli.base import main

if __name__ == "__main__":
    main()
