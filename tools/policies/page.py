"""Writes docs/policies.md from the rules themselves: `python tools/policies/page.py`."""

from collections.abc import Iterator
from pathlib import Path

from policies.documents import MOST_BYTES
from policies.evaluate import FORM
from policies.report import FORM_TITLE
from policies.rule import Rule
from policies.rules import RULES
from policies.settings import DEFAULTS, Limits

PAGE = Path(__file__).parents[2] / "docs/policies.md"
SUBJECTS = {
    "slices": "Slices",
    "pools": "Node pools",
    "capacity": "Capacity",
    "runs": "Runs that lose a host",
    "start": "Pods that start and stay",
    "changes": "Changes",
    "secrets": "Secrets",
    "security": "Security",
    "hygiene": "Cost and order",
    "images": "Images",
}


def page() -> str:
    head = Path(__file__).with_name("head.md").read_text(encoding="utf-8")
    head = head.replace("MOST_MIB", str(MOST_BYTES // 2**20))
    return "\n".join([head, *_limits(), *_rules()])


def _limits() -> Iterator[str]:
    yield "| limit | dev | staging, others | prod |\n|---|---|---|---|"
    for name in Limits.model_fields:
        values = [getattr(DEFAULTS[env].limits, name) for env in ("dev", "staging", "prod")]
        yield f"| `{name}` | {' | '.join(_shown(value) for value in values)} |"
    yield ""


def _shown(value: object) -> str:
    if value is None:
        return "any"
    return ", ".join(f"`{one}`" for one in value) if isinstance(value, tuple) else str(value)


def _rules() -> Iterator[str]:
    yield f"## Rules\n\n{len(RULES)} rules, and `{FORM}`, always mandatory: {FORM_TITLE}\n"
    for prefix, title in SUBJECTS.items():
        yield f"### {title}\n"
        yield "| rule | what must hold, and why | dev | staging | prod |\n|---|---|---|---|---|"
        yield from (_row(RULES[id_]) for id_ in sorted(RULES) if id_.startswith(f"{prefix}-"))
        yield ""


def _row(rule: Rule) -> str:
    limits = f" Limits: {', '.join(f'`{name}`' for name in rule.limits)}." if rule.limits else ""
    levels = " | ".join(rule.levels)
    return f"| `{rule.id}` | **{rule.title}** {rule.why}{limits} | {levels} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
