"""Kills the controller of a run again and again, starts it again at once, and compares the end with
that of a quiet run.

    python3 tests/tools/restarts.py target/release/monarch [--kills 100] [--workers 3] [--seed 1]

Prints the time from each `kill -9` of the controller to the first step that its successor has let
the workers do (the start of the process included), and for how many steps they had gone on without
any controller; compares fingerprints and the record; ends with 1 if they differ. Needs nothing but
Python.
"""

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def job(epochs):
    """digits, without the rule that ends it early."""
    text = (ROOT / "examples" / "digits.mon").read_text()
    text = text.replace("20 epochs", f"{epochs} epochs").replace("every = 1 epoch", "every = 50 epochs")
    return re.sub(r"\n  on eval.*|\ntest (.|\n)*", "\n", text)


class Run:
    """A controller whose events are stamped as they are read."""

    def __init__(self, binary, folder, workers, name):
        command = [binary, "run", "job.mon", "--json", "--workers", str(workers), *name]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def events(self):
        for line in self.process.stdout:
            event = json.loads(line)
            yield time.monotonic(), event


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def record(folder, name):
    """Steps and evaluations as they are on record."""
    lines = [json.loads(l) for l in (folder / "runs" / name / "events.jsonl").open()]
    kept = [e for e in lines if e["event"] in ("step", "eval")]
    return [(e["event"], e["step"], e.get("loss"), e.get("eval.loss")) for e in kept]


def under_fire(binary, folder, options):
    chance, lost, alone = random.Random(options.seed), [], []
    run, died, last = Run(binary, folder, options.workers, ["--run-id", "fire"]), None, 0
    while True:
        back, until, ended = died is None, None, None
        for at, event in run.events():
            kind = event.get("event")
            if kind == "restarted":
                back = True
                alone.append(event["step"] - last)
            if kind == "step" and back and died is not None:
                lost.append((at - died) * 1e3)
                died = None
            if kind == "step":
                last = event["step"]
                if until is None and back:
                    until = at + chance.uniform(0.05, 0.3)
            if kind == "finished":
                ended = event
            if until is not None and at > until and len(lost) < options.kills:
                break
        if ended is not None or len(lost) >= options.kills and run.process.poll() is not None:
            run.process.wait()
            return ended, lost, alone
        died = time.monotonic()
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        run = Run(binary, folder, options.workers, ["--resume", "fire"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.mon").write_text(job(options.epochs))
        quiet = None
        for _, event in Run(binary, folder, options.workers, ["--run-id", "quiet"]).events():
            quiet = event if event.get("event") == "finished" else quiet
        ended, lost, alone = under_fire(binary, folder, options)
        same = ended is not None and ended["fingerprint"] == quiet["fingerprint"]
        records = record(folder, "fire") == record(folder, "quiet")
        if not lost:
            sys.exit("the run was over before a controller was killed: give it more --epochs")
        print(f"{len(lost)} controllers killed and started again, seed {options.seed}")
        print(
            f"kill to the next step: p50 {quantile(lost, 0.5):.1f} ms, "
            f"p99 {quantile(lost, 0.99):.1f} ms, largest {max(lost):.1f} ms"
        )
        print(f"steps done meanwhile: p50 {quantile(alone, 0.5)}, most {max(alone)}")
        print(f"weights {ended and ended['fingerprint']}, quiet {quiet['fingerprint']}")
        print("the same weights" if same else "OTHER WEIGHTS", end=", ")
        print("the same record" if records else "ANOTHER RECORD")
        sys.exit(0 if same and records else 1)


if __name__ == "__main__":
    main()
