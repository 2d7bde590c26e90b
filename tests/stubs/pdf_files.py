"""Makes PDF files."""


def make_pdf(*pages):
    """A PDF file with one line of text per page."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    font = "/MediaBox [0 0 300 300] /Resources << /Font << /F1 3 0 R >> >>"
    for n, text in enumerate(pages):
        shown = f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /Contents {5 + 2 * n} 0 R {font} >>",
            f"<< /Length {len(shown)} >>\nstream\n{shown}\nendstream",
        ]
    file = "%PDF-1.4\n"
    places = []
    for number, content in enumerate(objects, 1):
        places.append(f"{len(file):010d} 00000 n \n")
        file += f"{number} 0 obj\n{content}\nendobj\n"
    size = f"{len(objects) + 1}"
    table = f"xref\n0 {size}\n0000000000 65535 f \n{''.join(places)}"
    end = f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(file)}\n%%EOF\n"
    return (file + table + end).encode()
