//! "Did you mean": the nearest of the names that exist.

/// The candidate a person most probably meant by `name`, or `None` when nothing is near enough.
///
/// Distance is Damerau-Levenshtein (optimal string alignment) over characters, ignoring case and
/// `_`/`-`/space. A name equal up to those is the best match; then one that begins with the other
/// (`lear` for `learning_rate`); then the least distance, at most a third of the longer name. Ties
/// go to the earlier candidate, so the answer depends on the order given and on nothing else.
pub fn suggest<'a, I, S>(name: &str, candidates: I) -> Option<&'a str>
where
    I: IntoIterator<Item = &'a S>,
    S: AsRef<str> + ?Sized + 'a,
{
    let wanted = fold(name);
    if wanted.is_empty() || wanted.len() > MAX_NAME {
        return None;
    }
    let mut best: Option<(usize, &'a str)> = None;
    for candidate in candidates {
        let candidate = candidate.as_ref();
        let other = fold(candidate);
        let Some(score) = score(&wanted, &other) else { continue };
        if candidate != name && best.is_none_or(|(least, _)| score < least) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Names longer than this are not compared: the cost is quadratic.
const MAX_NAME: usize = 128;

fn fold(name: &str) -> Vec<char> {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Ten times the number of edits, less five for a shared beginning; `None` if too far.
fn score(wanted: &[char], other: &[char]) -> Option<usize> {
    if other.is_empty() || other.len() > MAX_NAME {
        return None;
    }
    if wanted == other {
        return Some(0);
    }
    let (short, long) = match wanted.len() < other.len() {
        true => (wanted, other),
        false => (other, wanted),
    };
    if short.len() >= 3 && long.starts_with(short) {
        return Some(6 + (long.len() - short.len()).min(20));
    }
    let allowed = match long.len() {
        0..=1 => 0,
        2..=5 => 1,
        6..=9 => 2,
        n => n / 3,
    };
    // Two letters swapped in a name of two, or one changed, says nothing.
    if short.len() < 2 || long.len() - short.len() > allowed {
        return None;
    }
    let distance = distance(wanted, other);
    if distance > allowed || distance >= short.len() {
        return None;
    }
    let shared = usize::from(wanted.first() == other.first()) * 5;
    Some(distance * 10 - shared)
}

/// Edits (insert, delete, replace, swap of neighbours) from `a` to `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let mut rows = [vec![0; width], (0..width).collect::<Vec<_>>(), vec![0; width]];
    for (i, x) in a.iter().enumerate() {
        let [before, above, row] = &mut rows;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let mut least = (above[j + 1] + 1).min(row[j] + 1).min(above[j] + usize::from(x != y));
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            row[j + 1] = least;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(name: &str, candidates: &[&str]) -> Option<String> {
        suggest(name, candidates.iter().copied()).map(str::to_owned)
    }

    #[test]
    fn typing_slips() {
        assert_eq!(near("lrr", &["batch", "lr", "loss"]).as_deref(), Some("lr"));
        assert_eq!(near("stepp", &["stop", "step", "eval.done"]).as_deref(), Some("step"));
        assert_eq!(near("noet", &["pause", "note"]).as_deref(), Some("note"));
        assert_eq!(near("crossentropy", &["cross_entropy"]).as_deref(), Some("cross_entropy"));
        assert_eq!(near("adamw", &["Adam", "AdamW"]).as_deref(), Some("AdamW"));
        assert_eq!(near("check", &["chuck", "checkpoint"]).as_deref(), Some("chuck"));
        assert_eq!(near("learn", &["lr", "learning_rate"]).as_deref(), Some("learning_rate"));
    }

    #[test]
    fn nothing_near() {
        assert_eq!(near("x", &["y"]), None);
        assert_eq!(near("", &["y"]), None);
        assert_eq!(near("banana", &["lr", "batch"]), None);
        assert_eq!(near("lr", &["lr"]), None);
        assert_eq!(near(&"a".repeat(1000), &["aaaa"]), None);
    }

    #[test]
    fn swap_is_one_edit() {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("abcd"), &chars("abdc")), 1);
        assert_eq!(distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
