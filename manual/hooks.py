"""Hooks of mkdocs: add the pages that are made from the code, and those that lie beside ``docs``, to the site."""

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

from manual.commands_page import commands_page
from manual.errors_page import errors_page
from manual.events_page import events_page
from manual.examples import collect_answers
from manual.glossary import glossary_words, link_words, with_anchors
from manual.library_page import library_page
from manual.methods_page import methods_page
from manual.metrics_page import metrics_page
from manual.settings_page import settings_page
from manual.websocket_page import websocket_page

_ROOT = Path(__file__).parents[1]
_PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/errors.md": errors_page,
    "reference/events.md": events_page,
    "reference/library.md": library_page,
    "reference/settings.md": settings_page,
    "reference/websocket.md": websocket_page,
}
_BESIDE = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security-contact.md",
}
_GLOSSARY = "glossary.md"
_EXPLAINED = re.compile(
    r"(?!benchmarks|glossary)[\w-]+\.md|(operate|explain)/.*|reference/doors\.md|project/readme\.md"
)
"""Pages for readers who may not know the words."""
_LINK = re.compile(r"""(?:(?<=\]\()|(?<=src=")|(?<=srcset="))([\w./-]+)(#[\w-]+)?(?=[)"])""")


def on_files(files: Files, config: Any) -> Files:
    """Called by mkdocs once it has found the files of ``docs``."""
    answers = collect_answers()
    made = {path: make() for path, make in _PAGES.items()}
    made["reference/methods.md"] = methods_page(answers.examples)
    made["reference/metrics.md"] = metrics_page(answers.metrics)
    for name, path in _BESIDE.items():
        made[path] = (_ROOT / name).read_text()
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Called by mkdocs for each page: links lead to where the site has them, and from words to the glossary."""
    place = page.file.src_uri
    named = {path: name for name, path in _BESIDE.items()}
    source = PurePosixPath(named.get(place, f"docs/{place}"))

    def relink(match: re.Match[str]) -> str:
        target = os.path.normpath(source.parent / match[1])
        site = _BESIDE.get(target, target.removeprefix("docs/"))
        is_ours = target in _BESIDE or target.startswith("docs/")
        return f"{os.path.relpath(site, PurePosixPath(place).parent)}{match[2] or ''}" if is_ours else match[0]

    relinked = _LINK.sub(relink, markdown)
    if place == _GLOSSARY:
        return with_anchors(relinked)
    if not _EXPLAINED.fullmatch(place):
        return relinked
    words = glossary_words((_ROOT / "docs" / _GLOSSARY).read_text())
    return link_words(relinked, words, os.path.relpath(_GLOSSARY, PurePosixPath(place).parent))
