//! The lines of a journal as JSON. Numbers with a fraction travel as their bits.

use super::{ChildMark, Head, Journaled, Seen, VERSION};
use monarch_net::ClusterKey;
use monarch_sched::{EndedBy, Facts};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn place(step: &Option<(PathBuf, u64)>) -> Value {
    match step {
        Some((path, step)) => json!([path.display().to_string(), step]),
        None => Value::Null,
    }
}

pub fn head(head: &Head) -> Value {
    json!({
        "kind": "head",
        "version": VERSION,
        "run": head.run_id,
        "job": monarch_graph::hex(&head.job_hash),
        "incarnation": head.incarnation,
        "address": head.address.map(|a| a.to_string()),
        "key": head.key.as_ref().map(ClusterKey::to_hex),
        "resume": place(&head.resume),
    })
}

pub fn who(children: &[ChildMark], guests: u32) -> Value {
    let mark = |c: &ChildMark| json!([c.slot, c.pid, c.started]);
    let children: Vec<Value> = children.iter().map(mark).collect();
    json!({ "kind": "who", "children": children, "guests": guests })
}

pub fn facts(facts: &Facts, seen: &Seen) -> Value {
    let bits = |value: &f64| json!(value.to_bits());
    let metrics: Map<String, Value> =
        seen.metrics.iter().map(|(n, v)| (n.clone(), bits(v))).collect();
    let best: Map<String, Value> =
        seen.best.iter().map(|(n, (v, s))| (n.clone(), json!([v.to_bits(), s]))).collect();
    let end = facts.end.map(|(at, by)| match by {
        EndedBy::Rule { rule, value } => json!([at, "rule", rule, value.to_bits()]),
        EndedBy::Asked { interrupted } => json!([at, "asked", interrupted]),
    });
    json!({
        "kind": "facts",
        "begun": facts.begun,
        "generation": facts.generation,
        "recorded": facts.recorded,
        "evaluated": facts.evaluated.map(|(step, n)| json!([step, n])),
        "eval_wanted": facts.eval_wanted,
        "saved": facts.saved,
        "saving": facts.saving,
        "failed_save": facts.failed_save.as_ref().map(|(step, why)| json!([step, why])),
        "save_wanted": facts.save_wanted,
        "save_instead": facts.save_instead,
        "answered": facts.answered,
        "best_value": facts.best.as_ref().map(bits),
        "best_before":
            facts.best_before.map(|(step, b)| json!([step, b.as_ref().map(bits)])),
        "end": end,
        "metrics": metrics,
        "best": best,
        "loss": seen.loss.map(|(step, loss)| json!([step, loss.to_bits()])),
        "checkpoint": place(&seen.checkpoint),
    })
}

/// The last line of each kind; None without a first line that says which run this is.
pub fn gather(lines: &[Value]) -> Option<Journaled> {
    let first = read_head(lines.first()?)?;
    let (facts, seen) = (Facts::default(), Seen::default());
    let mut all = Journaled { head: first, children: Vec::new(), guests: 0, facts, seen };
    for line in lines.iter().skip(1) {
        match line.get("kind")?.as_str()? {
            "who" => (all.children, all.guests) = read_who(line)?,
            "facts" => (all.facts, all.seen) = read_facts(line)?,
            _ => {}
        }
    }
    Some(all)
}

/// A field that may be null; None when it is something else than `read` understands.
fn optional<T>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Option<T>> {
    if value.is_null() { Some(None) } else { read(value).map(Some) }
}

fn float(value: &Value) -> Option<f64> {
    value.as_u64().map(f64::from_bits)
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64()?.try_into().ok()
}

fn read_place(value: &Value) -> Option<(PathBuf, u64)> {
    Some((Path::new(value.get(0)?.as_str()?).to_path_buf(), value.get(1)?.as_u64()?))
}

fn read_head(line: &Value) -> Option<Head> {
    let is_ours = line.get("kind")? == "head" && line.get("version")? == VERSION;
    let hex = line.get("job")?.as_str().filter(|hex| hex.len() == 64 && hex.is_ascii())?;
    let mut job_hash = [0; 32];
    for (i, byte) in job_hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    is_ours.then_some(Head {
        run_id: line.get("run")?.as_str()?.to_string(),
        job_hash,
        incarnation: line.get("incarnation")?.as_u64()?,
        address: optional(line.get("address")?, |a| a.as_str()?.parse().ok())?,
        key: optional(line.get("key")?, |k| ClusterKey::parse(k.as_str()?).ok())?,
        resume: optional(line.get("resume")?, read_place)?,
    })
}

fn read_who(line: &Value) -> Option<(Vec<ChildMark>, u32)> {
    let mark = |c: &Value| {
        let (slot, pid) = (number(c.get(0)?)?, number(c.get(1)?)?);
        Some(ChildMark { slot, pid, started: c.get(2)?.as_u64()? })
    };
    let children = line.get("children")?.as_array()?.iter().map(mark).collect::<Option<_>>()?;
    Some((children, number(line.get("guests")?)?))
}

fn read_end(value: &Value) -> Option<(u64, EndedBy)> {
    let by = match value.get(1)?.as_str()? {
        "rule" => {
            let rule = usize::try_from(value.get(2)?.as_u64()?).ok()?;
            EndedBy::Rule { rule, value: float(value.get(3)?)? }
        }
        _ => EndedBy::Asked { interrupted: value.get(2)?.as_bool()? },
    };
    Some((value.get(0)?.as_u64()?, by))
}

fn read_facts(line: &Value) -> Option<(Facts, Seen)> {
    let field = |name: &str| line.get(name);
    let flag = |name: &str| field(name)?.as_bool();
    let pair = |v: &Value| Some((v.get(0)?.as_u64()?, number(v.get(1)?)?));
    let failed = |v: &Value| Some((v.get(0)?.as_u64()?, v.get(1)?.as_str()?.to_string()));
    let before = |v: &Value| Some((v.get(0)?.as_u64()?, optional(v.get(1)?, float)?));
    let facts = Facts {
        begun: flag("begun")?,
        generation: field("generation")?.as_u64()?,
        recorded: field("recorded")?.as_u64()?,
        evaluated: optional(field("evaluated")?, pair)?,
        eval_wanted: flag("eval_wanted")?,
        saved: optional(field("saved")?, Value::as_u64)?,
        saving: optional(field("saving")?, Value::as_u64)?,
        failed_save: optional(field("failed_save")?, failed)?,
        save_wanted: flag("save_wanted")?,
        save_instead: flag("save_instead")?,
        answered: flag("answered")?,
        best: optional(field("best_value")?, float)?,
        best_before: optional(field("best_before")?, before)?,
        end: optional(field("end")?, read_end)?,
    };
    let metrics = field("metrics")?.as_object()?.iter();
    let best = field("best")?.as_object()?.iter();
    let one = |(n, v): (&String, &Value)| Some((n.clone(), float(v)?));
    let two =
        |(n, v): (&String, &Value)| Some((n.clone(), (float(v.get(0)?)?, v.get(1)?.as_u64()?)));
    let loss = |v: &Value| Some((v.get(0)?.as_u64()?, float(v.get(1)?)?));
    let seen = Seen {
        metrics: metrics.map(one).collect::<Option<BTreeMap<_, _>>>()?,
        best: best.map(two).collect::<Option<BTreeMap<_, _>>>()?,
        loss: optional(field("loss")?, loss)?,
        checkpoint: optional(field("checkpoint")?, read_place)?,
    };
    Some((facts, seen))
}
