"""Compares with jinja2 itself: the golden files, and a few hundred small templates, a line each in snippets.txt."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent.parent / "golden" / "chat_templates"
sys.path.insert(0, str(GOLDEN))

try:
    import reference
except ImportError as error:
    reference = None
    WHY_NOT = f"python3-jinja2 is missing: {error}"

# What every snippet may use.
SURROUNDINGS = {
    "messages": [
        {"role": "user", "content": "hello there"},
        {"role": "assistant", "content": "Hi! \u00e9\n"},
        {"role": "tool", "content": "42", "name": "f", "tool_call_id": "c1"},
    ],
    "arguments": {
        "number": 5, "real": 2.0, "big": 9007199254740993, "flag": True, "nothing": None, "text": "hello",
        "items": [1, "a", 2.5], "object": {"b": [1], "a": {"c": "d\u00e9"}},
    },
    "now": 1732000000,
}


def rendered(conversations):
    """What the program under test makes of them."""
    lines = "".join(json.dumps(conversation) + "\n" for conversation in conversations)
    result = subprocess.run([os.environ["RENDER_LINES"]], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


@unittest.skipIf(reference is None, "" if reference else WHY_NOT)
class ReferenceTest(unittest.TestCase):
    def test_snippets_render_as_with_jinja2(self):
        templates = (HERE / "snippets.txt").read_text().splitlines()
        conversations = [{"template": template, **SURROUNDINGS} for template in templates]

        for conversation, ours in zip(conversations, rendered(conversations)):
            theirs = reference.render(conversation)
            with self.subTest(template=conversation["template"]):
                if "error" in theirs:
                    self.assertIn("error", ours, f"jinja2 refuses: {theirs['error']}")
                else:
                    self.assertEqual(ours.get("text", ours), theirs["text"])

    def test_golden_files_are_what_jinja2_renders(self):
        conversations = {entry["name"]: entry for entry in json.loads((GOLDEN / "conversations.json").read_text())}
        expected = json.loads((GOLDEN / "expected.json").read_text())
        self.assertEqual(set(expected), {path.stem for path in GOLDEN.glob("*.jinja")})

        for name, results in expected.items():
            template = (GOLDEN / f"{name}.jinja").read_text()
            for conversation, result in results.items():
                with self.subTest(template=name, conversation=conversation):
                    self.assertEqual(reference.render({**conversations[conversation], "template": template}), result)

    def test_golden_templates_render_as_with_jinja2(self):
        conversations = json.loads((GOLDEN / "conversations.json").read_text())
        cases = [{**conversation, "template": path.read_text(), "path": path.stem}
                 for path in sorted(GOLDEN.glob("*.jinja")) for conversation in conversations]

        for case, ours in zip(cases, rendered(cases)):
            theirs = reference.render(case)
            with self.subTest(template=case["path"], conversation=case["name"]):
                self.assertEqual("error" in ours, "error" in theirs, (ours, theirs))
                self.assertEqual(ours.get("text"), theirs.get("text"))


if __name__ == "__main__":
    unittest.main()
