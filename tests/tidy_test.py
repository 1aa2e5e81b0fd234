"""Goal: the tree keeps the shape that README.md and the style ask for.
Method: each rule of tests/tidy walks the source tree and names file, line and what to do instead.

tests/tidy_ratchet.txt lists what was there before a rule: `rule | path | size`. It may only shrink:
an entry that is larger than the offence must be lowered, one that is gone removed.
"""

from __future__ import annotations

import collections
import functools
import os
import re
import shutil
import subprocess
import unittest
from typing import Callable, Dict, Iterable, Tuple

from tidy import adapters, classes, imports, includes, layers, references, rules
from tidy import shape, source, words
from tidy.source import Finding

_RATCHET = "tests/tidy_ratchet.txt"


def ratchet() -> Dict[Tuple[str, str], int]:
    """(rule, path) -> size allowed."""
    allowed = {}
    for line in source.lines(_RATCHET):
        if line and not line.startswith("#"):
            rule, path, size = (part.strip() for part in line.split("|"))
            allowed[rule, path] = int(size)
    return allowed


def by_place(findings: Iterable[Finding]) -> Dict[Tuple[str, str], list]:
    """Findings grouped by rule and file."""
    groups: Dict[Tuple[str, str], list] = collections.defaultdict(list)
    for finding in findings:
        groups[finding.rule, finding.path].append(finding)
    return groups


@functools.lru_cache(maxsize=None)
def found_by(rule: Callable[[], Iterable[Finding]]) -> Tuple[Finding, ...]:
    """The findings of a rule, which walks the tree once."""
    return tuple(rule())


class TidyTest(unittest.TestCase):
    def check(self, rule: Callable[[], Iterable[Finding]]) -> None:
        """Fails with every finding that the ratchet does not cover."""
        allowed = ratchet()
        bad = []
        for key, findings in sorted(by_place(found_by(rule)).items()):
            if sum(finding.size for finding in findings) > allowed.get(key, 0):
                bad += [str(finding) for finding in findings]
        if bad:
            self.fail("\n" + "\n".join(bad))

    def test_includes_follow_the_layers(self) -> None:
        self.check(includes.direction)

    def test_libraries_are_included_at_their_border_only(self) -> None:
        self.check(includes.borders)

    def test_includes_are_written_from_the_root(self) -> None:
        self.check(includes.paths)

    def test_no_include_goes_in_a_circle(self) -> None:
        self.check(includes.cycles)

    def test_no_units_include_each_other(self) -> None:
        self.check(layers.units)

    def test_no_file_includes_too_many_levels_of_headers(self) -> None:
        self.check(layers.depths)

    def test_the_folders_of_core_are_layers_and_drawn(self) -> None:
        self.check(layers.folders)

    def test_files_are_short(self) -> None:
        self.check(shape.file_length)

    def test_functions_are_short(self) -> None:
        self.check(shape.function_length)

    def test_classes_are_small(self) -> None:
        self.check(classes.too_large)

    def test_lines_are_short(self) -> None:
        self.check(shape.columns)

    def test_headers_begin_with_a_comment_and_a_guard(self) -> None:
        self.check(shape.headers)

    def test_unit_tests_mirror_the_tree(self) -> None:
        self.check(shape.test_places)

    def test_top_folders_have_a_readme(self) -> None:
        self.check(shape.readmes)

    def test_top_level_is_as_agreed(self) -> None:
        self.check(shape.top_level)

    def test_nothing_banned_is_called(self) -> None:
        self.check(words.banned)

    def test_no_state_is_shared_by_the_process(self) -> None:
        self.check(words.mutable_state)

    def test_nothing_is_unfinished_or_bound_to_a_machine(self) -> None:
        self.check(words.marks)

    def test_importing_covey_imports_no_framework(self) -> None:
        self.check(words.framework_imports)

    def test_imports_are_used(self) -> None:
        self.check(imports.unused)

    def test_branches_that_mutants_change_name_their_rule(self) -> None:
        self.check(rules.near_mutants)

    def test_rules_that_are_named_are_on_their_page_and_mutants_too(self) -> None:
        self.check(rules.of_page)

    def test_rules_are_named_with_their_module(self) -> None:
        self.check(rules.bare)

    def test_members_that_comments_name_are_there(self) -> None:
        self.check(references.gone)

    def test_no_text_of_core_corrects_another(self) -> None:
        self.check(rules.history)

    def test_adapters_know_no_method_and_have_no_thread_and_no_time_out(self) -> None:
        self.check(adapters.know_no_method)

    def test_c_is_laid_out_by_clang_format(self) -> None:
        """That of version 14: another lays out otherwise."""
        tool = shutil.which("clang-format-14")
        if tool is None:
            self.skipTest("clang-format-14 is missing: tools/setup installs it")
        command = [tool, "--dry-run", "--Werror", *source.files(*source.CPP)]
        ran = subprocess.run(command, cwd=source.ROOT, text=True, stderr=subprocess.PIPE)
        self.assertEqual(ran.returncode, 0, f"`tools/check fix` mends this:\n{ran.stderr[:4000]}")


RULES = (
    includes.direction, includes.borders, includes.paths, includes.cycles, layers.units,
    layers.depths, layers.folders, classes.too_large, shape.file_length,
    shape.function_length, shape.columns, shape.headers, shape.test_places, shape.readmes,
    shape.top_level, words.banned, words.mutable_state, words.marks, words.framework_imports,
    imports.unused,
    rules.near_mutants, rules.of_page, rules.bare, rules.history, adapters.know_no_method,
)


class RatchetTest(unittest.TestCase):
    def test_only_shrinks(self) -> None:
        groups = by_place(finding for rule in RULES for finding in found_by(rule))
        for (rule, path), size in ratchet().items():
            now = sum(finding.size for finding in groups.get((rule, path), []))
            better = f"{path} is better now: lower its size for {rule!r} in {_RATCHET} to {now}"
            self.assertGreaterEqual(now, size, better + ", or remove the line when it is 0")


class RulesTest(unittest.TestCase):
    """The rules themselves: what they take for code."""

    def test_comments_and_strings_are_no_code(self) -> None:
        text = 'int a; // throw\nconst char* b = "try { }"; /* catch (\n*/ int c = 1\'000;\n'
        code = source._TOKENS.sub(source._blank, re.sub(r"(?<=\d)'(?=\d)", "0", text))
        self.assertNotRegex(code, "throw|try|catch")
        self.assertEqual(code.count("\n"), text.count("\n"))

    def test_a_method_in_an_adapter_is_found_but_in_its_documentation(self) -> None:
        text = '"""By eager."""\nimport threading\ndef f(local):\n    return "by eager: " + name\n'
        found = {finding.text.split()[0] for finding in adapters.found_in("path", text)}
        self.assertEqual(found, {"threading", "local", "eager"})
        self.assertIn("diloco", adapters.methods())

    def test_an_import_that_nothing_uses_is_found(self) -> None:
        text = "import os, re\nfrom x import a, b  # noqa: F401\nfrom y import d as e\nprint(re)\n"
        found = [finding.text.split()[0] for finding in imports.found_in("path", text)]
        self.assertEqual(found, ["os", "e"])

    def test_a_change_begins_where_the_texts_differ(self) -> None:
        change = rules.mutate.Change("path", 2, "  a;\n  b;\n", "  a;\n  c;\n")
        self.assertEqual(rules.changed_lines("  a;\n  b;\n}\n  a;\n  b;\n", change), [2, 5])
        more = rules.mutate.Change("path", 1, "  a;\n", "  a;\n  b;\n")
        self.assertEqual(rules.changed_lines("{\n  a;\n}\n", more), [2])

    def test_members_and_functions_of_a_class_are_told_apart(self) -> None:
        text = """class Port final : public Base {
 public:
  enum class Kind : uint8_t { kOne };
  using Taking = void (Port::*)(int);
  explicit Port(int a) : a_(a), b_{a} {}
  virtual bool Is(const Key& key) const = 0;
  bool operator==(const Port&) const = default;
  template <typename Fn>
  void Each(Fn fn) { for (int i : list_) fn(i); }
  struct Inner { int x = 0; };

 private:
  int a_ = 0;
  std::function<void(int)> call_;
  std::array<int, 3> list_{};
  static constexpr int kMost = 3;
};
"""
        found = [(size.name, size.members, size.functions) for size in classes.cpp_sizes(text)]
        self.assertEqual(found, [("Port", 3, 4), ("Inner", 1, 0)])

    def test_a_lambda_and_a_type_are_no_function(self) -> None:
        self.assertEqual(source._kind_of("struct Leaf final ", ()), "type")
        self.assertEqual(source._kind_of("namespace covey ", ()), "namespace")
        self.assertEqual(source._kind_of("constexpr int kTable[] = ", ("namespace",)), "other")
        self.assertEqual(source._kind_of("template <class T>\nvoid Run(T t) ", ()), "function")
        self.assertEqual(source._kind_of("Runtime::Runtime(int a) : a_(a) ", ()), "function")
        self.assertEqual(source._kind_of("for (int i = 0; ", ("function",)), "other")


if __name__ == "__main__":
    if os.environ.get("TIDY_LIST"):
        print(*(f for rule in RULES for f in rule()), sep="\n")
    else:
        unittest.main()
