//! Small notes within the text: shapes of values, numbers behind names, steps behind tokens.

use crate::analysis::Analysis;
use crate::find;
use crate::hover;
use crate::index::Kind;
use monarch_syntax::ast::{ExprKind, ItemKind};

/// A note that is shown in the text and is no part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Shown before this byte of the program.
    pub offset: usize,
    pub text: String,
    /// About a type rather than a value.
    pub is_type: bool,
}

/// The hints within a range of bytes of the program, in order.
pub fn hints(analysis: &Analysis, start: usize, end: usize) -> Vec<Hint> {
    let within = |offset: u32| start <= offset as usize && offset as usize <= end;
    let mut out = Vec::new();
    let defs = analysis.index.defs.iter().enumerate();
    for (id, def) in defs.filter(|(_, d)| d.span.file == 0 && within(d.span.end)) {
        let offset = def.span.end as usize;
        match def.kind {
            Kind::Local => {
                // Of `let [q, k, v]`, which are of one type, the last is enough.
                let next = analysis.index.defs.get(id + 1);
                let more = next.is_some_and(|d| d.kind == Kind::Local && d.whole == def.whole);
                let before = id.checked_sub(1).and_then(|n| analysis.index.defs.get(n));
                let one = before.is_none_or(|d| d.kind != Kind::Local || d.whole != def.whole);
                let each = if one { "" } else { " each" };
                if let Some(ty) = analysis.type_of(def.span).filter(|_| !more) {
                    out.push(Hint { offset, text: format!(": {}{each}", ty.text), is_type: true });
                }
            }
            Kind::Size => {
                let fact = analysis.inspected.values.get(&def.span);
                if let Some(number) = fact.and_then(|f| f.number) {
                    let offset = def.whole.end as usize;
                    out.push(Hint { offset, text: format!(" = {number}"), is_type: false });
                }
            }
            _ => {}
        }
    }
    amounts(analysis, &mut out);
    computed(analysis, &mut out);
    out.retain(|h| start <= h.offset && h.offset <= end);
    out.sort_by_key(|h| h.offset);
    out
}

/// Tokens and samples in steps: `5B tokens` is `= 1250 steps`.
fn amounts(analysis: &Analysis, out: &mut Vec<Hint>) {
    let Some(file) = analysis.inspected.files.first() else { return };
    find::expressions(&file.tree, &mut |e| {
        if let ExprKind::Number(number) = &e.kind
            && let Some(unit) = number.unit.as_ref().filter(|u| u.name.ends_with('s'))
            && let Some(text) = hover::in_steps(analysis, number, &unit.name)
        {
            out.push(Hint {
                offset: e.span.end as usize,
                text: format!(" {text}"),
                is_type: false,
            });
        }
    });
}

/// Values of params and constants that are computed: `let n = 4 * D` is `= 1536`.
fn computed(analysis: &Analysis, out: &mut Vec<Hint>) {
    let Some(file) = analysis.inspected.files.first() else { return };
    for item in &file.tree.items {
        let (name, value) = match &item.kind {
            ItemKind::Param(p) => match &p.default {
                Some(default) => (p.name.span, default),
                None => continue,
            },
            ItemKind::Let(b) => match &b.pattern {
                monarch_syntax::ast::Pattern::One(name) => (name.span, &b.value),
                _ => continue,
            },
            _ => continue,
        };
        let plain =
            matches!(value.kind, ExprKind::Number(_) | ExprKind::Str(_) | ExprKind::List(_));
        let word = matches!(&value.kind, ExprKind::Name(n) if matches!(&*n.name, "true" | "false"));
        if let Some(fact) = analysis.inspected.values.get(&name).filter(|_| !plain && !word) {
            let text = format!(" = {}", fact.text);
            out.push(Hint { offset: value.span.end as usize, text, is_type: false });
        }
    }
}
