"""``python -m execworld.cli``."""

from execworld.cli.main import main

if __name__ == "__main__":
    main()
