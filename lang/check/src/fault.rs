//! `fault { worker.lost = replace then shrink(dp, min = 1) then stop }`: what follows a fault.

use crate::calls::{as_name, bare};
use crate::events::{FAULTS, RESPONSES, find};
use crate::hir::{Fault, FaultKind, MeshAxis, Response};
use crate::registry::FAULT;
use crate::scope::{Checker, with_near};
use crate::settings::Settings;
use crate::train::Pace;
use crate::typed::GivenArgs;
use monarch_diagnostic::Diagnostic;
use monarch_graph::{CheckpointPolicy, Every, Span};
use monarch_syntax::ast::{Arg, BinaryOp, Expr, ExprKind};

impl<'a> Checker<'a> {
    /// The faults that the program speaks of, in the order of the registry.
    pub fn faults(
        &mut self,
        file: u32,
        given: &Settings<'a>,
        pace: Option<Pace>,
        checkpoint: Option<&CheckpointPolicy>,
    ) -> Option<Vec<Fault>> {
        let Some(block) = given.blocks.get("fault").copied() else { return Some(Vec::new()) };
        let own = self.settings(&FAULT, block.body.as_ref());
        self.remember_defaults(&FAULT, "train.fault", &own);
        let mut out = Some(Vec::new());
        for kind in FaultKind::ALL {
            let Some(expr) = own.values.get(kind.name()).copied() else { continue };
            match (self.fault(file, kind, expr, pace), &mut out) {
                (Some(fault), Some(list)) => list.push(fault),
                _ => out = None,
            }
            self.remember(&format!("train.fault.{}", kind.name()), expr);
        }
        for fault in out.iter().flatten() {
            self.fault_gate(fault, checkpoint);
        }
        out
    }

    /// What a run does of it: lost workers are replaced, and until then, or if none comes, the
    /// others go on without them; updates that are not finite are left out, or undone with all
    /// since the last checkpoint.
    fn fault_gate(&mut self, fault: &Fault, checkpoint: Option<&CheckpointPolicy>) {
        let stops = fault.chain == [Response::Stop];
        let carried_out = match fault.kind {
            FaultKind::WorkerLost => stops || fault.shrinks().is_some(),
            FaultKind::WorkerSlow => {
                let elsewhere =
                    |r: &Response| matches!(r, Response::Replace { from } if from != "spares");
                !fault.chain.iter().any(elsewhere)
            }
            FaultKind::Collective => stops,
            FaultKind::LossNan => return self.nan_gate(fault, checkpoint),
        };
        if carried_out {
            return;
        }
        let name = fault.kind.name();
        let help = match fault.kind {
            FaultKind::WorkerLost => {
                format!("write `{name} = replace then shrink(dp) then stop`, or `{name} = stop`")
            }
            FaultKind::WorkerSlow => format!("write `{name} = replace`"),
            FaultKind::Collective => {
                format!("a run stops then, and `--resume` goes on: write `{name} = stop`")
            }
            _ => "take it out: it only changes what follows that fault".to_owned(),
        };
        self.not_run_yet(fault.span, &format!("this answer to `{name}`"), &help);
    }

    /// Which checkpoint is the last one must not be the clock's choice: other weights would follow
    /// on another machine.
    fn nan_gate(&mut self, fault: &Fault, checkpoint: Option<&CheckpointPolicy>) {
        let by = |r: &Response| match r {
            Response::Rollback { by } => Some(*by),
            _ => None,
        };
        let Some(by) = fault.chain.iter().find_map(by) else { return };
        if by > 1 {
            let what = format!("a rollback by {by} checkpoints");
            self.not_run_yet(
                fault.span,
                &what,
                "write `rollback` or `rollback(by = 1 checkpoint)`",
            );
        }
        if let Some(CheckpointPolicy { every: Some(Every::Time(_)), also: None, .. }) = checkpoint {
            let help = "write `every = 500 steps` in `checkpoint`, or add `also = 500 steps`";
            self.not_run_yet(fault.span, "a rollback to checkpoints of the clock", help);
        }
    }

    fn fault(
        &mut self,
        file: u32,
        kind: FaultKind,
        expr: &'a Expr,
        pace: Option<Pace>,
    ) -> Option<Fault> {
        let mut links = Vec::new();
        chain(expr, &mut links);
        let mut out = Some(Vec::new());
        let mut stopped: Option<Span> = None;
        for link in links {
            if let Some(stop) = stopped {
                self.report(
                    Diagnostic::error("M0510", "nothing comes after `stop`")
                        .label(link.span, "never reached")
                        .label(stop, "the run ends here")
                        .help("put `stop` at the end of the chain"),
                );
                return None;
            }
            let response = self.response(file, kind, link, pace);
            if response == Some(Response::Stop) {
                stopped = Some(link.span);
            }
            match (response, &mut out) {
                (Some(response), Some(list)) => list.push(response),
                _ => out = None,
            }
        }
        Some(Fault { kind, chain: out?, span: expr.span })
    }

    fn response(
        &mut self,
        file: u32,
        kind: FaultKind,
        expr: &'a Expr,
        pace: Option<Pace>,
    ) -> Option<Response> {
        let (callee, args): (&Expr, &[Arg]) = match &bare(expr).kind {
            ExprKind::Call(callee, args) => (callee, args),
            ExprKind::Broken => return None,
            _ => (expr, &[]),
        };
        let fitting = FAULTS.iter().find(|f| f.0 == kind.name()).map_or(&[][..], |f| f.1);
        let Some(name) = as_name(callee) else {
            let d =
                Diagnostic::error("M0111", format!("`{}` is a chain of responses", kind.name()));
            let example = "for example `replace then shrink(dp) then stop`";
            self.report(d.label(callee.span, "not a response").help(example));
            return None;
        };
        let Some(doc) = find(RESPONSES, &name.name) else {
            let title = format!("there is no response `{}`", name.name);
            let d = Diagnostic::error("M0110", title).label(name.span, "unknown response");
            let what = format!("to `{}` there are", kind.name());
            self.report(with_near(d, name, fitting.iter().copied(), &what));
            return None;
        };
        if !fitting.contains(&doc.name) {
            let title = format!("`{}` is no answer to `{}`", doc.name, kind.name());
            let d = Diagnostic::error("M0511", title).label(name.span, "for another fault");
            self.report(d.help(format!("there are: {}", fitting.join(", "))));
            return None;
        }
        let given = self.typed_args(file, doc.name, doc.args, expr.span, args, pace)?;
        Some(response_of(doc.name, &given))
    }
}

/// The links of `a then b then c`, in order.
fn chain<'e>(expr: &'e Expr, out: &mut Vec<&'e Expr>) {
    match &bare(expr).kind {
        ExprKind::Binary(BinaryOp::Then, _, left, right) => {
            chain(left, out);
            chain(right, out);
        }
        _ => out.push(expr),
    }
}

/// Defaults as `RESPONSES` documents them.
fn response_of(name: &str, given: &GivenArgs) -> Response {
    let whole = |name| given.whole(name).unwrap_or(1);
    let number = |default: f64| given.number("after").unwrap_or(default);
    match name {
        "replace" => Response::Replace { from: given.text("from").unwrap_or("spares").to_owned() },
        "shrink" => {
            Response::Shrink { axis: given.axis().unwrap_or(MeshAxis::Dp), min: whole("min") }
        }
        "warn" => Response::Warn { after: number(0.2) },
        "rebalance" => Response::Rebalance { after: number(0.2) },
        "exclude" => Response::Exclude { after: number(600.0) },
        "abort" => Response::Abort { after: number(120.0) },
        "retry" => Response::Retry { times: whole("times") },
        "skip" => Response::Skip { steps: whole("steps") },
        "rollback" => Response::Rollback { by: whole("by") },
        _ => Response::Stop,
    }
}
