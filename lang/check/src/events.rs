//! What happens in a run and what may follow: events, responses to faults, what hooks may call,
//! metrics. Tables like those of `registry`: used to check, to suggest and to explain.

/// What an argument takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Text,
    /// A number or a share.
    Bound,
    /// A whole number from this one.
    Whole(i64),
    Flag,
    Share,
    Time,
    Steps,
    Checkpoints,
    /// An axis of the mesh: `dp`.
    Axis,
}

impl Takes {
    /// `a time`, for messages.
    pub fn noun(self) -> &'static str {
        match self {
            Takes::Text => "a text",
            Takes::Bound => "a number or a share",
            Takes::Whole(_) => "a whole number",
            Takes::Flag => "true or false",
            Takes::Share => "a share",
            Takes::Time => "a time",
            Takes::Steps => "a number of steps",
            Takes::Checkpoints => "a number of checkpoints",
            Takes::Axis => "an axis of the mesh",
        }
    }

    /// Something to write.
    pub fn example(self) -> &'static str {
        match self {
            Takes::Text => "\"spares\"",
            Takes::Bound => "98%",
            Takes::Whole(_) => "3",
            Takes::Flag => "true",
            Takes::Share => "20%",
            Takes::Time => "10 min",
            Takes::Steps => "50 steps",
            Takes::Checkpoints => "1 checkpoint",
            Takes::Axis => "dp",
        }
    }
}

/// An argument.
#[derive(Clone, Copy, Debug)]
pub struct ArgDoc {
    pub name: &'static str,
    pub takes: Takes,
    /// As a person would write it; None if it must be given.
    pub default: Option<&'static str>,
}

/// Something with arguments: an event, a response, an action.
#[derive(Clone, Copy, Debug)]
pub struct CallDoc {
    pub name: &'static str,
    pub args: &'static [ArgDoc],
    pub doc: &'static str,
}

impl CallDoc {
    /// `shrink(axis, min = 1)`
    pub fn signature(&self) -> String {
        let arg = |a: &ArgDoc| match a.default {
            Some(default) => format!("{} = {default}", a.name),
            None => a.name.to_owned(),
        };
        match self.args.is_empty() {
            true => self.name.to_owned(),
            false => {
                let args: Vec<String> = self.args.iter().map(arg).collect();
                format!("{}({})", self.name, args.join(", "))
            }
        }
    }
}

const fn arg(name: &'static str, takes: Takes, default: Option<&'static str>) -> ArgDoc {
    ArgDoc { name, takes, default }
}

const fn call(name: &'static str, args: &'static [ArgDoc], doc: &'static str) -> CallDoc {
    CallDoc { name, args, doc }
}

/// What any `on` takes beside the arguments of its event.
pub const REQUIRED: ArgDoc = arg("required", Takes::Flag, Some("false"));

/// Things that happen, for `on`.
pub const EVENTS: &[CallDoc] = &[
    call("step", &[arg("every", Takes::Steps, Some("1 step"))], "An optimizer step is done."),
    call("eval.done", &[], "An evaluation is complete."),
    call("checkpoint.done", &[], "A checkpoint is whole."),
    call("worker.lost", &[], "A worker is gone."),
    call("loss.nan", &[], "The loss is not a number, or infinite."),
    call(
        "loss.spike",
        &[arg("above", Takes::Bound, Some("2")), arg("over", Takes::Steps, Some("200 steps"))],
        "The loss is more than `above` times its moving average `over` so many steps.",
    ),
    call("stop", &[], "The run is about to end."),
    call("worker.joined", &[], "A worker has come."),
    call(
        "worker.slow",
        &[arg("above", Takes::Share, Some("20%"))],
        "A worker takes this much longer than the others.",
    ),
];

/// Events of [`EVENTS`] that a suggestion lists: the first ones.
pub const MAIN_EVENTS: usize = 7;

/// Arguments of `on` for a metric.
pub const METRIC_ARGS: &[ArgDoc] =
    &[arg("above", Takes::Bound, Some("none")), arg("below", Takes::Bound, Some("none"))];

/// What a rule or a hook may ask for. In Rhai the same names take the same things as text and
/// numbers.
pub const ACTIONS: &[CallDoc] = &[
    call("note", &[arg("text", Takes::Text, None)], "Writes a line into the journal."),
    call("checkpoint", &[], "Saves a checkpoint now."),
    call("set", &[arg("lr", Takes::Bound, None)], "Sets the learning rate from the next step on."),
    call(
        "rollback",
        &[arg("by", Takes::Checkpoints, Some("1 checkpoint"))],
        "Goes back to an earlier checkpoint.",
    ),
    call("stop", &[], "Saves a checkpoint and ends the run."),
    call("pause", &[], "Stops before the next step, until someone resumes the run."),
];

/// Actions that a suggestion lists: the first ones.
pub const MAIN_ACTIONS: usize = 5;

/// A function that a hook in Rhai may call.
#[derive(Clone, Copy, Debug)]
pub struct ScriptFn {
    pub name: &'static str,
    /// Numbers of arguments that it takes.
    pub arity: &'static [usize],
    /// As a person would call it.
    pub usage: &'static str,
    pub doc: &'static str,
}

const fn script(
    name: &'static str,
    arity: &'static [usize],
    usage: &'static str,
    doc: &'static str,
) -> ScriptFn {
    ScriptFn { name, arity, usage, doc }
}

/// What hooks may call: first what they may ask for, in the order of [`ACTIONS`], then what they
/// may read.
pub const SCRIPT: &[ScriptFn] = &[
    script("note", &[1], "note(\"text\")", "Writes a line into the journal."),
    script("checkpoint", &[0], "checkpoint()", "Saves a checkpoint now."),
    script("set", &[2], "set(\"lr\", 1e-4)", "Sets the learning rate from the next step on."),
    script("rollback", &[0, 1], "rollback(1)", "Goes back so many checkpoints."),
    script("stop", &[0], "stop()", "Saves a checkpoint and ends the run."),
    script("pause", &[0], "pause()", "Stops before the next step, until someone resumes the run."),
    script("metric", &[1], "metric(\"loss\")", "The last value of a metric."),
    script("ema", &[2], "ema(\"loss\", 200)", "Its exponential moving average over so many steps."),
    script("step", &[0], "step()", "Optimizer steps done."),
    script("steps", &[0], "steps()", "Optimizer steps of the whole run."),
    script("epoch", &[0], "epoch()", "Epochs done, as a fraction."),
    script("samples", &[0], "samples()", "Samples seen."),
    script("workers", &[0], "workers()", "Workers that take part."),
];

/// Functions of Rhai itself that hooks have, with their numbers of arguments, the value before
/// the dot of a method included.
pub const RHAI: &[(&str, &[usize])] = &[
    ("abs", &[1]),
    ("ceiling", &[1]),
    ("contains", &[2]),
    ("ends_with", &[2]),
    ("exp", &[1]),
    ("floor", &[1]),
    ("int", &[1]),
    ("is_empty", &[1]),
    ("is_finite", &[1]),
    ("is_infinite", &[1]),
    ("is_nan", &[1]),
    ("len", &[1]),
    ("ln", &[1]),
    ("log", &[1, 2]),
    ("max", &[2]),
    ("min", &[2]),
    ("pop", &[1]),
    ("push", &[2]),
    ("range", &[2, 3]),
    ("round", &[1]),
    ("sqrt", &[1]),
    ("starts_with", &[2]),
    ("to_float", &[1]),
    ("to_int", &[1]),
    ("to_lower", &[1]),
    ("to_string", &[1]),
    ("to_upper", &[1]),
    ("type_of", &[1]),
];

/// What hooks may change with `set`.
pub const SETTABLE: &[&str] = &["lr"];

/// Numbers of every step, for `metrics { log = [..] }` and for hooks: name and what it is.
pub const METRICS: &[(&str, &str)] = &[
    ("loss", "Mean over the step's batch."),
    ("grad_norm", "Norm of the whole gradient, before it is clipped."),
    ("lr", "Learning rate of the step."),
    ("samples_per_s", "Samples a second, from the step's time on the slowest worker."),
    ("tokens_per_s", "Tokens a second, for data that has tokens."),
    ("mfu", "Share of the devices' peak that the model's operations reach."),
    ("memory.peak", "Bytes of the fullest worker: weights, gradients, optimizer, activations."),
    ("wait_share", "Share of the workers' time spent waiting for communication."),
];

/// Responses to faults; which fit is up to the fault.
pub const RESPONSES: &[CallDoc] = &[
    call(
        "replace",
        &[arg("from", Takes::Text, Some("\"spares\""))],
        "Puts a spare worker in the place of the lost one.",
    ),
    call(
        "shrink",
        &[arg("axis", Takes::Axis, Some("dp")), arg("min", Takes::Whole(1), Some("1"))],
        "Goes on with fewer workers along an axis of the mesh, down to `min`.",
    ),
    call("warn", &[arg("after", Takes::Share, Some("20%"))], "Says that it is this much slower."),
    call(
        "rebalance",
        &[arg("after", Takes::Share, Some("20%"))],
        "Says that it is this much slower, and deals its shards to faster ones.",
    ),
    call(
        "exclude",
        &[arg("after", Takes::Time, Some("10 min"))],
        "Takes the worker out once it has lasted this long.",
    ),
    call(
        "abort",
        &[arg("after", Takes::Time, Some("2 min"))],
        "Breaks the collective off once it has lasted this long.",
    ),
    call("retry", &[arg("times", Takes::Whole(1), Some("1"))], "Does the step again."),
    call(
        "skip",
        &[arg("steps", Takes::Steps, Some("1 step"))],
        "Leaves the update out, for this many steps in a row at most.",
    ),
    call(
        "rollback",
        &[arg("by", Takes::Checkpoints, Some("1 checkpoint"))],
        "Goes back to an earlier checkpoint, and on with the batches that are next.",
    ),
    call("stop", &[], "Saves a checkpoint if it can, and ends the run."),
];

/// Which responses fit a fault, by the names of its setting and of the responses.
pub const FAULTS: &[(&str, &[&str])] = &[
    ("worker.lost", &["replace", "shrink", "retry", "rollback", "stop"]),
    ("worker.slow", &["rebalance", "warn", "exclude", "replace", "stop"]),
    ("collective", &["abort", "retry", "replace", "shrink", "rollback", "stop"]),
    ("loss.nan", &["skip", "rollback", "stop"]),
];

/// The one of a table with this name.
pub fn find(table: &'static [CallDoc], name: &str) -> Option<&'static CallDoc> {
    table.iter().find(|c| c.name == name)
}
