"""`python -m coordinator.cli` is `expertmesh`."""

from coordinator.cli import main

main()
