"""What two parties that do not trust each other need: offers, coins, audit, ledger."""
