"""Screen of `hotbed top`: the table of nodes with sorting and scrolling, and a node's detail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from hotbed.top_view import CAPTION, COLUMNS, NodeRow, fitting, header, notes, rows_of, samples
from schemas.errors import HotbedError
from schemas.shown import line

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

AGAIN_S = 2.0
"""Wait before a lost testbed is asked again."""
_GAP = 2  # between two columns of Textual's table
_SCROLLBAR = 2
Samples = Generator[Mapping[str, Any], None, None]
Stream = Callable[[], Samples]


@dataclass
class StreamNews(Message):
    """The next item of a stream, or the reason why it ended."""

    item: Mapping[str, Any] | None
    problem: str = ""

    def can_replace(self, message: Message) -> bool:
        """Return True: on a slow terminal, newer news replaces older news."""
        return isinstance(message, StreamNews)


class StreamReader(threading.Thread):
    """Thread that sends a stream's items to `target`, and opens a stream that failed again. It ends
    with the first item after `ended` is set."""

    def __init__(self, target: MessagePump, stream: Stream) -> None:
        super().__init__(name="top", daemon=True)
        self._target, self._stream = target, stream
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Read until the end."""
        with suppress(RuntimeError):  # the target's event loop is closed
            while not self.ended.is_set():
                self._target.post_message(StreamNews(None, self._read()))
                self.ended.wait(AGAIN_S)

    def _read(self) -> str:
        """Send a stream's items; return the reason why it ended."""
        try:
            with closing(self._stream()) as items:
                for item in items:
                    self._target.post_message(StreamNews(item))
                    if self.ended.is_set():
                        break
        except (HotbedError, OSError, ValueError) as error:
            return str(error)
        return "the stream ended"


class RowTable(DataTable[Text]):
    """Table of rows: Home and End are its first and last row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "scroll_top", show=False),
        Binding("end", "scroll_bottom", show=False),
    ]

    def refill(
        self,
        columns: Iterable[tuple[str, Text, int | None]],
        rows: Iterable[Sequence[Text]],
    ) -> None:
        """Show other columns (key, title and width) and rows; keep the cursor and the place."""
        cursor, top = self.cursor_row, self.scroll_y
        self.clear(columns=True)
        for key, title, width in columns:
            self.add_column(title, width=width, key=key)
        for place, row in enumerate(rows):
            height = 1 + max(cell.plain.count("\n") for cell in row)
            self.add_row(*row, key=str(place), height=height)
        self.move_cursor(row=cursor, scroll=False)
        self.call_after_refresh(self.scroll_to, y=top, animate=False)


class NodeTable(RowTable):
    """Table of nodes, with Enter in the footer."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "select_cursor", "Detail")]


class Following(DOMNode):
    """App or screen that shows the last item of a stream in a table."""

    stream: Stream
    item: Mapping[str, Any] | None = None

    def on_mount(self) -> None:
        """Start to read."""
        self.query_one(RowTable).focus()
        self.reader = StreamReader(self, self.stream)

    def on_unmount(self) -> None:
        """Stop reading."""
        self.reader.ended.set()

    def on_stream_news(self, news: StreamNews) -> None:
        """Show the next item, or why there is none."""
        news.stop()
        if not self.reader.ended.is_set():
            self.item = news.item or self.item
            self.draw(news.problem)

    def draw(self, problem: str = "") -> None:
        """Show `item`, and the problem that ended the stream."""
        raise NotImplementedError


class TopHelp(ModalScreen[None]):
    """All keys, and the meaning of columns and marks."""

    DEFAULT_CSS = """
    TopHelp { align: center middle; }
    TopHelp > Static { width: auto; max-width: 100%; padding: 1 1; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,question_mark,enter", "dismiss", "Back"),
        ("q", "app.quit", "Quit"),
    ]
    KEYS = (
        ("arrows, PgUp, PgDn, Home, End", "move and scroll"),
        ("Enter", "processes, disks, network of the node"),
        ("<  >, or click on a title", "choose the sort column"),
        ("r", "reverse the order"),
        ("o", "the testbed's order again"),
        ("c  i", "in a node: sort by CPU, by I/O"),
        ("Esc", "go back"),
        ("?", "show or leave this help"),
        ("q", "quit"),
    )

    def compose(self) -> ComposeResult:
        """Yield the help's text."""
        keys = "\n".join(f"{key:31}{what}" for key, what in self.KEYS)
        yield Static(f"{keys}\n\n{CAPTION}", markup=False)


class NodeDetail(Following, ModalScreen[None]):
    """Processes, disks, network and OSDs of one node; asked only while this screen is open."""

    DEFAULT_CSS = """
    NodeDetail { background: $background; }
    NodeDetail Static { padding: 0 1; }
    NodeDetail DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "app.pop_screen", "Back"),
        ("c", "by('cpu_cores')", "By CPU"),
        ("i", "by('io')", "By I/O"),
        ("question_mark", "app.push_screen('help')", "Help"),
        ("q", "app.quit", "Quit"),
    ]
    _COLUMNS: ClassVar[list[tuple[str, Text, int | None]]] = [
        ("cpu_cores", Text("cores"), 8),
        ("read_mb_s", Text("read"), 8),
        ("write_mb_s", Text("write"), 8),
        ("pid", Text("pid"), 8),
        ("command", Text("command"), None),
    ]

    def __init__(self, row: NodeRow, stream: Stream) -> None:
        super().__init__()
        self.row, self.stream = row, stream
        self._by = "cpu_cores"

    def compose(self) -> ComposeResult:
        """Yield the node's facts and the table of processes."""
        yield Static(Text(f"node {line(self.row.name)}: asking ..."), id="facts", markup=False)
        yield RowTable(cursor_type="row")
        yield Footer()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort processes by the selected column."""
        self.action_by(str(event.column_key.value))

    def action_by(self, column: str) -> None:
        """Sort processes by a column, or by read plus write (``io``)."""
        self._by = column
        self.draw()

    def draw(self, problem: str = "") -> None:
        facts = Text(f"node {line(self.row.name)}", style="bold")
        if problem:
            facts.append(f"\n{line(problem)}; asking again", style="red")
        if self.item is not None:
            facts.append(self._facts(self.item), style="not bold")
            self._processes(self.item["processes"])
        self.query_one("#facts", Static).update(facts)

    def _facts(self, item: Mapping[str, Any]) -> str:
        lines = [
            f"disk {line(disk['disk'])}: read {disk['read_mb_s']:.1f} MB/s, write "
            f"{disk['write_mb_s']:.1f} MB/s, util {disk['util']:.0f} %, queue {disk['queue']:.1f}"
            for disk in item["disks"]
        ]
        net = item["net"]
        lines.append(
            f"network {line(net['interface'])}: rx {net['rx_mb_s']:.1f} MB/s, "
            f"tx {net['tx_mb_s']:.1f} MB/s"
        )
        for name, values in self.row.osds.items():
            known = ", ".join(f"{line(key)} {value:.3g}" for key, value in values.items())
            lines.append(f"{name}: {known or 'does not answer'}")
        return "".join(f"\n{each}" for each in lines)

    def _processes(self, processes: Sequence[Mapping[str, Any]]) -> None:
        def order(row: Mapping[str, Any]) -> Any:
            if self._by in ("pid", "command"):
                return row[self._by]
            return -(row["read_mb_s"] + row["write_mb_s"] if self._by == "io" else row[self._by])

        rows = []
        for row in sorted(processes, key=order):
            rates = [f"{row[name]:.2f}" for name in ("cpu_cores", "read_mb_s", "write_mb_s")]
            cells = [Text(cell, justify="right") for cell in (*rates, str(row["pid"]))]
            rows.append([*cells, Text(line(row["command"]))])
        self.query_one(RowTable).refill(self._COLUMNS, rows)


class TopApp(Following, App[None]):
    """The table of nodes. `stream` opens samples, `detail` a node's own."""

    CSS = "#header, #notes { padding: 0 1; } #notes { max-height: 40%; } DataTable { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False
    SCREENS: ClassVar[Any] = {"help": TopHelp}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("less_than_sign", "sort(-1)", "Sort", key_display="<"),
        Binding("greater_than_sign", "sort(1)", "Sort", key_display=">"),
        ("r", "reverse", "Reverse"),
        ("o", "order", "Spec's order"),
        ("question_mark", "push_screen('help')", "Help"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, stream: Stream, detail: Callable[[str], Stream]) -> None:
        super().__init__()
        self.stream, self._detail = stream, detail
        self._rows: list[NodeRow] = []
        self._drawn: object = None
        self._sorted_by: str | None = None
        self._reversed = False

    def compose(self) -> ComposeResult:
        """Yield header, table, notes and footer."""
        yield Static("asking the testbed ...", id="header", markup=False)
        yield NodeTable(cursor_type="row")
        yield Static(id="notes", markup=False)
        yield Footer()

    def on_resize(self) -> None:
        """Choose the columns for the new width."""
        self.call_after_refresh(self.draw)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the selected column; a second time, in reverse."""
        title = str(event.column_key.value)
        self._reversed = title == self._sorted_by and not self._reversed
        self._sorted_by = title
        self.draw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the node's detail."""
        row = self._rows[event.cursor_row]
        self.push_screen(NodeDetail(row, self._detail(row.name)))

    async def action_quit(self) -> None:
        """Quit; the screen takes no further sample."""
        self.reader.ended.set()
        await super().action_quit()

    def action_sort(self, step: int) -> None:
        """Sort by the next or previous column of those on the screen."""
        titles = [str(key.value) for key in self.screen_stack[0].query_one(NodeTable).columns]
        if titles:
            place = titles.index(self._sorted_by) + step if self._sorted_by in titles else 0
            self._sorted_by, self._reversed = titles[place % len(titles)], False
            self.draw()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._reversed = not self._reversed
        self.draw()

    def action_order(self) -> None:
        """Show nodes in the testbed's order."""
        self._sorted_by, self._reversed = None, False
        self.draw()

    def draw(self, problem: str = "") -> None:
        below: list[Text] = []
        screen = self.screen_stack[0]
        if problem:
            below.append(Text(f"connection lost: {line(problem)}; trying again", style="red"))
        if self.item is not None:
            screen.query_one("#header", Static).update(header(self.item))
            below += notes(self.item)
            rows = {row.name: row for row in rows_of(self.item)}
            self._fill(screen.query_one(NodeTable), list(rows.values()))
            if isinstance(self.screen, NodeDetail):
                self.screen.row = rows.get(self.screen.row.name, self.screen.row)
        screen.query_one("#notes", Static).update(Text("\n").join(below))

    def _fill(self, table: NodeTable, rows: list[NodeRow]) -> None:
        """Show `rows`; update cells in place as long as the table's shape stays."""
        for column in COLUMNS:
            if column.title == self._sorted_by:
                rows.sort(key=column.order)
        self._rows = rows[::-1] if self._reversed else rows
        columns = fitting(rows, table.size.width - _SCROLLBAR, _GAP, more=1)
        mark = "▲" if self._reversed else "▼"
        titles = [c.title + (mark if c.title == self._sorted_by else "") for c, _ in columns]
        shape = [titles, [size for _, size in columns], [len(row.osds) for row in self._rows]]
        cells = [[column.cell(row) for column, _ in columns] for row in self._rows]
        if shape == self._drawn:
            for place, row in enumerate(cells):
                for (column, _), cell in zip(columns, row, strict=True):
                    table.update_cell(str(place), column.title, cell)
            return
        self._drawn = shape
        heads = [
            (column.title, Text(title, justify=column.justify), size)
            for (column, size), title in zip(columns, titles, strict=True)
        ]
        table.refill(heads, cells)


def watch(testbed: Testbed, interval_s: float) -> None:
    """Show a testbed until the user quits. HotbedError: its first sample cannot be had."""
    from testbed.client import agent_client

    client = agent_client(testbed)
    opened = [samples(testbed, interval_s=interval_s)]
    first = next(opened[0])  # an undeployed testbed ends the command, as elsewhere

    def stream() -> Samples:
        return opened.pop() if opened else samples(testbed, interval_s=interval_s)

    def detail(node: str) -> Stream:
        return lambda: client.stream("node-top", {"node": node, "interval_s": interval_s})

    app = TopApp(stream, detail)
    app.item = first
    app.run()
    app.reader.join(interval_s + 1.0)
