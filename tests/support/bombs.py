"""Small files that would become very large: what reading each comes to, and what memory it takes.

Run it to see the table: ``python tests/support/bombs.py``. Every bomb is read in a process of its own.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import zlib
from functools import cache
from importlib import import_module
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MOST_MEMORY = 300 << 20
"""What reading any of them may take more than an ordinary file of its kind, in bytes."""
_HUGE = 400 << 20

_READ = """
import json, sys
from pathlib import Path
from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest.readers import read_file

try:
    outcome = f"{sum(len(document.text) for document in read_file(Path(sys.argv[1]))):,} characters"
except UnreadableFileError as error:
    outcome = error.reason
status = Path("/proc/self/status").read_text()
print(json.dumps([outcome, 1024 * int(status.partition("VmHWM:")[2].split()[0])]))
"""

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"
_EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="book.opf"/></rootfiles></container>'
)


def read_apart(path: Path) -> tuple[str, int]:
    """Read a file in a process of its own; return what came of it, and the bytes that it took more than another."""
    outcome, peak = _read_apart(path)
    return outcome, peak - _ordinary_peak(path.suffix)


def _read_apart(path: Path) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path)], check=True, capture_output=True, text=True, timeout=600
    )
    outcome, peak = json.loads(done.stdout)
    return outcome, peak


@cache
def _ordinary_peak(suffix: str) -> int:
    """Return the memory of a process that reads an ordinary file of the same kind."""
    page = pdf(zlib.compress(b"BT /F 9 Tf (a) Tj ET"), "/FlateDecode")
    ordinary: dict[str, Callable[[], bytes]] = {
        ".docx": lambda: zipped(word(_paragraphs(3))),
        ".epub": lambda: zipped(book({"p": "<p>a</p>"}, ["p"])),
        ".pptx": lambda: deck(lambda _: None),
        ".xlsx": lambda: zipped(workbook('<row r="1"><c r="A1"><v>1</v></c></row>')),
        ".html": lambda: b"<p>a</p>",
        ".pdf": lambda: page,
    }
    with TemporaryDirectory() as folder:
        path = Path(folder, f"ordinary{suffix}")
        path.write_bytes(ordinary[suffix]())
        outcome, peak = _read_apart(path)
    assert outcome.endswith(" characters"), outcome
    return peak


def zipped_pieces(members: dict[str, Iterable[bytes]], method: int = ZIP_DEFLATED) -> bytes:
    """Return a ZIP archive of members that are never in memory as a whole."""
    archive = BytesIO()
    with ZipFile(archive, "w", method) as file:
        for name, pieces in members.items():
            with file.open(name, "w") as member:
                for piece in pieces:
                    member.write(piece)
    return archive.getvalue()


def much(start: str, unit: str, size: int) -> Iterator[bytes]:
    """Yield a text and then another one again and again, in pieces."""
    yield start.encode()
    piece = unit.encode() * ((1 << 20) // len(unit))
    yield from repeat(piece, size // len(piece))


def zipped(members: Mapping[str, str | bytes], method: int = ZIP_DEFLATED) -> bytes:
    """Return a ZIP archive."""
    archive = BytesIO()
    with ZipFile(archive, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return archive.getvalue()


def word(body: str, **parts: str) -> dict[str, str]:
    """Return the parts of a Word document."""
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    return {"word/document.xml": document, **{f"word/{name}.xml": content for name, content in parts.items()}}


def book(pages: Mapping[str, str | bytes], spine: list[str]) -> dict[str, str | bytes]:
    """Return the parts of an EPUB."""
    items = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in pages)
    references = "".join(f'<itemref idref="{name}"/>' for name in spine)
    package = f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{references}</spine></package>'
    return {"META-INF/container.xml": _CONTAINER, "book.opf": package, **pages}


def deck(change: Callable[[dict[str, bytes]], None]) -> bytes:
    """Return a presentation of one slide with something changed in its parts."""
    from pptx import Presentation

    made, presentation = BytesIO(), Presentation()
    slide: Any = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "Tides"
    slide.placeholders[1].text = "MARK"
    presentation.save(made)
    with ZipFile(made) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    return zipped(parts)


def workbook(rows: str, **parts: str) -> dict[str, str]:
    """Return the parts of an Excel workbook of one sheet."""
    made = BytesIO()
    cast("Any", import_module("openpyxl")).Workbook().save(made)
    with ZipFile(made) as archive:
        whole = {name: archive.read(name).decode() for name in archive.namelist()}
    sheet = whole["xl/worksheets/sheet1.xml"]
    start = sheet[: sheet.index("<sheetData")]
    whole["xl/worksheets/sheet1.xml"] = f"{start}<sheetData>{rows}</sheetData></worksheet>"
    strings = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{_EXCEL}.sharedStrings+xml"/></Types>'
    whole["[Content_Types].xml"] = whole["[Content_Types].xml"].replace("</Types>", strings)
    return whole | {"xl/sharedStrings.xml": _strings("")} | {f"xl/{name}.xml": each for name, each in parts.items()}


def _strings(items: str) -> str:
    return f'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">{items}</sst>'


def _styles(count: int) -> str:
    styles = workbook("")["xl/styles.xml"]
    style = '<xf numFmtId="0" fontId="0" fillId="0" borderId="0" pivotButton="0" quotePrefix="0" xfId="0"/>'
    return styles.replace("</cellXfs>", style * count + "</cellXfs>")


def with_sizes(archive: bytes, size: int) -> bytes:
    """Make all members of an archive claim a size."""
    changed = bytearray(archive)
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = changed.find(mark)
        while at >= 0:
            struct.pack_into("<L", changed, at + offset, size)
            at = changed.find(mark, at + 4)
    return bytes(changed)


def overlapping(members: int, size: int) -> bytes:
    """Return an archive whose members all are the same bytes, and so have the same name."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = word(f"<w:p><w:r><w:t>{'a' * size}</w:t></w:r></w:p>")["word/document.xml"].encode()
    packed = packer.compress(content) + packer.flush()
    name = b"word/document.xml"
    numbers = (20, 0, 8, 0, 0, zlib.crc32(content), len(packed), len(content), len(name), 0)
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", *numbers) + name + packed
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, *numbers, 0, 0, 0, 0, 0) + name
    end = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, members & 0xFFFF, members & 0xFFFF, len(entry) * members, len(local), 0
    )
    return local + entry * members + end


def quoted_overlap(members: int, size: int) -> bytes:
    """Return an archive whose members each hold the headers of all that follow, and the same last bytes.

    The archive is well formed, and each member can be unpacked.

    After David Fifield, "A better zip bomb" (2019).
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = b"<p>" + b"a" * size
    kernel = packer.compress(content) + packer.flush()
    data, sizes = kernel, (zlib.crc32(content), len(kernel), len(content))
    headers: list[tuple[bytes, tuple[int, int, int], int]] = []
    for number in range(members - 1, -1, -1):
        name = b"p%06d" % number
        local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 0, *sizes, len(name), 0) + name
        headers.append((name, sizes, len(data) + len(local)))
        data, content = local + data, local + content
        quote = struct.pack("<B2H", 0, len(local), 0xFFFF ^ len(local))
        data_of_next = quote + data
        sizes = (zlib.crc32(content), len(data_of_next), len(content))
        data = data_of_next if number else data
    entries = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, *sizes, 7, 0, 0, 0, 0, 0, len(data) - before)
        + name
        for name, sizes, before in headers
    )
    return data + entries + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, members, members, len(entries), len(data), 0)


def zip64(archive: bytes, claimed: int) -> bytes:
    """Make an archive claim by its ZIP64 records that its directory is this long."""
    at = archive.rindex(b"PK\x05\x06")
    size, offset = struct.unpack_from("<2L", archive, at + 12)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, size + claimed, offset)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, at, 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return archive[:at] + record + locator + end


def pdf(stream: bytes, filters: str) -> bytes:
    """Return a PDF of one page whose content is packed so."""
    content = b"<< /Length %d /Filter %b >>\nstream\n%b\nendstream" % (len(stream), filters.encode(), stream)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R"
            b" /Resources << /Font << /F 5 0 R >> >> >>"
        ),
        content,
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    file, offsets = b"%PDF-1.7\n", list[int]()
    for number, each in enumerate(objects, start=1):
        offsets.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % len(file)
    return file + b"xref\n0 6\n0000000000 65535 f \n" + table + trailer


def _paragraphs(count: int) -> str:
    return "<w:p><w:r><w:t>a</w:t></w:r></w:p>" * count


def _hard(size: int) -> str:
    """Return text that does not shrink much, so that a ratio tells nothing."""
    return "".join(random.Random(3).choices("abcdefghij klmnopqrst", k=size))


def _nested_table(depth: int) -> str:
    start, end = "<w:tbl><w:tr><w:tc>", "</w:tc></w:tr></w:tbl>"
    return start * depth + "<w:p><w:r><w:t>deep</w:t></w:r></w:p>" + end * depth


def _footnotes() -> dict[str, str]:
    references = "".join('<w:p><w:r><w:footnoteReference w:id="2"/></w:r></w:p>' for _ in range(2_000))
    notes = f'<w:footnotes xmlns:w="{_WORD}"><w:footnote w:id="2">{_paragraphs(2_000)}</w:footnote></w:footnotes>'
    return word(references + f"<w:p><w:r><w:t>{_hard(60_000)}</w:t></w:r></w:p>", footnotes=notes)


def _slides_again(parts: dict[str, bytes]) -> None:
    once = parts["ppt/presentation.xml"].partition(b"<p:sldIdLst>")[2].partition(b"</p:sldIdLst>")[0]
    parts["ppt/presentation.xml"] = parts["ppt/presentation.xml"].replace(once, once * 40_000)
    parts["ppt/slides/slide1.xml"] = parts["ppt/slides/slide1.xml"].replace(b"MARK", b"word " * 100_000)


def _relationship_loops(parts: dict[str, bytes]) -> None:
    loops = b"".join(
        b'<Relationship Id="x%d" Type="%b/slide" Target="slide%d.xml"/>' % (number, _OFFICE.encode(), number % 3 + 1)
        for number in range(40_000)
    )
    name = "ppt/slides/_rels/slide1.xml.rels"
    parts[name] = parts[name].replace(b"</Relationships>", loops + b"</Relationships>")
    for number in (2, 3):
        parts[f"ppt/slides/slide{number}.xml"] = parts["ppt/slides/slide1.xml"]
        parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = parts[name]


def _long_words(parts: dict[str, bytes]) -> None:
    parts["ppt/slides/slide1.xml"] = parts["ppt/slides/slide1.xml"].replace(b"MARK", b"aa " * 10_000_000)


def _flate(pieces: Iterable[bytes], times: int) -> bytes:
    for _ in range(times):
        pieces = _deflated(pieces)
    return b"".join(pieces)


def _deflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(9)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def _many_paragraphs(count: int) -> dict[str, Iterable[bytes]]:
    """Return a Word document that is long, and could be honest."""
    start, end = word("\0")["word/document.xml"].split("\0")
    hard = f"<w:p><w:r><w:t>{_hard(200_000)}</w:t></w:r></w:p>"
    return {"word/document.xml": chain(much(start + hard, _paragraphs(1), count * 35), [end.encode()])}


_LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    + "]>"
)
_GIANT = f'<!DOCTYPE x [<!ENTITY a "{"a" * 100_000}">]>'

BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "deflate, 400 MB of one letter": (
        ".docx",
        lambda: zipped_pieces({"word/document.xml": much("<w:document>", "a", _HUGE)}),
    ),
    "deflate inside deflate": (
        ".epub",
        lambda: zipped(book({"p": zipped_pieces({"p": much("<p>", "a", _HUGE)})}, ["p"])),
    ),
    "bzip2, false size": (
        ".docx",
        lambda: with_sizes(
            zipped_pieces({"word/document.xml": much("<w:document>", "a", _HUGE // 8)}, ZIP_BZIP2), 1_000
        ),
    ),
    "lzma, false size": (
        ".epub",
        lambda: with_sizes(zipped_pieces({"META-INF/container.xml": much("<p>", "a", _HUGE // 8)}, ZIP_LZMA), 500),
    ),
    "deflate, false size": (
        ".pptx",
        lambda: with_sizes(zipped_pieces({"ppt/presentation.xml": much("<", "<", _HUGE)}), 1_000),
    ),
    "9,000 overlapping members": (".docx", lambda: overlapping(9_000, 1 << 20)),
    "quoted overlap (Fifield)": (".docx", lambda: quoted_overlap(100, 8 << 20)),
    "a million members": (".epub", lambda: overlapping(1_000_000, 10)),
    "ZIP64, directory of 8 EB": (".docx", lambda: zip64(zipped(word(_paragraphs(3))), 1 << 62)),
    "a billion laughs": (".docx", lambda: zipped({"word/document.xml": _LAUGHS + "<x>&j;</x>"})),
    "a billion laughs, other name": (
        ".docx",
        lambda: zipped(
            {
                "_rels/.rels": f'<Relationships xmlns="{_RELATIONSHIPS}"><Relationship Id="r" '
                f'Type="{_OFFICE}/officeDocument" Target="word/x.png"/></Relationships>',
                "word/x.png": _LAUGHS + "<x>&j;</x>",
            }
        ),
    ),
    "quadratic entities": (".epub", lambda: zipped(book({"p": f"{_GIANT}<p>{'&a;' * 100_000}</p>"}, ["p"]))),
    "one page named 20,000 times": (".epub", lambda: zipped(book({"p": f"<p>{_hard(1 << 20)}</p>"}, ["p"] * 20_000))),
    "10,000 pages in one file": (
        ".epub",
        lambda: zipped(
            book({f"p#{at}": f"<p>{'a ' * 5_000}</p>" for at in range(9_000)}, [f"p#{at}" for at in range(9_000)])
        ),
    ),
    "one slide listed 40,000 times": (".pptx", lambda: deck(_slides_again)),
    "relationships in circles": (".pptx", lambda: deck(_relationship_loops)),
    "words in one paragraph": (".pptx", lambda: deck(_long_words)),
    "tables nested 300 deep": (".docx", lambda: zipped(word(_nested_table(300)))),
    "tables nested 20,000 deep": (".docx", lambda: zipped(word(_nested_table(20_000)))),
    "one footnote named 2,000 times": (".docx", lambda: zipped(_footnotes())),
    "as many elements as allowed at once": (
        ".docx",
        lambda: zipped(word(f"<w:sdt>{'<w:p/>x' * 319_900}</w:sdt><!--{_hard(40_000)}-->")),
    ),
    "150,000 elements": (".docx", lambda: zipped_pieces(_many_paragraphs(50_000))),
    "as much text as allowed": (
        ".docx",
        lambda: zipped(word(f"<w:p><w:r><w:t>\N{GRINNING FACE}{'aa ' * 4_100_000}</w:t></w:r></w:p>"), ZIP_STORED),
    ),
    "paragraphs, as many as allowed": (
        ".epub",
        lambda: zipped(book({"p": f"<!--{_hard(60_000)}-->" + "<p>a</p>" * 159_900}, ["p"])),
    ),
    "400,000 rows of 16,384 columns": (
        ".xlsx",
        lambda: zipped(workbook(f"<!--{_hard(400_000)}-->" + '<row><c r="XFD1"/></row>' * 400_000)),
    ),
    "row 1,000,000,000,000": (
        ".xlsx",
        lambda: zipped(workbook('<row r="1000000000000"><c r="A1000000000000"><v>1</v></c></row>')),
    ),
    "one row of 600,000 cells": (
        ".xlsx",
        lambda: zipped(workbook(f"<!--{_hard(400_000)}--><row>{'<c><v>1</v></c>' * 600_000}</row>")),
    ),
    "as many cells as allowed": (
        ".xlsx",
        lambda: zipped(workbook(f"<!--{_hard(400_000)}-->" + f"<row>{'<c><v>1</v></c>' * 99}</row>" * 9_900)),
    ),
    "one string named 200,000 times": (
        ".xlsx",
        lambda: zipped(
            workbook(
                f"<!--{_hard(200_000)}-->" + '<row><c t="s"><v>0</v></c></row>' * 200_000,
                sharedStrings=_strings(f"<si><t>{'a ' * 500_000}</t></si>"),
            )
        ),
    ),
    "900,000 strings": (
        ".xlsx",
        lambda: zipped(
            workbook('<row><c t="s"><v>0</v></c></row>', sharedStrings=_strings("<si><t>a</t></si>" * 900_000))
            | {"hard.xml": f"<!--{_hard(400_000)}-->"}
        ),
    ),
    "15,000 styles": (
        ".xlsx",
        lambda: zipped(
            workbook('<row><c s="1"><v>0</v></c></row>', styles=_styles(15_000)) | {"h.xml": f"<!--{_hard(99_000)}-->"}
        ),
    ),
    "a table to be filled up": (
        ".html",
        f"<table><tr>{'<td>a</td>' * 20_000}</tr>{'<tr><td>a</td></tr>' * 20_000}</table>".encode,
    ),
    "columns to be filled up": (
        ".docx",
        lambda: zipped(
            word(
                _hard(9_000)
                + "<w:tbl>"
                + '<w:tr><w:tc><w:tcPr><w:gridSpan w:val="1000000"/></w:tcPr><w:p/></w:tc></w:tr>' * 20_000
                + "</w:tbl>"
            )
        ),
    ),
    "quotations 900 deep": (".html", ("<blockquote>" * 900 + "<p>a</p>" * 10_000).encode),
    "500,000 attributes": (".html", f"<p {' '.join(f'a{at}' for at in range(500_000))}>a</p>".encode),
    "FlateDecode, 400 MB": (".pdf", lambda: pdf(_flate(much("BT /F 9 Tf ", "(a) Tj ", _HUGE), 1), "/FlateDecode")),
    "FlateDecode, 16 MB of text": (
        ".pdf",
        lambda: pdf(_flate(much("BT /F 9 Tf ", "(a) Tj ", 15 << 20), 1), "/FlateDecode"),
    ),
    "FlateDecode, 16 MB of states": (".pdf", lambda: pdf(_flate(much("", "q ", 15 << 20), 1), "/FlateDecode")),
    "FlateDecode, as much text as allowed": (
        ".pdf",
        lambda: pdf(_flate(much("BT /F 9 Tf ", "(a) Tj ", 2 << 20), 1), "/FlateDecode"),
    ),
    "FlateDecode three times": (
        ".pdf",
        lambda: pdf(_flate(much("", " ", _HUGE), 3), "[/FlateDecode /FlateDecode /FlateDecode]"),
    ),
}


def main() -> None:
    """Print the table."""
    print("| bomb | file | bytes | what comes of it | memory |\n| --- | --- | ---: | --- | ---: |")  # noqa: T201
    with TemporaryDirectory() as folder:
        for name in sys.argv[1:] or BOMBS:
            suffix, make = BOMBS[name]
            path = Path(folder, f"bomb{suffix}")
            path.write_bytes(make())
            outcome, grown = read_apart(path)
            print(f"| {name} | {suffix[1:]} | {path.stat().st_size:,} | {outcome} | {grown >> 20} MB |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
