//! Patterns of layers: `blocks.*.attn`, matched with the layers that a model really has. A path is
//! `blocks.0.attn`; `*` stands for one part of it.

use monarch_diagnostic::suggest;

/// Whether a path fits a pattern, part by part.
pub(crate) fn fits(pattern: &[&str], path: &str) -> bool {
    let mut parts = path.split('.');
    let all = pattern.iter().all(|p| parts.next().is_some_and(|part| *p == "*" || *p == part));
    all && parts.next().is_none()
}

/// What may be said about a pattern that matches nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Near {
    /// A pattern that matches this many layers.
    Pattern(String, usize),
    /// What could stand where the pattern goes wrong, after what is right.
    Parts(String, Vec<String>),
}

/// The nearest patterns of layers that exist. Copies are `*` in them.
pub(crate) fn nearest<'p>(pattern: &[&str], paths: impl Iterator<Item = &'p str>) -> Near {
    let mut forms: Vec<(Vec<&str>, usize)> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for path in paths {
        let number = |part: &&str| part.bytes().all(|b| b.is_ascii_digit());
        let form: Vec<&str> = path.split('.').map(|p| if number(&p) { "*" } else { p }).collect();
        let at = *index.entry(form.clone()).or_insert(forms.len());
        match forms.get_mut(at) {
            Some(known) => known.1 += 1,
            None => forms.push((form, 1)),
        }
    }
    let same = |a: &str, b: &str| a == "*" || b == "*" || a == b;
    let agrees =
        |form: &[&str], n: usize| n <= form.len() && (0..n).all(|i| same(pattern[i], form[i]));
    let good = (0..=pattern.len()).rev().find(|n| forms.iter().any(|f| agrees(&f.0, *n)));
    let good = good.unwrap_or(0);
    let mut here: Vec<&str> = Vec::new();
    for (form, _) in forms.iter().filter(|f| agrees(&f.0, good)) {
        if let Some(part) = form.get(good)
            && !here.contains(part)
        {
            here.push(part);
        }
    }
    let found = |wanted: &[&str]| {
        let n = forms.iter().find(|f| f.0 == wanted)?.1;
        Some(Near::Pattern(wanted.join("."), n))
    };
    let general = |n: usize| {
        let form = forms.iter().find(|f| agrees(&f.0, n));
        form.map_or(Vec::new(), |f| f.0[..n].to_vec())
    };
    let head = general(good);
    let (wrong, rest) = match pattern.get(good..) {
        Some([wrong, rest @ ..]) => (*wrong, rest),
        _ => ("", &[][..]),
    };
    let begins = wrong.split('_').next().filter(|b| here.contains(b));
    let near = suggest(wrong, here.iter().copied()).or(begins);
    let tries = [near.map(|n| (n, rest)), here.contains(&"*").then_some(("*", &pattern[good..]))];
    for (part, rest) in tries.into_iter().flatten() {
        let whole = [head.as_slice(), &[part], rest].concat();
        if let Some(near) = found(&whole) {
            return near;
        }
    }
    if wrong.is_empty()
        && let Some(near) =
            here.iter().find_map(|part| found(&[head.as_slice(), &[*part]].concat()))
    {
        return near;
    }
    Near::Parts(head.join("."), here.iter().map(|p| (*p).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &[&str] = &[
        "blocks",
        "blocks.0",
        "blocks.0.attn",
        "blocks.0.attn.q",
        "blocks.0.mlp",
        "blocks.1",
        "blocks.1.attn",
        "blocks.1.attn.q",
        "blocks.1.mlp",
        "norm",
    ];

    fn near(pattern: &str) -> Near {
        let parts: Vec<&str> = pattern.split('.').collect();
        assert!(!LAYERS.iter().any(|l| fits(&parts, l)), "{pattern} matches");
        nearest(&parts, LAYERS[1..].iter().copied())
    }

    #[test]
    fn stars_stand_for_one_part() {
        let count = |p: &str| {
            let parts: Vec<&str> = p.split('.').collect();
            LAYERS.iter().filter(|l| fits(&parts, l)).count()
        };
        assert_eq!(count("blocks.*"), 2);
        assert_eq!(count("blocks.*.attn"), 2);
        assert_eq!(count("blocks.*.*"), 4);
        assert_eq!(count("*"), 2);
        assert_eq!(count("blocks.attn"), 0);
    }

    #[test]
    fn what_was_meant() {
        let is = |p: &str, n| Near::Pattern(p.to_owned(), n);
        assert_eq!(near("blocks.*.attn.q_proj"), is("blocks.*.attn.q", 2));
        assert_eq!(near("blocks.*.atn"), is("blocks.*.attn", 2));
        assert_eq!(near("block.*.attn"), is("blocks.*.attn", 2));
        assert_eq!(near("blocks.attn"), is("blocks.*.attn", 2));
        assert_eq!(near("nrom"), is("norm", 1));
        let parts = ["attn", "mlp"].map(str::to_owned).to_vec();
        assert_eq!(near("blocks.*.head"), Near::Parts("blocks.*".to_owned(), parts));
        let parts = ["q"].map(str::to_owned).to_vec();
        assert_eq!(near("blocks.*.attn.x.y"), Near::Parts("blocks.*.attn".to_owned(), parts));
    }
}
