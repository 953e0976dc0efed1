"""Files that mean no good: tables that are broken, endless, or a thousand times larger inside."""

from __future__ import annotations

import gzip
import io
import random
import struct
import zipfile
from typing import TYPE_CHECKING

import polars as pl

from tests.spreadsheets import xlsx

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = b"client_id,samples,grad_norm,cost,value\n"
MIB = 2**20
_SHEET = "xl/worksheets/sheet1.xml"


def parquet(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()


def zeros(rows: int, columns: int) -> bytes:
    column = pl.select(pl.repeat(0, rows, dtype=pl.Int8)).to_series()
    return parquet(pl.DataFrame([column.alias(f"c{n}") for n in range(columns)]))


def nested(depth: int) -> bytes:
    frame = pl.DataFrame({"x": [1]})
    for _ in range(depth):
        frame = frame.select(pl.struct(pl.all()).alias("x"))
    return parquet(frame)


def long_list(count: int) -> bytes:
    return parquet(pl.select(cost=pl.repeat(0, count, dtype=pl.Int8).implode()))


def torn(seed: int) -> bytes:
    """Return a Parquet file of which some bytes are others, at its end, where the schema is."""
    rng, content = random.Random(seed), bytearray(parquet(pl.DataFrame({"client_id": ["a"] * 99})))
    for _ in range(8):
        content[rng.randrange(len(content) // 2, len(content) - 8)] = rng.randrange(256)
    return bytes(content)


def changed(content: bytes, part: str, text: bytes) -> bytes:
    """Return a spreadsheet with another part."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, text if name == part else old.read(name))
    return out.getvalue()


def sheet(cells: bytes, *, before: bytes = b"", prolog: bytes = b"") -> bytes:
    """Return a spreadsheet with these cells, as XML."""
    main = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    text = b'<?xml version="1.0"?>%s<worksheet xmlns="%s">%s<sheetData>%s</sheetData></worksheet>'
    return changed(xlsx(a=[["cost"], [1]]), _SHEET, text % (prolog, main, before, cells))


def cell(place: bytes, number: int = 1) -> bytes:
    row = place.lstrip(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return b'<row r="%s"><c r="%s"><v>%d</v></c></row>' % (row, place, number)


def ods() -> bytes:
    """Return a spreadsheet that says that one row is there a thousand million times."""
    office, table = "urn:oasis:names:tc:opendocument:xmlns:office:1.0", "urn:oasis:names:tc:"
    table += "opendocument:xmlns:table:1.0"
    text = (
        f'<office:document-content xmlns:office="{office}" xmlns:table="{table}"><office:body>'
        '<office:spreadsheet><table:table table:name="a">'
        '<table:table-row table:number-rows-repeated="1000000000"><table:table-cell '
        'office:value-type="float" office:value="1" table:number-columns-repeated="16000"/>'
        "</table:table-row></table:table></office:spreadsheet></office:body>"
        "</office:document-content>"
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", text)
    return out.getvalue()


def shared_strings() -> bytes:
    """Return a spreadsheet in which 20,000 cells are the same 30,000 characters."""
    content = sheet(b"".join(b'<row r="%d"><c r="A%d" t="inlineStr"><is><t>%s</t></is></c></row>'
                             % (n, n, b"x" * 30_000) for n in range(1, 20_001)))  # fmt: skip
    assert len(content) < 4 * MIB
    return content


def laughs() -> bytes:
    lines = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    prolog = f'<!DOCTYPE w [<!ENTITY l0 "ha">{lines}]>'.encode()
    return sheet(
        b'<row r="1"><c r="A1" t="inlineStr"><is><t>&l9;</t></is></c></row>', prolog=prolog
    )


def rows_of(*rows: bytes) -> bytes:
    return HEADER + b"\n".join(rows) + b"\n"


HOSTILE: dict[str, Callable[[], bytes]] = {
    # Parquet
    "500 nested structs": lambda: nested(500),
    "structs": lambda: nested(1),
    "a list of numbers": lambda: long_list(1000),
    "100 columns of 700,000 zeros": lambda: zeros(700_000, 100),
    "4,001 columns": lambda: zeros(1, 4001),
    "5,000,001 rows": lambda: zeros(5_000_001, 1),
    "one long name in every row": lambda: parquet(
        pl.DataFrame({"client_id": ["a" * 100_000] * 4000})
    ),
    "one long category in every row": lambda: parquet(
        pl.DataFrame({"client_id": pl.Series(["a" * 100_000] * 4000, dtype=pl.Categorical)})
    ),
    "dates": lambda: parquet(pl.select(cost=pl.date(2026, 1, 1))),
    "half a Parquet file": lambda: (content := zeros(9, 9))[: len(content) // 2],
    "a Parquet file without its end": lambda: zeros(9, 9)[:-4],
    "a Parquet file with a footer of 4 GB": lambda: (
        zeros(9, 9)[:-8] + struct.pack("<I", 2**32 - 1) + b"PAR1"
    ),
    "a magic number": lambda: b"PAR1",
    "noise between magic numbers": lambda: b"PAR1" + random.Random(1).randbytes(9999) + b"PAR1",
    "a torn Parquet file": lambda: torn(1),
    "another torn Parquet file": lambda: torn(2),
    # Spreadsheets
    "cells A1 and XFD1048576": lambda: sheet(cell(b"A1") + cell(b"XFD1048576")),
    "dimensions of 17 thousand million cells": lambda: sheet(
        cell(b"A1") + cell(b"XFD1048576"), before=b'<dimension ref="A1:XFD1048576"/>'
    ),
    "a sheet of a gigabyte of spaces": lambda: sheet(b" " * (1024 * MIB)),
    "600 million characters in a sheet": shared_strings,
    "a thousand million laughs": laughs,
    "a row of .ods a thousand million times": ods,
    "half a spreadsheet": lambda: (content := xlsx(a=[["cost"], [1]]))[: len(content) // 2],
    "an archive": lambda: changed(xlsx(a=[["cost"]]), "xl/workbook.xml", b"<no/>"),
    "a spreadsheet with a password": lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(9999),
    # Text
    "100,000 columns": lambda: b",".join(b"c%d" % n for n in range(100_000)) + b"\n1\n",
    "4,000 columns that look like others": lambda: (
        b",".join(b"cost" + b"x" * 190 + b"%d" % n for n in range(4000)) + b"\n1\n"
    ),
    "a field of 190 MB": lambda: rows_of(b"a,1,1," + b"x" * 190 * MIB + b",0"),
    "a field of 900 KB": lambda: rows_of(b"a,1,1," + b"x" * 900_000 + b",0"),
    "a name of 1,000,000 characters": lambda: rows_of(b"n" * 1_000_000 + b",1,1,1,0"),
    "a column's name of 50 MB": lambda: b"x" * 50 * MIB + b"\n1\n",
    "1,000,000 clients with one name": lambda: HEADER + b"a,1,1,1,0\n" * 1_000_000,
    "190,000,000 empty lines": lambda: HEADER + b"\n" * 190_000_000,
    "40,000 empty fields in 1,000 rows": lambda: (b"," * 3999 + b"\n") * 10_000,
    "a quote that never ends": lambda: HEADER + b'"a,1,1,1,0\n' * 100_000,
    "a number of 1,000,000 digits": lambda: rows_of(b"a,1,1," + b"9" * 1_000_000 + b",0"),
    "control characters": lambda: rows_of(b"\x1b]0;x\x07\x1b[2J,1,1,\x1b[31mred,0"),
    "zero bytes": lambda: bytes(MIB),
    "half of UTF-16": lambda: HEADER.decode().encode("utf-16")[:-1],
    "noise": lambda: random.Random(2).randbytes(MIB),
    "a compressed table": lambda: gzip.compress(rows_of(b"a,1,1,1,0") * 100_000),
    "a row with too many fields": lambda: rows_of(b"a,1,1,1,0" + b",0" * 100_000),
    "nothing but a header": lambda: HEADER,
}
# Making these takes seconds.
LARGE = {
    "900 columns of 100,000 zeros": lambda: zeros(100_000, 900),
    "a list of 200,000,000 zeros": lambda: long_list(200_000_000),
}
# Files of JSON, TOML and keys.
SETTINGS: dict[str, Callable[[], bytes]] = {
    "a million brackets": lambda: b"[" * 10**6,
    "100,000,000 values": lambda: b'{"clients":[' + b"[]," * 10**8 + b"1]}",
    "a number of 1,000,000 digits": lambda: b"9" * 10**6,
    "1,000,000 fields with one name": lambda: b"{" + b'"format":1,' * 10**6 + b'"a":1}',
    "128 MiB of text": lambda: b'"' + b"x" * (128 * MIB) + b'"',
    "half a surrogate pair": lambda: b'{"format":"\\ud800"}',
    "a table of a thousand levels": lambda: b"a = " + b"[" * 100_000,
    "a name of a thousand parts": lambda: b".".join([b"a"] * 100_000) + b" = 1",
    "zeros": lambda: bytes(MIB),
    "noise": lambda: random.Random(3).randbytes(MIB),
}
