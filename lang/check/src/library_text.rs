//! `monarch show`: the library as it is written.

use crate::library::MODULES;

/// A text of the library: a whole module, or one item with its `##` lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// `std.nn`
    pub module: &'static str,
    /// `Linear`; None for the whole module.
    pub item: Option<&'static str>,
    pub text: &'static str,
    /// Line of the module on which the text begins, from 1.
    pub line: usize,
}

/// The texts that `word` names: `std.nn`, `std.nn.Linear`, or `Linear`, in whichever modules have
/// one. `std.` may be left out.
pub fn sources(word: &str) -> Vec<Source> {
    let full = |name: &str| name == word || name.strip_prefix("std.") == Some(word);
    if let Some((module, text)) = MODULES.iter().find(|m| full(m.0)) {
        return vec![Source { module, item: None, text, line: 1 }];
    }
    let fits = |module: &str, item: &str| item == word || full(&format!("{module}.{item}"));
    let all = MODULES.iter().flat_map(|(module, text)| items(module, text));
    all.filter(|s| s.item.is_some_and(|item| fits(s.module, item))).collect()
}

/// All names that [`sources`] knows, in full: `std.nn`, `std.nn.Linear`, ...
pub fn names() -> Vec<String> {
    let of = |(module, text): &(&'static str, &'static str)| {
        let items = items(module, text).filter_map(|s| Some(format!("{module}.{}", s.item?)));
        std::iter::once((*module).to_owned()).chain(items).collect::<Vec<_>>()
    };
    MODULES.iter().flat_map(of).collect()
}

/// The `##` lines at the head of a module, as one line.
pub fn module_doc(text: &str) -> String {
    let lines = text.lines().map_while(|l| l.strip_prefix("##"));
    // A paragraph: an empty `##` line ends it.
    let first: Vec<&str> = lines.map(str::trim).take_while(|l| !l.is_empty()).collect();
    first.join(" ")
}

/// Layers, functions and values of a module, each with the `##` lines before it.
fn items(module: &'static str, text: &'static str) -> impl Iterator<Item = Source> {
    let mut docs: Option<usize> = None;
    let mut found: Vec<Source> = Vec::new();
    let mut at = 0;
    // Where the item at hand begins; it goes on over lines that are indented or close it.
    let mut open: Option<(&'static str, usize)> = None;
    let mut last_line = 0;
    let close = |open: &mut Option<(&'static str, usize)>, end: usize, found: &mut Vec<Source>| {
        if let Some((item, start)) = open.take() {
            let line = text[..start].matches('\n').count() + 1;
            let text = text[start..end].trim_end();
            found.push(Source { module, item: Some(item), text, line });
        }
    };
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let continues = line.starts_with([' ', '}', ')', ']']) && open.is_some();
        if continues {
            last_line = at;
            continue;
        }
        close(&mut open, last_line, &mut found);
        if line.starts_with("##") {
            docs = docs.or(Some(start));
        } else if let Some(name) = name_of(line) {
            open = Some((name, docs.take().unwrap_or(start)));
            last_line = at;
        } else {
            docs = None;
        }
    }
    close(&mut open, last_line, &mut found);
    found.into_iter()
}

/// The name that a line at the top level defines.
fn name_of(line: &str) -> Option<&str> {
    let words = ["op ", "layer ", "let ", "model ", "param "];
    let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    rest.get(..end).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_items() {
        let whole = sources("std.models.llama");
        assert!(whole[0].text.contains("layer Llama[") && whole[0].item.is_none());
        assert_eq!(sources("models.llama"), whole);
        let linear = sources("nn.Linear");
        assert_eq!(linear.len(), 1);
        let text = linear[0].text;
        assert!(text.starts_with("## x W + b") && text.ends_with('}'), "{text}");
        assert_eq!(text.matches("layer ").count(), 1, "{text}");
        assert_eq!(sources("std.nn.Linear"), linear);
        let adam = sources("AdamW");
        assert!(adam[0].text.ends_with("-> optimizer"), "{}", adam[0].text);
        assert!(sources("Lineal").is_empty());
        // In two modules.
        let constant: Vec<&str> = sources("constant").iter().map(|s| s.module).collect();
        assert_eq!(constant, ["std.init", "std.optim"]);
    }

    #[test]
    fn every_name_has_a_text_that_stands_in_its_module() {
        for name in names() {
            let found = sources(&name);
            assert_eq!(found.len(), 1, "{name}");
            let module = crate::library::module(found[0].module).unwrap_or_default();
            let line = module.lines().nth(found[0].line - 1);
            assert_eq!(found[0].text.lines().next(), line, "{name}");
        }
    }

    #[test]
    fn every_module_says_what_it_is() {
        for (name, text) in MODULES {
            assert!(!module_doc(text).is_empty(), "{name} begins without a `##` line");
        }
    }
}
