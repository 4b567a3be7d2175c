"""Which functions the registry finds, and what it says of those it cannot read."""

from validation.ledger import registry


def test_a_function_counts_once_and_in_the_module_that_defines_it(build):
    sources = build(
        {
            "first": """
                @equation("toy", "1")
                def f(x):
                    "Square."
                    return x * x
                alias = f
            """,
            "second": "from toy.first import f",
        },
        {},
    )
    result = registry.collect(sources.packages)
    assert [item.address.partition(".")[2] for item in result.functions] == ["first.f"]
    function = result.functions[0]
    assert (function.object(3), function.as_printed) == (9, False)
    assert function.file.endswith("first.py")
    assert result.problems == ()


def test_methods_of_every_kind_are_found(build):
    module = """
        class A:
            @equation("toy", "1")
            def plain(self): ...
            @staticmethod
            @equation("toy", "2")
            def static(): ...
            @classmethod
            @equation("toy", "3")
            def on_class(cls): ...
            @property
            @equation("toy", "1")
            def value(self): ...
    """
    names = [item.address.partition(".A.")[2] for item in registry.collect(build({"m": module}, {}).packages).functions]
    assert names == ["on_class", "plain", "static", "value"]


def test_a_module_that_does_not_import_is_a_problem_and_hides_no_other(build):
    sources = build(
        {
            "broken": "import a_module_that_is_not_there",
            "exits": "raise SystemExit(3)",
            "good": '@equation("toy", "1")\ndef f(): ...',
            "__main__": "raise RuntimeError('the command must not run')",
        },
        {},
    )
    result = registry.collect(sources.packages)
    assert [item.address.rpartition(".")[2] for item in result.functions] == ["f"]
    assert len(result.problems) == 2
    assert "broken: failed to import: ModuleNotFoundError" in result.problems[0]
    assert "exits: failed to import: SystemExit" in result.problems[1]


def test_a_marker_of_another_form_is_a_problem(build):
    result = registry.collect(build({"m": "def f(): ...\nf.__equations__ = 'toy'"}, {}).packages)
    assert result.functions == ()
    assert "found __equations__ = 'toy', expected (paper, id)s" in result.problems[0]


def test_a_package_whose_marker_has_no_hook_is_a_problem(build):
    sources = build({"m": '@equation("toy", "1")\ndef f(): ...'}, {})
    other = registry.Package(sources.packages[0].name, f"{sources.packages[0].name}.m")
    assert "found no `hook`" in registry.collect([other]).problems[0]


def test_a_package_that_is_not_there_is_a_problem():
    result = registry.collect([registry.Package("no_such_package_here", "no_such_package_here.ledger")])
    assert "no_such_package_here: failed to import" in result.problems[0]


def test_the_four_packages_are_read():
    assert [package.name for package in registry.PACKAGES] == ["reference", "fast", "gibbs", "validation"]
