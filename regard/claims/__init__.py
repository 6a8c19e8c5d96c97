"""The ledger: every assertion of the lectures with the command that tests it, the figure measured and the verdict."""
