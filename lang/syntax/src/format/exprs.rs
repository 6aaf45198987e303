//! Expressions, types, and lists between commas.

use crate::ast::{
    Arg, Axis, AxisArg, AxisKind, BinaryOp, EinopsAxes, EinopsAxis, EinopsKind, Expr, ExprKind,
    Field, If, IndexKind, Kind, Number, Record, RecordEntry, TensorType, UnaryOp,
};
use crate::build::strength;
use monarch_graph::Span;

use super::cursor::Cursor;
use super::doc::{Cells, Class, Doc};

/// Whether a value that does not fit breaks well where it stands, rather than on the next line.
pub(super) fn hugs(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Binary(op, ..) => matches!(op, BinaryOp::Then | BinaryOp::Pipe),
        ExprKind::Member(base, _) => hugs(base),
        ExprKind::Number(_) | ExprKind::Str(_) | ExprKind::Name(_) | ExprKind::Unary(..) => false,
        _ => true,
    }
}

/// Columns of the longest result that is kept on one line.
const MAX_RESULT: usize = 60;

/// Whether an argument alone in its brackets shares them with its own.
fn embraced(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Record(_) | ExprKind::List(_) | ExprKind::Rhai(_))
}

impl<'t> Cursor<'t> {
    pub fn expr(&mut self, expr: &Expr) -> Doc<'t> {
        let mut parts = Vec::new();
        self.gap_docs(&mut parts);
        let doc = self.bare_expr(expr);
        match parts.is_empty() {
            true => doc,
            // In front of the group, which they do not break.
            false => Doc::many(parts.into_iter().chain([doc]).collect()),
        }
    }

    fn bare_expr(&mut self, expr: &Expr) -> Doc<'t> {
        match &expr.kind {
            ExprKind::Number(number) => self.number(number),
            ExprKind::Str(_) | ExprKind::Rhai(_) | ExprKind::Name(_) => self.slice(expr.span),
            ExprKind::List(values) => self.list("[", values, "]", false, Self::expr),
            ExprKind::Record(record) => self.record(record),
            ExprKind::Paren(inner) => {
                let inner = std::slice::from_ref(inner.as_ref());
                self.list("(", inner, ")", false, Self::expr)
            }
            ExprKind::Tuple(values) => self.list("(", values, ")", values.len() == 1, Self::expr),
            ExprKind::Member(base, name) => {
                let base = self.expr(base);
                Doc::many(vec![base, self.token("."), self.ident(name)])
            }
            ExprKind::Call(base, args) => {
                let base = self.expr(base);
                Doc::many(vec![base, self.args(args)])
            }
            ExprKind::Index(base, index) => {
                let base = self.expr(base);
                let index = match &index.kind {
                    IndexKind::Axes(axes) => self.list("[", axes, "]", false, Self::axis_arg),
                    IndexKind::Einops(einops) => self.einops(&einops.inputs, &einops.output),
                };
                Doc::many(vec![base, index])
            }
            ExprKind::Unary(UnaryOp::Neg, _, inner) => {
                Doc::many(vec![self.token("-"), self.expr(inner)])
            }
            ExprKind::Unary(UnaryOp::Not, _, inner) => {
                Doc::many(vec![self.token("not"), Doc::Space, self.expr(inner)])
            }
            ExprKind::Binary(op, ..) => self.chain(expr, *op),
            ExprKind::If(cond) => self.cond(cond),
            ExprKind::Broken => {
                self.failed = true;
                Doc::empty()
            }
        }
    }

    /// A number and its unit as written; `%` needs no space.
    fn number(&mut self, number: &Number) -> Doc<'t> {
        match &number.unit {
            None => self.slice(number.span),
            Some(unit) if unit.name == "%" => {
                let number = self.slice(number.span);
                Doc::many(vec![number, self.slice(unit.span)])
            }
            Some(unit) => self.slice(number.span.to(unit.span)),
        }
    }

    /// What stands between brackets and commas. `single`: a comma makes one value a tuple.
    pub fn list<T>(
        &mut self,
        open: &'static str,
        items: &[T],
        close: &'static str,
        single: bool,
        item: impl Fn(&mut Self, &T) -> Doc<'t>,
    ) -> Doc<'t> {
        let mut before = Vec::new();
        self.gap_docs(&mut before);
        let open = self.token(open);
        let mut parts = Vec::with_capacity(items.len());
        // Comments that stand between an item and its comma belong in front of the next.
        let mut carried = Vec::new();
        let broken = !items.is_empty() && self.newline();
        for (n, value) in items.iter().enumerate() {
            let fresh = broken && n > 0 && self.newline();
            let mut docs: Vec<Doc> = if fresh { vec![Doc::Fresh] } else { Vec::new() };
            docs.append(&mut carried);
            docs.push(item(self, value));
            let last = n + 1 == items.len();
            if self.is_next(",") {
                if !last || single {
                    docs.push(Doc::Text(","));
                }
                self.gap_docs(&mut carried);
                self.pass(",");
            } else {
                self.failed |= !last;
            }
            parts.push(match docs.pop() {
                Some(only) if docs.is_empty() => only,
                last => Doc::many(docs.into_iter().chain(last).collect()),
            });
        }
        let mut inner = Vec::with_capacity(3);
        if !parts.is_empty() {
            let first = if broken { Doc::Break } else { Doc::Soft };
            inner.extend([first, Doc::fill(parts)]);
        }
        self.gap_docs(&mut carried);
        if !carried.is_empty() {
            inner.push(Doc::Soft);
            inner.append(&mut carried);
        }
        let close = self.token(close);
        let list = match inner.is_empty() {
            true => Doc::many(vec![open, close]),
            false => Doc::many(vec![open, Doc::many(inner).indent(), Doc::Soft, close]).group(),
        };
        before.push(list);
        if before.len() > 1 { Doc::many(before) } else { before.pop().unwrap_or_else(Doc::empty) }
    }

    pub fn args(&mut self, args: &[Arg]) -> Doc<'t> {
        if let [only] = args
            && only.name.is_none()
            && embraced(&only.value)
        {
            let open = self.token("(");
            let value = self.expr(&only.value);
            let mut parts = vec![open, value];
            if self.is_next(",") {
                self.gap_docs(&mut parts);
                self.pass(",");
            }
            parts.push(self.token(")"));
            return Doc::many(parts);
        }
        self.list("(", args, ")", false, Self::arg)
    }

    fn arg(&mut self, arg: &Arg) -> Doc<'t> {
        match &arg.name {
            None => self.expr(&arg.value),
            Some(name) => {
                let name = self.ident(name);
                let sign = self.token("=");
                self.set(vec![name, Doc::Space, sign], &arg.value, hugs(&arg.value))
            }
        }
    }

    /// `.. = value`, the sign being the last of `parts`.
    pub fn set(&mut self, mut parts: Vec<Doc<'t>>, value: &Expr, hug: bool) -> Doc<'t> {
        let value = self.expr(value);
        parts.push(after(value, hug));
        Doc::many(parts)
    }

    fn axis_arg(&mut self, arg: &AxisArg) -> Doc<'t> {
        match &arg.name {
            None => self.axis(&arg.axis),
            Some(name) => {
                let parts = vec![self.ident(name), Doc::Space, self.token("=")];
                let axis = self.axis(&arg.axis);
                Doc::many(parts.into_iter().chain([Doc::Space, axis]).collect())
            }
        }
    }

    fn axis(&mut self, axis: &Axis) -> Doc<'t> {
        match &axis.kind {
            AxisKind::Rest | AxisKind::Any => self.slice(axis.span),
            AxisKind::Size(expr) => self.expr(expr),
        }
    }

    /// `[B T (H K), H K -> B T]`
    fn einops(&mut self, inputs: &[EinopsAxes], output: &EinopsAxes) -> Doc<'t> {
        let open = self.token("[");
        let mut parts = vec![Doc::Soft];
        for (n, input) in inputs.iter().enumerate() {
            if n > 0 {
                parts.push(self.token(","));
                if !input.axes.is_empty() {
                    parts.push(Doc::Line);
                }
            }
            self.einops_axes(&input.axes, &mut parts);
        }
        if inputs.last().is_some_and(|input| !input.axes.is_empty()) || inputs.len() > 1 {
            parts.push(Doc::Line);
        }
        parts.push(self.token("->"));
        if !output.axes.is_empty() {
            parts.push(Doc::Space);
            self.einops_axes(&output.axes, &mut parts);
        }
        self.last_gap(&mut parts);
        let close = self.token("]");
        Doc::many(vec![open, Doc::many(parts).indent(), Doc::Soft, close]).group()
    }

    fn einops_axes(&mut self, axes: &[EinopsAxis], parts: &mut Vec<Doc<'t>>) {
        let mut all = Vec::with_capacity(axes.len());
        for axis in axes {
            all.push(match &axis.kind {
                EinopsKind::Group(inner) => {
                    let mut group = vec![self.token("(")];
                    self.einops_axes(inner, &mut group);
                    group.push(self.token(")"));
                    Doc::many(group)
                }
                _ => self.slice(axis.span),
            });
        }
        if !all.is_empty() {
            parts.push(Doc::fill(all));
        }
    }

    /// Operators of one strength in a row, all on one line or each on its own.
    fn chain(&mut self, expr: &Expr, op: BinaryOp) -> Doc<'t> {
        let mut first = expr;
        let mut rest = Vec::new();
        while let ExprKind::Binary(next, _, left, right) = &first.kind
            && strength(*next) == strength(op)
        {
            rest.push((*next, right.as_ref()));
            first = left;
            if matches!(op, BinaryOp::Pow | BinaryOp::Range) {
                break;
            }
        }
        let first = self.expr(first);
        let mut parts = Vec::with_capacity(4 * rest.len());
        for (op, right) in rest.into_iter().rev() {
            if op == BinaryOp::Range {
                let sign = self.token("..");
                return Doc::many(vec![first, sign, self.expr(right)]);
            }
            parts.push(Doc::Line);
            parts.push(self.token(op.symbol()));
            parts.push(Doc::Space);
            parts.push(self.expr(right));
        }
        Doc::many(vec![first, Doc::many(parts).indent()]).group()
    }

    fn cond(&mut self, cond: &If) -> Doc<'t> {
        let mut parts = vec![self.token("if"), Doc::Space, self.expr(&cond.condition), Doc::Space];
        self.branch(&cond.yes, &mut parts);
        parts.extend([Doc::Space, self.token("else"), Doc::Space]);
        self.branch(&cond.no, &mut parts);
        Doc::many(parts).group()
    }

    fn branch(&mut self, value: &Expr, parts: &mut Vec<Doc<'t>>) {
        parts.push(self.token("{"));
        let mut inner = vec![Doc::Line, self.expr(value)];
        self.last_gap(&mut inner);
        parts.extend([Doc::many(inner).indent(), Doc::Line, self.token("}")]);
    }

    /// Comments between the last thing in brackets and what closes them.
    fn last_gap(&mut self, parts: &mut Vec<Doc<'t>>) {
        let mut gap = Vec::new();
        self.gap_docs(&mut gap);
        if !gap.is_empty() {
            parts.push(Doc::Soft);
            parts.append(&mut gap);
        }
    }

    fn record(&mut self, record: &Record) -> Doc<'t> {
        let spread = usize::from(record.spread.is_some());
        self.braces(spread + record.entries.len(), true, |this, n| match (n, &record.spread) {
            (0, Some(path)) => {
                let dots = this.token("..");
                Cells::other(Doc::many(vec![dots, this.path(path)]))
            }
            _ => match record.entries.get(n - spread) {
                Some(RecordEntry::Assign(assign)) => this.assign(assign),
                Some(RecordEntry::Rule(rule)) => this.rule(rule),
                Some(RecordEntry::Broken(_)) | None => this.no_entry(),
            },
        })
    }

    pub fn no_entry(&mut self) -> Cells<'t> {
        self.failed = true;
        Cells::other(Doc::empty())
    }

    pub fn kind(&mut self, kind: &Kind) -> Doc<'t> {
        match kind {
            Kind::Name(name) => self.ident(name),
            Kind::Tensor(tensor) => self.tensor(tensor),
        }
    }

    /// What a function gives; a short one is not broken, its parameters are.
    pub fn result(result: Doc<'t>) -> Doc<'t> {
        match result.width() {
            Some(width) if width <= MAX_RESULT => Doc::Solid(Box::new(result)),
            _ => result,
        }
    }

    pub fn tensor(&mut self, tensor: &TensorType) -> Doc<'t> {
        let dtype = tensor.dtype.as_ref().map(|dtype| self.ident(dtype));
        let axes = self.list("[", &tensor.axes, "]", false, Self::axis);
        Doc::many(dtype.into_iter().chain([axes]).collect())
    }

    pub fn fields(&mut self, open: &'static str, fields: &[Field], close: &'static str) -> Doc<'t> {
        self.list(open, fields, close, false, |this, field| {
            let mut parts = vec![this.ident(&field.name)];
            if let Some(kind) = &field.kind {
                parts.extend([this.token(":"), Doc::Space, this.kind(kind)]);
            }
            if let Some(default) = &field.default {
                parts.extend([Doc::Space, this.token("=")]);
                return this.set(parts, default, true);
            }
            Doc::many(parts)
        })
    }

    pub fn string(&mut self, span: Span) -> Doc<'t> {
        self.slice(span)
    }
}

/// What follows a sign.
pub(super) fn after(value: Doc, hug: bool) -> Doc {
    Doc::After { value: Box::new(value), hug }
}

impl<'t> Cells<'t> {
    pub fn other(doc: Doc<'t>) -> Cells<'t> {
        Cells { class: Class::Other, cells: vec![doc] }
    }
}
