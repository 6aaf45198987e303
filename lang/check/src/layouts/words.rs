//! Settings of a plan that are words: `offload`, `precision`, `overlap`.

use crate::calls::{as_name, bare};
use crate::hir::{Float, Offload, Overlap, Precision, Unit};
use crate::registry::{OFFLOAD, OVERLAP, PRECISION};
use crate::scope::{Checker, with_near};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_syntax::ast::{self, Expr, ExprKind};

/// Element types, and what they are called elsewhere.
const FLOATS: &[(&str, Float)] = &[
    ("f32", Float::F32),
    ("bf16", Float::Bf16),
    ("f16", Float::F16),
    ("bfloat16", Float::Bf16),
    ("float16", Float::F16),
    ("float32", Float::F32),
    ("fp16", Float::F16),
    ("fp32", Float::F32),
    ("half", Float::F16),
];

fn name_of(float: Float) -> &'static str {
    match float {
        Float::F32 => "f32",
        Float::Bf16 => "bf16",
        Float::F16 => "f16",
    }
}

impl<'a> Checker<'a> {
    /// `{ optimizer = never }`
    pub fn offload(&mut self, expr: &'a Expr) -> Option<Offload> {
        let given = self.record_settings(&OFFLOAD, expr)?;
        let optimizer = match given.values.get("optimizer") {
            None => Some(false),
            Some(e) => {
                self.state.read.clear();
                self.remember("plan.offload.optimizer", e);
                match as_name(e).map(|n| n.name.as_str()) {
                    Some("never") => Some(false),
                    Some("always") => Some(true),
                    _ => {
                        self.not_a_word(e, "`optimizer` is never or always", &["never", "always"]);
                        None
                    }
                }
            }
        };
        (!given.broken).then_some(Offload { optimizer: optimizer? })
    }

    /// An expression that is none of some words.
    fn not_a_word(&mut self, expr: &Expr, title: &str, words: &[&'static str]) {
        if matches!(bare(expr).kind, ExprKind::Broken) {
            return;
        }
        let d = Diagnostic::error("M0106", title).label(expr.span, "something else");
        self.report(match as_name(expr) {
            Some(name) => with_near(d, name, words.iter().copied(), "there are"),
            None => d.help(format!("there are: {}", words.join(", "))),
        });
    }

    /// `{ weights = bf16, grads = f32, optimizer = f32 }`
    pub fn precision(&mut self, expr: &'a Expr) -> Option<Precision> {
        let given = self.record_settings(&PRECISION, expr)?;
        let mut of = |name: &str| match given.values.get(name) {
            None => Some(Float::F32),
            Some(e) => {
                self.state.read.clear();
                self.remember(&format!("plan.precision.{name}"), e);
                self.float(e)
            }
        };
        let (weights, grads, optimizer) = (of("weights"), of("grads"), of("optimizer"));
        if given.broken {
            return None;
        }
        Some(Precision { weights: weights?, grads: grads?, optimizer: optimizer? })
    }

    fn float(&mut self, expr: &Expr) -> Option<Float> {
        let text = match &bare(expr).kind {
            ExprKind::Name(name) => name.name.clone(),
            ExprKind::Broken => return None,
            _ => {
                let d = Diagnostic::error("M0111", "an element type is needed here");
                self.report(d.label(expr.span, "not one").help("there are: f32, bf16, f16"));
                return None;
            }
        };
        if let Some((_, float)) = FLOATS.iter().take(3).find(|f| f.0 == text) {
            return Some(*float);
        }
        let d = Diagnostic::error("M0121", format!("there is no element type `{text}`"))
            .label(expr.span, "unknown type");
        let names = || FLOATS.iter().map(|f| f.0);
        let meant = names().find(|n| *n == text).or_else(|| suggest(&text, names()));
        let meant = meant.and_then(|m| FLOATS.iter().find(|f| f.0 == m)).map(|f| name_of(f.1));
        self.report(match meant {
            Some(near) => d.fix(format!("did you mean `{near}`?"), expr.span, near),
            None => d.help("there are: f32, bf16, f16"),
        });
        None
    }

    /// `overlap { grads = buckets(64 MiB), tp = true }`
    pub fn overlap(&mut self, file: u32, block: &'a ast::Block) -> Option<Overlap> {
        let given = self.settings(&OVERLAP, block.body.as_ref());
        self.remember_defaults(&OVERLAP, "plan.overlap", &given);
        let default = Overlap::default();
        let grads = match given.values.get("grads") {
            None => Some((default.grads, default.bucket_bytes)),
            Some(e) => self.buckets(file, e),
        };
        let mut flag = |name: &str, default: bool| match given.values.get(name) {
            None => Some(default),
            Some(e) => self.bool_setting(file, &format!("plan.overlap.{name}"), e),
        };
        let tp = flag("tp", default.tp);
        let exact = flag("exact", default.exact);
        let (grads, bucket_bytes) = grads?;
        Some(Overlap { grads, bucket_bytes, tp: tp?, exact: exact? })
    }

    /// `buckets(64 MiB)`, `buckets`, `true` or `false`.
    fn buckets(&mut self, file: u32, expr: &'a Expr) -> Option<(bool, Option<u64>)> {
        const PATH: &str = "plan.overlap.grads";
        let words = ["buckets", "true", "false"];
        let title = "`grads` is buckets(size), true or false";
        match &bare(expr).kind {
            ExprKind::Name(name) if name.name == "buckets" => {
                self.state.read.clear();
                self.remember(PATH, expr);
                Some((true, None))
            }
            ExprKind::Name(name) if self.lookup(file, &name.name).is_none() => {
                match name.name.as_str() {
                    "true" | "false" => self.bool_setting(file, PATH, expr).map(|b| (b, None)),
                    _ => {
                        self.not_a_word(expr, title, &words);
                        None
                    }
                }
            }
            ExprKind::Call(callee, args) => {
                if as_name(callee).is_none_or(|n| n.name != "buckets") {
                    self.not_a_word(callee, title, &words);
                    return None;
                }
                let declared = [crate::calls::Declared { name: "bytes", required: false }];
                let found = self.match_args("buckets", expr.span, &declared, args, 0)?;
                match found.first().copied().flatten() {
                    None => Some((true, None)),
                    Some(arg) => {
                        let size = self.amount_setting(file, PATH, &arg.value, Unit::Bytes)?;
                        Some((true, Some(size.max(1.0) as u64)))
                    }
                }
            }
            ExprKind::Broken => None,
            _ => self.bool_setting(file, PATH, expr).map(|b| (b, None)),
        }
    }
}
