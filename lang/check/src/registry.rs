//! Every block and setting there is: one table, used to check, to suggest and to explain.

/// How a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `lr = 1e-3`
    Value,
    /// `eval { .. }`
    Block,
    /// `loss(x: f32[B, 64]) = ..`
    Function,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct SettingDoc {
    pub name: &'static str,
    pub form: Form,
    /// What it takes, for people.
    pub takes: &'static str,
    /// The default as a person would write it; None for none.
    pub default: Option<&'static str>,
    pub doc: &'static str,
    /// Known, and not built yet: using it is an error that says so.
    pub later: bool,
}

/// One kind of block.
#[derive(Clone, Copy, Debug)]
pub struct BlockDoc {
    pub name: &'static str,
    pub doc: &'static str,
    pub settings: &'static [SettingDoc],
    /// Functions of any name may be defined in it.
    pub functions: bool,
    /// `on event => action` may stand in it.
    pub hooks: bool,
}

const fn value(
    name: &'static str,
    takes: &'static str,
    default: Option<&'static str>,
    doc: &'static str,
) -> SettingDoc {
    SettingDoc { name, form: Form::Value, takes, default, doc, later: false }
}

const fn later(name: &'static str, doc: &'static str) -> SettingDoc {
    SettingDoc { name, form: Form::Value, takes: "", default: None, doc, later: true }
}

const fn block(name: &'static str, doc: &'static str) -> SettingDoc {
    SettingDoc { name, form: Form::Block, takes: "settings", default: None, doc, later: false }
}

const fn plain(name: &'static str, doc: &'static str, settings: &'static [SettingDoc]) -> BlockDoc {
    BlockDoc { name, doc, settings, functions: false, hooks: false }
}

pub const TRAIN: BlockDoc = BlockDoc {
    name: "train",
    doc: "A training job.",
    functions: false,
    hooks: true,
    settings: &[
        value("model", "a model", None, "What is trained."),
        value("data", "a data set", None, "What it learns from."),
        SettingDoc {
            name: "loss",
            form: Form::Function,
            takes: "columns",
            default: None,
            doc: "The mean to make small. Its arguments are the contract with the data set.",
            later: false,
        },
        value("optim", "an optimizer", None, "AdamW(..) or SGD(..)."),
        value("lr", "a schedule or a number", None, "Learning rate over optimizer steps."),
        value("batch", "samples or tokens", None, "Size of one step, over all workers."),
        value("until", "steps, epochs, samples or tokens", None, "Length of the run."),
        value("shards", "a whole number", Some("8"), "Pieces each batch is cut into."),
        value("seed", "a whole number", Some("0"), "Of every random number of the run."),
        value("drop_last", "true or false", Some("false"), "Skip an epoch's last, smaller batch."),
        value("overlap", "true or false", Some("true"), "Reduce gradients while backward runs."),
        block("eval", "Evaluation on the `eval` split."),
        block("checkpoint", "Saving the run."),
        SettingDoc { form: Form::Block, ..later("metrics", "What is logged, and how often.") },
        SettingDoc { form: Form::Block, ..later("fault", "What follows a failure.") },
    ],
};

pub const EVAL: BlockDoc = BlockDoc {
    name: "eval",
    doc: "Evaluation: every sample of the `eval` split exactly once.",
    functions: true,
    hooks: false,
    settings: &[
        value("every", "steps, epochs or time", None, "How often."),
        value("batches", "a whole number", None, "Only the first so many batches."),
        later("after", "Run after something else."),
    ],
};

pub const CHECKPOINT: BlockDoc = plain(
    "checkpoint",
    "Saving weights, optimizer and position; the end of the run is always saved.",
    &[
        value("every", "steps, epochs or time", None, "How often."),
        value("keep", "a whole number", Some("3"), "The newest whole ones are kept."),
        value("to", "a folder", Some("\"runs/{run.id}\""), "Where."),
        later("after", "Save after something else."),
        later("also", "Keep every so many for good."),
        later("async", "Whether training goes on while it is written (it does)."),
        later("best", "Keep the best by a metric."),
        later("format", "Another layout of files."),
        later("what", "Only a part of the state."),
    ],
);

pub const CLUSTER: BlockDoc = plain(
    "cluster",
    "Where the work is done.",
    &[
        value("workers", "a whole number", Some("4"), "Worker processes."),
        value("threads", "a whole number", None, "Compute threads of each worker."),
        value("listen", "an address", Some("\"127.0.0.1:0\""), "Where the controller listens."),
        value("key", "a file", None, "The cluster's key."),
        later("nodes", "Machines to start workers on."),
        later("device", "What each node has."),
        later("link", "How fast nodes talk."),
    ],
);

pub const DATA: BlockDoc = plain(
    "data",
    "A data set.",
    &[
        value("tokenizer", "chars", Some("chars"), "How text becomes ids."),
        value("window", "a whole number", None, "Tokens of one sample."),
        value("split", "shares", None, "Parts of the set: `{ train = 90%, eval = 10% }`."),
        later("sha256", "Hashes that the files must have."),
        later("mix", "Shares of several sources."),
        later("fields", "Columns of a table."),
        later("format", "How records become text."),
        later("pack", "Tokens that records are packed into."),
    ],
);

pub const MODEL: BlockDoc = plain(
    "model",
    "A layer with numbers.",
    &[
        later("sha256", "Hash of the file of weights."),
        later("names", "Names of the file, and ours."),
        later("freeze", "Weights that stay as they are."),
        later("dtype", "Elements of the weights."),
        later("rank", "Rank of an adapter."),
        later("alpha", "Scale of an adapter."),
        later("dropout", "Dropout of an adapter."),
        later("layers", "Which layers are adapted."),
    ],
);

pub const SWEEP: BlockDoc = plain(
    "sweep",
    "Many runs: a product of params.",
    &[
        value("pick", "min(metric) or max(metric)", None, "Which trial is best."),
        value("limit", "trials, time, each", None, "When to stop."),
    ],
);

/// Modules of the library that are not built yet.
pub const LATER_MODULES: &[&str] = &["std.adapt"];

/// Names of modules that are not built yet: module and name.
pub const LATER_NAMES: &[(&str, &str)] = &[("std.models.llama", "hf_names")];

/// Sources of data that are not built yet.
pub const LATER_SOURCES: &[&str] = &["jsonl", "tokens"];

/// Settings of `limit` in a sweep.
pub const LIMIT: &[&str] = &["trials", "time", "each"];

/// Things that happen, for `on`.
pub const EVENTS: &[&str] = &[
    "step",
    "eval.done",
    "checkpoint.done",
    "worker.lost",
    "worker.slow",
    "loss.nan",
    "loss.spike",
    "stop",
];

/// What an `on` rule may do.
pub const ACTIONS: &[&str] = &["stop", "checkpoint"];

/// All blocks with settings of their own.
pub const BLOCKS: &[BlockDoc] = &[CHECKPOINT, CLUSTER, DATA, EVAL, MODEL, SWEEP, TRAIN];

/// What settings and arguments are called elsewhere, and here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("accumulation", "accumulate"),
    ("criterion", "loss"),
    ("dataset", "data"),
    ("dim", "over"),
    ("epochs", "until"),
    ("grad_clip", "clip"),
    ("learning_rate", "lr"),
    ("max_epochs", "until"),
    ("max_grad_norm", "clip"),
    ("max_steps", "until"),
    ("num_epochs", "until"),
    ("num_workers", "workers"),
    ("objective", "loss"),
    ("save", "checkpoint"),
    ("scheduler", "lr"),
    ("schedule", "lr"),
    ("steps", "until"),
    ("valid", "eval"),
    ("validation", "eval"),
    ("weight_decay", "decay"),
];

/// The one of `names` that a name from elsewhere means.
pub fn from_elsewhere<'n>(name: &str, mut names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let here = ELSEWHERE.iter().find(|e| e.0.eq_ignore_ascii_case(name))?.1;
    names.find(|n| *n == here)
}

impl BlockDoc {
    pub fn setting(&self, name: &str) -> Option<&'static SettingDoc> {
        self.settings.iter().find(|s| s.name == name)
    }
}

/// The settings of a block by its name, for `monarch explain train`.
pub fn block_doc(name: &str) -> Option<&'static BlockDoc> {
    BLOCKS.iter().find(|b| b.name == name)
}
