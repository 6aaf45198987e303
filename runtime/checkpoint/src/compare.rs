//! The difference between what a job has and what a file holds.

use std::collections::BTreeMap;
use std::fmt;

/// Lists are sorted by name. Empty: they agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Wanted and not there.
    pub missing: Vec<String>,
    /// There and not wanted.
    pub unexpected: Vec<String>,
    pub misshapen: Vec<Misshapen>,
    /// Adding this to every wanted name, or taking it from every name found, would reconcile the
    /// names: (wanted has it, found has it).
    pub prefix: Option<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misshapen {
    pub name: String,
    pub wanted: Vec<u64>,
    pub found: Vec<u64>,
}

/// At most this many names of a kind are shown.
const SHOWN: usize = 8;

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.misshapen.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        for (what, names) in [("missing", &self.missing), ("unexpected", &self.unexpected)] {
            lines.extend(names.iter().take(SHOWN).map(|name| format!("{what}: {name}")));
            if names.len() > SHOWN {
                lines.push(format!("{what}: and {} more", names.len() - SHOWN));
            }
        }
        for bad in self.misshapen.iter().take(SHOWN) {
            let Misshapen { name, wanted, found } = bad;
            lines.push(format!("misshapen: {name} is {found:?}, the job has {wanted:?}"));
        }
        if self.misshapen.len() > SHOWN {
            lines.push(format!("misshapen: and {} more", self.misshapen.len() - SHOWN));
        }
        match &self.prefix {
            Some((wanted, found)) if wanted.is_empty() => {
                lines.push(format!("the names agree without the prefix `{found}` of the file's"));
            }
            Some((wanted, _)) => {
                lines.push(format!("the names agree without the prefix `{wanted}` of the job's"));
            }
            None => {}
        }
        write!(f, "{}", lines.join("\n"))
    }
}

/// Compares names and shapes.
pub fn compare<'a>(
    wanted: impl IntoIterator<Item = (&'a str, &'a [u64])>,
    found: impl IntoIterator<Item = (&'a str, &'a [u64])>,
) -> Difference {
    let wanted: BTreeMap<_, _> = wanted.into_iter().collect();
    let found: BTreeMap<_, _> = found.into_iter().collect();
    let lack = |from: &BTreeMap<&str, &[u64]>, of: &BTreeMap<&str, &[u64]>| {
        let names = of.keys().filter(|name| !from.contains_key(**name));
        names.map(|name| name.to_string()).collect::<Vec<_>>()
    };
    let misshapen = wanted.iter().filter_map(|(name, shape)| {
        let other = found.get(name).filter(|other| *other != shape)?;
        Some(Misshapen { name: name.to_string(), wanted: shape.to_vec(), found: other.to_vec() })
    });
    let mut difference = Difference {
        misshapen: misshapen.collect(),
        missing: lack(&found, &wanted),
        unexpected: lack(&wanted, &found),
        prefix: None,
    };
    difference.prefix = prefix(&difference.missing, &difference.unexpected);
    difference
}

/// A prefix ending in a dot by which all names of one list differ from those of the other.
fn prefix(missing: &[String], unexpected: &[String]) -> Option<(String, String)> {
    if missing.len() != unexpected.len() {
        return None;
    }
    let (first, other) = (missing.first()?, unexpected.first()?);
    let agree = |longer: &[String], shorter: &[String], prefix: &str| {
        let names = longer.iter().map(|name| name.strip_prefix(prefix));
        names.zip(shorter).all(|(cut, name)| cut == Some(name.as_str()))
    };
    // Both lists are sorted, and a common prefix does not change the order.
    if let Some(p) = other.strip_suffix(first.as_str()).filter(|p| p.ends_with('.')) {
        return agree(unexpected, missing, p).then(|| (String::new(), p.to_string()));
    }
    let p = first.strip_suffix(other.as_str()).filter(|p| p.ends_with('.'))?;
    agree(missing, unexpected, p).then(|| (p.to_string(), String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(wanted: &[(&str, &[u64])], found: &[(&str, &[u64])]) -> Difference {
        compare(wanted.iter().copied(), found.iter().copied())
    }

    #[test]
    fn all_kinds_are_listed() {
        let wanted = [("a", &[2, 3][..]), ("b", &[4]), ("c", &[])];
        let found = [("a", &[3, 2][..]), ("b", &[4]), ("x.y", &[1]), ("z", &[1])];
        let difference = diff(&wanted, &found);
        assert_eq!(
            difference.to_string(),
            "missing: c\nunexpected: x.y\nunexpected: z\n\
             misshapen: a is [3, 2], the job has [2, 3]"
        );
        assert!(diff(&wanted, &wanted).is_empty());
    }

    #[test]
    fn a_common_prefix_is_suggested() {
        let short = [("up.w", &[2][..]), ("down.w", &[2])];
        let long = [("model.up.w", &[2][..]), ("model.down.w", &[2])];
        assert_eq!(diff(&short, &long).prefix, Some((String::new(), "model.".into())));
        assert_eq!(diff(&long, &short).prefix, Some(("model.".into(), String::new())));
        assert!(diff(&short, &long).to_string().contains("without the prefix `model.`"));
        let other = [("model.up.w", &[2][..]), ("model.side.w", &[2])];
        assert_eq!(diff(&short, &other).prefix, None);
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..100).map(|i| format!("w{i}")).collect();
        let wanted = names.iter().map(|n| (n.as_str(), &[1u64][..]));
        let shown = compare(wanted, []).to_string();
        assert_eq!(shown.lines().count(), 9);
        assert!(shown.ends_with("missing: and 92 more"));
    }
}
