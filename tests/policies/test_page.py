"""docs/policies.md says what the rules are."""

import re

from policies.rules import RULES
from tools.policies.page import PAGE, SUBJECTS, page


def test_the_page_is_what_the_rules_say():
    assert PAGE.read_text() == page(), "run: python tools/policies/page.py"


def test_every_rule_is_on_the_page_once():
    rows = re.findall(r"^\| `([a-z-]+)` \| \*\*", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(RULES)


def test_a_rule_is_called_by_its_subject():
    assert {id_.partition("-")[0] for id_ in RULES} == set(SUBJECTS)


def test_a_rule_states_what_must_hold_and_why_in_sentences():
    for rule in RULES.values():
        for text in (rule.title, rule.why):
            assert text[-1] == "."
            assert "|" not in text
