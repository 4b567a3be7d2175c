"""A run for other programs parses, and holds every verdict once."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

from validation.report import export, moved, table


def test_json_holds_every_verdict_and_no_number_that_json_does_not_know(fake_run):
    run = fake_run({}, red=True)
    content = json.loads(export.json_text(run))
    assert len(content["verdicts"]) == len(run.results)
    assert content["summary"]["failed"] == 2
    kinds = content["summary"]["kinds"]
    assert sum(counts["failed"] for counts in kinds.values()) == 2
    assert set(kinds) == {result.kind for result in run.results}
    assert "moved" not in content
    by_name = {(row["check"], row["verdict"]): row for row in content["verdicts"]}
    for result in run.results:
        row = by_name[result.check, result.verdict]
        assert row["observed"] == (result.observed if math.isfinite(result.observed) else None)
        assert row["reproduce"] == result.reproduce


def test_json_holds_what_moved_if_asked(fake_run, fake_result):
    old = table.verdicts([fake_result("identity/x-gpc/elbo", "toy", 1e-12, 1e-8, "PASS")])
    (move,) = json.loads(export.json_text(fake_run({}), moved.moves(old, {})))["moved"]
    assert (move["kind"], move["before"]["observed"], move["after"]) == ("gone", 1e-12, None)


def test_junit_counts_what_the_run_counts_and_escapes(fake_run, nasty):
    run = fake_run({"toy": (12, None)}, red=True)
    colourful = replace(run.results[0], why="\x1b[31mred\x1b[0m " + nasty, verdict="ERROR")
    run = run._replace(results=(*run.results, colourful))
    root = ElementTree.fromstring(export.junit(run))
    assert len(list(root.iter("testcase"))) == len(run.results)
    for tag, verdict in (("failure", "FAIL"), ("error", "ERROR"), ("skipped", "SKIP")):
        assert len(list(root.iter(tag))) == run.count(verdict)
    assert sum(int(suite.attrib["tests"]) for suite in root) == len(run.results)
    assert any(nasty in (error.text or "") for error in root.iter("error"))
