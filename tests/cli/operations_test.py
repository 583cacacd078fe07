"""docs/operations.md against the program."""

import os
import re
import unittest

from program import TOP, ProgramTest

with open(os.path.join(TOP, "docs", "operations.md"), encoding="utf-8") as file:
    DOCUMENT = file.read()


def documented_flags():
    """Default by flag, of the table "Flags"."""
    section = DOCUMENT.split("\n## Flags\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(--[a-z-]+)`[^|]* \| ([^|]+) \|", section, re.MULTILINE))


def told_flags(text):
    """Default by flag, of --help; None where it names none."""
    flags = {}
    for flag, help_text in re.findall(r"^ +(?:-\w,)?(--[a-z-]+)\b(.*(?:\n {20,}.*)*)", text, re.MULTILINE):
        default = re.search(r"\[([^\]]+)\]\s*\Z", help_text)
        flags[flag] = " ".join(default[1].split()) if default else None
    return flags


class OperationsTest(ProgramTest):
    def test_documents_each_flag_of_serve(self):
        told = told_flags(self.output("serve", "--help").decode())
        told.pop("--help", None)
        documented = documented_flags()

        self.assertGreater(len(told), 10)
        self.assertEqual(sorted(told), sorted(documented))

    def test_documents_the_defaults(self):
        documented = documented_flags()
        for flag, default in told_flags(self.output("serve", "--help").decode()).items():
            if default:
                self.assertEqual(default, documented[flag], flag)


if __name__ == "__main__":
    unittest.main()
