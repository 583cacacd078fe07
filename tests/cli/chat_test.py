"""`millrace chat` as a script and at a terminal, with the built-in model, whose conversations are plain transcripts."""

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import tempfile
import termios
import time
import unittest

from program import MILLRACE, ProgramTest, run

CTRL_C, CTRL_D, UP = b"\x03", b"\x04", b"\x1b[A"


class Terminal:
    """chat on a pseudoterminal. What it says is waited for, so nothing depends on time."""

    def __init__(self, home, *flags, slow=False):
        environment = {**os.environ, "HOME": home, "XDG_STATE_HOME": home, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        if slow:  # minutes for a whole answer
            environment["MILLRACE_ISA"] = "scalar"
            flags += ("--threads", "1")
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(MILLRACE, [MILLRACE, "chat", *flags], environment)
        self.said = b""

    def expect(self, pattern):
        """Reads up to the pattern and returns what came until its end."""
        deadline = time.monotonic() + 100
        while not (match := re.search(pattern, self.said)):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], f"no {pattern} in {self.said}"
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # it has ended
                data = b""
            assert data, f"no {pattern} in {self.said}"
            self.said += data
        seen, self.said = self.said[: match.end()], self.said[match.end() :]
        if seen.endswith(b"> "):
            self.wait_for_editor()
        return seen

    def wait_for_editor(self):
        """libedit prints its prompt before it takes the terminal over: until then a Ctrl-D is the terminal's."""
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            os.sched_yield()

    def type(self, data):
        os.write(self.fd, data)

    def exit_code(self):
        """Once it has ended; what it still says is dropped."""
        try:
            while os.read(self.fd, 65536):
                pass
        except OSError:
            pass
        status = os.waitpid(self.pid, 0)[1]
        self.pid = None
        return os.waitstatus_to_exitcode(status)

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class ChatTest(ProgramTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = folder.name

    def path(self, name):
        return os.path.join(self.home, name)

    def chat(self, script, *flags):
        """What a script gets on stdout."""
        return self.output("chat", "-n", "12", "--seed", "1", *flags, stdin=script.encode()).decode()

    def saved(self, script, *flags):
        """The turns that a script leaves, as pairs of role and content."""
        path = self.path("saved.jsonl")
        if os.path.exists(path):
            os.unlink(path)
        self.chat(f"{script}\n/save {path}\n", *flags)
        with open(path) as file:
            return [(turn["role"], turn["content"]) for turn in map(json.loads, file)]

    def terminal(self, *flags, **options):
        terminal = Terminal(self.home, "--seed", "1", *flags, **options)
        self.addCleanup(terminal.close)
        terminal.expect(rb"> ")
        return terminal

    # ---- a script ----

    def test_a_script_gets_answers_and_nothing_else(self):
        done = run("chat", "-n", "12", "--seed", "1", stdin=b"Hello\n\n/stats\nAnd then?\n/help\n")

        self.assertEqual(done.returncode, 0)
        turns = self.saved("Hello\nAnd then?")
        self.assertEqual(done.stdout.decode(), turns[1][1] + "\n" + turns[3][1] + "\n")
        self.assertIn(b"1 answer; 12 tokens", done.stderr)

    def test_the_same_seed_gives_the_same_conversation(self):
        script = "Hello\nAnd then?\n"
        whole = self.chat(script)

        self.assertEqual(self.chat(script), whole)
        self.assertNotEqual(self.chat("/seed 2\n" + script), whole)
        self.assertEqual(self.chat("/seed 2\n/seed 1\n" + script), whole)
        self.assertEqual(self.chat("/temp 0\n" + script), self.chat("/seed 5\n/temp 0\n" + script))

    def test_an_answer_is_what_the_transcript_goes_on_with(self):
        system, question = "You tell tales.", "Who lived in the wood?"
        transcript = f"system: {system}\n\nuser: {question}\n\nassistant:"

        answer = self.chat(question + "\n", "--system", system, "--temp", "0")

        text = self.output("generate", "-n", "12", "--temp", "0", transcript).decode()
        self.assertEqual(answer, text.lstrip() + "\n")

    def test_earlier_turns_are_not_read_again(self):
        question = "Once upon a time there lived a king who had three daughters and a golden apple tree."

        done = run("chat", "-n", "40", "--temp", "0", stdin=f"{question}\nAnd then?\n/stats\n".encode())

        read, known = map(int, re.search(rb"last answer: (\d+) tokens of which (\d+) were known", done.stderr).groups())
        self.assertGreater(read, 60)
        self.assertLess(read - known, 16 + 16, "more than the new turn and a part of a block")

    def test_history_is_part_of_the_next_prompt(self):
        turns = self.saved("Hello\nAnd then?", "--temp", "0")
        transcript = f"user: Hello\n\nassistant: {turns[1][1]}\n\nuser: And then?\n\nassistant:"

        text = self.output("generate", "-n", "12", "--temp", "0", transcript).decode()

        self.assertEqual([role for role, _ in turns], ["user", "assistant"] * 2)
        self.assertEqual(turns[3][1], text.lstrip())

    def test_lines_can_be_joined(self):
        self.assertEqual(self.saved("one\\\ntwo\\\nthree")[0], ("user", "one\ntwo\nthree"))
        self.assertEqual(self.saved('"""one\n\n/two\\\nthree"""')[0], ("user", "one\n\n/two\\\nthree"))
        self.assertEqual(self.saved('"""one"""')[0], ("user", "one"))
        self.assertEqual(self.saved("//one")[0], ("user", "/one"))

    def test_commands_change_the_conversation(self):
        self.assertEqual([role for role, _ in self.saved("a\nb\n/undo")], ["user", "assistant"])
        self.assertEqual(self.saved("a\nb\n/reset"), [])
        self.assertEqual(self.saved("/system Be kind.\na\n/reset"), [("system", "Be kind.")])
        self.assertEqual(self.saved("/system\n", "--system", "Be kind."), [])
        once, again = self.saved("a"), self.saved("a\n/retry")
        self.assertEqual((len(again), again[0]), (2, once[0]))
        self.assertNotEqual(again[1], once[1])
        self.assertEqual(self.chat("a\n/exit\nb\n"), once[1][1] + "\n")

    def test_a_saved_conversation_goes_on(self):
        path = self.path("tale.jsonl")
        whole = self.chat("/system Be kind.\na\n/temp 0\nb\n")

        begin = self.chat(f"/system Be kind.\na\n/save {path}\n")
        end = self.chat(f"/load {path}\n/temp 0\nb\n")

        self.assertEqual(begin + end, whole)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

    def test_a_file_is_replaced_only_if_told(self):
        path = self.path("tale.jsonl")
        with open(path, "w") as file:
            file.write("mine")

        self.assert_refused(["chat"], path, "exists", "/save!", code=1, stdin=f"/save {path}\n".encode())
        with open(path) as file:
            self.assertEqual(file.read(), "mine")
        self.chat(f"/save! {path}\n")

        self.assertEqual((os.path.getsize(path), os.listdir(self.home)), (0, ["tale.jsonl"]))

    def test_what_is_no_conversation_is_not_loaded(self):
        user, assistant = '{"role":"user","content":"a"}', '{"role":"assistant","content":"b"}'
        for content, line in (("nonsense", 1), (f"{user}\n{user}", 2), (assistant, 1), (user, 1), ('{"role":"user"}', 1),
                              (f'{user}\n{assistant}\n{{"role":"system","content":"x"}}', 3), ("[" * 100_000, 1),
                              ('{"role":"user","content":1}', 1)):  # fmt: skip
            with self.subTest(content=content[:40]):
                path = self.path("bad.jsonl")
                with open(path, "w") as file:
                    file.write(content)
                self.assert_refused(["chat"], path, f"line {line}:", code=1, stdin=f"/load {path}\n".encode())
        self.assert_refused(["chat"], "No such file", code=1, stdin=b"/load /nowhere/at.all\n")

    def test_the_first_error_ends_a_script(self):
        for script in ("/nonsense", "/seed x", "/seed -1", "/seed", "/temp hot", "/temp 101", "/temp nan", "/save", "/load",
                       "/undo", "/retry", "/reset all", "/exit now"):  # fmt: skip
            with self.subTest(script=script):
                self.assert_refused(["chat"], script.split()[0], stdin=f"{script}\nHello\n".encode())
        self.assert_refused(["chat"], "UTF-8", stdin=b"caf\xe9\n")

    def test_flags_are_checked_before_a_model_is_loaded(self):
        self.assert_refused(["chat", "-m", "/nowhere.gguf", "--temp", "-1"], "--temp")
        self.assert_refused(["chat", "-m", "/nowhere.gguf", "--top-p", "2"], "--top-p")

    def test_a_full_context_is_told_and_nothing_is_cut(self):
        first = "word " * 30
        script = f"{first}\n{first}\n{first}\n"

        self.assert_refused_later(script, b"/undo", "--ctx", "96", "-n", "12", "--ignore-eos")
        self.assert_refused(["chat", "--ctx", "16"], "shorter", code=1, stdin=b"word " * 100)
        done = run("chat", "--ctx", "64", "-n", "1000", "--ignore-eos", "--seed", "1", stdin=b"Hello\n")
        self.assertIn(b"the context of 64 tokens is full", done.stderr)

    def assert_refused_later(self, script, word, *flags):
        done = run("chat", "--seed", "1", *flags, stdin=script.encode())
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(word, done.stderr)
        self.assertIn(b"context", done.stderr)
        self.assertGreaterEqual(len(done.stdout.splitlines()), 1)

    def test_a_file_can_ask_first(self):
        with open(self.path("question"), "w") as file:
            file.write("Who lived\nin the wood?\n")

        turns = self.saved("And then?", "--prompt", self.path("question"))

        self.assertEqual([turns[0], turns[2]], [("user", "Who lived\nin the wood?\n"), ("user", "And then?")])

    # ---- a person ----

    def test_a_person_sees_prompt_and_answer(self):
        terminal = self.terminal("-n", "12")
        answer = self.chat("Hello\n").strip().replace("\n", "\r\n")

        terminal.type(b"Hello\r")

        self.assertIn(answer.encode(), terminal.expect(rb"cut after 12 tokens, see -n\]\r\n> "))
        terminal.type(CTRL_D)
        self.assertEqual(terminal.exit_code(), 0)

    def test_a_person_is_told_of_errors_and_goes_on(self):
        terminal = self.terminal("-n", "3")
        terminal.type(b"/nonsense\r")
        terminal.expect(rb'there is no "/nonsense".*\r\n> ')
        terminal.type(b"/load /nowhere\r")
        terminal.expect(rb"\[/nowhere: No such file.*\]\r\n> ")
        terminal.type(b"/exit\r")
        self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_ends_the_answer_and_not_the_program(self):
        terminal = self.terminal("-n", "1000", "--ignore-eos", slow=True)
        terminal.type(b"Hello\r")
        terminal.expect(rb"Hello\r\n[^\r]*\w")  # it has begun
        terminal.type(CTRL_C)
        terminal.expect(rb"\[ended; what was said stays.*\]\r\n> ")
        path = self.path("half.jsonl")
        terminal.type(f"/save {path}\r".encode())
        terminal.expect(rb"saved 1 answer to .*\r\n> ")
        with open(path) as file:
            turns = [json.loads(line) for line in file]
        self.assertEqual([turn["role"] for turn in turns], ["user", "assistant"])
        self.assertGreater(len(turns[1]["content"]), 0)
        terminal.type(b"/exit\r")
        self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_throws_a_line_away_and_ends_the_second_time(self):
        terminal = self.terminal("-n", "3")
        terminal.type(b"not this")
        terminal.expect(rb"not this")
        terminal.type(CTRL_C)
        terminal.expect(rb"\^C\r\n.*Ctrl-D, ends\]\r\n> ")
        terminal.type(b"/stats\r")
        terminal.expect(rb"\[0 answers.*\r\n> ")
        terminal.type(b'"""half')
        terminal.type(b"\r")
        terminal.expect(rb"\r\n\. ")
        terminal.type(CTRL_C)
        terminal.expect(rb"ends\]\r\n> ")
        terminal.type(CTRL_C)
        self.assertEqual(terminal.exit_code(), 130)

    def test_lines_are_edited_and_remembered(self):
        terminal = self.terminal("-n", "3")
        terminal.type("/sytsem Sei nett, größer\r".encode())
        terminal.expect(rb"there is no.*\r\n> ")
        terminal.type(b"\x10\x01\x1b[C\x1b[C\x1b[C\x1b[C\x14\r")  # back, to the begin, four right, swap two characters
        terminal.expect(rb"the system message is set\]\r\n> ")
        path = self.path("system.jsonl")
        terminal.type(f"/save {path}\r".encode())
        terminal.expect(rb"saved.*\r\n> ")
        terminal.type(CTRL_D)
        self.assertEqual(terminal.exit_code(), 0)
        with open(path) as file:
            self.assertEqual(json.loads(file.read())["content"], "Sei nett, größer")
        history = self.path("millrace/chat_history")
        self.assertEqual(stat.S_IMODE(os.stat(history).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(history)).st_mode), 0o700)

        later = self.terminal("-n", "3")
        later.type(UP + UP)
        later.expect("/system Sei nett, größer".encode())
        later.type(CTRL_C)
        later.expect(rb"ends\]\r\n> ")
        later.type(CTRL_D)
        self.assertEqual(later.exit_code(), 0)

    def test_remembers_nothing_if_told(self):
        terminal = self.terminal("-n", "3", "--no-history")
        terminal.type(b"/stats\r")
        terminal.expect(rb"0 answers.*\r\n> ")
        terminal.type(CTRL_D)
        self.assertEqual(terminal.exit_code(), 0)
        self.assertEqual(os.listdir(self.home), [])

    def test_control_characters_do_not_reach_the_terminal(self):
        # Token 0x1b of the built-in model's byte vocabulary, forced: an escape sequence would begin with it.
        ids = self.output("tokenize", "--ids-only", "\x1b").split()
        forced = ("--logit-bias", f"{int(ids[-1])}=100", "--temp", "0", "-n", "2")
        self.assertIn(b"\x1b", self.output("chat", *forced, stdin=b"x\n"))
        terminal = self.terminal(*forced)

        terminal.type(b"x\r")

        said = terminal.expect(rb"cut after 2 tokens")
        self.assertIn(b"^[^[", said)
        self.assertNotIn(b"\x1b\x1b", said)

    def test_a_terminal_is_left_as_it_was(self):
        import termios

        terminal = self.terminal("-n", "3")
        terminal.type(b"half a line")
        terminal.expect(rb"half a line")
        raw = termios.tcgetattr(terminal.fd)
        os.kill(terminal.pid, signal.SIGTERM)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]), 143)
        terminal.pid = None

        after = termios.tcgetattr(terminal.fd)

        self.assertFalse(raw[3] & termios.ICANON)
        self.assertTrue(after[3] & termios.ICANON and after[3] & termios.ECHO and after[3] & termios.ISIG)
        self.assertEqual(after[6][termios.VINTR], b"\x03")


if __name__ == "__main__":
    unittest.main()
