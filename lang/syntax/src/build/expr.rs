//! Expressions: precedence, and what follows an operand without a space.
//!
//! Operators are combined with two stacks instead of recursion, so that only brackets nest the
//! builder; a tree that would grow deeper than `MAX_DEPTH` is refused where it does.

use monarch_diagnostic::{Diagnostic, Span};

use super::{Builder, P};
use crate::ast::{
    Arg, AxisArg, BinaryOp, Einops, EinopsAxes, EinopsAxis, EinopsKind, Expr, ExprKind, If, Index,
    IndexKind, MAX_DEPTH, Rhai, UnaryOp,
};
use crate::parse::Rule;

/// An operator that waits for its right side.
#[derive(Clone, Copy)]
enum Waiting {
    Before(UnaryOp, Span),
    Between(BinaryOp, Span),
}

/// An expression and its depth in nodes.
struct Operand {
    expr: Expr,
    depth: u32,
}

/// `b` of `a < b < c`, which was reported: nothing more shall be said of what a chain might mean.
fn first_of_chain(op: BinaryOp, right: Expr) -> Expr {
    match right.kind {
        ExprKind::Binary(next, _, first, _)
            if strength(next) == strength(op) && matches!(strength(op), COMPARISON | RANGE) =>
        {
            *first
        }
        kind => Expr { kind, ..right },
    }
}

/// How tightly an operator holds its sides; and whether several in a row go right to left.
pub(crate) fn strength(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Then => 1,
        BinaryOp::Pipe => 2,
        BinaryOp::Or => 3,
        BinaryOp::And => 4,
        BinaryOp::In
        | BinaryOp::Eq
        | BinaryOp::Ne
        | BinaryOp::Lt
        | BinaryOp::Le
        | BinaryOp::Gt
        | BinaryOp::Ge => COMPARISON,
        BinaryOp::Range => RANGE,
        BinaryOp::Add | BinaryOp::Sub => 8,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::MatMul => 9,
        BinaryOp::Pow => 11,
    }
}

const COMPARISON: u8 = 6;
const RANGE: u8 = 7;

impl Waiting {
    fn strength(self) -> u8 {
        match self {
            Waiting::Before(UnaryOp::Not, _) => 5,
            // Looser than `^`: -x ^ 2 is -(x ^ 2), as in mathematics.
            Waiting::Before(UnaryOp::Neg, _) => 10,
            Waiting::Between(op, _) => strength(op),
        }
    }
}

fn binary_op(symbol: &str) -> BinaryOp {
    match symbol {
        "then" => BinaryOp::Then,
        "|>" => BinaryOp::Pipe,
        "or" => BinaryOp::Or,
        "and" => BinaryOp::And,
        "in" => BinaryOp::In,
        "==" => BinaryOp::Eq,
        "!=" => BinaryOp::Ne,
        "<" => BinaryOp::Lt,
        "<=" => BinaryOp::Le,
        ">" => BinaryOp::Gt,
        ">=" => BinaryOp::Ge,
        ".." => BinaryOp::Range,
        "+" => BinaryOp::Add,
        "-" => BinaryOp::Sub,
        "*" => BinaryOp::Mul,
        "/" => BinaryOp::Div,
        "@" => BinaryOp::MatMul,
        _ => BinaryOp::Pow,
    }
}

fn broken(span: Span) -> Expr {
    Expr { span, kind: ExprKind::Broken }
}

impl<'t> Builder<'t> {
    /// An expression, or the hole in its place, which stands after the text `after`.
    pub(super) fn value(&mut self, pair: P<'t>, before: Span, after: &str) -> Expr {
        match pair.as_rule() {
            Rule::expr | Rule::default => self.expr(pair),
            _ => {
                self.missing(&pair, before, "a value", after);
                broken(Span { start: before.end, ..before })
            }
        }
    }

    /// An expression. Adds its depth to `deep`.
    pub(super) fn expr(&mut self, pair: P<'t>) -> Expr {
        let mut inner = pair.clone().into_inner();
        if let (Some(term), None) = (inner.next(), inner.next())
            && term.as_rule() == Rule::term
        {
            return self.term(term);
        }
        let mut operands: Vec<Operand> = Vec::new();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut last = self.opening_of(&pair);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::prefix => {
                    last = self.span(&part);
                    let op = if part.as_str() == "-" { UnaryOp::Neg } else { UnaryOp::Not };
                    waiting.push(Waiting::Before(op, last));
                }
                Rule::infix | Rule::infix_but_in => {
                    last = self.span(&part);
                    let op = binary_op(part.as_str());
                    self.apply(&mut operands, &mut waiting, strength(op), op == BinaryOp::Pow);
                    self.check_chain(&waiting, op, last);
                    waiting.push(Waiting::Between(op, last));
                }
                Rule::term => {
                    let operand = self.measured(|this| this.term(part));
                    last = operand.expr.span;
                    operands.push(operand);
                }
                _ => {
                    let after = self.text.get(last.start as usize..last.end as usize);
                    self.missing(&part, last, "a value", after.unwrap_or(""));
                    let expr = broken(Span { start: last.end, ..last });
                    operands.push(Operand { expr, depth: 1 });
                }
            }
        }
        self.apply(&mut operands, &mut waiting, 0, false);
        match operands.pop() {
            Some(operand) => {
                self.deep = self.deep.max(operand.depth);
                operand.expr
            }
            None => broken(last),
        }
    }

    fn opening_of(&self, pair: &P<'t>) -> Span {
        let start = self.start(pair);
        Span::new(self.file, start, start)
    }

    /// Builds something and tells how deep its deepest expression is.
    fn measured(&mut self, build: impl FnOnce(&mut Self) -> Expr) -> Operand {
        let outer = std::mem::take(&mut self.deep);
        let expr = build(self);
        let depth = std::mem::replace(&mut self.deep, outer);
        Operand { expr, depth }
    }

    /// Comparisons and ranges do not chain.
    fn check_chain(&mut self, waiting: &[Waiting], op: BinaryOp, span: Span) {
        let level = strength(op);
        let Some(Waiting::Between(before, first)) = waiting.last().copied() else { return };
        if strength(before) != level {
            return;
        }
        let (title, why, help) = match level {
            COMPARISON => (
                format!("`{}` and `{}` cannot be chained", before.symbol(), op.symbol()),
                "would compare the result of the first",
                "compare twice: `a < b and b < c`",
            ),
            RANGE => ("a range has two ends".to_owned(), "a third", "`low..high`"),
            _ => return,
        };
        self.error(
            Diagnostic::error("M0015", title).label(span, why).label(first, "first").help(help),
        );
    }

    /// Gives the waiting operators that hold at least as tightly as `level` their right side.
    fn apply(
        &mut self,
        operands: &mut Vec<Operand>,
        waiting: &mut Vec<Waiting>,
        level: u8,
        right_to_left: bool,
    ) {
        let least = if right_to_left { level + 1 } else { level };
        while let Some(top) = waiting.last().copied() {
            // A chain of comparisons keeps its first operator for the diagnostic.
            let chain = matches!(top, Waiting::Between(..))
                && top.strength() == level
                && matches!(level, COMPARISON | RANGE);
            if top.strength() < least || chain {
                return;
            }
            waiting.pop();
            let Some(right) = operands.pop() else { return };
            let (span, depth, kind) = match top {
                Waiting::Before(op, at) => {
                    let span = at.to(right.expr.span);
                    (span, right.depth, ExprKind::Unary(op, at, Box::new(right.expr)))
                }
                Waiting::Between(op, at) => {
                    let Some(left) = operands.pop() else { return operands.push(right) };
                    let span = left.expr.span.to(right.expr.span);
                    let (a, b) = (Box::new(left.expr), Box::new(first_of_chain(op, right.expr)));
                    (span, left.depth.max(right.depth), ExprKind::Binary(op, at, a, b))
                }
            };
            operands.push(self.grown(span, kind, depth));
        }
    }

    /// A node over children of depth `depth`, unless that is too deep.
    fn grown(&mut self, span: Span, kind: ExprKind, depth: u32) -> Operand {
        if depth < MAX_DEPTH {
            return Operand { expr: Expr { span, kind }, depth: depth + 1 };
        }
        self.error(
            Diagnostic::error("M0007", format!("an expression of more than {MAX_DEPTH} steps"))
                .label(Span { end: span.start, ..span }, "begins here")
                .help("give a part of it a name with `let`"),
        );
        Operand { expr: broken(span), depth: 1 }
    }

    /// An operand with the calls, indices and members behind it.
    fn term(&mut self, pair: P<'t>) -> Expr {
        let mut base: Option<Operand> = None;
        for part in pair.into_inner() {
            let Some(left) = base.take() else {
                let inner = self.measured(|this| this.primary(part));
                let expr = inner.expr;
                base = Some(self.grown(expr.span, expr.kind, inner.depth));
                continue;
            };
            let before = left.expr.span;
            let mut span = before.to(self.span(&part));
            let outer = std::mem::take(&mut self.deep);
            let kind = match part.as_rule() {
                Rule::args => {
                    let args = self.args(part);
                    ExprKind::Call(Box::new(left.expr), args)
                }
                Rule::index => {
                    let index = self.index(part);
                    ExprKind::Index(Box::new(left.expr), index)
                }
                _ => match part.into_inner().next() {
                    Some(name) if name.as_rule() != Rule::no_member => {
                        let name = self.ident(&name);
                        ExprKind::Member(Box::new(left.expr), name)
                    }
                    hole => {
                        if let Some(hole) = hole {
                            self.number_with_dot(&left.expr, span);
                            self.missing(&hole, span, "a name or `*`", ".");
                        }
                        span = before;
                        ExprKind::Broken
                    }
                },
            };
            let inner = std::mem::replace(&mut self.deep, outer);
            base = Some(self.grown(span, kind, left.depth.max(inner)));
        }
        match base {
            Some(operand) => {
                self.deep = self.deep.max(operand.depth);
                operand.expr
            }
            None => broken(Span::default()),
        }
    }

    /// `1.`
    fn number_with_dot(&mut self, base: &Expr, span: Span) {
        if let ExprKind::Number(number) = &base.kind {
            let whole = format!("{}.0", number.raw);
            self.error(
                Diagnostic::error("M0001", format!("`{}.` is not a number", number.raw))
                    .label(span, "a digit belongs after the dot")
                    .fix(format!("write `{whole}`"), span, whole),
            );
        }
    }

    fn primary(&mut self, pair: P<'t>) -> Expr {
        let span = self.span(&pair);
        let kind = match pair.as_rule() {
            Rule::ident => ExprKind::Name(self.ident(&pair)),
            Rule::quantity => ExprKind::Number(self.number(pair)),
            Rule::string => ExprKind::Str(self.string(&pair)),
            Rule::list => ExprKind::List(self.values(pair)),
            Rule::paren => return self.paren(pair, span),
            Rule::record => ExprKind::Record(self.record(pair)),
            Rule::cond => return self.cond(pair, span),
            Rule::rhai => ExprKind::Rhai(rhai(pair.as_str(), span)),
            _ => ExprKind::Broken,
        };
        Expr { span, kind }
    }

    fn values(&mut self, list: P<'t>) -> Vec<Expr> {
        self.slots(list, "a value").map(|value| self.expr(value)).collect()
    }

    fn paren(&mut self, pair: P<'t>, span: Span) -> Expr {
        let inner = pair.as_str().strip_suffix(')').unwrap_or("");
        let comma = inner.trim_end_matches([' ', '\n', '\t', '\r']).ends_with(',');
        let mut values = self.values(pair);
        let kind = match values.pop() {
            None => {
                self.error(
                    Diagnostic::error("M0001", "there is nothing in these parentheses")
                        .label(span, "expected a value"),
                );
                ExprKind::Broken
            }
            Some(only) if values.is_empty() && !comma => ExprKind::Paren(Box::new(only)),
            Some(last) => {
                values.push(last);
                ExprKind::Tuple(values)
            }
        };
        Expr { span, kind }
    }

    fn cond(&mut self, pair: P<'t>, span: Span) -> Expr {
        let start = Span { end: span.start + 2, ..span };
        let mut parts = Vec::with_capacity(3);
        let mut before = start;
        let mut after: &str = "if";
        self.no_condition(&pair, start);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::kw_if => {}
                Rule::kw_else => (before, after) = (self.span(&part), "else"),
                Rule::branch => {
                    before = self.span(&part);
                    let open = Span { end: before.start + 1, ..before };
                    parts.push(self.branch(part, open));
                }
                Rule::no_branch => {
                    self.else_if(&part, before, after);
                    self.missing(&part, before, "`{ .. }`", after);
                    parts.push(broken(before));
                }
                Rule::no_else => {
                    self.error(
                        Diagnostic::error("M0016", "this `if` has no `else`")
                            .label(start, "gives no value when its condition does not hold")
                            .help("a value is chosen: `if a { b } else { c }`"),
                    );
                    parts.push(broken(before));
                }
                _ => {
                    let value = self.value(part, before, "if");
                    before = value.span;
                    after = self.text.get(before.start as usize..before.end as usize).unwrap_or("");
                    parts.push(value);
                }
            }
        }
        let span = Span { end: before.end, ..span };
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(condition), Some(yes), Some(no)) => {
                Expr { span, kind: ExprKind::If(Box::new(If { condition, yes, no })) }
            }
            _ => broken(span),
        }
    }

    /// In `if { a } else { b }` the first branch was read as the condition.
    fn no_condition(&mut self, pair: &P<'t>, word: Span) {
        let mut parts = pair.clone().into_inner().skip(1);
        let (condition, branch) = (parts.next(), parts.next());
        if let (Some(condition), Some(branch)) = (condition, branch)
            && condition.as_str().starts_with('{')
            && branch.as_rule() == Rule::no_branch
        {
            self.error(
                Diagnostic::error("M0001", "this `if` has no condition")
                    .label(word, "what decides belongs after it")
                    .help("as in `if a == b { 1 } else { 2 }`"),
            );
        }
    }

    fn else_if(&mut self, hole: &P<'t>, before: Span, after: &str) {
        let token = crate::lex::next(self.text, self.start(hole));
        if after == "else" && token.text(self.text) == "if" {
            let span = before.to(Span::new(self.file, token.start, token.end));
            self.error(
                Diagnostic::error("M0012", "`else if` is written `else { if .. }`")
                    .label(span, "expected `{` after `else`"),
            );
        }
    }

    fn branch(&mut self, pair: P<'t>, open: Span) -> Expr {
        let mut value = broken(open);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::junk_in => self.junk(&part, "a branch is one value"),
                _ => value = self.value(part, open, "{"),
            }
        }
        value
    }

    pub(super) fn args(&mut self, list: P<'t>) -> Vec<Arg> {
        self.slots(list, "an argument").map(|arg| self.arg(arg)).collect()
    }

    fn arg(&mut self, pair: P<'t>) -> Arg {
        let mut inner = pair.into_inner();
        let first = inner.next().map(|first| self.expr(first));
        let first = first.unwrap_or_else(|| broken(Span::default()));
        let Some(value) = inner.next() else {
            return Arg { span: first.span, name: None, value: first };
        };
        let value = self.value(value, first.span, "=");
        let span = first.span.to(value.span);
        let name = self.only_name(first);
        Arg { span, name, value }
    }

    /// What stands before `=` between brackets is a name.
    fn only_name(&mut self, expr: Expr) -> Option<crate::ast::Ident> {
        match expr.kind {
            ExprKind::Name(name) => Some(name),
            ExprKind::Broken => None,
            _ => {
                self.not_a_name(expr.span);
                None
            }
        }
    }

    fn not_a_name(&mut self, span: Span) {
        self.error(
            Diagnostic::error("M0010", "`=` gives a name its value")
                .label(span, "not a name")
                .help("to compare, write `==`"),
        );
    }

    fn index(&mut self, pair: P<'t>) -> Index {
        let span = self.span(&pair);
        let first = pair.clone().into_inner().next();
        let kind = match first {
            Some(first) if first.as_rule() == Rule::einops => IndexKind::Einops(self.einops(first)),
            _ => {
                let slots = self.slots(pair, "an axis");
                IndexKind::Axes(slots.map(|axis| self.axis_arg(axis)).collect())
            }
        };
        Index { span, kind }
    }

    fn axis_arg(&mut self, pair: P<'t>) -> AxisArg {
        let mut inner = pair.into_inner();
        let any = crate::ast::AxisKind::Any;
        let none = crate::ast::Axis { span: Span::default(), kind: any };
        let first = inner.next().map_or(none, |axis| self.axis(axis));
        let Some(second) = inner.next() else {
            return AxisArg { span: first.span, name: None, axis: first };
        };
        let axis = match second.as_rule() {
            Rule::axis => self.axis(second),
            _ => {
                let expr = self.value(second, first.span, "=");
                crate::ast::Axis { span: expr.span, kind: crate::ast::AxisKind::Size(expr) }
            }
        };
        let span = first.span.to(axis.span);
        let name = match first.kind {
            crate::ast::AxisKind::Size(expr) => self.only_name(expr),
            _ => {
                // `_ = 3`, `.. = 3`
                self.not_a_name(first.span);
                None
            }
        };
        AxisArg { span, name, axis }
    }

    fn einops(&mut self, pair: P<'t>) -> Einops {
        let mut lists = Vec::new();
        let mut arrow = true;
        let mut last = self.opening_of(&pair);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::axes => {
                    let list = self.einops_axes(part);
                    last = list.span;
                    lists.push(list);
                }
                Rule::no_arrow => {
                    let after = self.text.get(last.start as usize..last.end as usize);
                    self.missing(&part, last, "an axis, `,` or `->`", after.unwrap_or(""));
                    arrow = false;
                }
                Rule::junk_in => self.junk(&part, "a pattern is like `B T (H K) -> B H T K`"),
                _ => {}
            }
        }
        let empty = EinopsAxes { span: last, axes: Vec::new() };
        let output = if arrow { lists.pop().unwrap_or(empty) } else { empty };
        Einops { inputs: lists, output }
    }

    fn einops_axes(&mut self, pair: P<'t>) -> EinopsAxes {
        let mut span = self.opening_of(&pair);
        let axes: Vec<EinopsAxis> = pair.into_inner().map(|axis| self.einops_axis(axis)).collect();
        if let (Some(first), Some(last)) = (axes.first(), axes.last()) {
            span = first.span.to(last.span);
        }
        EinopsAxes { span, axes }
    }

    fn einops_axis(&mut self, pair: P<'t>) -> EinopsAxis {
        let span = self.span(&pair);
        let kind = match pair.as_rule() {
            Rule::rest => EinopsKind::Rest,
            Rule::int => EinopsKind::Int(self.einops_int(&pair)),
            Rule::group => {
                let mut axes = Vec::new();
                for part in pair.into_inner() {
                    match part.as_rule() {
                        Rule::junk_in => self.junk(&part, "a group is like `(H K)`"),
                        _ => axes.push(self.einops_axis(part)),
                    }
                }
                EinopsKind::Group(axes)
            }
            _ => EinopsKind::Name(pair.as_str().to_owned()),
        };
        EinopsAxis { span, kind }
    }

    fn einops_int(&mut self, pair: &P<'t>) -> i64 {
        let digits: String = pair.as_str().chars().filter(|c| *c != '_').collect();
        digits.parse().unwrap_or_else(|_| {
            self.error(
                Diagnostic::error("M0001", "this number is too large for a size")
                    .label(self.span(pair), "more than 9 223 372 036 854 775 807"),
            );
            i64::MAX
        })
    }
}

/// The text between the fences.
fn rhai(text: &str, span: Span) -> Rhai {
    let source = text.strip_prefix("```rhai").and_then(|text| text.strip_suffix("```"));
    let source = source.unwrap_or("").to_owned();
    let start = span.start + 7;
    Rhai { span: Span { start, end: start + source.len() as u32, ..span }, source }
}
