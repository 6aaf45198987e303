//! Names in a checkpoint and ours, a line each:
//!
//! - `model.layers.*.mlp.up_proj.weight -> blocks.*.mlp.up transposed`: a tensor and a weight; `*`
//!   is one part of a name, the same on both sides; `transposed` exchanges rows and columns;
//! - `model.rotary_emb.inv_freq -> none`: a tensor that nothing needs;
//! - `config.json num_attention_heads -> H`: a number of the file `config.json` beside the tensors
//!   is this axis or field;
//! - `config.json hidden_act = silu`: a value that it must have, if it has one.

use serde_json::Value as Json;

/// All lines of a list of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameMap {
    pub tensors: Vec<TensorRule>,
    pub config: Vec<ConfigRule>,
}

#[derive(Clone, Debug)]
pub(crate) struct TensorRule {
    pub theirs: String,
    /// None: not needed.
    pub ours: Option<String>,
    pub transpose: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ConfigRule {
    /// `rope_scaling.factor`
    pub key: String,
    pub what: ConfigUse,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConfigUse {
    /// It is this axis or field.
    Sets(String),
    /// It must be this.
    Is(String),
}

const CONFIG: &str = "config.json ";

impl NameMap {
    /// Adds a line; why not, for one that cannot be read.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        if let Some(rest) = line.trim().strip_prefix(CONFIG) {
            let (key, what) = match (rest.split_once("->"), rest.split_once('=')) {
                (Some((key, to)), _) => (key, ConfigUse::Sets(to.trim().to_owned())),
                (None, Some((key, is))) => (key, ConfigUse::Is(is.trim().to_owned())),
                (None, None) => return Err("`->` or `=` is missing".to_owned()),
            };
            self.config.push(ConfigRule { key: key.trim().to_owned(), what });
            return Ok(());
        }
        let (theirs, rest) = line.split_once("->").ok_or("`->` is missing")?;
        let mut words = rest.split_whitespace();
        let ours = words.next().ok_or("nothing stands after `->`")?;
        let transpose = match (words.next(), words.next()) {
            (None, _) => false,
            (Some("transposed"), None) => true,
            (Some(word), _) => return Err(format!("`{word}` is not `transposed`")),
        };
        let theirs = theirs.trim().to_owned();
        let stars = |text: &str| text.split('.').filter(|p| *p == "*").count();
        let ours = (ours != "none").then(|| ours.to_owned());
        if ours.as_ref().is_some_and(|ours| stars(ours) != stars(&theirs)) {
            return Err("the two sides have as many `*`".to_owned());
        }
        self.tensors.push(TensorRule { theirs, ours, transpose });
        Ok(())
    }

    /// Our name for a tensor, and whether it is transposed. Outer None: no line speaks of it;
    /// inner: it is not needed. Without lines every name is ours.
    pub fn ours(&self, theirs: &str) -> Option<Option<(String, bool)>> {
        if self.tensors.is_empty() {
            return Some(Some((theirs.to_owned(), false)));
        }
        self.tensors.iter().find_map(|rule| {
            let stars = captures(&rule.theirs, theirs)?;
            Some(rule.ours.as_ref().map(|ours| (filled(ours, &stars), rule.transpose)))
        })
    }

    /// The checkpoint's name for a weight of ours.
    pub fn theirs(&self, ours: &str) -> Option<String> {
        self.tensors.iter().find_map(|rule| {
            let stars = captures(rule.ours.as_ref()?, ours)?;
            Some(filled(&rule.theirs, &stars))
        })
    }

    /// The pattern of ours whose name in the checkpoint has this part: `q_proj`.
    pub fn by_part(&self, part: &str) -> Option<&str> {
        let has = |rule: &&TensorRule| rule.theirs.split('.').any(|p| p == part);
        self.tensors.iter().find(has).and_then(|rule| rule.ours.as_deref())
    }
}

/// What the stars of a pattern stand for in a name that fits it.
fn captures<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let (mut parts, mut stars) = (name.split('.'), Vec::new());
    for wanted in pattern.split('.') {
        let part = parts.next()?;
        match wanted {
            "*" => stars.push(part),
            _ if wanted == part => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(stars)
}

/// Whether `name` fits `pattern`: `*` is one part, in the name too.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (mut a, mut b) = (pattern.split('.'), name.split('.'));
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(x), Some(y)) if x == y || x == "*" || y == "*" => {}
            _ => return false,
        }
    }
}

fn filled(pattern: &str, stars: &[&str]) -> String {
    let mut stars = stars.iter();
    let parts = pattern.split('.').map(|p| match p {
        "*" => stars.next().copied().unwrap_or("*"),
        part => part,
    });
    parts.collect::<Vec<_>>().join(".")
}

/// The value at a path of keys; None for none and for `null`.
pub(crate) fn config_value<'j>(config: &'j Json, key: &str) -> Option<&'j Json> {
    let found = key.split('.').try_fold(config, |at, part| at.get(part));
    found.filter(|v| !v.is_null())
}

/// A value of a configuration as a person writes it.
pub(crate) fn config_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Object(_) => "a list of settings".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_used() {
        let mut map = NameMap::default();
        map.add("model.layers.*.q_proj.weight -> blocks.*.q transposed").unwrap();
        map.add("inv_freq -> none").unwrap();
        map.add("config.json a.b -> H").unwrap();
        map.add("config.json act = silu").unwrap();
        let ours = map.ours("model.layers.11.q_proj.weight");
        assert_eq!(ours, Some(Some(("blocks.11.q".to_owned(), true))));
        assert_eq!(map.ours("inv_freq"), Some(None));
        assert_eq!(map.ours("model.layers.q_proj.weight"), None);
        let theirs = map.theirs("blocks.3.q");
        assert_eq!(theirs.as_deref(), Some("model.layers.3.q_proj.weight"));
        assert_eq!(map.by_part("q_proj"), Some("blocks.*.q"));
        assert_eq!(map.config[1].what, ConfigUse::Is("silu".into()));
        for bad in ["a", "a ->", "a -> b c", "a.* -> b", "config.json a", "a -> b transposed x"] {
            assert!(map.add(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_fit_whole_names() {
        assert!(fits("blocks.*.q", "blocks.0.q") && fits("blocks.0.q", "blocks.*.q"));
        assert!(!fits("blocks.*", "blocks.0.q") && !fits("blocks.*.q", "blocks.q"));
        assert!(!fits("a", "b"));
    }

    #[test]
    fn configurations_are_looked_into() {
        let config = serde_json::json!({ "a": { "b": 2 }, "n": null, "s": "x" });
        assert_eq!(config_value(&config, "a.b").map(config_text).as_deref(), Some("2"));
        assert_eq!(config_value(&config, "n"), None);
        assert_eq!(config_value(&config, "s.t"), None);
    }
}
