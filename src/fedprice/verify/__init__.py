"""Check an exported ledger without trusting whoever wrote it: `fedprice verify EXPORT`.

This package stands alone: it imports nothing else of fedprice, and `make verify.pyz` packs it into
one file that an auditor can keep. From what server and clients signed, it derives again who had to
join each round, the weight of each update, every payment, every balance and the chain of hashes. A
ledger applies the same rules to every entry before it is written, so that it holds nothing that
would not verify.

In reading order: `forms` (values), `coins`, `pay`, `messages` (their fields), `runs` (what was
agreed and done), `agreements` and `rounds` (the rules), `books` (what entries add up to), `lines`
(of files), `kept` (what clients kept), `export` (the chain), `report` and `program`.

An export is a text file with one entry per line, as canonical JSON: `number`, `content`, `postings`
(account and micro-units), `hash` = SHA-256(previous hash, number, digest of content and postings),
and the server's `signature` of number and hash. Signatures need the library `cryptography`. A
partial export shows one client's entries; of all others it has `number`, `hash`, `signature` and
`client`, for whom they are hidden.
"""

from .agreements import MOST_ATTEMPTS, check_answer
from .books import FORMAT, Books
from .coins import (
    COINS,
    Coins,
    coin_key,
    coin_mix,
    coin_phase,
    most_heads,
    roster_hash,
    secret_hash,
)
from .export import (
    check_entries,
    check_entry,
    check_export,
    check_next,
    entries_of,
    entry_title,
)
from .forms import (
    GENESIS,
    HASH,
    LARGEST,
    LEVEL_ONE,
    LONGEST_NAME,
    MOST_BLOCKS,
    UncheckedError,
    VerificationError,
    canonical,
    chained_hash,
    check_signed,
    digest,
    entry_digest,
    is_name,
    is_of_small_order,
    plain,
    require_decimal,
    require_digest,
    require_name,
    require_number,
    require_tariff,
    require_unit,
)
from .kept import describe_kept, read_receipts, signed_messages
from .lines import LONGEST_LINE, fits
from .messages import MESSAGES, check_fields, head_text, require_account
from .pay import LONGEST_GAP, cost, delivery_correction, due, tariff_payment
from .program import add_arguments, main, verified
from .report import check_keys, describe, require_signed
from .runs import Client, Run, next_period, period_number, period_of, run_of

__all__ = [
    "COINS",
    "FORMAT",
    "GENESIS",
    "HASH",
    "LARGEST",
    "LEVEL_ONE",
    "LONGEST_GAP",
    "LONGEST_LINE",
    "LONGEST_NAME",
    "MESSAGES",
    "MOST_ATTEMPTS",
    "MOST_BLOCKS",
    "Books",
    "Client",
    "Coins",
    "Run",
    "UncheckedError",
    "VerificationError",
    "add_arguments",
    "canonical",
    "chained_hash",
    "check_answer",
    "check_entries",
    "check_entry",
    "check_export",
    "check_fields",
    "check_keys",
    "check_next",
    "check_signed",
    "coin_key",
    "coin_mix",
    "coin_phase",
    "cost",
    "delivery_correction",
    "describe",
    "describe_kept",
    "digest",
    "due",
    "entries_of",
    "entry_digest",
    "entry_title",
    "fits",
    "head_text",
    "is_name",
    "is_of_small_order",
    "main",
    "most_heads",
    "next_period",
    "period_number",
    "period_of",
    "plain",
    "read_receipts",
    "require_account",
    "require_decimal",
    "require_digest",
    "require_name",
    "require_number",
    "require_signed",
    "require_tariff",
    "require_unit",
    "roster_hash",
    "run_of",
    "secret_hash",
    "signed_messages",
    "tariff_payment",
    "verified",
]
