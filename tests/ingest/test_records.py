"""Mail, JSON, tables, Excel and RTF: what they say is found, one document a message or object."""

import json
import mailbox
import zipfile
from datetime import datetime
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path

import openpyxl
import pytest
from pdf_files import make_pdf

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.source_files import read_documents

SAID = "Die Straße nach München ist gesperrt."


def make_mail(subject, text, **headers):
    """A message in base64, as mail clients send it."""
    mail = EmailMessage()
    mail["Subject"], mail["From"] = subject, "Ann <ann@example.com>"
    mail["Date"] = "Tue, 01 Jul 2025 10:52:37 +0200"
    for name, value in headers.items():
        mail[name.replace("_", "-")] = value
    mail.set_content(text, cte="base64")
    return mail


def write_box(path, mails):
    path.unlink(missing_ok=True)
    box = mailbox.mbox(path)
    for mail in mails:
        box.add(mail)
    box.close()


@pytest.fixture(autouse=True)
def folder(tmp_path_factory, monkeypatch):
    """Files of these tests are named from a folder of theirs."""
    monkeypatch.chdir(tmp_path_factory.mktemp("records"))


def read(name, data):
    """Documents of a file, and what was left out of it."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_documents([path])


def parse(name, data):
    found, skipped = read(name, data)
    if not found and skipped:
        raise InvalidInputError("; ".join(skipped.values()))
    return found


def test_mail_is_read_with_its_text_attachments():
    mail = make_mail("Grüße aus München", SAID, To="bob@example.com", Message_ID="<m1@x>")
    mail.add_alternative(f"<p>HTML: {SAID}</p>", subtype="html")
    mail.add_attachment("Bitte lesen.", filename="note.txt")
    mail.add_attachment(b"\x00\xff", maintype="image", subtype="png", filename="a.png")
    mail.add_attachment(make_mail("Inner", "Weitergeleitet."))
    (found,) = parse("a/b.eml", mail.as_bytes())
    assert found.metadata == {
        "source": "a/b.eml",
        "title": "Grüße aus München",
        "from": "Ann <ann@example.com>",
        "to": "bob@example.com",
        "date": "2025-07-01T10:52:37+02:00",
        "day": 20250701,
        "message_id": "<m1@x>",
    }
    for said in (SAID, "Bitte lesen.", "Weitergeleitet.", "From: Ann"):
        assert found.page_content.count(said) == 1
    assert "HTML:" not in found.page_content


@pytest.mark.parametrize(
    ("mail", "said"),
    [
        (b"", ""),
        (b"Subject: =?utf-8?B?R3LDvMOfZQ==?=\n\nbody", "body"),
        (b"Content-Type: text/plain; charset=nonsense\n\nGr\xc3\xbc\xc3\x9fe", "Grüße"),
        (b"Content-Type: text/html\n\n<h1>Hi</h1><p>you", "# Hi\n\nyou"),
        (b"Content-Type: multipart/mixed; boundary=x\n\nno parts", ""),
        (b"Content-Type: multipart/alternative; boundary=x\n\n--x--\n", ""),
        (b"Date: yesterday\nFrom: <<>>,,\nMessage-ID: [\n\nok", "ok"),
        (b"Content-Transfer-Encoding: base64\n\n!!!notbase64", ""),
    ],
)
def test_odd_mail_is_read_as_far_as_it_goes(mail, said):
    (found,) = parse("a.eml", mail)
    assert said in found.page_content


@pytest.mark.parametrize("kind", ["plain", "octet-stream"])
def test_attachments_are_read_as_files_are(kind):
    """Whatever type the sender states, the ending of their name says what they are."""
    mail = make_mail("Files", "See below.")
    for name, text in {
        "a.json": '{"place": "M\\u00fcnchen"}',
        "b.md": "# Heading\n",
        "c.csv": "name;price\nRad;1,5\n",
        "d.html": "<h1>Title</h1><script>evil()</script>",
        "e.txt": "Straße",
        "f.bin": "no text",
    }.items():
        main = "text" if kind == "plain" else "application"
        mail.add_attachment(text.encode(), maintype=main, subtype=kind, filename=name)
    (found,) = parse("a.eml", mail.as_bytes())
    for said in ("place: München", "# Heading", "| Rad | 1,5 |", "# Title", "Straße"):
        assert said in found.page_content
    assert "evil" not in found.page_content
    assert ("no text" in found.page_content) == (kind == "plain")
    mail = make_mail("JSON", "See below.")
    mail.add_attachment(b'{"a": {"b": 1}}', maintype="application", subtype="json")
    assert "a.b: 1" in parse("a.eml", mail.as_bytes())[0].page_content


def test_mail_that_breaks_the_rules_of_encodings():
    """Bytes outside ASCII, without or with a wrong charset, are UTF-8 or Windows-1252."""
    for encoding in ("utf-8", "cp1252"):
        for charset in ("", "us-ascii", "utf-8", "x-unknown"):
            stated = f"Content-Type: text/plain; charset={charset}\n" if charset else ""
            mail = f"Subject: Grüße\n{stated}\nStraße für 5 €".encode(encoding)
            (found,) = parse("a.eml", mail)
            assert (found.metadata["title"], found.page_content.strip()) == (
                "Grüße",
                "Straße für 5 €",
            )


def test_a_line_of_a_text_that_begins_with_from():
    """It begins no message, unless a sender and a date stand in it below an empty line."""
    envelope = "From a@b Mon Jan  1 00:00:00 2024"
    text = f"Subject: x\n\nFrom here on.\n\nFrom now on\n{envelope}\n>From me\n>>From you\n"
    for end in ("\n", "\r\n"):
        box = f"{envelope}\n{text}\n{envelope}\nSubject: y\n\ntwo\n\nFrom - \nSubject: z\n\nthree\n"
        found = parse("a.mbox", box.replace("\n", end))
        assert [document.metadata["title"] for document in found] == ["x", "y", "z"]
        lines = found[0].page_content.split()
        assert " ".join(lines) == f"From here on. From now on {envelope} From me >From you".replace(
            "  ", " "
        )


def test_a_mailbox_is_followed_message_by_message(tmp_path, memory):
    """A message that is added, edited or deleted is the only one that changes."""
    path = tmp_path / "box.mbox"
    mails = [
        make_mail(f"Mail {n}", f"{SAID} Nummer {n}. " * 3, Message_ID=f"<{n}@x>") for n in range(6)
    ]
    write_box(path, mails)
    assert memory.sync(path).counts()["added"] == 6
    assert len(memory.documents(words="München")) == 6
    before = {d.metadata["message_id"]: d.id for d in memory.documents()}
    write_box(path, mails)
    assert not memory.sync(path)
    edited = make_mail("Mail 2", f"{SAID} Nummer 2. " * 3 + "Neu.", Message_ID="<2@x>")
    write_box(
        path, [make_mail("New", "Ganz neu.", Message_ID="<n@x>"), *mails[:2], edited, *mails[4:]]
    )
    counts = memory.sync(path).counts()
    assert {k: v for k, v in counts.items() if v} == {
        "added": 1,
        "edited": 1,
        "removed": 1,
        "unchanged": 4,
    }
    after = {d.metadata["message_id"]: d.id for d in memory.documents()}
    assert {name for name in after if after[name] == before.get(name)} == {
        f"<{n}@x>" for n in (0, 1, 2, 4, 5)
    }


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_objects_are_followed_one_by_one(tmp_path, memory, ending):
    """What is escaped is read; the id and title of an object are its own."""

    def write(objects):
        lines = "\n".join(map(json.dumps, objects))
        (tmp_path / f"chat.{ending}").write_text(
            lines if ending == "jsonl" else json.dumps(objects)
        )

    objects = [
        {
            "id": n,
            "title": f"Nr {n}",
            "text": f"{SAID} {n}",
            "deep": {"a": [1, 2], "b": [{"c": None}]},
        }
        for n in range(5)
    ]
    write(objects)
    memory.sync(tmp_path)
    found = memory.documents()
    assert [d.metadata["title"] for d in found] == [f"Nr {n}" for n in range(5)]
    assert found[0].page_content == f"id: 0\ntitle: Nr 0\ntext: {SAID} 0\ndeep.a: 1, 2"
    write([{"id": 9, "text": "new"}, *objects[:3], objects[4]])
    counts = memory.sync(tmp_path).counts()
    assert {k: v for k, v in counts.items() if v} == {"added": 1, "removed": 1, "unchanged": 4}
    assert len(memory.documents(words="München")) == 4


def test_other_json_is_one_document():
    (found,) = parse("a.json", json.dumps({"a": {"b": "Straße\nzwei"}, "c": True, "d": 1.5}))
    assert found.page_content == "a.b: Straße\nzwei\nc: true\nd: 1.5"
    (found,) = parse("tsconfig.json", '// comment\n{"a": 1}')
    assert found.page_content.startswith("// comment")
    assert parse("rows.json", '{"a": 1}\n{"a": 2}')[0].page_content == '{"a": 1}\n{"a": 2}'
    settings = '{"a": "http://x, }", // comment\n/* {\n */ "b": [1, 2,], // last\n}'
    assert [d.page_content for d in parse("settings.json", settings)] == [settings]
    assert [d.page_content for d in parse("a.json", b"\xef\xbb\xbf[1, 2]")] == ["1, 2"]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.json", r'{"text": "Stra\u00dfe", }', "not a readable .json file"),
        ("a.json", '{"a": 1,', r"not a readable .json file \(EOF while parsing"),
        ("a.jsonl", '{"b"\n[', r"not a readable .jsonl file \(line 1: EOF"),
        ("a.xlsx", b"PK junk", "not a readable .xlsx file"),
        ("a.csv", b"a\xff\x00b", "not a text file"),
        ("a.eml", "a letter", "not a readable .eml file"),
        ("a.rtf", "a letter", "not a readable .rtf file"),
    ],
)
def test_damaged_files_are_refused_with_the_reason(name, data, reason):
    with pytest.raises(InvalidInputError, match=reason):
        parse(name, data)


def make_book(*, damaged):
    """A workbook of three sheets, of which one can be damaged."""
    book, whole, changed = openpyxl.Workbook(), BytesIO(), BytesIO()
    for name in ("First", "Second", "Third"):
        book.create_sheet(name).append(["said", name])
    book.remove(book.worksheets[0])
    book.save(whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b"</row>", b"") if name.endswith(damaged) else data)
    return changed.getvalue()


MANY_PARTS = b"Content-Type: multipart/mixed; boundary=x\n\n" + b"--x\n\npart\n" * 201
ENVELOPE = b"From a Thu Nov 26 01:02:03 2026\n"
PARTS = {
    "a.jsonl": (b'{"a": "First"}\n{"b"\n{"c": "Third"}', {"line 2": "EOF while parsing"}),
    "b.jsonl": (b'{"a": "First"}\n"\xff"\n{"c": "Third"}', {"line 2": "invalid unicode"}),
    "c.mbox": (
        ENVELOPE + b"\nFirst\n\n" + ENVELOPE + MANY_PARTS + b"\n" + ENVELOPE + b"\nThird",
        {"message 2": "it has 201 parts"},
    ),
    "d.xlsx": (make_book(damaged="sheet2.xml"), {"sheet Second": "mismatched tag"}),
    "e.pdf": (
        make_pdf("First", "Second", "Third").replace(b"(Second) Tj", b"(Second) '('"),
        {"page 2": "Stream has ended"},
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_cannot_be_read_costs_no_other(tmp_path, name, memory):
    """It is named with its place and the reason, by a sync and by an ingest."""
    data, bad = PARTS[name]
    file = tmp_path / name
    file.write_bytes(data)
    for skipped in (memory.sync(file).skipped, memory.ingest(file).skipped):
        places = [place.removeprefix(f"{file.as_posix()}, ") for place in skipped]
        assert places == [*bad]
        for said, why in zip(skipped.values(), bad.values(), strict=True):
            assert why in said
    texts = " ".join(document.page_content for document in memory.documents())
    assert ("First" in texts, "Second" in texts, "Third" in texts) == (True, False, True)


def test_very_many_bad_lines_are_counted():
    _, skipped = read("a.jsonl", b"{}\n{1}\n" + b"{2\n" * 40 + b'{"a": 1}')
    assert len(skipped) == 21
    assert skipped["a.jsonl, line 22 to line 42"] == "21 of them likewise"


def test_a_table_of_two_encodings_keeps_all_its_signs():
    (found,) = parse("a.csv", "\ufeffStraße,1\n".encode() + "Grüße,2\n".encode("cp1252"))
    assert found.page_content == "| Straße | 1 |\n| --- | --- |\n| Grüße | 2 |"


@pytest.mark.parametrize(
    "data",
    [
        'name;price\nStraße;1,5\n"two\nlines | ";2,5\n',
        'sep=;\r\nname;price\r\nStraße;1,5\r\n"two\nlines | ";2,5\r\n',
        "sep=!\nname!price\nStraße!1,5\ntwo lines | !2,5\n",
        "name;pr\x00ice\nStraße;1,5\ntwo lines | ;2,5\n",
        "name,,price,\nStraße,,'1,5',\ntwo lines | ,,'2,5',\n".replace("'", '"'),
        '\ufeffname,price\nStraße,"1,5"\n"two\nlines | ","2,5"\n',
        "name\tprice\nStraße\t1,5\ntwo lines | \t2,5\n",
        "name;price\nStraße;1,5\ntwo lines | ;2,5\n".encode("cp1252"),
        "name;price\nStraße;1,5\ntwo lines | ;2,5\n".encode("utf-16"),
    ],
)
def test_tables_are_read_whatever_wrote_them(data):
    """Delimiters, quotes, encodings and byte order marks of Excel and others."""
    (found,) = parse("a.csv", data)
    rows = "| name | price |\n| --- | --- |\n| Straße | 1,5 |\n| two lines \\| | 2,5 |"
    assert found.page_content == rows


def test_a_cell_may_be_long():
    (found,) = parse("a.csv", f"name,text\na,{'long ' * 40_000}\n")
    assert found.page_content.count("long") == 40_000


def test_every_row_of_a_wide_table_names_its_columns(memory, tmp_path):
    names = [f"a rather long name of column {n}" for n in range(40)]
    lines = [",".join(names), *(",".join(f"v{r}_{c}" for c in range(40)) for r in range(20))]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    memory.sync(tmp_path)
    parts = [d.page_content for d in memory.documents(limit=100)]
    for part in parts:
        assert all(line.startswith("a rather long name") for line in part.splitlines() if line)
    assert any("a rather long name of column 39: v19_39" in part for part in parts)


def test_sheets_of_excel_are_tables(tmp_path, memory):
    book = openpyxl.Workbook()
    book.active.title = "Prices"
    book.active.append(["product", "since", "price"])
    book.active.append(["a|b", datetime(2024, 1, 2), 3.0])  # noqa: DTZ001  cells know no zone
    for number in range(200):
        book.active.append([f"gizmo{number}", None, number])
    numbers = book.create_sheet("Numbers")
    numbers.append([1, 2])
    numbers.cell(3, 4000, "far")
    book.create_sheet("Empty")
    book.save(tmp_path / "stock.xlsx")
    memory.sync(tmp_path)
    found = memory.documents(limit=100)
    assert {d.metadata["title"] for d in found} == {"stock: Prices", "stock: Numbers"}
    prices = [d.page_content for d in found if d.metadata["sheet"] == "Prices"]
    assert all(part.startswith("| product | since | price |") for part in prices)
    assert "| a\\|b | 2024-01-02T00:00:00 | 3 |" in prices[0]
    assert [d.page_content for d in found if d.metadata["sheet"] == "Numbers"] == [
        "| column 1 | column 2 | column 3 |\n| --- | --- | --- |\n| 1 | 2 |  |\n|  |  | far |"
    ]
    assert not memory.sync(tmp_path)


def test_formulas_without_a_value_are_named(tmp_path, memory):
    """As libraries write them that do not calculate; rows of values are read."""
    book = openpyxl.Workbook()
    book.active.append(["product", "price"])
    book.active.append(["gizmo", 2])
    book.active.append(["=UPPER(A2)", "=SUM(B2,1)"])
    book.save(tmp_path / "stock.xlsx")
    ((place, why),) = memory.sync(tmp_path).skipped.items()
    assert "stock.xlsx, sheet Sheet, " in place
    assert ("A3" in place, "formulas without a stored value" in why) == (True, True)
    assert "| gizmo | 2 |" in memory.documents()[0].page_content
    book.active.delete_rows(1, 2)
    book.save(tmp_path / "stock.xlsx")
    with pytest.raises(InvalidInputError, match="sheet Sheet, A1, B1: formulas without"):
        memory.sync(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["xlsx", "docx"])
def test_archives_that_unpack_to_too_much_are_refused(tmp_path, ending):
    """Their size is read before anything is unpacked."""
    path = tmp_path / f"bomb.{ending}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"{number}.xml", b"\0" * 2**26)
    with pytest.raises(InvalidInputError, match="unpacks to"):
        parse(path.name, path.read_bytes())


def test_rich_text_is_read():
    data = rb"{\rtf1\ansi{\fonttbl\f0 Arial;}Stra\'dfe \u8364? {\pict\pngblip 89504e47}{\b fett}}"
    (found,) = parse("a.rtf", data)
    assert " ".join(found.page_content.split()) == "Straße € fett"
