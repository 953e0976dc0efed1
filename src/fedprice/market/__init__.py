"""What two parties who do not trust each other need: offers, coins, audit, ledger."""
