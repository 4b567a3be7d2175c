"""Atlas, report and docs as a newcomer clicks through them, on a desk and on a phone, light and dark."""

import re

import pytest

# `is_visible` and `count` tell of this very moment, which after a click may still be the page before: `expect` waits.
expect = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed").expect
expect.set_options(timeout=30_000)  # a page of a megabyte on a busy machine

pytestmark = pytest.mark.slow  # a browser for each width and scheme: `make test-browser`


def wider_than_the_screen(page):
    """By how many pixels the page can be scrolled to the right."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


# -- the start page -------------------------------------------------------------------------------------------


def test_the_start_page_shows_the_picture_and_three_doors_that_open(page, docs):
    page.goto(f"{docs}/index.html")
    expect(page.locator("svg.triangle")).to_be_visible()
    assert wider_than_the_screen(page) <= 0
    doors = page.locator(".doors > ul > li")
    expect(doors).to_have_count(3)
    for number, heading in enumerate(("atlas of equations", "fifteen minutes", "Classifiers")):
        page.goto(f"{docs}/index.html")
        doors.nth(number).locator("a").first.click()
        expect(page.locator("h1")).to_contain_text(heading)


def test_a_page_of_a_method_leads_to_its_classifier_and_to_an_equation(page, docs):
    page.goto(f"{docs}/methods/index.html")
    page.get_by_role("link", name="pep", exact=True).first.click()
    expect(page.locator("svg.model")).to_be_visible()
    assert wider_than_the_screen(page) <= 0
    page.get_by_role("link", name="PEPClassifier").first.click()
    expect(page.locator("h1")).to_have_text(re.compile("^PEPClassifier"))
    page.go_back()
    page.locator("p.numbers a", has_text="(A.20)").click()
    expect(page).to_have_url(re.compile(r"atlas/villacampa2020\.html#A\.20$"))
    expect(page.locator("article#A\\.20")).to_be_visible()


def test_the_gallery_shows_a_dozen_pictures(page, docs):
    page.goto(f"{docs}/pictures/index.html")
    assert page.locator(".sphx-glr-thumbcontainer img").count() >= 12  # `goto` has waited for the whole page
    assert wider_than_the_screen(page) <= 0
    page.locator(".sphx-glr-thumbcontainer a").first.click()
    drawn = page.locator("img.sphx-glr-single-img").first
    expect(drawn).to_be_visible()
    expect(drawn).not_to_have_js_property("naturalWidth", 0)


def test_the_picture_of_the_start_page_is_whole_also_on_a_phone(page, docs):
    page.goto(f"{docs}/index.html")
    width = page.evaluate("window.innerWidth")
    for side in ("left", "right"):
        box = page.locator(f"svg.triangle g.{side}").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        below = page.locator(".doors").bounding_box()
        assert box["y"] + box["height"] <= below["y"]


def test_claims_are_found_by_their_state_and_by_words(page, docs):
    page.goto(f"{docs}/claims/villacampa2020.html")
    page.locator(".atlas-tools select").select_option("differs")
    page.locator(".atlas-tools input").fill("wine pep")
    shown = page.locator("article.equation:visible")
    expect(shown.first).to_have_attribute("data-state", "differs")
    expect(shown.first).to_contain_text("half width")
    assert shown.count() < page.locator('article.equation[data-state="differs"]').count()
    assert wider_than_the_screen(page) <= 0


# -- the atlas ------------------------------------------------------------------------------------------------


def test_the_atlas_of_all_papers_is_searched_in_one_place(page, docs):
    page.goto(f"{docs}/atlas/index.html")
    result = page.locator(".found li:visible")
    expect(result).to_have_count(0)  # folded until something is looked for
    page.locator(".atlas-tools input").fill("villacampa2020 power cavity")
    assert 0 < result.count() < 30  # of five hundred
    page.locator(".atlas-tools select").select_option("corrected")
    page.locator(".atlas-tools input").fill("villacampa2020 (a.20)")
    expect(result).to_have_count(1)
    assert wider_than_the_screen(page) <= 0
    result.first.locator("a").click()
    expect(page).to_have_url(re.compile(r"atlas/villacampa2020\.html#A\.20$"))


def shown_cards(page):
    """Ids of the cards that are not filtered away."""
    return page.locator("article.equation:visible").evaluate_all("cards => cards.map(card => card.id)")


def test_a_newcomer_gets_from_the_start_to_a_misprint_and_sees_both_forms(page, docs):
    page.goto(f"{docs}/index.html")
    page.get_by_role("link", name="Audit an equation").click()
    page.locator("tr", has_text="villacampa2020").get_by_role("link", name="(A.20)").click()
    card = page.locator("article#A\\.20")
    card.wait_for()
    # the link led to the card and not to the head of its page
    page.wait_for_function(
        "() => { const y = document.getElementById('A.20').getBoundingClientRect().top; return y >= -1 && y < 850; }"
    )
    tools, head = page.locator(".atlas-tools").bounding_box(), card.locator("h3").bounding_box()
    assert head["y"] >= tools["y"] + tools["height"]  # its title is not below the line of tools
    expect(card.locator(".state")).to_have_text("corrected")
    expect(card.locator("figure.printed math")).to_be_visible()
    expect(card.locator("figure.corrected math")).to_be_visible()
    expect(card.locator("figure.printed .differs").first).to_be_attached()
    assert wider_than_the_screen(page) <= 0


@pytest.mark.parametrize(
    ("typed", "found"), [("A.20", {"A.20"}), ("(8)", {"8"}), ("arpep", {"9"}), ("power cavity", {"A.8", "A.9"})]
)
def test_the_atlas_is_searched_by_number_method_and_word(page, docs, typed, found):
    page.goto(f"{docs}/atlas/villacampa2020.html")
    every = len(shown_cards(page))
    page.locator(".atlas-tools input").fill(typed)
    left = shown_cards(page)
    assert found <= set(left)
    assert 0 < len(left) < every
    assert page.locator(".atlas-tools [role=status]").inner_text() == f"{len(left)} of {every}"


def test_the_atlas_is_filtered_by_state_and_shows_all_again(page, docs):
    page.goto(f"{docs}/atlas/villacampa2020.html")
    every = len(shown_cards(page))
    page.locator(".atlas-tools select").select_option("corrected")
    states = page.locator("article.equation:visible .state").all_inner_texts()
    assert set(states) == {"corrected"}
    assert 0 < len(states) < every
    page.locator(".atlas-tools select").select_option("")
    assert len(shown_cards(page)) == every


def test_the_number_of_a_card_is_its_permanent_link(page, docs):
    page.goto(f"{docs}/atlas/wenzel2019.html")
    page.locator("article#\\31 1 a.number").click()
    expect(page).to_have_url(re.compile(r"wenzel2019\.html#11$"))
    page.goto(page.url.replace("#11", "#18"))
    expect(page.locator("article:target")).to_have_id("18")


def test_a_graph_of_calls_fits_the_page_and_leads_to_the_cards(page, docs):
    page.goto(f"{docs}/atlas/wenzel2019.html")
    fold = page.locator("details.calls").first
    expect(fold).to_contain_text("x-gpc:")
    fold.locator("summary").click()
    picture = fold.locator("svg.calls:visible")
    expect(picture).to_have_count(1)  # of two widths
    place, within = picture.bounding_box(), fold.bounding_box()
    assert place["x"] >= within["x"]
    assert place["x"] + place["width"] <= within["x"] + within["width"]
    assert wider_than_the_screen(page) <= 0
    caller = picture.locator("a", has=page.locator("text=(10)"))
    expect(picture.locator("path.lit")).to_have_count(0)
    caller.focus()
    assert picture.locator("path.lit").count() > 0
    for label in picture.locator("a").all():  # no label is wider than its box
        text, box = (label.locator(part).bounding_box() for part in ("text", "rect"))
        assert text["width"] < box["width"]
    picture.locator("a", has=page.locator("text=(11)")).click()
    expect(page).to_have_url(re.compile(r"wenzel2019\.html#11$"))
    card = page.locator("article#\\31 1")
    expect(card).to_be_in_viewport()


def test_a_graph_is_on_paper_if_it_was_opened(page, docs):
    page.goto(f"{docs}/atlas/wenzel2019.html")
    folds = page.locator("details.calls")
    folds.first.locator("summary").click()
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # a sheet of A4 without its margins
    expect(folds.last).to_be_hidden()
    place = folds.first.locator("svg.calls:visible").bounding_box()
    assert place["x"] + place["width"] <= 718


def test_sources_and_tests_unfold(page, docs):
    page.goto(f"{docs}/atlas/wenzel2019.html#11")
    fold = page.locator("article#\\31 1 details", has_text="update_local").first
    expect(fold.locator("pre").first).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator("pre").first).to_be_visible()
    expect(fold.locator("pre").first).to_contain_text("def update_local")
    assert wider_than_the_screen(page) <= 0


def test_a_misprint_and_its_correction_stand_side_by_side_where_there_is_room(page, docs):
    page.goto(f"{docs}/atlas/villacampa2020.html#A.20")
    card = page.locator("article#A\\.20")
    printed, corrected = (card.locator(f"figure.{name}").bounding_box() for name in ("printed", "corrected"))
    if page.evaluate("window.innerWidth") >= 1280:
        assert corrected["y"] == pytest.approx(printed["y"], abs=2)
        assert corrected["x"] >= printed["x"] + printed["width"]
    else:
        assert corrected["y"] >= printed["y"] + printed["height"]
    expect(card.locator("p.facts").first).to_contain_text("appendix A.4")


def test_the_symbols_of_a_card_are_those_of_its_equation(page, docs):
    page.goto(f"{docs}/atlas/villacampa2020.html#A.20")
    symbols = page.locator("article#A\\.20 details.symbols")
    symbols.locator("summary").click()
    expect(symbols.locator("th")).to_have_text(["in code", "in the equation", "shape", "the name means"])
    expect(symbols.locator("tr", has_text="alpha").first).to_contain_text("\N{GREEK SMALL LETTER ALPHA}")
    assert wider_than_the_screen(page) <= 0


def test_a_card_tells_what_both_forms_give_and_what_the_perturbation_did(page, docs):
    page.goto(f"{docs}/atlas/villacampa2020.html#A.20")
    card = page.locator("article#A\\.20")
    expect(card.locator(".note").last).to_contain_text(re.compile(r"printed [-\d.]+, corrected [-\d.]+"))
    fold = card.locator("details", has_text="perturbed:")
    expect(fold.locator("li").first).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator("li").first).to_contain_text("noticed by")
    symbols = card.locator("details.symbols")
    symbols.locator("summary").click()
    expect(symbols.locator("td").first).to_be_visible()
    assert wider_than_the_screen(page) <= 0


def test_a_docstring_that_cites_a_paper_leads_to_its_equations(page, docs):
    page.goto(f"{docs}/api/triad.NestedEPClassifier.html")
    page.locator("a.card", has_text="riihimaki2013").first.click()
    expect(page.locator("h1")).to_contain_text("riihimaki2013")
    page.goto(f"{docs}/modules.html")
    page.locator('td a[href$="wenzel2019.html#14"]').first.click()
    expect(page.locator("article#\\31 4")).to_be_visible()


def test_on_paper_the_tools_are_gone_and_the_cards_stay(page, docs):
    page.goto(f"{docs}/atlas/wenzel2019.html")
    page.emulate_media(media="print")
    expect(page.locator(".atlas-tools")).to_be_hidden()
    expect(page.locator("article#\\31 1")).to_be_visible()
    page.set_viewport_size({"width": 718, "height": 1000})  # a sheet of A4 without its margins
    box = page.locator("article#\\31 1").bounding_box()
    assert box["x"] + box["width"] <= 718


# -- the report -----------------------------------------------------------------------------------------------


def rows(page):
    """Checks of the table that are to be seen."""
    return page.locator("table.checks tbody tr:visible")


def test_the_report_opens_with_its_verdict_and_loads_nothing(page, report):
    page.goto(report)
    expect(page.locator(".verdict")).to_contain_text("passed")
    assert wider_than_the_screen(page) <= 0


def test_the_head_of_the_report_fits_a_screen(page, report):
    page.goto(report)
    box = page.locator("dl.facts").bounding_box()
    assert box["y"] + box["height"] < 850


def test_two_answers_on_one_point_are_seen_as_a_dot_in_a_ring(page, report):
    page.goto(report)
    widths = page.locator("section .facet svg").first.evaluate(
        """picture => ['--s1', '--s2'].map(colour => Math.max(...Array.from(picture.querySelectorAll('path'))
            .filter(path => path.style.stroke.includes(colour)).map(path => parseFloat(path.style.strokeWidth))))"""
    )
    ring, dot = widths
    assert dot >= 2  # units of 1.35 pixels
    assert ring >= dot + 2


def test_the_report_is_filtered_by_words_and_by_kind(page, report):
    page.goto(report)
    page.locator("details.kind").evaluate_all("folds => folds.forEach(fold => { fold.open = true; })")
    every = rows(page).count()
    page.locator("#filter").fill("gradient")
    assert 0 < rows(page).count() < every
    assert all("gradient" in text for text in rows(page).locator("td summary code").all_inner_texts())
    page.locator("#filter").fill("")
    page.locator("#kind").select_option("bound")
    assert {text.split("/")[0] for text in rows(page).locator("td summary code").all_inner_texts()} == {"bound"}


def test_the_report_is_short_on_paper(page, report):
    page.goto(report)
    page.emulate_media(media="print")
    paper = page.pdf(format="A4")
    # of the tree of pages the root counts all of them
    assert 0 < max(int(count) for count in re.findall(rb"/Count (\d+)", paper)) < 15


def test_the_report_is_read_without_a_script(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    expect(page.locator(".verdict")).to_contain_text("passed")
    expect(page.locator("#worst ~ .scroll table a").first).to_be_visible()
    expect(page.locator("table.checks tbody tr").first).to_be_visible()
    context.close()


def test_a_column_of_the_report_sorts_both_ways(page, report):
    page.goto(report)
    table = page.locator("details.kind[open] table.checks").first
    head = table.locator("th", has_text="check").first
    head.locator("button").click()
    once = table.locator("td summary code").all_inner_texts()
    order = head.get_attribute("aria-sort")
    head.locator("button").click()
    again = table.locator("td summary code").all_inner_texts()
    assert {order, head.get_attribute("aria-sort")} == {"ascending", "descending"}
    assert once == list(reversed(again))


def test_what_came_nearest_to_its_limit_is_a_click_away(page, report):
    page.goto(report)
    link = page.locator("#worst ~ .scroll table a").first
    name = link.inner_text()
    link.click()
    row = page.locator("tr:target")
    expect(row).to_be_visible()
    expect(row.locator("summary code")).to_have_text(name)
    assert re.search(r"#\S+$", page.url)
