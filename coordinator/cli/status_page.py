"""How a status page is drawn: tables where they fit, and where they do not, a paragraph for each of their rows."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from coordinator.cli.status_view import Page, Section
from coordinator.cli.wording import harmless

ENDLESS = 10_000
"""Columns of what is not for a terminal: no line is ever broken."""


class Drawn:
    """A page for rich."""

    def __init__(self, page: Page, notice: str = "") -> None:
        """`notice` is about the page itself, that it is old, say."""
        self._page = page
        self._notice = notice

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        page = self._page
        yield Text(harmless(page.title), style="bold")
        yield from (Text(harmless(fact)) for fact in page.facts)
        yield from (Text(f"! {harmless(remark)}", style="yellow") for remark in (self._notice, *page.remarks) if remark)
        for section in page.sections:
            yield Text(f"\n{harmless(section.title)}".rstrip() or "")
            table = _table(section)
            fits = Measurement.get(console, options.update_width(ENDLESS), table).maximum <= options.max_width
            yield from [table] if fits else _paragraphs(section)


def as_text(page: Page) -> str:
    """Plain lines, as long as they need to be, and an empty one at the end."""
    text = io.StringIO()
    Console(file=text, width=ENDLESS, highlight=False, color_system=None).print(Drawn(page))
    return "\n".join(line.rstrip() for line in text.getvalue().split("\n"))


def _table(section: Section) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, heading in enumerate(section.headings):
        table.add_column(heading, justify="left" if index < section.words else "right", no_wrap=True)
    for row in section.rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    return table


def _paragraphs(section: Section) -> Iterator[Text]:
    for name, *cells in section.rows:
        pairs = zip(section.headings[1:], cells, strict=True)
        said = (f"{heading} {harmless(cell)}" for heading, cell in pairs if cell)
        yield Text(f"{harmless(name)}: {', '.join(said)}")
