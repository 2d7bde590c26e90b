"""Files of all formats become documents with headings, links and pages; the rest is named."""

import re
import sys
import zipfile

import pytest
from pdf_files import make_pdf

from crabpath_retrievers import EdgeKind
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.source_files import read_documents

PAGE = """<?xml version="1.0" encoding="ISO-8859-1"?><!DOCTYPE html><html><head>
<title>Cluster Übersicht</title><script>evil()</script></head><body><nav><a href="x">Menu</a></nav>
<h1>Cluster<a class="headerlink" href="#cluster">¶</a></h1>
<p>Only max_connections &amp; B-Trees; see <a href="leave.docx">the leave
rules</a>.</p><pre>SELECT *
  FROM x;</pre><h2><a href="manual.pdf">Manual</a></h2><img src="data:," alt="a plan"></body></html>
"""
PAGE_TEXT = """# Cluster

Only max_connections & B-Trees; see [the leave rules](leave.docx).

```
SELECT *
  FROM x;
```

## Manual

[Manual](manual.pdf)a plan"""
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
NOTEBOOK = """{"metadata": {}, "cells": [
{"cell_type": "markdown", "source": ["# Study\\n", "See [it](page.html)."]},
{"cell_type": "code", "source": "print(1)", "outputs": [{"text": "1"}]}]}"""


def write_word(path, more="", target="manual.pdf"):
    """A Word file with a title, a heading, a link, and more."""

    def paragraph(style, *texts):
        runs = "".join(f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>' for text in texts)
        return f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr>{runs}</w:p>'

    link = f'<w:hyperlink xmlns:r="{OFFICE}" r:id="r9"><w:r><w:t>manual</w:t></w:r></w:hyperlink>'
    body = paragraph("Title", "Leave Rules") + paragraph("h1", "How to ask")
    body += paragraph("", "Ask Petra; see the ").replace("</w:p>", f"{link}</w:p>") + more
    names = {"Title": "Title", "h1": "heading 1"}
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="{name}"/></w:style>'
        for key, name in names.items()
    )
    relation = '<Relationships xmlns="{}/relationships"><Relationship {}/></Relationships>'
    start = f'Id="r1" Type="{OFFICE}/officeDocument" Target="word/document.xml"'
    links = f'Id="r9" Type="{OFFICE}/hyperlink" Target="{target}" TargetMode="External"'
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", f'<Types xmlns="{PACKAGE}/content-types"/>')
        file.writestr("_rels/.rels", relation.format(PACKAGE, start))
        file.writestr("word/_rels/document.xml.rels", relation.format(PACKAGE, links))
        file.writestr("word/styles.xml", f"<w:styles {WORD}>{styles}</w:styles>")
        file.writestr(
            "word/document.xml", f"<w:document {WORD}><w:body>{body}</w:body></w:document>"
        )


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A folder with one file of each format, of which some are damaged."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "page.html").write_bytes(PAGE.encode("latin-1"))
    (folder / "bare.htm").write_text("<p>Grüße an alle</p>", encoding="utf-8")
    (folder / "marked.html").write_text("<body>Grüße auch", encoding="utf-16")
    (folder / "manual.pdf").write_bytes(make_pdf("Hydra is in Frankfurt.", "Maria owns it."))
    (folder / "study.ipynb").write_text(NOTEBOOK)
    (folder / "rows.csv").write_text("name,days\nPetra,30\n")
    write_word(folder / "leave.docx")
    for name in ("bad.pdf", "bad.docx", "bad.ipynb"):
        (folder / name).write_bytes(b"%PDF junk")
    (folder / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (folder / "image.bin").write_bytes(b"\x00")
    return folder


def test_what_becomes_of_each_format(docs, caplog):
    caplog.set_level("WARNING")
    documents, skipped = read_documents([docs.relative_to(docs.parent)])
    found = {(d.metadata["source"][5:], d.metadata.get("page")): d for d in documents}
    shown = {key: (d.metadata.get("title"), d.page_content) for key, d in found.items()}
    assert shown == {
        ("page.html", None): ("Cluster Übersicht", PAGE_TEXT),
        ("bare.htm", None): ("bare", "Grüße an alle"),
        ("marked.html", None): ("marked", "Grüße auch"),
        ("manual.pdf", 1): ("manual", "Hydra is in Frankfurt."),
        ("manual.pdf", 2): ("manual, page 2", "Maria owns it."),
        ("leave.docx", None): (
            "Leave Rules",
            "# Leave Rules\n\n# How to ask\n\nAsk Petra; see the [manual](manual.pdf)",
        ),
        ("study.ipynb", None): (
            None,
            "# Study\nSee [it](page.html).\n\n```python\nprint(1)\n```",
        ),
        ("rows.csv", None): ("rows", "| name | days |\n| --- | --- |\n| Petra | 30 |"),
    }
    reasons = {source[5:]: why.partition(" (")[0] for source, why in skipped.items()}
    assert reasons == {
        **{f"bad.{kind}": f"not a readable .{kind} file" for kind in ("pdf", "docx", "ipynb")},
        "latin.txt": "not a text file in UTF-8",
        "image.bin": "not a text file",
    }
    assert caplog.text == ""  # the parsers say nothing themselves


def test_headings_and_links_of_every_format_become_the_graph(docs, open_memory, joined):
    """A link to a file of many pages leads to its first one; a second sync changes nothing."""
    (docs / "manual.pdf").write_bytes(make_pdf(*(f"Page {n} of it." for n in range(1, 31))))
    memory = open_memory()
    memory.sync("docs")
    catalog = memory.store.catalog
    titles = {key: node.title for key, node in catalog.documents(catalog.all_ids()).items()}
    linked = {(titles[a], titles[b]) for a, b in joined(memory, EdgeKind.LINK)}
    assert linked == {
        ("Cluster Übersicht", "Leave Rules"),
        ("Cluster Übersicht › Manual", "manual"),
        ("Leave Rules › How to ask", "manual"),
        ("Study", "Cluster Übersicht"),
    }
    assert not memory.sync("docs")


def test_a_missing_parser_is_named_with_its_install_line(docs, open_memory, monkeypatch, caplog):
    """What the memory holds of such a file stays; one that is given alone is refused."""
    caplog.set_level("WARNING")
    memory = open_memory()
    memory.sync("docs")
    before = memory.info()["nodes"]
    monkeypatch.setitem(sys.modules, "pypdf", None)
    plan = memory.sync("docs")
    assert (bool(plan), "docs/manual.pdf" in plan.skipped) == (False, True)
    assert memory.info()["nodes"] == before
    install = "reading .pdf files needs pypdf: pip install 'crabpath-retrievers[files]'"
    (said,) = {r.getMessage() for r in caplog.records}
    assert said == f"not read: docs/bad.pdf, docs/manual.pdf: {install}"
    with pytest.raises(InvalidInputError, match=r"manual.pdf was not read: .*\[files\]"):
        memory.sync("docs/manual.pdf")


def link(*names):
    return "".join(f'<li><a href="{name.lower()}.html">{name}</a></li>' for name in names)


MENU = f'<div class="top"><img src="x"><ul>{link("Home", "Prices", "Imprint")}</ul>Est.</div>'
PROSE = (
    "<p>Whoever wants a refund writes to the desk before the month ends, with its number.</p>" * 4
)
SEE = f"<ul>{link('Returns', 'Vouchers', 'Complaints')}</ul>"


@pytest.mark.parametrize(
    ("body", "left_out"),
    [
        (f"{MENU}<h1>Refunds</h1>{PROSE}", "Home Est"),
        (f"<ul>{link('Home', 'Prices', 'Imprint')}</ul><h1>Refunds</h1>{PROSE}", "Prices"),
        (
            f"<h2><a href='.'>Shop</a></h2><ul>{link('Home', 'Terms', 'Imprint')}</ul>{PROSE}",
            "Home",
        ),
        (f"<div>{PROSE}</div><div><table><tr><td>{SEE}</td></tr></table></div>", "Vouchers"),
        (f"{PROSE}<hr>{SEE}", "Vouchers"),
        (f"<div><h2>Contents</h2>{SEE}</div>{PROSE}".replace('href="', 'href="#'), "Contents"),
        (f"<h2>See also</h2>{SEE}{PROSE}", ""),
        (f"{PROSE}<p>Read these, too:</p><p><div>{SEE}</div></p>", ""),
        (f"{PROSE}<div>Since 1990</div>{SEE}{PROSE}", ""),
        (f"<section><h2>Guides</h2>{SEE}</section>{PROSE}", ""),
        (f"{SEE.replace('</li>', ': what to do and when</li>')}{PROSE}", ""),
        (f"<div><a href='returns.html'>Returns</a></div>{PROSE}", ""),
        (f"<div><ul>{link(*(f'Guide{n}' for n in range(60)))}</ul></div><p>All guides.</p>", ""),
        (f"<ul>{link(*(f'Guide{n}' for n in range(60)))}</ul>", ""),
    ],
)
def test_blocks_of_links_that_belong_to_no_text(tmp_path, body, left_out):
    """A menu, a footer or a page's own table of contents goes; what a text introduces stays."""
    (tmp_path / "refunds.html").write_text(f"<title>Refunds</title>{body}")
    ((page,), _) = read_documents([tmp_path])
    words = set(re.findall(r"[A-Z]\w+", re.sub("<.*?>", " ", body)))
    gone = {word for word in words if word not in page.page_content}
    if left_out:
        assert gone >= {*left_out.split()}
        assert page.page_content.count("refund writes") == 4
    else:
        assert gone == set()


ROWS = "".join(f"<tr><td>widget {n} of the catalogue</td><td>{n}|x</td></tr>" for n in range(99))


def test_a_table_whose_header_is_not_marked(open_memory, tmp_path):
    """Its first row stands above each part; a bar in a cell is none of the table."""
    table = f"<table><tr><td>Product</td><td>Price</td></tr>{ROWS}</table><!-- a|b -->"
    (tmp_path / "prices.html").write_text(f"<p>a|b</p>{table}")
    row = "<w:tr>{}</w:tr>".format("<w:tc><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>" * 2)
    rows = [row.format("Product", "Price")]
    rows += [row.format(f"widget {n} of the catalogue", f"{n}|x") for n in range(99)]
    write_word(tmp_path / "prices.docx", f"<w:tbl>{''.join(rows)}</w:tbl>")
    memory = open_memory()
    memory.sync(tmp_path)
    for source in ("prices.html", "prices.docx"):
        parts = [d.page_content for d in memory.documents(source=f"{tmp_path}/{source}", limit=99)]
        assert len(parts) > 3
        header = "| Product | Price |\n| --- | --- |\n| widget"
        assert all(part.partition("|")[2].startswith(header[1:]) for part in parts[2:])
        whole = "\n".join(parts)
        assert header in whole
        assert "| widget 9 of the catalogue | 9\\|x |" in whole
        assert "<!--" not in whole


def test_what_files_point_to_is_neither_fetched_nor_read(tmp_path, open_memory, httpserver):
    """Pictures, scripts, frames and entities of pages, mails and Word files."""
    url, secret = httpserver.url_for("/x"), tmp_path / "secret.txt"
    secret.write_text("the quince is ripe")
    page = (
        f'<!DOCTYPE html [<!ENTITY own SYSTEM "{secret.as_uri()}"> <!ENTITY far SYSTEM "{url}">]>'
        f'<html><head><link rel="stylesheet" href="{url}"/><script src="{url}"></script></head>'
        f'<body><p>Here it is: &own; &far;</p><img src="{url}"/><iframe src="{url}"></iframe>'
        f'<object data="{secret.as_uri()}"></object></body></html>'
    )
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("page.html", "page.xhtml"):
        (folder / name).write_text(page)
    (folder / "note.md").write_text(f"A picture: ![it]({url}) ![own]({secret.as_uri()})\n")
    mail = f"Subject: Look\nMIME-Version: 1.0\nContent-Type: text/html\n\n{page}"
    (folder / "mail.eml").write_text(mail)
    picture = "http://schemas.openxmlformats.org/drawingml/2006"
    drawing = (
        f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{picture}/wordprocessingDrawing">'
        f'<a:graphic xmlns:a="{picture}/main"><a:graphicData>'
        f'<pic:pic xmlns:pic="{picture}/picture"><pic:blipFill>'
        f'<a:blip xmlns:r="{OFFICE}" r:link="r9"/></pic:blipFill></pic:pic>'
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )
    for name, target in (("far.docx", url), ("own.docx", secret.as_uri())):
        write_word(folder / name, drawing, target=target)
    memory = open_memory()
    assert memory.sync(folder).counts()["added"] >= 6
    assert httpserver.log == []
    assert not memory.documents(words="quince")
