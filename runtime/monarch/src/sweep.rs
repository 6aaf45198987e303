//! Sweeps: which trials there are, how long each is, how they rank, and the record of a sweep that
//! can go on where it stopped.
//!
//! Invariants: trials and their order are functions of the program and its params alone; the clock
//! decides only that no further one begins.

use monarch_check::hir::{Pick, Quantity, Sweep, Unit};
use monarch_graph::Plan;
use monarch_graph::philox::{Purpose, name_hash, random4};
use serde_json::{Map, Value, json};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the record in a sweep's directory.
const FILE: &str = "sweep.json";

/// The combinations that are tried, by number. With more of them than `limit = { trials = .. }`
/// they are drawn without repetition (Bergstra & Bengio 2012, "Random search for hyper-parameter
/// optimization"), by the job's seed and the sweep's name.
pub fn draw(sweep: &Sweep, seed: u64) -> Vec<u64> {
    let all = sweep.combinations().unwrap_or(u64::MAX);
    let most = sweep.limit.trials.unwrap_or(all).min(all);
    if most == all {
        return (0..all).collect();
    }
    let stream = name_hash(&format!("sweep {}", sweep.name));
    let key = |n: u64| (random4(seed, Purpose::Test, stream, n), n);
    let mut drawn: Vec<u64> = (0..all).collect();
    drawn.sort_by_key(|n| key(*n));
    drawn.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    drawn.sort_unstable();
    drawn
}

/// The params of a combination, as the command line gives them.
pub fn params(sweep: &Sweep, combination: u64) -> Vec<(String, String)> {
    let picked = sweep.combination(combination);
    let one = |(param, i): (&monarch_check::hir::Swept, usize)| {
        Some((param.name.clone(), param.values.get(i)?.text.clone()))
    };
    sweep.params.iter().zip(picked).filter_map(one).collect()
}

/// Steps of a trial that `each` bounds: whole ones, at least 1.
pub fn steps(plan: &Plan, each: Option<Quantity>) -> u64 {
    let Some(each) = each else { return plan.steps };
    let tokens = plan.data.source.tokens_per_sample().unwrap_or(1).max(1) as f64;
    let batch = plan.batch.max(1) as f64;
    let steps = match each.unit {
        Unit::Epochs => each.amount * plan.steps_per_epoch() as f64,
        Unit::Samples => each.amount / batch,
        Unit::Tokens => each.amount / (batch * tokens),
        _ => each.amount,
    };
    // Saturates, which is what a bound beyond all runs means.
    (steps.ceil().max(1.0) as u64).min(plan.steps)
}

/// How far a trial has come.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Waiting,
    Done(Outcome),
    /// Why.
    Failed(String),
}

/// What a trial has come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub steps: u64,
    pub seconds: f64,
    /// Metrics at the end, `loss` and `eval.loss`, ...
    pub metrics: Vec<(String, f64)>,
    pub checkpoint: Option<String>,
    pub fingerprint: Option<String>,
}

impl Outcome {
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|m| m.0 == name).map(|m| m.1)
    }
}

/// One trial of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// From 1, in the order of the product; names its directory.
    pub number: usize,
    pub params: Vec<(String, String)>,
    /// Of its plan: a trial that has changed is not the one that was run.
    pub hash: String,
    pub state: State,
}

impl Trial {
    /// `01`
    pub fn name(&self, of: usize) -> String {
        let width = of.to_string().len().max(2);
        format!("{:0width$}", self.number)
    }

    /// `lr = 3e-4, D = 192`
    pub fn text(&self) -> String {
        let one = |(name, value): &(String, String)| format!("{name} = {value}");
        self.params.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// ` --lr 3e-4 --D 192`
    pub fn options(&self) -> String {
        let one = |(name, value): &(String, String)| match value.contains([' ', '*', '"', '$']) {
            true => format!(" --{name} '{value}'"),
            false => format!(" --{name} {value}"),
        };
        self.params.iter().map(one).collect()
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            State::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// As the record and `--json` hold it.
    pub fn json(&self) -> Value {
        let params: Map<String, Value> =
            self.params.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
        let mut out = json!({
            "trial": self.number, "params": params, "hash": self.hash,
            "state": match &self.state {
                State::Waiting => "waiting",
                State::Done(_) => "done",
                State::Failed(_) => "failed",
            },
        });
        match &self.state {
            State::Waiting => {}
            State::Failed(why) => out["why"] = json!(why),
            State::Done(o) => {
                // JSON has no NaN: a metric without a number is null.
                let metrics: Map<String, Value> =
                    o.metrics.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
                out["steps"] = json!(o.steps);
                out["seconds"] = json!(o.seconds);
                out["metrics"] = Value::Object(metrics);
                out["checkpoint"] = json!(o.checkpoint);
                out["fingerprint"] = json!(o.fingerprint);
            }
        }
        out
    }

    fn read(value: &Value) -> Option<Trial> {
        let text = |v: &Value, name: &str| v.get(name)?.as_str().map(String::from);
        let pairs = value.get("params")?.as_object()?.iter();
        let params = pairs.map(|(n, v)| Some((n.clone(), v.as_str()?.to_string())));
        let state = match value.get("state")?.as_str()? {
            "waiting" => State::Waiting,
            "failed" => State::Failed(text(value, "why")?),
            "done" => {
                let metrics = value.get("metrics")?.as_object()?.iter();
                let number = |v: &Value| v.as_f64().unwrap_or(f64::NAN);
                State::Done(Outcome {
                    steps: value.get("steps")?.as_u64()?,
                    seconds: value.get("seconds")?.as_f64()?,
                    metrics: metrics.map(|(n, v)| (n.clone(), number(v))).collect(),
                    checkpoint: text(value, "checkpoint"),
                    fingerprint: text(value, "fingerprint"),
                })
            }
            _ => return None,
        };
        Some(Trial {
            number: usize::try_from(value.get("trial")?.as_u64()?).ok()?,
            params: params.collect::<Option<_>>()?,
            hash: text(value, "hash")?,
            state,
        })
    }
}

/// The trials from the best to the worst: those without a number come after those with one, those
/// that failed or have not been run come last. Equals stay in their order.
pub fn rank<'t>(trials: &'t [Trial], pick: &Pick) -> Vec<&'t Trial> {
    let key = |trial: &Trial| {
        let value = trial.outcome().and_then(|o| o.metric(&pick.metric));
        let sign = if pick.largest { -1.0 } else { 1.0 };
        let class = match (value.filter(|v| !v.is_nan()), &trial.state) {
            (Some(_), _) => 0,
            (None, State::Done(_)) => 1,
            (None, State::Failed(_)) => 2,
            (None, State::Waiting) => 3,
        };
        (class, value.filter(|v| !v.is_nan()).map_or(0.0, |v| sign * v))
    };
    let mut out: Vec<&Trial> = trials.iter().collect();
    out.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    out
}

/// Why a record cannot be used.
#[derive(Debug)]
pub enum RecordError {
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    /// It is not what a sweep writes.
    Damaged {
        path: PathBuf,
    },
    /// The program's trials are not those of the record.
    Differs {
        path: PathBuf,
        first: String,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Io { path, error } => write!(f, "{}: {error}", path.display()),
            RecordError::Damaged { path } => {
                write!(f, "{} is no record of a sweep", path.display())
            }
            RecordError::Differs { path, first } => write!(
                f,
                "the program has changed since {} was written: {first}; run without --resume to \
                 begin anew",
                path.display()
            ),
        }
    }
}

impl std::error::Error for RecordError {}

/// Writes the record of a sweep; whoever reads it sees the old one or the new one, whole.
pub fn write(dir: &Path, sweep: &Sweep, trials: &[Trial]) -> Result<(), RecordError> {
    let all: Vec<Value> = trials.iter().map(Trial::json).collect();
    let pick = if sweep.pick.largest { "max" } else { "min" };
    let value = json!({
        "sweep": sweep.name, "pick": format!("{pick}({})", sweep.pick.metric), "trials": all,
    });
    let path = dir.join(FILE);
    let io = |error| RecordError::Io { path: path.clone(), error };
    let fresh = dir.join(format!("{FILE}.tmp-{}", std::process::id()));
    fs::write(&fresh, format!("{value:#}\n")).map_err(io)?;
    fs::rename(&fresh, &path).map_err(io)
}

/// Takes over from the record in `dir` what has been done of `trials`.
pub fn take_over(dir: &Path, trials: &mut [Trial]) -> Result<(), RecordError> {
    let path = dir.join(FILE);
    let io = |error| RecordError::Io { path: path.clone(), error };
    let text = fs::read_to_string(&path).map_err(io)?;
    let damaged = || RecordError::Damaged { path: path.clone() };
    let value: Value = serde_json::from_str(&text).map_err(|_| damaged())?;
    let list = value.get("trials").and_then(Value::as_array).ok_or_else(damaged)?;
    let old: Option<Vec<Trial>> = list.iter().map(Trial::read).collect();
    let old = old.ok_or_else(damaged)?;
    let differs = |first: String| RecordError::Differs { path: path.clone(), first };
    if old.len() != trials.len() {
        return Err(differs(format!("it has {} trials, not {}", trials.len(), old.len())));
    }
    let pairs = || trials.iter().zip(&old);
    if let Some((new, _)) = pairs().find(|(a, b)| (&a.params, &a.hash) != (&b.params, &b.hash)) {
        return Err(differs(format!("trial {} ({}) is another one", new.number, new.text())));
    }
    for (new, old) in trials.iter_mut().zip(old) {
        // What has failed is tried again.
        if matches!(old.state, State::Done(_)) {
            new.state = old.state;
        }
    }
    Ok(())
}

/// The newest sweep of this name among the runs of a job.
pub fn newest(runs: &Path, sweep: &str) -> Option<PathBuf> {
    let prefix = format!("{sweep}-");
    let entries = fs::read_dir(runs).ok()?.flatten();
    let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with(&prefix));
    // Their names end in the time at which they began.
    ours.map(|e| e.path()).filter(|p| p.join(FILE).is_file()).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use monarch_check::hir::{Limit, Swept, SweptValue, Value as Known};

    fn sweep(trials: Option<u64>) -> Sweep {
        let span = Default::default();
        let param = |name: &str, texts: &[&str]| Swept {
            name: name.into(),
            values: texts
                .iter()
                .map(|t| SweptValue { value: Known::Text((*t).into()), text: (*t).into(), span })
                .collect(),
            span,
        };
        Sweep {
            name: "s".into(),
            span,
            params: vec![param("a", &["1", "2"]), param("b", &["x", "y z", "w"])],
            pick: Pick { largest: false, metric: "loss".into(), span: None },
            limit: Limit { trials, ..Limit::default() },
        }
    }

    fn trial(number: usize, loss: Option<f64>) -> Trial {
        let state = match loss {
            None => State::Waiting,
            Some(x) => State::Done(Outcome {
                steps: 3,
                seconds: 0.5,
                metrics: vec![("loss".into(), x)],
                checkpoint: None,
                fingerprint: Some("ab".into()),
            }),
        };
        Trial { number, params: vec![("a".into(), "1".into())], hash: "h".into(), state }
    }

    #[test]
    fn the_product_and_a_draw_of_it() {
        assert_eq!(draw(&sweep(None), 0), [0, 1, 2, 3, 4, 5]);
        let drawn = draw(&sweep(Some(3)), 0);
        assert_eq!((drawn.len(), drawn.is_sorted()), (3, true));
        assert_eq!(drawn, draw(&sweep(Some(3)), 0));
        let others = (1..20).filter(|seed| draw(&sweep(Some(3)), *seed) != drawn).count();
        assert!(others > 5, "{others}");
        let of = |n| params(&sweep(None), n);
        assert_eq!(of(0), [("a".into(), "1".into()), ("b".into(), "x".into())]);
        assert_eq!(of(4), [("a".into(), "2".into()), ("b".into(), "y z".into())]);
        let trial = Trial { params: of(4), ..trial(4, None) };
        assert_eq!(trial.options(), " --a 2 --b 'y z'");
    }

    #[test]
    fn ranks() {
        let mut trials = vec![
            trial(1, Some(2.0)),
            trial(2, None),
            trial(3, Some(f64::NAN)),
            trial(4, Some(1.0)),
        ];
        trials.push(Trial { state: State::Failed("x".into()), ..trial(5, None) });
        let pick = sweep(None).pick;
        let order = |pick: &Pick| rank(&trials, pick).iter().map(|t| t.number).collect::<Vec<_>>();
        assert_eq!(order(&pick), [4, 1, 3, 5, 2]);
        assert_eq!(order(&Pick { largest: true, ..pick })[..2], [1, 4]);
    }

    #[test]
    fn a_record_is_taken_over_if_it_is_of_the_same_trials() {
        let dir = tempfile::tempdir().unwrap();
        let done = [trial(1, Some(2.0)), trial(2, None)];
        write(dir.path(), &sweep(None), &done).unwrap();
        let mut fresh = [trial(1, None), trial(2, None)];
        take_over(dir.path(), &mut fresh).unwrap();
        assert_eq!(fresh, done);
        let mut other = [trial(1, None), Trial { hash: "i".into(), ..trial(2, None) }];
        let error = take_over(dir.path(), &mut other).unwrap_err().to_string();
        assert!(error.contains("trial 2 (a = 1) is another one"), "{error}");
        fs::write(dir.path().join(FILE), "{}").unwrap();
        assert!(matches!(take_over(dir.path(), &mut fresh), Err(RecordError::Damaged { .. })));
    }
}
