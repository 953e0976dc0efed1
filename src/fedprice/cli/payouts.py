"""`fedprice ledger`: pay out money, reverse mistakes, end runs and change keys.

Whatever takes money from a client, or changes its key, needs the client's signature: a request, a
small file that `fedprice ledger request` writes with the client's own key and the server records.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprice._plumbing.table_limits import limited_content
from fedprice._plumbing.tables import check_output, whole_file
from fedprice.cli.console import stderr
from fedprice.cli.ledger import DEFAULT_URL, LedgerUrl, micro_units_of, opened_ledger
from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import Signed

__all__ = ["request", "reverse", "rotate", "settle", "withdraw"]

ServerKey = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="The server's private key.")
]
Request = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The client's request, written by `fedprice ledger request`."
    ),
]


@contextmanager
def _writable(url: str, key: Path | None) -> Iterator[Ledger]:
    """Open a ledger for writing, with the server's key if it is given."""
    from fedprice.market.keys import read_key
    from fedprice.market.ledger import Ledger

    opened = Ledger(url, create=False)
    try:
        if key is not None and not opened.books.server:
            raise InputError(
                f"{opened.name} has no server key yet; set one with: fedprice ledger open URL "
                "--key FILE"
            )
        if key is not None:
            opened.use_key(read_key(key))
        yield opened
    finally:
        opened.close()


def request(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The client's name.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The client's private key.")],
    identity: Annotated[
        str, typer.Option(metavar="HEX", help="The ledger's identity, as in offers and exports.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.json")],
    withdraw: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Request a payout of this amount.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Reference of the payout, which counts once.")
    ] = None,
    reverse: Annotated[
        int | None, typer.Option(metavar="ENTRY", help="Agree to the reversal of this deposit.")
    ] = None,
    amount: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Amount of the deposit.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Reason for the reversal.")] = None,
    rotate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="New private key to sign with.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Overwrite FILE.json.")] = False,
) -> None:
    """Sign, as a client, a request to the server: for a payout, a reversal or a new key."""
    from fedprice.market.keys import read_key
    from fedprice.market.payouts import Reversal, Rotation, Withdrawal

    if [withdraw, reverse, rotate].count(None) != 2:
        raise InputError("give exactly one of --withdraw, --reverse and --rotate.")
    if (withdraw is None) != (reference is None) or not (
        (reverse is None) == (reason is None) == (amount is None)
    ):
        raise InputError(
            "--reference requires --withdraw; --amount and --reason require --reverse."
        )
    check_output(output, (".json",), force=force)
    own, account = read_key(key), f"client:{client}"
    proof = None
    message: Any
    if withdraw is not None:
        units = micro_units_of("--withdraw", withdraw)
        message = Withdrawal(identity, account, units, str(reference))
    elif reverse is not None:
        units = micro_units_of("--amount", str(amount))
        message = Reversal(identity, reverse, units, str(reason))
    else:
        new = read_key(Path(str(rotate)))
        message = Rotation(identity, account, own.public.hex(), new.public.hex())
        proof = new.sign(message)
    signed = own.sign(message)
    kept = {"content": signed.content.decode(), "signature": signed.signature.hex()}
    kept["key"] = signed.key.hex()
    if proof is not None:
        kept["proof"] = proof.signature.hex()
    with whole_file(output, private=True) as part:
        part.write_text(json.dumps(kept) + "\n", "utf-8")
    stderr().print(f"wrote {output}; give it to the server to record", markup=False)


def _asked(path: Path, kind: Any) -> tuple[Signed, Any, str]:
    """Return a client's signed request of this kind, and the proof of a new key."""
    from fedprice.market.messages import RefusedError, Signed

    try:
        kept = json.loads(limited_content(path))
        key, signature = (bytes.fromhex(kept[name]) for name in ("key", "signature"))
        signed = Signed(kept["content"].encode(), signature, key)
        proof = str(kept.get("proof", ""))
        bytes.fromhex(proof)
        return signed, signed.open(kind, key), proof
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except RefusedError as error:
        wanted = kind.__name__.lower()
        raise InputError(f"{path} is not a request for a {wanted}: {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is not a request; write one with: fedprice ledger request"
        ) from error


def withdraw(
    amount: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Amount paid out of the treasury.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Reference of the payout, which counts once.")
    ] = None,
    request: Request = None,
    url: LedgerUrl = DEFAULT_URL,
    key: ServerKey = None,
) -> None:
    """Record that money was paid out: from the treasury, or to a client that requested it."""
    from fedprice.market.money import money
    from fedprice.market.payouts import Withdrawal

    if (request is None) == (amount is None) or (amount is None) != (reference is None):
        raise InputError("give --amount and --reference for the treasury, or a client's --request.")
    signed = None
    if request is not None:
        signed, asked, _ = _asked(request, Withdrawal)
        account, units, reference = asked.account, asked.amount, asked.reference
    else:
        account, units = "treasury", micro_units_of("--amount", str(amount))
    with _writable(url, key) as opened:
        new = opened.withdraw(account, units, str(reference), signed)
        _say(new, f"{money(units)} withdrawn from {account}, {reference}", opened)


def reverse(
    entry: Annotated[
        int, typer.Argument(metavar="ENTRY", help="Number of a deposit's or withdrawal's entry.")
    ],
    reason: Annotated[str, typer.Option(help="Reason for the reversal.")],
    request: Request = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Take money of a client that has no key to sign.")
    ] = False,
    url: LedgerUrl = DEFAULT_URL,
    key: ServerKey = None,
) -> None:
    """Reverse a deposit or a withdrawal; if this takes a client's money, the client must sign."""
    from fedprice.market.payouts import Reversal

    signed = None if request is None else _asked(request, Reversal)[0]
    with _writable(url, key) as opened:
        new = opened.reverse(entry, reason, signed, unsigned=unsigned)
        _say(new, f"entry {entry} reversed: {reason}", opened)


def settle(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name, or a period's.")],
    url: LedgerUrl = DEFAULT_URL,
    key: ServerKey = None,
) -> None:
    """End a run as it stands: payers get back what no round used, the treasury gets the rest."""
    with _writable(url, key) as opened:
        new = not opened.is_settled(run)
        opened.settle(run)
        _say(new, f"settled {run} after {opened.rounds_done(run)} rounds", opened)


def rotate(
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The server's new private key.")
    ] = None,
    request: Request = None,
    url: LedgerUrl = DEFAULT_URL,
    key: ServerKey = None,
) -> None:
    """Replace the server's key, or the key of a client that requested it."""
    from fedprice.market.keys import read_key
    from fedprice.market.messages import Signed
    from fedprice.market.payouts import Rotation

    if (to is None) == (request is None):
        raise InputError("give the server's new key with --to, or a client's --request.")
    new_key = None if to is None else read_key(to)
    with opened_ledger(url) as there:
        done = new_key is not None and there.books.server == new_key.public.hex()
        if done:
            _say(False, "the server signs with its new key", there)
            return
    with _writable(url, key) as opened:
        if new_key is not None:
            opened.renew_key(new_key)
            _say(True, "the server signs with its new key; give clients its .pub file", opened)
        elif request is not None:
            signed, asked, proof = _asked(request, Rotation)
            new = Signed(signed.content, bytes.fromhex(proof), bytes.fromhex(asked.new))
            opened.rotate(asked.account, signed, new)
            _say(True, f"{asked.account} signs with its new key", opened)


def _say(new: bool, what: str, opened: Ledger) -> None:
    number, hash_, _ = opened.head()
    told = f"{what}; entry {number}, {hash_}" if new else f"recorded before: {what}"
    stderr().print(told, markup=False, soft_wrap=True)
