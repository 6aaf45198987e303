//! Shows a tree as a program with every precedence in parentheses.

use std::fmt::Write;

use monarch_syntax::ast::*;

fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(", ")
}

pub fn show_expr(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Number(number) => match &number.unit {
            Some(unit) => format!("{} {}", number.raw, unit.name),
            None => number.raw.clone(),
        },
        ExprKind::Str(string) => format!("{:?}", string.value),
        ExprKind::Rhai(rhai) => format!("```rhai{}```", rhai.source),
        ExprKind::Name(name) => name.name.clone(),
        ExprKind::List(values) => format!("[{}]", list(values, show_expr)),
        ExprKind::Record(record) => show_record(record),
        ExprKind::Paren(inner) => format!("paren({})", show_expr(inner)),
        ExprKind::Tuple(values) => format!("({})", list(values, show_expr)),
        ExprKind::Member(base, name) => format!("{}.{}", show_expr(base), name.name),
        ExprKind::Call(base, args) => format!("{}({})", show_expr(base), list(args, show_arg)),
        ExprKind::Index(base, index) => format!("{}{}", show_expr(base), show_index(index)),
        ExprKind::Unary(UnaryOp::Neg, _, inner) => format!("(- {})", show_expr(inner)),
        ExprKind::Unary(UnaryOp::Not, _, inner) => format!("(not {})", show_expr(inner)),
        ExprKind::Binary(op, _, left, right) => {
            format!("({} {} {})", show_expr(left), op.symbol(), show_expr(right))
        }
        ExprKind::If(cond) => format!(
            "if {} {{{}}} else {{{}}}",
            show_expr(&cond.condition),
            show_expr(&cond.yes),
            show_expr(&cond.no)
        ),
        ExprKind::Broken => "<broken>".to_owned(),
    }
}

fn show_record(record: &Record) -> String {
    let spread = record.spread.iter().map(|path| format!("..{}", path.text()));
    let entries = record.entries.iter().map(|entry| match entry {
        RecordEntry::Assign(assign) => {
            format!("{} = {}", assign.path.text(), show_expr(&assign.value))
        }
        RecordEntry::Rule(rule) => format!("{} -> {}", rule.from.text(), show_expr(&rule.to)),
        RecordEntry::Broken(_) => "<broken>".to_owned(),
    });
    format!("{{{}}}", spread.chain(entries).collect::<Vec<_>>().join(", "))
}

fn show_arg(arg: &Arg) -> String {
    match &arg.name {
        Some(name) => format!("{} = {}", name.name, show_expr(&arg.value)),
        None => show_expr(&arg.value),
    }
}

fn show_axis(axis: &Axis) -> String {
    match &axis.kind {
        AxisKind::Rest => "..".to_owned(),
        AxisKind::Any => "_".to_owned(),
        AxisKind::Size(expr) => show_expr(expr),
    }
}

fn show_index(index: &Index) -> String {
    match &index.kind {
        IndexKind::Axes(axes) => {
            let show = |arg: &AxisArg| match &arg.name {
                Some(name) => format!("{} = {}", name.name, show_axis(&arg.axis)),
                None => show_axis(&arg.axis),
            };
            format!("[{}]", list(axes, show))
        }
        IndexKind::Einops(einops) => {
            let axes =
                |axes: &EinopsAxes| axes.axes.iter().map(show_einops).collect::<Vec<_>>().join(" ");
            format!("[{} -> {}]", list(&einops.inputs, axes), axes(&einops.output))
        }
    }
}

fn show_einops(axis: &EinopsAxis) -> String {
    match &axis.kind {
        EinopsKind::Name(name) => name.clone(),
        EinopsKind::Int(int) => int.to_string(),
        EinopsKind::Rest => "..".to_owned(),
        EinopsKind::Group(axes) => {
            format!("({})", axes.iter().map(show_einops).collect::<Vec<_>>().join(" "))
        }
    }
}

fn show_tensor(tensor: &TensorType) -> String {
    let dtype = tensor.dtype.as_ref().map_or("", |dtype| &dtype.name);
    format!("{dtype}[{}]", list(&tensor.axes, show_axis))
}

fn show_kind(kind: &Kind) -> String {
    match kind {
        Kind::Name(name) => name.name.clone(),
        Kind::Tensor(tensor) => show_tensor(tensor),
    }
}

fn show_fields(fields: &[Field]) -> String {
    list(fields, |field| {
        let kind =
            field.kind.as_ref().map_or(String::new(), |kind| format!(": {}", show_kind(kind)));
        let default = field.default.as_ref();
        let default = default.map_or(String::new(), |value| format!(" = {}", show_expr(value)));
        format!("{}{kind}{default}", field.name.name)
    })
}

fn show_bind(bind: &Bind) -> String {
    let pattern = match &bind.pattern {
        Pattern::One(name) => name.name.clone(),
        Pattern::Many(names, _) => format!("[{}]", list(names, |name| name.name.clone())),
    };
    format!("let {pattern} = {}", show_expr(&bind.value))
}

/// A file as a program; docs and all, without other comments.
pub fn show_file(file: &File, text: &str) -> String {
    let mut out = String::new();
    for item in &file.items {
        item.docs.iter().for_each(|doc| writeln!(out, "## {}", doc.text).unwrap());
        show_item(&mut out, &item.kind, text);
        out.push('\n');
    }
    out
}

fn show_item(out: &mut String, kind: &ItemKind, text: &str) {
    let _ = match kind {
        ItemKind::Import(import) => {
            let alias = import.alias.as_ref();
            let alias = alias.map_or(String::new(), |alias| format!(" as {}", alias.name));
            match &import.from {
                ImportFrom::Path { path, names } => {
                    let names = names.as_ref().map_or(String::new(), |names| {
                        format!(".{{{}}}", list(names, |name| name.name.clone()))
                    });
                    write!(out, "use {}{names}{alias}", path.text())
                }
                ImportFrom::File { file, pin } => {
                    let pin = pin.as_ref();
                    let pin = pin.map_or(String::new(), |pin| format!(" sha256 {:?}", pin.value));
                    write!(out, "use {:?}{pin}{alias}", file.value)
                }
            }
        }
        ItemKind::Param(param) => {
            let show = |sign: &str, expr: &Option<Expr>| {
                expr.as_ref().map_or(String::new(), |expr| format!(" {sign} {}", show_expr(expr)))
            };
            let (default, range) = (show("=", &param.default), show("in", &param.range));
            write!(out, "param {}: {}{default}{range}", param.name.name, show_kind(&param.kind))
        }
        ItemKind::Let(bind) => write!(out, "{}", show_bind(bind)),
        ItemKind::Layer(layer) => {
            let dims = layer.dims.as_ref();
            let dims = dims.map_or(String::new(), |dims| format!("[{}]", show_fields(dims)));
            let fields = layer.fields.as_ref();
            let fields =
                fields.map_or(String::new(), |fields| format!("({})", show_fields(fields)));
            let _ = write!(out, "layer {}{dims}{fields}", layer.name.name);
            show_body(out, &layer.body, 0);
            Ok(())
        }
        ItemKind::Op(op) => {
            let dims = op.dims.as_ref();
            let dims = dims.map_or(String::new(), |dims| format!("[{}]", show_fields(dims)));
            let result = op.result.as_ref();
            let result = result.map_or(String::new(), |kind| format!(" -> {}", show_kind(kind)));
            write!(out, "op {}{dims}({}){result}", op.name.name, show_fields(&op.fields))
        }
        ItemKind::Test(test) => {
            let rejects = test.rejects.as_ref();
            let rejects = rejects.map_or(String::new(), |code| format!(" rejects {}", code.name));
            let _ = write!(out, "test {:?}{rejects}", test.name.value);
            show_script(out, &test.script, 0);
            Ok(())
        }
        ItemKind::Block(block) => {
            show_block(out, block, 0);
            Ok(())
        }
        ItemKind::Broken(broken) => {
            let (start, end) = (broken.span.start as usize, broken.span.end as usize);
            write!(out, "<{}>", &text[start..end])
        }
    };
}

fn show_block(out: &mut String, block: &Block, indent: usize) {
    out.push_str(&block.kind.name);
    block.name.iter().for_each(|name| write!(out, " {}", name.name).unwrap());
    block.on.iter().for_each(|path| write!(out, " on {}", path.text()).unwrap());
    block.value.iter().for_each(|value| write!(out, " = {}", show_expr(value)).unwrap());
    block.body.iter().for_each(|body| show_body(out, body, indent));
}

fn show_body(out: &mut String, body: &Body, indent: usize) {
    let pad = " ".repeat(indent + 2);
    out.push_str(" {\n");
    for entry in &body.entries {
        entry.docs.iter().for_each(|doc| writeln!(out, "{pad}## {}", doc.text).unwrap());
        out.push_str(&pad);
        show_entry(out, &entry.kind, indent + 2);
        out.push('\n');
    }
    let _ = write!(out, "{}}}", " ".repeat(indent));
}

fn show_entry(out: &mut String, kind: &EntryKind, indent: usize) {
    let _ = match kind {
        EntryKind::Hook(hook) => {
            let args = match hook.args.is_empty() {
                true => String::new(),
                false => format!("({})", list(&hook.args, show_arg)),
            };
            write!(out, "on {}{args} => {}", hook.event.text(), show_expr(&hook.action))
        }
        EntryKind::Weight(weight) => {
            let (shape, init) = (show_tensor(&weight.shape), show_expr(&weight.init));
            write!(out, "{}: {shape} ~ {init}", weight.name.name)
        }
        EntryKind::Func(func) => {
            let result = func.result.as_ref();
            let result = result.map_or(String::new(), |kind| format!(" -> {}", show_tensor(kind)));
            let _ = write!(out, "{}({}){result}", func.name.name, show_fields(&func.fields));
            match (&func.script.value, func.short) {
                (Some(value), true) => write!(out, " = {}", show_expr(value)).unwrap(),
                _ => show_script(out, &func.script, indent),
            }
            Ok(())
        }
        EntryKind::Rule(rule) => write!(out, "{} -> {}", rule.from.text(), show_expr(&rule.to)),
        EntryKind::Assign(assign) => {
            let _ = write!(out, "{} = {}", assign.path.text(), show_expr(&assign.value));
            assign.body.iter().for_each(|body| show_body(out, body, indent));
            Ok(())
        }
        EntryKind::Block(block) => {
            show_block(out, block, indent);
            Ok(())
        }
        EntryKind::Broken(_) => write!(out, "<broken>"),
    };
}

fn show_script(out: &mut String, script: &Script, indent: usize) {
    let pad = " ".repeat(indent + 2);
    out.push_str(" {\n");
    for stmt in &script.stmts {
        let _ = match stmt {
            Stmt::Let(bind) => writeln!(out, "{pad}{}", show_bind(bind)),
            Stmt::Assert(assert) => {
                writeln!(out, "{pad}assert {}", show_expr(&assert.condition))
            }
            Stmt::Broken(_) => writeln!(out, "{pad}<broken>"),
        };
    }
    script.value.iter().for_each(|value| writeln!(out, "{pad}{}", show_expr(value)).unwrap());
    let _ = write!(out, "{}}}", " ".repeat(indent));
}
