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

from .agreements import *
from .books import *
from .coins import *
from .export import *
from .forms import *
from .kept import *
from .lines import *
from .messages import *
from .pay import *
from .program import *
from .report import *
from .rounds import *
from .runs import *
