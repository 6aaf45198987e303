"""Kills workers of a run at random, again and again, and compares the end with that of a quiet run.

    python3 tests/tools/kills.py target/release/monarch [--kills 200] [--workers 3] [--seed 1]

Prints the time from each `kill -9` to the next completed step (median, 99th percentile, largest),
and both fingerprints; ends with 1 if they differ. Needs nothing but Python.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def job(epochs):
    """digits, without the rule that ends it early."""
    text = (ROOT / "examples" / "digits.mon").read_text()
    text = text.replace("20 epochs", f"{epochs} epochs").replace("every = 1 epoch", "every = 50 epochs")
    return re.sub(r"\n  on eval.*|\ntest (.|\n)*", "\n", text)


class Run:
    """A run whose events are stamped as they arrive."""

    def __init__(self, binary, folder, workers):
        command = [binary, "run", "job.mon", "--json", "--workers", str(workers)]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.events, self.changed = [], threading.Condition()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            event["at"] = time.monotonic()
            with self.changed:
                self.events.append(event)
                self.changed.notify_all()

    def wait(self, start, wanted):
        """Place of the first event from `start` on that is wanted; None when the run ends first."""
        at = start
        while True:
            with self.changed:
                while at == len(self.events):
                    if not self.reader.is_alive():
                        return None
                    self.changed.wait(0.1)
                if wanted(self.events[at]):
                    return at
            at += 1

    def workers(self):
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in found]


def kind(name):
    return lambda event: event.get("event") == name


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] * 1e3


def killed(binary, folder, options):
    """A run under fire: its last event, and the times lost."""
    chance, lost = random.Random(options.seed), []
    run = Run(binary, folder, options.workers)
    run.wait(0, kind("step"))
    while len(lost) < options.kills:
        time.sleep(chance.uniform(0.02, 0.1))
        try:
            workers = run.workers()
        except FileNotFoundError:
            break
        # Never the last one that has the weights.
        if len(workers) < options.workers:
            continue
        start, at = len(run.events), time.monotonic()
        os.kill(chance.choice(workers), signal.SIGKILL)
        again = run.wait(start, kind("regrouped"))
        step = again is not None and run.wait(again, kind("step"))
        if not step:
            break
        lost.append(run.events[step]["at"] - at)
        # All are there again: the next one strikes a whole group.
        run.wait(again, lambda e: e.get("event") == "regrouped" and e["workers"] == options.workers)
    run.reader.join()
    run.process.wait()
    return run.events[-1], lost


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.mon").write_text(job(epochs=60 * options.kills))
        quiet = Run(binary, folder, 2)
        quiet.reader.join()
        quiet.process.wait()
        last, lost = killed(binary, folder, options)
    prints = [event.get("fingerprint") for event in (quiet.events[-1], last)]
    print(f"quiet   {prints[0]} after {quiet.events[-1].get('steps')} steps")
    print(f"killed  {prints[1]} after {last.get('steps')} steps and {len(lost)} kills")
    if lost:
        shares = [(0.5, "p50"), (0.99, "p99"), (1.0, "largest")]
        figures = "  ".join(f"{name} {quantile(lost, share):.1f} ms" for share, name in shares)
        print(f"from a kill to the next completed step: {figures}")
    sys.exit(0 if prints[0] and prints[0] == prints[1] else 1)


if __name__ == "__main__":
    main()
