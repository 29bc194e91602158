"""Lets ``python -m spanfit`` do what the ``spanfit`` command does."""

from spanfit.cli.main import main

if __name__ == "__main__":
    main()
