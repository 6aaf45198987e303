//! Blocks and their settings.

use super::{Resolver, Scope};
use crate::index::{DefId, Kind};
use monarch_syntax::ast::{self, EntryKind, Expr, ExprKind, ItemKind};

/// Settings whose values are words, not names of the file.
const WORDS: &[&str] = &["log", "what", "format", "tokenizer", "schedule", "after", "names"];

impl<'a> Resolver<'a> {
    /// The layers of models and sublayers.
    pub(super) fn targets(&mut self) {
        let files = self.files;
        for (file, tree) in files.iter().enumerate() {
            let scope = Scope::of(file as u32);
            for item in &tree.tree.items {
                match &item.kind {
                    ItemKind::Layer(l) => {
                        for entry in &l.body.entries {
                            if let EntryKind::Assign(a) = &entry.kind
                                && let Some(name) = a.path.single()
                            {
                                self.aim(&scope, name.span, Kind::Sublayer, &a.value);
                            }
                        }
                    }
                    ItemKind::Block(b) => {
                        if let (Some(name), Some(value)) = (&b.name, &b.value) {
                            self.aim(&scope, name.span, Kind::Model, value);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn aim(&mut self, scope: &Scope, at: monarch_graph::Span, kind: Kind, value: &Expr) {
        let layer = self.applied(scope, value);
        let def = self.index.defs.iter_mut().find(|d| d.span == at && d.kind == kind);
        if let Some(def) = def {
            def.target = layer;
        }
    }

    /// The layer that an application makes: `Mlp[..](..)`, `repeat(Block[..], 6)`, `lora(base)`.
    fn applied(&self, scope: &Scope, expr: &Expr) -> Option<DefId> {
        match &expr.kind {
            ExprKind::Name(name) => {
                let found = self.index.follow(self.top_named(scope, &name.name)?);
                self.index.layer_of(found)
            }
            ExprKind::Paren(e) | ExprKind::Index(e, _) => self.applied(scope, e),
            ExprKind::Member(base, member) => {
                if let ExprKind::Name(name) = &base.kind
                    && let Some(found) = self.top_named(scope, &name.name)
                    && let Some(inner) = self.member_named(found, &member.name)
                {
                    return self.index.layer_of(inner);
                }
                self.applied(scope, base)
            }
            ExprKind::Call(callee, args) => match self.applied(scope, callee) {
                Some(found) => Some(found),
                None => self.applied(scope, &args.first()?.value),
            },
            _ => None,
        }
    }

    pub(super) fn walk_block(&mut self, mut scope: Scope, block: &ast::Block) {
        let kind = block.kind.name.as_str();
        if let Some(on) = block.on.as_ref().and_then(|p| p.parts.first())
            && let Some(found) = self.top_named(&scope, &on.name)
        {
            self.note(on.span, found);
            scope.plan = Some(self.index.follow(found));
        }
        let own = block.name.as_ref().and_then(|n| self.top_named(&scope, &n.name));
        match kind {
            "plan" => scope.plan = own,
            "train" => scope.hint = self.trained(&scope, block),
            _ => {}
        }
        if let Some(value) = &block.value {
            self.expr(&mut scope, value);
        }
        self.entries(&scope, block, own);
    }

    /// The layer of the model that a block trains.
    fn trained(&self, scope: &Scope, block: &ast::Block) -> Option<DefId> {
        let entries = block.body.iter().flat_map(|b| &b.entries);
        entries.into_iter().find_map(|e| match &e.kind {
            EntryKind::Assign(a) if a.path.single()?.name == "model" => {
                self.applied(scope, &a.value)
            }
            _ => None,
        })
    }

    fn entries(&mut self, scope: &Scope, block: &ast::Block, owner: Option<DefId>) {
        let sweep = block.kind.name == "sweep";
        for entry in block.body.iter().flat_map(|b| &b.entries) {
            let mut scope = scope.clone();
            match &entry.kind {
                EntryKind::Assign(a) => {
                    if let Some(name) = a.path.single().filter(|_| sweep)
                        && let Some(param) = self.top_named(&scope, &name.name)
                        && self.index.defs[param].kind == Kind::Param
                    {
                        self.note(name.span, param);
                    }
                    self.assign(&mut scope, a);
                }
                EntryKind::Block(b) => {
                    if let Some(value) = &b.value {
                        self.expr(&mut scope, value);
                    }
                    self.entries(&scope, b, owner);
                }
                EntryKind::Func(f) => self.function(&scope, f),
                EntryKind::Rule(r) => self.rule(&mut scope, r),
                EntryKind::Hook(h) => self.hook(&mut scope, h, owner),
                EntryKind::Weight(_) | EntryKind::Broken(_) => {}
            }
        }
    }

    pub(super) fn assign(&mut self, scope: &mut Scope, assign: &ast::Assign) {
        // `tp = true` in `overlap`, `dp = 2` in another mesh: an axis of the plan's mesh.
        if let Some(name) = assign.path.single()
            && let Some(axis) = scope.plan.and_then(|p| self.members(p)?.values.get(&name.name))
        {
            let axis = *axis;
            self.note(name.span, axis);
        }
        let words = assign.path.single().is_some_and(|n| WORDS.contains(&n.name.as_str()));
        let before = scope.words;
        scope.words |= words;
        self.expr(scope, &assign.value);
        scope.words = before;
        for entry in assign.body.iter().flat_map(|b| &b.entries) {
            if let EntryKind::Assign(inner) = &entry.kind {
                self.assign(scope, inner);
            }
        }
    }

    pub(super) fn rule(&mut self, scope: &mut Scope, rule: &ast::Rule) {
        if let Some(axis) = rule.from.single() {
            self.index.sharded.push((axis.name.clone(), axis.span));
        }
        self.expr(scope, &rule.to);
    }

    fn hook(&mut self, scope: &mut Scope, hook: &ast::Hook, train: Option<DefId>) {
        if let [eval, metric] = hook.event.parts.as_slice()
            && eval.name == "eval"
            && let Some(found) = train.and_then(|t| self.members(t)?.values.get(&metric.name))
        {
            let found = *found;
            self.note(metric.span, found);
        }
        for arg in &hook.args {
            self.expr(scope, &arg.value);
        }
        // The action's own words come before names of the file: a plain one is an action.
        if !matches!(hook.action.kind, ExprKind::Name(_)) {
            self.expr(scope, &hook.action);
        }
    }
}
