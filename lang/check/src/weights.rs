//! `.load("w.safetensors")`: names must match exactly.

use crate::load::beside;
use crate::scope::Checker;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Init, Weight};
use monarch_syntax::ast;
use std::collections::BTreeMap;

/// Names listed in a diagnostic; the rest is counted.
const LISTED: usize = 6;

impl Checker<'_> {
    /// Lets the weights begin as the tensors of a file. None if reported.
    pub fn load_weights(&mut self, file: &ast::Str, weights: &mut [Weight]) -> Option<()> {
        let home = &self.loaded.files[file.span.file as usize].key;
        let path = beside(home, &file.value);
        let tensors = match self.world.tensors(&path) {
            Ok(tensors) => tensors,
            Err(e) => {
                let title = format!("the weights cannot be loaded: {e}");
                self.report(Diagnostic::error("M0607", title).label(file.span, "this file"));
                return None;
            }
        };
        let there: BTreeMap<&str, (&str, &[u64])> = tensors
            .iter()
            .map(|t| (t.name.as_str(), (t.dtype.as_str(), t.shape.as_slice())))
            .collect();
        let mut missing = Vec::new();
        let mut misshapen = Vec::new();
        for w in weights.iter() {
            match there.get(w.name.as_str()) {
                None => missing.push(w.name.clone()),
                Some((dtype, _)) if *dtype != "F32" => {
                    misshapen.push(format!("{} is {dtype}, not F32", w.name));
                }
                Some((_, shape)) if *shape != w.shape.as_slice() => {
                    misshapen.push(format!("{} is {shape:?}, not {:?}", w.name, w.shape));
                }
                Some(_) => {}
            }
        }
        let ours: std::collections::BTreeSet<&str> =
            weights.iter().map(|w| w.name.as_str()).collect();
        let unexpected: Vec<String> =
            there.keys().filter(|n| !ours.contains(*n)).map(|n| (*n).to_owned()).collect();
        if missing.is_empty() && misshapen.is_empty() && unexpected.is_empty() {
            for w in weights {
                w.init = Init::File { path: path.clone(), name: w.name.clone(), transpose: false };
            }
            return Some(());
        }
        let title = format!("`{}` does not hold the weights of this model", file.value);
        let mut d = Diagnostic::error("M0605", title).label(
            file.span,
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
        }
        self.report(d);
        None
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
