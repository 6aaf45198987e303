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
        block("metrics", "What is recorded of steps, and how often."),
        block("fault", "What follows a failure."),
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
        value("after", "checkpoint", None, "Evaluate whenever a checkpoint is saved."),
    ],
};

pub const CHECKPOINT: BlockDoc = plain(
    "checkpoint",
    "Saving weights, optimizer and position; the end of the run is always saved.",
    &[
        value("every", "steps, epochs or time", None, "How often."),
        value("keep", "a whole number", Some("3"), "The newest whole ones are kept."),
        value("to", "a folder", Some("\"runs/{run.id}\""), "Where."),
        value("after", "eval", None, "Save with every evaluation."),
        value(
            "also",
            "steps or epochs",
            None,
            "Saved too, after every so many, and kept for good.",
        ),
        value("async", "true or false", Some("true"), "Training goes on while it is written."),
        value(
            "best",
            "min(metric) or max(metric)",
            None,
            "Save an evaluation that beats all before it, and keep it until it is beaten.",
        ),
        value("format", "\"safetensors\"", Some("\"safetensors\""), "Layout of the files."),
        value(
            "what",
            "all, adapters or weights",
            Some("all"),
            "`adapters`: what is trained; `weights`: no optimizer state, so no `--resume`.",
        ),
    ],
);

pub const METRICS: BlockDoc = plain(
    "metrics",
    "What is recorded of steps; evaluations are always recorded.",
    &[
        value("every", "steps or epochs", Some("1 step"), "Record one of so many steps."),
        value("log", "a list of metrics", None, "These alone; all of them without it."),
    ],
);

pub const FAULT: BlockDoc = plain(
    "fault",
    "What follows a failure: one response `then` another, each when the one before has not helped.",
    &[
        value(
            "worker.lost",
            "responses",
            Some("replace then shrink then stop"),
            "A worker is gone. A run carries out these three so far.",
        ),
        value(
            "worker.slow",
            "responses",
            Some("rebalance(after = 20%)"),
            "A worker takes longer over its own work than the others; waits do not count.",
        ),
        value(
            "collective",
            "responses",
            Some("abort(after = 2 min) then retry(3) then stop"),
            "A collective does not end. A run carries out `stop` so far.",
        ),
        value("loss.nan", "responses", Some("stop"), "The loss is not a number, or infinite."),
    ],
);

pub const CLUSTER: BlockDoc = plain(
    "cluster",
    "Where the work is done.",
    &[
        value("workers", "a whole number", Some("4"), "Worker processes."),
        value("threads", "a whole number", None, "Compute threads of each worker."),
        value("listen", "an address", Some("\"127.0.0.1:0\""), "Where the controller listens."),
        value("key", "a file, or env(\"NAME\")", None, "The cluster's key."),
        value(
            "nodes",
            "a list of addresses",
            None,
            "Machines: `[\"gpu01:7000\", \"gpu02:7000\"]`.",
        ),
        value("device", "a kind { count, memory }", None, "What each node has."),
        value("link", "{ intra, inter }", None, "How fast devices talk to each other."),
    ],
);

pub const DEVICE: BlockDoc = plain(
    "device",
    "The devices of each node of a cluster: `device = MI300X { count = 8, memory = 192 GiB }`.\n\
     Kinds: MI300X, MI325X, MI355X, H100, H200, CPU.",
    &[
        value("count", "a whole number", Some("1"), "Devices of one node."),
        value("memory", "a size in memory", None, "Of one device; else as its kind has."),
    ],
);

/// Kinds of devices that the cost model knows.
pub const DEVICES: &[&str] = &["MI300X", "MI325X", "MI355X", "H100", "H200", "CPU"];

pub const LINK: BlockDoc = plain(
    "link",
    "How fast one device sends to another, in one direction: `link = { intra = 448 GB/s }`.",
    &[
        value("intra", "a rate", None, "Between devices of one node; else as their kind does."),
        value("inter", "a rate", None, "Between nodes, for each device."),
    ],
);

pub const PLAN: BlockDoc = plain(
    "plan",
    "How a job is laid out on a cluster: `plan p on lab { .. }`, then `train job on p { .. }`.",
    &[
        value("mesh", "axes and lengths", None, "The devices as a grid: `{ pp = 2, dp = _ }`."),
        block("shard", "Which axes of tensors are divided over which axes of the mesh."),
        value("sequence", "tp", None, "T is divided over tp outside attention and MLP."),
        block("pipeline", "Stages of the model, one after another."),
        block("zero", "State of training that replicas divide among themselves."),
        value("recompute", "a list of layers", Some("[]"), "Computed again in backward."),
        value("offload", "{ optimizer }", Some("{ optimizer = never }"), "To the host's memory."),
        value("precision", "element types", Some("f32 for all"), "Elements in memory."),
        block("overlap", "Communication under computation."),
    ],
);

pub const MESH: BlockDoc = plain(
    "mesh",
    "The devices as a grid; the lengths multiply to their number, and one `_` fills.\n\
     Neighbours along the last of these are neighbours in a node.",
    &[
        value("pp", "a whole number or _", Some("1"), "Pipeline stages, cut by `pipeline`."),
        value("dp", "a whole number or _", Some("1"), "Replicas: each takes its own samples."),
        value("cp", "a whole number or _", Some("1"), "Context parallel: parts of a sequence."),
        value("ep", "a whole number or _", Some("1"), "Expert parallel."),
        value("tp", "a whole number or _", Some("1"), "Tensor parallel: parts of a layer."),
    ],
);

pub const SHARD: BlockDoc = plain(
    "shard",
    "Axes of tensors, divided over axes of the mesh: `shard { B -> dp, H -> tp, F -> tp }`.\n\
     B (samples) goes to dp, T and S (sequence) to cp, E (experts) to ep, all others to tp:\n\
     H (heads), G (key-value heads), F (feed-forward), V (vocabulary).\n\
     An axis must occur in the model's layers, and an axis of the mesh in `mesh`.",
    &[],
);

pub const PIPELINE: BlockDoc = plain(
    "pipeline",
    "Stages of repeated layers, one after another, each with its own devices.",
    &[
        value("split", "a repeated layer", None, "What is dealt out to the stages: `llm.blocks`."),
        value("over", "pp", Some("pp"), "The axis of the mesh."),
        value("schedule", "a name", Some("\"1f1b\""), "gpipe, 1f1b, interleaved or zb-h1."),
        value("microbatches", "a whole number", None, "Parts of a replica's batch."),
        value("chunks", "a whole number from 2", None, "Of each device, if interleaved."),
    ],
);

/// Orders in which a pipeline works through its micro-batches.
pub const SCHEDULES: &[&str] = &["gpipe", "1f1b", "interleaved", "zb-h1"];

pub const ZERO: BlockDoc = plain(
    "zero",
    "What replicas divide among themselves instead of each holding all of it (ZeRO).",
    &[
        value("stage", "1, 2 or 3", None, "1: optimizer state, 2: gradients too, 3: weights too."),
        value("over", "dp", Some("dp"), "The axis of the mesh."),
    ],
);

pub const OFFLOAD: BlockDoc = plain(
    "offload",
    "What lives in the host's memory.",
    &[value("optimizer", "never or always", Some("never"), "State of the optimizer.")],
);

pub const PRECISION: BlockDoc = plain(
    "precision",
    "Elements in memory: f32, bf16 or f16.",
    &[
        value("weights", "an element type", Some("f32"), "Weights and activations."),
        value("grads", "an element type", Some("f32"), "Gradients."),
        value("optimizer", "an element type", Some("f32"), "Moments, and a copy of the weights."),
    ],
);

pub const OVERLAP: BlockDoc = plain(
    "overlap",
    "Communication under computation.",
    &[
        value("grads", "buckets(64 MiB), true, false", Some("true"), "Reduced under backward."),
        value("tp", "true or false", Some("false"), "Collectives of tensor parallelism."),
        value("exact", "true or false", Some("true"), "Sum in one order for any number of ranks."),
    ],
);

pub const BATCH: BlockDoc = plain(
    "batch",
    "Samples of one step, over all devices: `batch = 64`, `batch = 4M tokens`, or two of these:",
    &[
        value("global", "a whole number", None, "Samples of one step: micro * accumulate * dp."),
        value("micro", "a whole number", None, "Samples that a replica computes at once."),
        value("accumulate", "a whole number", None, "Micro-batches of a replica in one step."),
    ],
);

/// Settings whose value has settings of its own: block and setting.
pub const WITH_BODY: &[(&str, &str)] = &[("data", "format"), ("cluster", "device")];

pub const DATA: BlockDoc = plain(
    "data",
    "A data set.",
    &[
        value("tokenizer", "chars, bytes or a file", Some("chars"), "How text becomes ids."),
        value("window", "a whole number", None, "Tokens of one sample."),
        value("split", "shares", None, "Parts of the set: `{ train = 90%, eval = 10% }`."),
        value("sha256", "a hash, or file(\"list\")", None, "Of the files, verified by a plan."),
        value("dtype", "u16 or u32", Some("u32"), "How `tokens` files store an id."),
        value("mix", "shares", None, "Parts of the files: `{ web = 85%, code = 15% }`."),
        value("fields", "names and types", None, "Of a record: `{ prompt = str, x = f32[4] }`."),
        value("format", "chat(\"llama3\") { loss_on = field }", None, "How records become tokens."),
        value("pack", "a whole number", None, "Tokens of a sample that records are packed into."),
    ],
);

pub const MODEL: BlockDoc = plain(
    "model",
    "A layer with numbers: `Name[sizes](values)`, or from files: `Name.load(\"*.safetensors\")`.",
    &[
        value("sha256", "a hash", None, "Of the files of weights, verified by a plan."),
        value("names", "a list of names", None, "Names in the files and ours: `hf_names`."),
        value("freeze", "true, or patterns", Some("false"), "Weights that stay as they are."),
        value("dtype", "bf16, f16 or f32", Some("f32"), "What weights are rounded to and kept as."),
    ],
);

pub const LORA: BlockDoc = plain(
    "lora",
    "A model with adapters of low rank: `model tuned = lora(base) { .. }`.",
    &[
        value("rank", "a whole number", None, "Width of an adapter."),
        value("alpha", "a number", Some("rank"), "An adapter's share is alpha / rank."),
        value("dropout", "a share", Some("0%"), "Of an adapter's input, while training."),
        value("layers", "patterns", None, "Weights, or the layers that hold them."),
    ],
);

pub const SWEEP: BlockDoc = plain(
    "sweep",
    "Many runs: a product of params.",
    &[
        value(
            "pick",
            "min(metric) or max(metric)",
            Some("min(eval.loss)"),
            "Which is best, by its end.",
        ),
        value("limit", "trials, time, each", None, "When to stop."),
    ],
);

/// Modules of the library that are not built yet.
pub const LATER_MODULES: &[&str] = &[];

/// Names of modules that are not built yet: module and name.
pub const LATER_NAMES: &[(&str, &str)] = &[];

/// Settings of `limit` in a sweep.
pub const LIMIT: &[&str] = &["trials", "time", "each"];

/// All blocks with settings of their own.
pub const BLOCKS: &[BlockDoc] = &[
    BATCH, CHECKPOINT, CLUSTER, DATA, DEVICE, EVAL, FAULT, LINK, LORA, MESH, METRICS, MODEL,
    OFFLOAD, OVERLAP, PIPELINE, PLAN, PRECISION, SHARD, SWEEP, TRAIN, ZERO,
];

/// What settings and arguments are called elsewhere, and here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("accumulation", "accumulate"),
    ("activation_checkpointing", "recompute"),
    ("context_parallel", "cp"),
    ("criterion", "loss"),
    ("data_parallel", "dp"),
    ("dataset", "data"),
    ("dim", "over"),
    ("epochs", "until"),
    ("expert_parallel", "ep"),
    ("fsdp", "zero"),
    ("grad_clip", "clip"),
    ("gradient_accumulation", "accumulate"),
    ("gradient_accumulation_steps", "accumulate"),
    ("gradient_checkpointing", "recompute"),
    ("hbm", "memory"),
    ("hosts", "nodes"),
    ("learning_rate", "lr"),
    ("max_epochs", "until"),
    ("max_grad_norm", "clip"),
    ("max_steps", "until"),
    ("micro_batch_size", "micro"),
    ("num_epochs", "until"),
    ("num_microbatches", "microbatches"),
    ("num_workers", "workers"),
    ("objective", "loss"),
    ("pipeline_parallel", "pp"),
    ("save", "checkpoint"),
    ("scheduler", "lr"),
    ("schedule", "lr"),
    ("steps", "until"),
    ("tensor_parallel", "tp"),
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
