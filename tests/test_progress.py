import io
import os
import sys
import threading
import time

import pytest

from repsurgery import progress
from repsurgery.progress import progress_bar, silent_progress


class Terminal(io.StringIO):
    """A screen that understands carriage returns, line feeds and the sequence that moves the cursor up."""

    def __init__(self):
        super().__init__()
        self.rows, self.row, self.column = [""], 0, 0

    def isatty(self):
        return True

    def write(self, text):
        for piece in text.replace("\x1b[A", "\v"):
            match piece:
                case "\v":
                    assert self.row > 0
                    self.row -= 1
                case "\r":
                    self.column = 0
                case "\n":
                    self.row, self.column = self.row + 1, 0
                    self.rows += [""] * (self.row + 1 - len(self.rows))
                case _:
                    line = self.rows[self.row].ljust(self.column)
                    self.rows[self.row] = line[: self.column] + piece + line[self.column + 1 :]
                    self.column += 1
        return len(text)

    def shown(self):
        """What each line that is not blank begins with: the label and the percentage of a bar."""
        return [line.split("%")[0] for line in self.rows if line.strip()]


def terminal_of(monkeypatch):
    # not a fixture: pytest puts its own stream there between setup and test
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


class Job(threading.Thread):
    """Work on a hundred items in a thread of its own, some at a time, when asked."""

    def __init__(self, label):
        super().__init__(daemon=True)
        self.label, self.waiting, self.orders = label, threading.Semaphore(0), []
        self.taken = threading.Semaphore(0)
        self.start()
        self.taken.acquire()

    def run(self):
        with progress_bar(self.label, 100) as advance:
            self.taken.release()
            while True:
                self.waiting.acquire()
                if not (items := self.orders.pop()):
                    break
                time.sleep(0.11)  # tqdm draws ten times a second at most
                advance(items)
                self.taken.release()

    def work(self, items):
        self.orders.append(items)
        self.waiting.release()
        self.taken.acquire()

    def end(self):
        self.orders.append(0)
        self.waiting.release()
        self.join()


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_two_jobs_at_once_have_a_line_each(monkeypatch, first_to_end):
    terminal = terminal_of(monkeypatch)
    jobs = [Job("upper"), Job("lower")]
    assert terminal.shown() == ["upper:   0", "lower:   0"]
    for job in jobs:
        job.work(50)
    assert terminal.shown() == ["upper:  50", "lower:  50"]
    jobs[first_to_end].work(50)
    jobs[first_to_end].end()
    short, long = jobs[first_to_end].label, jobs[1 - first_to_end].label
    assert terminal.shown() == [f"{short}: 100", f"{long}:  50"]
    third = Job("third")
    assert sorted(terminal.shown()) == sorted([f"{short}: 100", f"{long}:  50", "third:   0"])
    jobs[1 - first_to_end].end()
    third.end()
    assert terminal.shown() == [f"{short}: 100", f"{long}:  50", "third:   0"]


def test_items_of_several_threads_are_all_counted(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with progress_bar("items", 4000) as advance:
        threads = [threading.Thread(target=lambda: [advance(1) for _ in range(1000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert terminal.shown() == ["items: 100"] and "4000/4000" in terminal.rows[0]


def test_a_resumed_job_starts_where_it_stopped_and_an_error_leaves_the_bar(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with pytest.raises(KeyboardInterrupt), progress_bar("texts", 10, done=4):
        assert terminal.shown() == ["texts:  40"]
        raise KeyboardInterrupt
    assert terminal.shown() == ["texts:  40"]


def test_a_job_that_is_not_shown_writes_nothing(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with progress_bar("texts", 10, show=False) as advance:
        advance(10)
    assert terminal.rows == [""]


def test_a_log_gets_lines_now_and_then_and_no_bar(capsys, monkeypatch):
    with progress_bar("texts", 10, done=2) as advance:
        advance(1)
    assert capsys.readouterr().err == "", "a short job"
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    with progress_bar("texts", 10, done=2) as advance:
        advance(1)
        advance(4)
    assert capsys.readouterr().err == "texts: 3 of 10\ntexts: 7 of 10\ntexts: 7 of 10\n"
    with pytest.raises(KeyboardInterrupt), progress_bar("texts", 10):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_progress_can_be_silenced_in_every_thread(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with silent_progress():
        job = Job("silent")
        job.work(50)
        with silent_progress(silent=False):
            Job("inner").end()
        job.end()
    assert terminal.rows == [""]
    Job("loud").end()
    assert terminal.shown() == ["loud:   0"]


@pytest.mark.parametrize("theirs", [None, "0"])
@pytest.mark.parametrize("switch", ["HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE"])
def test_bars_of_libraries_are_switched_off_in_a_log_and_then_left_as_they_were(monkeypatch, switch, theirs):
    monkeypatch.delenv(switch, raising=False)
    if theirs:
        monkeypatch.setenv(switch, theirs)
    with silent_progress(silent=False):
        assert os.environ[switch] == "1"
    assert os.environ.get(switch) == theirs
    terminal_of(monkeypatch)
    with silent_progress(silent=False):
        assert os.environ.get(switch) == theirs
