"""Claims that checks of the judge decide: the check is there, is of that paper or of its model, and can fail."""

import importlib
import re
from pathlib import Path

import pytest

from validation.checks import core
from validation.claims import inventory

CLAIMS = {claim.address: claim for claims in inventory.load().values() for claim in claims}
BY_CHECK = {
    address: match[1]
    for address, claim in CLAIMS.items()
    if (match := re.fullmatch(r"triad verify (?:--full )?--check (\S+)", claim.command))
}


def test_what_decides_a_claim_is_a_check_of_the_judge():
    known = core.registered()
    assert BY_CHECK
    assert {address: name for address, name in BY_CHECK.items() if name not in known} == {}


def test_a_check_that_a_full_run_alone_asks_is_named_with_a_full_run():
    known = core.registered()
    for address, name in BY_CHECK.items():
        assert ("--full" in CLAIMS[address].command) == (not known[name].problems), address


def test_every_statement_that_the_judge_puts_to_numbers_is_a_claim_that_it_decides_or_says_why_not():
    for name, check in core.registered().items():
        if not check.quantity.startswith("says_"):
            continue
        address = f"{check.paper}:{check.quantity.removeprefix('says_').replace('_', '-')}"
        if CLAIMS[address].state == inventory.OPEN:  # the check measures something else than what decides the claim
            assert CLAIMS[address].reason, address
            continue
        assert BY_CHECK.get(address) == name
        # what a check shows of a refuted claim is the counter-example
        assert CLAIMS[address].state in (inventory.REPRODUCED, inventory.REFUTED)


def test_a_statement_is_registered_by_the_module_that_a_process_of_its_own_imports():
    for name, check in core.registered().items():
        if check.quantity.startswith("says_"):
            text = Path(importlib.import_module(check.module).__file__).read_text(encoding="utf-8")
            assert f'"{check.quantity.removeprefix("says_").replace("_", "-")}"' in text, name


@pytest.mark.slow  # `triad verify` asks all of them
@pytest.mark.parametrize("name", sorted(name for name in set(BY_CHECK.values()) if "/says_" in name))
def test_a_statement_holds(name):
    from validation.checks import runner, selection

    run = runner.run(selection.select(check=[name], full=True), jobs=1)
    assert [(result.verdict, result.observed) for result in run.results if result.failed] == []
    assert any(result.verdict == "PASS" for result in run.results)
