#!/usr/bin/env python3
"""One table: monarch, torchrun elastic and torchft under `kill -9` of one of three workers.

    VENV/bin/python tests/tools/peers/compare.py target/release/monarch [--models mlp,gpt]
        [--kills 5] [--rounds 2] [--seconds 10] [--rows monarch,torchrun,..] [--json FILE]

Same model, initial weights, data, order and optimizer for all; one thread per worker. First all are
shown to have the same losses. Then, in turn and `--rounds` times, each runs undisturbed and under
`--kills` kills at evenly spaced steps. README.md in this folder says what the columns are.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[1] / "fixtures"
WORKERS = 3
# No system is waited for longer than that without a step.
PATIENCE_S = 180


class Stuck(Exception):
    """A run that does not come to its end."""


class Lines:
    """Lines of processes as they come, with the time."""

    def __init__(self):
        self.changed, self.lines, self.readers = threading.Condition(), [], []

    def read(self, stream):
        thread = threading.Thread(target=self.take, args=(stream,), daemon=True)
        thread.start()
        self.readers.append(thread)

    def take(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append((time.monotonic(), line.rstrip("\n")))
                self.changed.notify_all()


class System:
    """A run of one system: processes, and steps as they are completed."""

    name, state_copies = "", 1

    def __init__(self, model, folder, seed):
        self.model, self.folder, self.chance = model, Path(folder), random.Random(seed)
        self.lines, self.processes, self.at = Lines(), [], 0
        self.steps, self.furthest, self.repeated = [], -1, 0
        self.losses, self.hash, self.pids, self.full = {}, None, {}, False

    def spawn(self, command, **more):
        env = dict(os.environ, OMP_NUM_THREADS="1", RUST_LOG="error", **more.pop("env", {}))
        process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=env, start_new_session=True, **more,
        )
        self.lines.read(process.stdout)
        self.processes.append(process)
        return process

    def stepped(self, step, at):
        if step <= self.furthest:
            self.repeated += 1
            return
        self.furthest = step
        self.steps.append((at, step))

    def hear(self, at, line):
        words = line.split()
        if not words:
            return
        if words[0] == "step":
            self.stepped(int(words[1]), float(words[2]))
            self.full = len(words) < 4 or int(words[3]) == WORKERS
        elif words[0] == "loss":
            self.losses[int(words[1])] = float(words[2])
        elif words[0] == "part":
            step = int(words[1])
            self.losses[step] = self.losses.get(step, 0.0) + float(words[2])
        elif words[0] == "pid":
            self.pids[words[1]] = int(words[2])
        elif words[0] == "hash":
            self.hash = words[1]

    def listen(self, timeout=0.05):
        with self.lines.changed:
            if self.at == len(self.lines.lines):
                self.lines.changed.wait(timeout)
            fresh = self.lines.lines[self.at:]
        for at, line in fresh:
            self.hear(at, line)
        self.at += len(fresh)
        return bool(fresh)

    def victims(self):
        return [pid for pid in self.pids.values() if alive(pid)]

    def look_after(self):
        """Whatever the system leaves to its user."""

    def over(self):
        return all(process.poll() is not None for process in self.processes)

    def clean(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def run(self, steps, kills=0, losses=False):
        """Times of kills. Everything else is in the fields."""
        self.begin(steps, losses)
        struck, heard = [], time.monotonic()
        try:
            while not self.over():
                if self.listen():
                    heard = time.monotonic()
                elif time.monotonic() - heard > PATIENCE_S:
                    raise Stuck(f"{self.name}: no step for {PATIENCE_S} s")
                self.look_after()
                wanted = steps * (len(struck) + 1) // (kills + 1)
                victims = self.victims() if len(struck) < kills else []
                if self.furthest >= wanted and self.full and len(victims) == WORKERS:
                    time.sleep(self.chance.uniform(0, 0.02))
                    victim = self.chance.choice(victims)
                    struck.append(time.monotonic())
                    os.kill(victim, signal.SIGKILL)
                    self.full = False
            for reader in self.lines.readers:
                reader.join(5)
            while self.listen(0):
                pass
        finally:
            self.clean()
        if self.hash is None:
            raise Stuck(f"{self.name}: it ended without weights")
        return struck


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Monarch(System):
    name, binary, calibrate = "monarch", None, 5000

    def begin(self, steps, losses):
        fixture = {"mlp": "mlp_adamw", "gpt": "gpt_adamw"}[self.model]
        text = (FIXTURES / f"{fixture}.mon").read_text()
        text = re.sub(r'"(\w+\.(?:init|data)\.safetensors)"', lambda m: f'"{FIXTURES / m[1]}"', text)
        text = re.sub(r"until = \d+ steps", f"until = {steps} steps", text)
        # Beyond the fixture's few steps the rate stays where it is, for everybody.
        text = re.sub(r"lr    = warmup.*", "lr    = lr", text)
        (self.folder / "job.mon").write_text(text)
        command = [self.binary, "run", "job.mon", "--json", "--workers", WORKERS, "--threads", 1]
        self.spawn(command, cwd=self.folder)

    def hear(self, at, line):
        event = json.loads(line)
        kind = event.get("event")
        if kind == "step":
            self.stepped(event["step"], at)
            if len(self.losses) < 20:
                self.losses[event["step"]] = event["loss"]
        elif kind in ("started", "regrouped"):
            self.full = event["workers"] == WORKERS
        elif kind == "finished":
            self.hash = event["fingerprint"]

    def victims(self):
        pid = self.processes[0].pid
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            return [int(c) for t in tasks for c in (t / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            return []


class Torchrun(System):
    name, every, interval, calibrate, state_copies = "torchrun", 50, None, 200, WORKERS

    def begin(self, steps, losses):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", WORKERS]
        command += ["--max-restarts", 1000]
        command += ["--monitor-interval", self.interval] if self.interval else []
        command += [HERE / "elastic.py", self.model, steps, self.every, self.folder]
        command += ["--losses"] if losses else []
        self.full = True
        self.spawn(command)

    def stepped(self, step, at):
        super().stepped(step, at)
        self.full = True


class TunedTorchrun(Torchrun):
    name, every, interval = "torchrun, tuned", 1, 0.01


class Torchft(System):
    name, calibrate = "torchft", 200
    lighthouse = ["--quorum_tick_ms", 100, "--join_timeout_ms", 10000]
    replica = [60, 100]

    def begin(self, steps, losses):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        self.address = f"http://localhost:{port}"
        command = [Path(sys.executable).with_name("torchft_lighthouse"), "--min_replicas", 2]
        self.server = self.spawn(command + self.lighthouse + ["--bind", f"[::]:{port}"])
        self.steps_wanted, self.more = steps, ["--losses"] if losses else []
        self.replicas = {n: self.start(n) for n in range(WORKERS)}

    def start(self, number):
        command = [sys.executable, HERE / "ft.py", self.model, self.steps_wanted, number]
        return self.spawn(command + self.replica + self.more, env={"TORCHFT_LIGHTHOUSE": self.address})

    def look_after(self):
        for number, process in self.replicas.items():
            if process.poll() not in (None, 0) and self.hash is None:
                self.replicas[number] = self.start(number)

    def over(self):
        return self.hash is not None and all(p.poll() is not None for p in self.replicas.values())


class TunedTorchft(Torchft):
    name = "torchft, tuned"
    lighthouse = ["--quorum_tick_ms", 10, "--join_timeout_ms", 1000, "--heartbeat_timeout_ms", 500]
    replica = [5, 50]


ROWS = {row.name: row for row in (Monarch, Torchrun, TunedTorchrun, Torchft, TunedTorchft)}


def fresh(row, model, seed, steps, kills=0, losses=False):
    with tempfile.TemporaryDirectory() as folder:
        system = row(model, folder, seed)
        struck = system.run(steps, kills, losses)
        return system, struck


def same_losses(rows, model):
    """The first steps of every system."""
    seen = {}
    for row in rows:
        system, _ = fresh(row, model, 0, 20, losses=True)
        seen[row.name] = [system.losses[step] for step in range(10) if step in system.losses]
    first = next(iter(seen.values()))
    for name, losses in seen.items():
        # A replica that came late has no part in the first ones.
        apart = max((abs(a - b) / abs(b) for a, b in zip(losses, first)), default=None)
        good = apart is not None and apart <= 1e-5
        print(f"  {model}, {name}: losses of the first {len(losses)} steps apart by {apart:.1e}"
              + ("" if good else "  NOT THE SAME"), file=sys.stderr)


def usual(steps):
    gaps = sorted(b[0] - a[0] for a, b in zip(steps, steps[1:]))
    return gaps[len(gaps) // 2]


def stalls(system, struck, step_s):
    """From each kill: the longest time without a new step, less a usual step."""
    out = []
    for n, at in enumerate(struck):
        until = struck[n + 1] if n + 1 < len(struck) else float("inf")
        pairs = zip(system.steps, system.steps[1:])
        gaps = [b[0] - a[0] for a, b in pairs if b[0] > at and a[0] < min(until, at + 90)]
        if gaps:
            out.append(max(gaps) - step_s)
    return out


def quantile(values, share):
    values = sorted(values)
    return values[max(0, -int(-share * len(values) // 1) - 1)]


class Row:
    """What one system did in all rounds."""

    def __init__(self, kind, model, steps):
        self.kind, self.model, self.steps = kind, model, steps
        self.rates, self.lost, self.per_kill, self.repeated, self.equal = [], [], [], [], []
        self.kills, self.stuck = 0, 0

    def round(self, seed, kills):
        quiet, _ = fresh(self.kind, self.model, seed, self.steps)
        step_s = usual(quiet.steps)
        self.rates.append((len(quiet.steps) - 1) / (quiet.steps[-1][0] - quiet.steps[0][0]))
        try:
            fire, struck = fresh(self.kind, self.model, seed, self.steps, kills)
        except Stuck as error:
            # That is a result, too.
            print(f"  {error}", file=sys.stderr)
            self.stuck += 1
            return
        self.lost += stalls(fire, struck, step_s)
        self.kills += len(struck)
        if struck:
            took = [s.steps[-1][0] - s.steps[0][0] for s in (fire, quiet)]
            self.per_kill.append((took[0] - took[1]) / len(struck))
            self.repeated.append(fire.repeated / len(struck))
            self.equal.append(fire.hash == quiet.hash)

    def figures(self):
        return {
            "system": self.kind.name, "model": self.model, "steps": self.steps, "kills": self.kills,
            "steps_per_s": statistics.median(self.rates), "lost_s": self.lost,
            "lost_s_per_kill": self.per_kill, "steps_repeated_per_kill": self.repeated,
            "state_bytes_per_kill": self.kind.state_copies * state_bytes(self.model),
            "same_weights": self.equal, "stuck": self.stuck,
        }


def state_bytes(model):
    """Weights and AdamW's two moments."""
    size = (FIXTURES / ("mlp_adamw" if model == "mlp" else "gpt_adamw")).with_suffix(".init.safetensors")
    with open(size, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 3 * max(ends)


def import_s():
    def once():
        start = time.monotonic()
        subprocess.run([sys.executable, "-c", "import torch, torchft"], check=True, stderr=subprocess.DEVNULL)
        return time.monotonic() - start
    return statistics.median(once() for _ in range(3))


def table(rows, imports):
    head = ["system", "steps/s", "kills", "lost p50", "p99", "max", "per kill", "less import",
            "steps again", "state moved", "same weights", "stuck"]
    for model in dict.fromkeys(row.model for row in rows):
        lines = [head]
        for row in (r for r in rows if r.model == model):
            f, lost = row.figures(), row.lost or [float("nan")]
            s = lambda seconds: f"{seconds * 1e3:.1f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"
            bare = "-" if row.kind is Monarch else s(max(0.0, quantile(lost, 0.5) - imports))
            mean = lambda values: statistics.mean(values) if values else float("nan")
            lines.append([
                row.kind.name, f"{f['steps_per_s']:.0f}", f"{row.kills}", s(quantile(lost, 0.5)),
                s(quantile(lost, 0.99)), s(max(lost)), s(mean(row.per_kill)), bare,
                f"{mean(row.repeated):.1f}", f"{f['state_bytes_per_kill'] / 1e3:.0f} kB",
                f"{sum(row.equal)} of {len(row.equal)}", f"{row.stuck}",
            ])
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        print(f"\n{model}: {WORKERS} workers, one thread each")
        for line in lines:
            print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                            for i, (cell, w) in enumerate(zip(line, widths))).rstrip())


def steps_for(row, model, seconds):
    system, _ = fresh(row, model, 0, row.calibrate)
    late = system.steps[len(system.steps) // 2:]
    rate = (len(late) - 1) / max(1e-6, late[-1][0] - late[0][0])
    return max(100, int(rate * seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--models", default="mlp,gpt")
    parser.add_argument("--rows", default=",".join(ROWS).replace(", ", "+"))
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of an undisturbed run")
    parser.add_argument("--json", help="all raw points go there")
    options = parser.parse_args()
    Monarch.binary = str(Path(options.binary).resolve())
    names = [name.replace("+", ", ") for name in options.rows.split(",")]
    kinds = [ROWS[name] for name in names]
    load = lambda: " ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"load before {load()} on {os.cpu_count()} processors", file=sys.stderr)
    rows = []
    for model in options.models.split(","):
        same_losses(kinds, model)
        here = [Row(kind, model, steps_for(kind, model, options.seconds)) for kind in kinds]
        for n in range(options.rounds):
            for row in here:
                row.round(n, options.kills)
                print(f"  {model}, round {n + 1}, {row.kind.name}: load {load()}", file=sys.stderr)
        rows += here
    imports = import_s()
    table(rows, imports)
    print(f"\nimport of torch and torchft: {imports:.2f} s; load after {load()}")
    if options.json:
        raw = {"import_s": imports, "rows": [row.figures() for row in rows]}
        Path(options.json).write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
