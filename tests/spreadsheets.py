"""Files as a spreadsheet program saves them, made of cells."""

import io
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

Cell = str | float | None

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPES = "application/vnd.openxmlformats"


def xlsx(**sheets: Sequence[Sequence[Cell]]) -> bytes:
    """Return an .xlsx file with these sheets, by name."""
    numbered = list(enumerate(sheets.items(), start=1))
    listed = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="r{n}"/>' for n, (name, _) in numbered
    )
    targets = "".join(
        f'<Relationship Id="r{n}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>'
        for n, _ in numbered
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="{_TYPES}-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        '<Override PartName="/xl/workbook.xml" '
        f'ContentType="{_TYPES}-officedocument.spreadsheetml.sheet.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}">'
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{targets}'
        "</Relationships>",
    }
    for n, (_, rows) in numbered:
        body = "".join(
            f'<row r="{r}">{"".join(_cell(r, c, cell) for c, cell in enumerate(row))}</row>'
            for r, row in enumerate(rows, start=1)
        )
        parts[f"xl/worksheets/sheet{n}.xml"] = (
            f'<worksheet xmlns="{_MAIN}"><sheetData>{body}</sheetData></worksheet>'
        )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in parts.items():
            archive.writestr(path, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return out.getvalue()


def _cell(row: int, column: int, cell: Cell) -> str:
    at = f"{chr(ord('A') + column)}{row}"
    if cell is None:
        return ""
    if isinstance(cell, str):
        return f'<c r="{at}" t="inlineStr"><is><t>{escape(cell)}</t></is></c>'
    return f'<c r="{at}"><v>{cell!r}</v></c>'
