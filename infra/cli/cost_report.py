"""How `raytpu cost` shows a price: as a table, as JSON, or as Markdown for a pull request."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from infra.cli.report import print_line, print_table, stdout
from infra.cost.difference import Change, Comparison, changes
from infra.cost.estimate import Estimate, Line, Option, Span
from infra.cost.prices import PriceList

UNKNOWN = "unknown"
HEADINGS = ("what", "how", "at a time", "hours", "in all", "USD an hour each", "USD", "")
CHANGE_HEADINGS = ("what", "before", "now", "difference")
_NOTHING = Span(0, 0, partial=False)
NOT_COUNTED = "not counted: disks, buckets, images, network, logs, taxes, discounts"


def print_text(file: str, priced: Estimate, compared: Comparison | None) -> None:
    out, piped = stdout()
    frame = None if piped else box.SIMPLE
    print_line(out, f"{file}: {_headline(priced)}", "red" if priced.over_budget else "green")
    print_table(out, _table(HEADINGS, _rows(priced.lines), frame))
    if priced.upgrades:
        print_line(out, "on top, for each upgrade:", "dim")
        print_table(out, _table(HEADINGS, _rows(priced.upgrades), frame))
    if compared:
        print_line(out, _compared(compared), "bold")
        rows = _change_rows(priced, compared)
        if not compared.why_not:
            print_table(out, _table(CHANGE_HEADINGS, rows, frame))
    for note in _notes(priced):
        print_line(out, note, "dim")


def print_markdown(file: str, priced: Estimate, compared: Comparison | None) -> None:
    parts = [f"**{file}**: {_headline(priced)}"]
    if compared:
        parts.append(_compared(compared))
        if not compared.why_not:
            parts.append(_markdown(CHANGE_HEADINGS, _change_rows(priced, compared)))
    parts.append(_markdown(HEADINGS, _rows(priced.lines)))
    if priced.upgrades:
        parts += ["On top, for each upgrade:", _markdown(HEADINGS, _rows(priced.upgrades))]
    parts.append("\n".join(f"- {note}" for note in _notes(priced)))
    sys.stdout.write("\n\n".join(parts) + "\n")


def print_json(file: str, priced: Estimate, compared: Comparison | None) -> None:
    document: dict[str, Any] = {
        "stack": file,
        "usage": asdict(priced.usage),
        "usd_per_month": _span_as_json(priced.total),
        "budget_usd_per_month": priced.budget,
        "over_budget": priced.over_budget,
        "lines": [_line_as_json(line) for line in priced.lines],
        "upgrades": [_line_as_json(line) for line in priced.upgrades],
        "unknown": [*_unknown(priced)],
        "prices": [_origin_as_json(origin) for origin in _origins(priced)],
    }
    if compared:
        document["against"] = _comparison_as_json(priced, compared)
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


PRINTERS = {"text": print_text, "json": print_json, "markdown": print_markdown}


def _headline(priced: Estimate) -> str:
    text = f"USD a month: {_span(priced.total)}"
    if priced.budget is not None:
        where = "above" if priced.over_budget else "within"
        known = "" if priced.total and not priced.total.partial else ", as far as prices are known"
        text += f", {where} the budget of {priced.budget:,}{known}"
    return text


def _rows(lines: Iterable[Line]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        name = line.name
        for option in line.options:
            yield (name, *_cells(option), _remark(line, option))
            name = ""


def _cells(option: Option) -> tuple[str, ...]:
    plural = "s" if option.amount != 1 else ""
    return (
        option.how,
        f"{option.amount:,} {option.unit}{plural}",
        f"{option.hours:,.4g}" if option.hours < 1 else f"{option.hours:,.0f}",
        f"{option.unit_hours:,.0f} {option.unit}-hours",
        f"{option.price.usd_per_hour:,.4f}" if option.price else UNKNOWN,
        _usd(option.usd),
    )


def _remark(line: Line, option: Option) -> str:
    """Whether it is the best or the worst of those whose price is known."""
    span = line.span
    marks = [option.note]
    if span and span.least != span.most and option.usd in (span.least, span.most):
        marks.insert(0, "best" if option.usd == span.least else "worst")
    return "; ".join(mark for mark in marks if mark)


def _change_rows(priced: Estimate, compared: Comparison) -> Iterator[tuple[str, ...]]:
    for change in changes(compared.before, priced):
        yield _change_row(change)
    before = compared.before.total if compared.before else _NOTHING
    yield "a month", _span(before), _span(priced.total), _difference(before, priced.total)


def _change_row(change: Change) -> tuple[str, ...]:
    before, after = (line.span if line else _NOTHING for line in (change.before, change.after))
    shown = [
        f"{_span(span)}, {_hours(line)}" if line else "-"
        for line, span in ((change.before, before), (change.after, after))
    ]
    return change.name, *shown, _difference(before, after)


def _difference(before: Span | None, after: Span | None) -> str:
    if before is None or after is None:
        return UNKNOWN
    ends = dict.fromkeys((after.least - before.least, after.most - before.most))
    text = " to ".join(f"{end:+,.0f}" for end in ends)
    return f"{text} (partial)" if before.partial or after.partial else text


def _span(span: Span | None) -> str:
    if span is None:
        return UNKNOWN
    text = " to ".join(dict.fromkeys((_usd(span.least), _usd(span.most))))
    return f"{text} (partial)" if span.partial else text


def _hours(line: Line) -> str:
    ends = sorted({option.unit_hours for option in line.options})
    text = " to ".join(f"{end:,.0f}" for end in dict.fromkeys((ends[0], ends[-1])))
    return f"{text} {line.options[0].unit}-hours"


def _usd(usd: float | None) -> str:
    if usd is None:
        return UNKNOWN
    return f"{usd:,.0f}" if usd >= 100 or usd == round(usd) else f"{usd:,.2f}"  # noqa: PLR2004 - cents below


def _compared(compared: Comparison) -> str:
    if compared.why_not:
        return f"not compared with {compared.name}, which has no price: {compared.why_not}"
    if compared.before is None:
        return f"against {compared.name}, which is not there:"
    return f"against {compared.name}:"


def _notes(priced: Estimate) -> Iterator[str]:
    for unknown in _unknown(priced):
        yield f"price unknown: {unknown}"
    usage = priced.usage
    yield (
        f"assumed: a month of {usage.hours_per_month:,g} hours, "
        f"{usage.runs_per_month} run(s) of each training job"
    )
    yield NOT_COUNTED
    for origin in _origins(priced):
        yield f"prices: {origin.source} ({origin.date}, confidence {origin.confidence})"


def _unknown(priced: Estimate) -> Iterator[str]:
    for line in (*priced.lines, *priced.upgrades):
        for option in line.options:
            if option.usd is None:
                yield f"{line.name}, {option.how}"


def _origins(priced: Estimate) -> list[PriceList]:
    lines = (*priced.lines, *priced.upgrades)
    options = [option for line in lines for option in line.options]
    return [*dict.fromkeys(option.price.origin for option in options if option.price)]


def _table(
    headings: tuple[str, ...], rows: Iterable[tuple[str, ...]], frame: box.Box | None
) -> Table:
    table = Table(box=frame, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    return table


def _markdown(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _span_as_json(span: Span | None) -> dict[str, Any] | None:
    if span is None:
        return None
    return {"least": round(span.least, 2), "most": round(span.most, 2), "partial": span.partial}


def _line_as_json(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "usd": _span_as_json(line.span),
        "options": [_option_as_json(option) for option in line.options],
    }


def _option_as_json(option: Option) -> dict[str, Any]:
    return {
        "how": option.how,
        "unit": option.unit,
        "amount": option.amount,
        "hours": option.hours,
        "unit_hours": option.unit_hours,
        "usd_per_unit_hour": option.price.usd_per_hour if option.price else None,
        "usd": None if option.usd is None else round(option.usd, 2),
        "note": option.note,
    }


def _origin_as_json(origin: PriceList) -> dict[str, str]:
    return {"source": origin.source, "date": origin.date, "confidence": origin.confidence}


def _comparison_as_json(priced: Estimate, compared: Comparison) -> dict[str, Any]:
    before = compared.before
    found: list[Change] = [] if compared.why_not else [*changes(before, priced)]
    return {
        "name": compared.name,
        "not_compared": compared.why_not or None,
        "usd_per_month": _span_as_json(before.total) if before else None,
        "changes": [
            {
                "name": change.name,
                "before": _line_as_json(change.before) if change.before else None,
                "after": _line_as_json(change.after) if change.after else None,
            }
            for change in found
        ],
    }
