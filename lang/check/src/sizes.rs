//! Sizes of a layer from the shapes of a checkpoint's tensors.

use crate::hir::{Poly, Static, Sym, Value};
use crate::scope::Checker;
use crate::weights::Checkpoint;
use monarch_graph::Span;

/// What is known of a layer's axes and whole-number fields so far, and who said it.
pub(crate) struct Sizes {
    names: Vec<String>,
    known: Vec<Option<Said>>,
    defaults: Vec<Option<u64>>,
    /// The first contradiction.
    pub clash: Option<Clash>,
}

#[derive(Clone)]
struct Said {
    number: u64,
    /// `4096 here`
    text: String,
    at: Option<Span>,
}

pub(crate) struct Clash {
    pub title: String,
    pub places: Vec<Span>,
}

/// A weight in the words of the root layer.
struct Shape {
    /// `blocks.0.attn.q`: the first copy of everything that is repeated.
    path: String,
    axes: Vec<Option<Poly>>,
}

/// Something repeated: `blocks`, and how often.
struct Repeat {
    path: String,
    times: Option<Poly>,
}

impl Sizes {
    pub fn new(names: &[String]) -> Sizes {
        let n = names.len();
        Sizes { names: names.to_vec(), known: vec![None; n], defaults: vec![None; n], clash: None }
    }

    pub fn symbol(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n == name)
    }

    pub fn get(&self, symbol: usize) -> Option<u64> {
        let known = self.known.get(symbol)?.as_ref().map(|s| s.number);
        known.or_else(|| self.defaults.get(symbol).copied().flatten())
    }

    pub fn default(&mut self, symbol: usize, number: u64) {
        if let Some(place) = self.defaults.get_mut(symbol) {
            *place = Some(number);
        }
    }

    /// Notes a number; a second one that differs is a contradiction.
    pub fn say(&mut self, symbol: usize, number: u64, text: String, at: Option<Span>) {
        let Some(place) = self.known.get_mut(symbol) else { return };
        match place {
            Some(old) if old.number != number && self.clash.is_none() => {
                let name = &self.names[symbol];
                let title = format!("`{name}` is {} and {text}", old.text);
                self.clash = Some(Clash { title, places: old.at.into_iter().chain(at).collect() });
            }
            Some(_) => {}
            None => *place = Some(Said { number, text, at }),
        }
    }

    /// Learns from a size that is `number`: if all but one of its symbols are known, the last one
    /// follows. An axis by itself must agree with what is known of it. True if something was
    /// learnt.
    fn learn(&mut self, size: &Poly, number: u64, what: &str) -> bool {
        if let Some(symbol) = size.as_symbol().map(Sym::index)
            && self.known.get(symbol).is_some_and(Option::is_some)
        {
            self.say(symbol, number, format!("{number} by {what}"), None);
            return false;
        }
        let known = |s: Sym| self.known.get(s.index()).and_then(|k| k.as_ref()).map(|k| k.number);
        let rest =
            size.substitute(&|s| known(s).and_then(|n| i64::try_from(n).ok()).map(Poly::number));
        let Some(rest) = rest else { return false };
        let (&[symbol], [term]) = (rest.symbols().as_slice(), rest.terms()) else { return false };
        if term.powers.as_slice() != [(symbol, 1)] {
            return false;
        }
        // number = factor * symbol
        let (num, den) = (term.factor.num, term.factor.den);
        let whole = i128::from(number).checked_mul(den).filter(|n| num > 0 && n % num == 0);
        let Some(value) = whole.and_then(|n| u64::try_from(n / num).ok()) else { return false };
        self.say(symbol.index(), value, format!("{value} by {what}"), None);
        true
    }
}

impl Checker<'_> {
    /// Numbers for the sizes of `layer` from the tensors of a checkpoint.
    pub fn solve(&self, layer: usize, found: &Checkpoint, sizes: &mut Sizes) {
        let fixed = self.state.layers[layer].fixed;
        let own = (0..fixed).map(|i| Some(Poly::symbol(Sym(i as u32)))).collect();
        let (mut shapes, mut repeats) = (Vec::new(), Vec::new());
        self.shapes_of(layer, own, "", &mut shapes, &mut repeats, 0);
        for repeat in &repeats {
            let count = found.copies(&repeat.path);
            if let (Some(times), 1..) = (&repeat.times, count) {
                let what = format!("the number of `{}.*`", repeat.path);
                sizes.learn(times, count, &what);
            }
        }
        // Each round settles at least one size, or nothing more can be learnt.
        for _ in 0..=fixed {
            let mut learnt = false;
            for shape in &shapes {
                let Some(lengths) = found.shape(&shape.path) else { continue };
                if lengths.len() != shape.axes.len() {
                    continue;
                }
                for (axis, n) in shape.axes.iter().zip(lengths) {
                    let what = || format!("the shape of `{}`", shape.path);
                    learnt |= axis.as_ref().is_some_and(|a| sizes.learn(a, n, &what()));
                }
            }
            if !learnt {
                return;
            }
        }
    }

    /// All weights below a layer whose symbols are `own` in the words of the root.
    fn shapes_of(
        &self,
        layer: usize,
        own: Vec<Option<Poly>>,
        path: &str,
        shapes: &mut Vec<Shape>,
        repeats: &mut Vec<Repeat>,
        depth: usize,
    ) {
        if depth > 64 || shapes.len() > 4096 {
            return;
        }
        let state = &self.state.layers[layer];
        let in_root = |p: &Poly| p.substitute(&|s| own.get(s.index()).cloned().flatten());
        let whole = |p: &Poly| {
            let open = p.symbols().iter().any(|s| own.get(s.index()).is_none_or(Option::is_none));
            if open { None } else { in_root(p) }
        };
        let join = |name: &str| match path.is_empty() {
            true => name.to_owned(),
            false => format!("{path}.{name}"),
        };
        for weight in &state.weights {
            let axes = weight.axes.iter().flatten().map(|a| whole(&a.size)).collect();
            shapes.push(Shape { path: join(&weight.name), axes });
        }
        let number = |value: &Static| match value {
            Static::Value(Value::Int(n)) => Some(Poly::number(*n)),
            Static::Size(p) => whole(p),
            _ => None,
        };
        for sub in &state.subs {
            let Some(def) = &sub.def else { continue };
            let mut inner: Vec<Option<Poly>> = def.dims.iter().map(whole).collect();
            let layer = def.layer.0 as usize;
            for (field, value) in self.state.layers[layer].fields.iter().zip(&def.fields) {
                if field.symbol.is_some() {
                    inner.push(number(value));
                }
            }
            let mut name = join(&sub.name);
            if let Some(times) = &def.repeat {
                repeats.push(Repeat { path: name.clone(), times: number(times) });
                name.push_str(".0");
            }
            self.shapes_of(layer, inner, &name, shapes, repeats, depth + 1);
        }
    }
}
