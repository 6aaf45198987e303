#!/usr/bin/env python3
"""Reads a directory of event files with TensorBoard's own reader and prints what it found as JSON.

    check_events.py DIR

Exit codes: 0 read; 1 a curve overlaps itself, or nothing was found; 77 TensorBoard is not installed
(pip install tensorboard).
"""

import json
import math
import sys


def show(value):
    """A number, or a word for what JSON has no number for."""
    return value if math.isfinite(value) else str(value)


def main(directory):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        print(error, file=sys.stderr)
        return 77
    # Nothing sampled away, nothing purged: what is in the files.
    everything = {"scalars": 0, "tensors": 0}
    reader = EventAccumulator(directory, size_guidance=everything, purge_orphaned_data=False)
    reader.Reload()
    tags = reader.Tags()
    scalars = {}
    for tag in sorted(tags["scalars"]):
        events = reader.Scalars(tag)
        scalars[tag] = [[e.step, show(e.value), e.wall_time] for e in events]
        steps = [e.step for e in events]
        if any(b <= a for a, b in zip(steps, steps[1:])):
            print(f"curve `{tag}` overlaps itself: {steps}", file=sys.stderr)
            return 1
    texts = {}
    for tag in sorted(tags["tensors"]):
        plugin = reader.SummaryMetadata(tag).plugin_data.plugin_name
        if plugin == "text":
            texts[tag] = [
                [e.step, e.tensor_proto.string_val[0].decode(), e.wall_time]
                for e in reader.Tensors(tag)
            ]
    json.dump({"scalars": scalars, "texts": texts}, sys.stdout, indent=1)
    print()
    return 0 if scalars or texts else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
