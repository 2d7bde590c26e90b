"""Links of the documentation site that lead out of docs/."""

import posixpath
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Links to files outside docs/ lead to the repository; without its address they are text."""
    folder = posixpath.dirname(page.file.src_uri)

    def rewrite(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/"):
            return match.group(0)
        return f"[{text}]({config.repo_url}blob/main/{path})" if config.repo_url else text

    return _LINK.sub(rewrite, markdown)
