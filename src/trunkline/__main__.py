"""`python -m trunkline` is `trunkline`."""

from trunkline.cli.main import main

if __name__ == "__main__":
    main()
