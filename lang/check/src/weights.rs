//! Tensors of a checkpoint as weights: every weight has its tensor, every tensor its weight.

use crate::TensorFact;
use crate::names::NameMap;
use crate::pretrained::Loading;
use crate::scope::Checker;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Init, Weight};
use std::collections::BTreeMap;

/// Names listed in a diagnostic; the rest is counted.
const LISTED: usize = 6;

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub file: String,
    pub fact: TensorFact,
}

/// The tensors of a checkpoint by our names.
pub(crate) struct Checkpoint {
    tensors: BTreeMap<String, (Tensor, bool)>,
    /// Names in the files that no line of `names` speaks of.
    strangers: Vec<String>,
}

impl Checkpoint {
    /// The shape of the tensor for a weight of ours.
    pub fn shape(&self, ours: &str) -> Option<Vec<u64>> {
        self.tensors.get(ours).map(|(tensor, turned)| turn(&tensor.fact.shape, *turned))
    }

    /// One of the files.
    pub fn a_file(&self) -> Option<&str> {
        self.tensors.values().next().map(|(tensor, _)| tensor.file.as_str())
    }

    /// How many of `path.0`, `path.1`, .. occur.
    pub fn copies(&self, path: &str) -> u64 {
        let numbers = self.tensors.keys().filter_map(|name| {
            let rest = name.strip_prefix(path)?.strip_prefix('.')?;
            rest.split('.').next()?.parse::<u64>().ok()
        });
        numbers.max().map_or(0, |n| n.saturating_add(1))
    }
}

fn turn(shape: &[u64], transposed: bool) -> Vec<u64> {
    match (shape, transposed) {
        ([a, b], true) => vec![*b, *a],
        _ => shape.to_vec(),
    }
}

/// What does not fit between a model and a file.
#[derive(Default)]
struct Misfit {
    missing: Vec<String>,
    unexpected: Vec<String>,
    misshapen: Vec<String>,
}

impl Checker<'_> {
    /// The tensors by our names. None if reported.
    pub fn translated(
        &mut self,
        loading: &Loading,
        tensors: Vec<Tensor>,
        names: &NameMap,
    ) -> Option<Checkpoint> {
        let mut out = Checkpoint { tensors: BTreeMap::new(), strangers: Vec::new() };
        for tensor in tensors {
            let theirs = tensor.fact.name.clone();
            match names.ours(&theirs) {
                None => out.strangers.push(theirs),
                Some(None) => {}
                Some(Some((ours, transpose))) => {
                    if let Some((old, _)) = out.tensors.get(&ours) {
                        let title = format!("`{ours}` is in these files twice");
                        let label = match old.fact.name == theirs {
                            true => format!("`{theirs}` of {} and {}", old.file, tensor.file),
                            false => format!("as `{}` and as `{theirs}`", old.fact.name),
                        };
                        let d = Diagnostic::error("M0605", title);
                        self.report(d.label(loading.files.span, label));
                        return None;
                    }
                    out.tensors.insert(ours, (tensor, transpose));
                }
            }
        }
        Some(out)
    }

    /// Lets the weights begin as the tensors of a checkpoint. None if reported.
    pub fn take_weights(
        &mut self,
        loading: &Loading,
        names: &NameMap,
        mut found: Checkpoint,
        weights: &mut [Weight],
    ) -> Option<()> {
        let mut misfit = Misfit::default();
        for w in weights.iter_mut() {
            let Some((tensor, transpose)) = found.tensors.remove(&w.name) else {
                misfit.missing.push(match names.theirs(&w.name) {
                    Some(theirs) if theirs != w.name => format!("{theirs} ({})", w.name),
                    _ => w.name.clone(),
                });
                continue;
            };
            let (name, fact) = (&tensor.fact.name, &tensor.fact);
            let shape = turn(&fact.shape, transpose);
            if !["F64", "F32", "BF16", "F16"].contains(&fact.dtype.as_str()) {
                misfit.misshapen.push(format!("{name} is {}, not a float", fact.dtype));
            } else if shape != w.shape || (transpose && fact.shape.len() != 2) {
                let wanted = turn(&w.shape, transpose);
                misfit.misshapen.push(format!("{name} is {:?}, not {wanted:?}", fact.shape));
            }
            let (path, name) = (tensor.file, tensor.fact.name);
            w.init = Init::File { path, name, transpose };
        }
        for (ours, (tensor, _)) in found.tensors {
            let theirs = tensor.fact.name;
            misfit.unexpected.push(match theirs == ours {
                true => theirs,
                false => format!("{theirs} (no weight is called `{ours}`)"),
            });
        }
        misfit.unexpected.append(&mut found.strangers);
        misfit.unexpected.sort();
        self.report_misfit(loading, names, misfit)
    }

    fn report_misfit(&mut self, loading: &Loading, names: &NameMap, misfit: Misfit) -> Option<()> {
        let Misfit { missing, unexpected, misshapen } = misfit;
        if missing.is_empty() && misshapen.is_empty() && unexpected.is_empty() {
            return Some(());
        }
        let title = format!("`{}` does not hold the weights of this model", loading.files.value);
        let mut d = Diagnostic::error("M0605", title).label(
            loading.files.span,
            format!(
                "{} missing, {} unexpected, {} of another shape",
                missing.len(),
                unexpected.len(),
                misshapen.len()
            ),
        );
        for (what, names) in
            [("missing", &missing), ("unexpected", &unexpected), ("other shape", &misshapen)]
        {
            if !names.is_empty() {
                d = d.help(format!("{what}: {}", listed(names)));
            }
        }
        if let Some(prefix) = prefix(&missing, &unexpected) {
            d = d.help(prefix);
        } else if names.tensors.is_empty()
            && let Some(map) = self.names_of(loading.layer)
        {
            d = d.help(format!("for a checkpoint of Hugging Face add `names = {map}`"));
        }
        self.report(d);
        None
    }

    /// The list of names that the module of a layer defines.
    fn names_of(&self, layer: usize) -> Option<&'static str> {
        let file = self.layers[layer].file;
        self.scopes[file as usize].get("hf_names").map(|_| "hf_names")
    }
}

fn listed(names: &[String]) -> String {
    let mut text = names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > LISTED {
        text.push_str(&format!(", and {} more", names.len() - LISTED));
    }
    text
}

/// `model.tok` for `tok`: names that differ by a common beginning only.
fn prefix(missing: &[String], unexpected: &[String]) -> Option<String> {
    let found = |from: &[String], to: &[String]| -> Option<String> {
        let first = from.first()?;
        let ending = format!(".{first}");
        let longer = to.iter().filter(|n| n.ends_with(&ending));
        longer
            .map(|n| n[..n.len() - first.len()].to_owned())
            .find(|p| from.iter().all(|n| to.contains(&format!("{p}{n}"))))
    };
    if let Some(p) = found(missing, unexpected) {
        return Some(format!("the file's names begin with `{p}`: rename them without it"));
    }
    let p = found(unexpected, missing)?;
    Some(format!("the file's names lack `{p}` at the beginning"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_beginnings() {
        let of = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let missing = of(&["tok", "norm.w"]);
        let longer = of(&["model.norm.w", "model.tok", "extra"]);
        assert!(prefix(&missing, &longer).is_some_and(|t| t.contains("`model.`")));
        assert!(prefix(&longer[..2], &missing).is_some_and(|t| t.contains("lack `model.`")));
        assert_eq!(prefix(&missing, &of(&["a.tok", "b.norm.w"])), None);
    }
}
