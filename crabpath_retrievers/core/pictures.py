"""Takes pictures and other ``data:`` URIs out of texts: documents, questions, notes, answers."""

import re

_URI = r"data:[^()\n]*(?:\([^()\n]*\)[^()\n]*)*"
_MARKDOWN_LINK = re.compile(rf"!?\[([^\[\]\n]{{0,500}})\]\(\s*<?{_URI}\)", re.IGNORECASE)
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]{1,300}\]:\s*<?data:.*\n?", re.IGNORECASE | re.MULTILINE)
_ATTRIBUTE = re.compile(r"""=\s*(?:"\s*data:[^"]*"|'\s*data:[^']*')""", re.IGNORECASE)
_IMAGE = re.compile(r"<img\b[^<>]{0,2000}>", re.IGNORECASE)
_NAME = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_BARE = re.compile(
    r"(?<!\w)data:(?:[a-z]+/[\w.+-]{1,100}|(?=;))(?:;[^,;\s\"'<>]{1,100}){0,8},"
    r"[^\s\"'<>)\]}`]*(?:\s+[A-Za-z0-9+/]{40,}={0,2})*(?:\s+[A-Za-z0-9+/]{2,}={1,2}(?!\S))?",
    re.IGNORECASE,
)
_ENCODED = re.compile(
    r"(?<!\w)data:[a-z]+/[\w.+-]{1,100}(?:;[^,;\s\"'<>]{1,100}){0,8};base64,[A-Za-z0-9+/=]*",
    re.IGNORECASE,
)


def remove_pictures(text: str) -> str:
    """The text without ``data:`` URIs; the name of a picture stays."""
    if "data:" not in text.lower():
        return text
    text = _MARKDOWN_LINK.sub(r"\1", text)
    text = _REFERENCE.sub("", text)
    text, found = _ATTRIBUTE.subn('=""', text)
    if found:
        text = _IMAGE.sub(_name_image, text)
    return _BARE.sub("", text)


def remove_encoded(text: str) -> str:
    """The text without ``data:`` URIs in base64, of which a delimiter of a table is no part."""
    return _ENCODED.sub("", text) if "base64," in text.lower() else text


def _name_image(tag: re.Match[str]) -> str:
    if '=""' not in tag[0]:
        return tag[0]
    name = _NAME.search(tag[0])
    return "" if name is None else next(filter(None, name.groups()), "")
