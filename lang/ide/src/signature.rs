//! The arguments of the call at the cursor.

use crate::analysis::Analysis;
use crate::context::context;
use crate::index::{DefId, Kind};
use std::ops::Range;

/// What a call takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// On one line.
    pub label: String,
    /// The arguments, as ranges of bytes of `label`.
    pub arguments: Vec<Range<usize>>,
    /// The one at the cursor.
    pub active: Option<usize>,
    pub docs: String,
}

/// The call around byte `offset` of the program.
pub fn signature(analysis: &Analysis, offset: usize) -> Option<Signature> {
    let context = context(analysis.text(), offset);
    let frame = context.frame().filter(|f| matches!(f.open, b'(' | b'['))?;
    // `Mlp[..](` is a call of Mlp, whose axes were closed before.
    let name = frame.head.iter().rev().find(|t| !matches!(t.as_str(), "]" | ")"))?;
    let def = crate::complete::named(analysis, &context, offset, name)?;
    let def = analysis.index.follow(def);
    let kind = analysis.index.def(def)?.kind;
    let (callee, arguments): (DefId, Vec<DefId>) = match (kind, frame.open) {
        (Kind::Op, b'(') => (def, analysis.index.members.get(&def)?.fields.clone()),
        (Kind::Layer, b'(') => (def, analysis.index.members.get(&def)?.fields.clone()),
        (Kind::Layer, b'[') => (def, analysis.index.members.get(&def)?.dims.clone()),
        (Kind::Model | Kind::Sublayer, b'(') => {
            let layer = analysis.index.def(def)?.target?;
            (def, analysis.index.members.get(&layer)?.inputs.clone())
        }
        _ => return None,
    };
    let callee = analysis.index.def(callee)?;
    let close = if frame.open == b'(' { ')' } else { ']' };
    let mut label = format!("{}{}", callee.name, char::from(frame.open));
    let mut ranges = Vec::new();
    for (i, argument) in arguments.iter().enumerate() {
        let text = analysis.slice(analysis.index.def(*argument)?.whole);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        label.push_str(if i > 0 { ", " } else { "" });
        ranges.push(label.len()..label.len() + text.len());
        label.push_str(&text);
    }
    label.push(close);
    let named = context.entry.first().filter(|_| context.entry.get(1).is_some_and(|t| t == "="));
    let by_name = named.and_then(|n| {
        arguments.iter().position(|a| analysis.index.def(*a).is_some_and(|d| d.name == *n))
    });
    let active = by_name.or(Some(frame.commas)).filter(|n| *n < arguments.len());
    Some(Signature { label, arguments: ranges, active, docs: callee.docs.clone() })
}
