"""What dealing a slow worker's shards to faster ones is worth.

    python3 tests/tools/slow.py target/release/monarch [seconds of one run] [pairs of runs]

The same job on two workers, again and again: one of them is stopped for 30 of every 40 ms
(SIGSTOP, SIGCONT) from step 30 on. With `worker.slow = warn` the deal stays as it is, with
`rebalance` it follows. Steps from the first pause on count: what it takes to notice counts too.
Prints steps per second, the ratio of each pair, and whether the losses are the same.
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STOPPED, RUNS = 0.030, 0.010
WARM_UP = 30


def job(answer):
    text = (ROOT / "examples/chargpt.mon").read_text()
    changes = [
        ("  batch = 64\n", "  batch = 16\n  fault { worker.slow = %s(after = 20%%) }\n" % answer),
        ("every = 250 steps, batches = 50", "every = 100000 steps, batches = 1"),
        ("until = 5000 steps", "until = 90000 steps"),
    ]
    for old, new in changes:
        assert text.count(old) == 1, f"`{old.strip()}` stands once in chargpt.mon"
        text = text.replace(old, new)
    return text


def worker_of(controller):
    """The child process that joined last."""
    children = pathlib.Path(f"/proc/{controller}/task/{controller}/children")
    lists = [p.read_text() for p in children.parent.parent.glob("*/children")]
    pids = sorted(int(pid) for pid in " ".join(lists).split())
    of = lambda pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    workers = [pid for pid in pids if b"worker" in of(pid)[:2]]
    if len(workers) != 2:
        sys.exit(f"two workers expected below process {controller}, not {workers}")
    return workers[-1]


def brake(pid, over):
    while not over.is_set():
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOPPED)
        os.kill(pid, signal.SIGCONT)
        time.sleep(RUNS)


def run(monarch, answer, seconds):
    """Steps per second before and under the brake, losses by step, and the deals."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "job.mon"
        path.write_text(job(answer))
        command = [monarch, "run", str(path), "--json", "--workers", "2", "--threads", "1"]
        command += ["--depth", "2", "--D", "48", "--H", "3", "--T", "32"]
        command += ["--corpus", str(ROOT / "runtime/sched/src/*.rs")]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.DEVNULL)
        over, thread = threading.Event(), None
        losses, begun, braked, under, deals = {}, None, None, 0, []
        try:
            for line in process.stdout:
                event = json.loads(line)
                now = time.monotonic()
                if event.get("event") == "slow":
                    deals.append(event.get("shards"))
                if event.get("event") != "step":
                    continue
                losses[event["step"]] = event["loss"]
                begun = begun or now
                if braked is None and len(losses) > WARM_UP:
                    free = WARM_UP / (now - begun)
                    thread = threading.Thread(target=brake, args=(worker_of(process.pid), over))
                    thread.start()
                    braked = now
                elif braked is not None:
                    under += 1
                    if now - braked >= seconds:
                        break
            if not under:
                sys.exit(f"the run ended with code {process.wait()} before it was slowed")
            return free, under / (now - braked), losses, deals
        finally:
            over.set()
            if thread:
                thread.join()
            end(process)


def end(process):
    """Twice Ctrl-C: at once, and its workers with it."""
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def main():
    monarch = str(pathlib.Path(sys.argv[1]).resolve())
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 6.0
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    print("load before", os.getloadavg()[0], flush=True)
    ratios, same = [], True
    for _ in range(pairs):
        free, fixed, quiet, _ = run(monarch, "warn", seconds)
        _, dealt, moved, deals = run(monarch, "rebalance", seconds)
        both = quiet.keys() & moved.keys()
        same &= all(quiet[step] == moved[step] for step in both)
        ratios.append(dealt / fixed)
        print(f"steps/s: free {free:.1f}, slowed, fixed deal {fixed:.1f}, rebalanced {dealt:.1f}:"
              f" {ratios[-1]:.2f} times; shards from, to: {deals}", flush=True)
    print(f"gain: median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to "
          f"{max(ratios):.2f}; losses {'the same' if same else 'DIFFER'}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
