//! Sizes: polynomials over the axes of a layer, in normal form.
//!
//! A size is a sum of terms; a term is a rational coefficient times a product of symbols with
//! whole exponents, negative ones included, so that `K = D / H` is a single term and `H * K` is
//! `D` again. Equal sizes have equal normal forms; no solver is needed.

use monarch_graph::Dim;

/// A symbol of a layer or function: index into its `symbols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sym(pub u32);

impl Sym {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A rational number in lowest terms with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ratio {
    pub num: i128,
    pub den: i128,
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1) as i128
}

impl Ratio {
    const ZERO: Ratio = Ratio { num: 0, den: 1 };
    const ONE: Ratio = Ratio { num: 1, den: 1 };

    fn new(num: i128, den: i128) -> Option<Ratio> {
        if den == 0 {
            return None;
        }
        let g = gcd(num, den) * den.signum();
        Some(Ratio { num: num / g, den: den / g })
    }

    fn add(self, other: Ratio) -> Option<Ratio> {
        let left = self.num.checked_mul(other.den)?;
        let right = other.num.checked_mul(self.den)?;
        Ratio::new(left.checked_add(right)?, self.den.checked_mul(other.den)?)
    }

    fn mul(self, other: Ratio) -> Option<Ratio> {
        Ratio::new(self.num.checked_mul(other.num)?, self.den.checked_mul(other.den)?)
    }
}

/// One term: symbols ascending, no exponent zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    pub powers: Vec<(Sym, i32)>,
    pub factor: Ratio,
}

/// A size. Terms are ordered by their powers, highest first; no factor is zero; zero has no terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Poly {
    terms: Vec<Term>,
}

/// Terms and exponents beyond these are refused, so that no program makes sizes explode.
const MAX_TERMS: usize = 64;
const MAX_POWER: i32 = 64;

impl Poly {
    /// A plain number.
    pub fn number(value: i64) -> Poly {
        let factor = Ratio { num: i128::from(value), den: 1 };
        Poly::normal(vec![Term { powers: Vec::new(), factor }])
    }

    /// A single symbol.
    pub fn symbol(sym: Sym) -> Poly {
        Poly { terms: vec![Term { powers: vec![(sym, 1)], factor: Ratio::ONE }] }
    }

    /// The terms, in normal order.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The number, if no symbol occurs.
    pub fn as_number(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [t] if t.powers.is_empty() && t.factor.den == 1 => i64::try_from(t.factor.num).ok(),
            _ => None,
        }
    }

    /// The symbol, if the size is one symbol and nothing else.
    pub fn as_symbol(&self) -> Option<Sym> {
        match self.terms.as_slice() {
            [t] if t.factor == Ratio::ONE => match t.powers.as_slice() {
                [(sym, 1)] => Some(*sym),
                _ => None,
            },
            _ => None,
        }
    }

    /// All symbols that occur, ascending.
    pub fn symbols(&self) -> Vec<Sym> {
        let all = self.terms.iter().flat_map(|t| t.powers.iter().map(|p| p.0));
        let mut all: Vec<Sym> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether a symbol stands under a fraction line.
    pub fn divides_by(&self, sym: Sym) -> bool {
        self.terms.iter().any(|t| t.powers.iter().any(|p| p.0 == sym && p.1 < 0))
    }

    fn normal(mut terms: Vec<Term>) -> Poly {
        terms.sort_by(|a, b| b.powers.cmp(&a.powers));
        let mut out: Vec<Term> = Vec::with_capacity(terms.len());
        for term in terms {
            match out.last_mut() {
                Some(last) if last.powers == term.powers => {
                    // Sums of factors are checked for overflow by `add`, the only caller that
                    // can bring equal powers together with large factors.
                    last.factor = last.factor.add(term.factor).unwrap_or(Ratio::ZERO);
                }
                _ => out.push(term),
            }
        }
        out.retain(|t| t.factor.num != 0);
        Poly { terms: out }
    }

    /// Sum; `None` when it grows out of bounds.
    pub fn add(&self, other: &Poly) -> Option<Poly> {
        let mut terms = self.terms.clone();
        for term in &other.terms {
            match terms.iter_mut().find(|t| t.powers == term.powers) {
                Some(same) => same.factor = same.factor.add(term.factor)?,
                None => terms.push(term.clone()),
            }
        }
        (terms.len() <= MAX_TERMS).then(|| Poly::normal(terms))
    }

    /// Difference; `None` when it grows out of bounds.
    pub fn sub(&self, other: &Poly) -> Option<Poly> {
        self.add(&other.mul(&Poly::number(-1))?)
    }

    /// Product; `None` when it grows out of bounds.
    pub fn mul(&self, other: &Poly) -> Option<Poly> {
        let mut out = Poly::default();
        for a in &self.terms {
            let mut row = Vec::with_capacity(other.terms.len());
            for b in &other.terms {
                row.push(a.mul(b)?);
            }
            out = out.add(&Poly::normal(row))?;
        }
        Some(out)
    }

    /// Quotient by a single term (or an exact multiple); `None` for any other divisor.
    pub fn div(&self, other: &Poly) -> Option<Poly> {
        if self == other && !self.terms.is_empty() {
            return Some(Poly::number(1));
        }
        let [by] = other.terms.as_slice() else { return None };
        let powers = by.powers.iter().map(|(s, e)| (*s, -e)).collect();
        let inverse = Term { powers, factor: Ratio::new(by.factor.den, by.factor.num)? };
        self.mul(&Poly { terms: vec![inverse] })
    }

    /// Whether every value of the symbols gives a whole number: no division is left.
    pub fn is_whole(&self) -> bool {
        let whole = |t: &Term| t.factor.den == 1 && t.powers.iter().all(|p| p.1 > 0);
        self.terms.iter().all(whole)
    }

    /// Symbols replaced by sizes; symbols for which `by` says `None` stay.
    pub fn substitute(&self, by: &impl Fn(Sym) -> Option<Poly>) -> Option<Poly> {
        let mut out = Poly::default();
        for term in &self.terms {
            let base = Term { powers: Vec::new(), factor: term.factor };
            let mut product = Poly { terms: vec![base] };
            for (sym, power) in &term.powers {
                let value = by(*sym).unwrap_or_else(|| Poly::symbol(*sym));
                for _ in 0..power.unsigned_abs() {
                    product =
                        if *power > 0 { product.mul(&value)? } else { product.div(&value)? };
                }
            }
            out = out.add(&product)?;
        }
        Some(out)
    }

    /// The exact value with numbers for all symbols, as numerator and denominator.
    pub fn ratio(&self, value: &impl Fn(Sym) -> Option<u64>) -> Option<Ratio> {
        let by = |sym| value(sym).and_then(|v| i64::try_from(v).ok()).map(Poly::number);
        let result = self.substitute(&by)?;
        match result.terms.as_slice() {
            [] => Some(Ratio::ZERO),
            [t] if t.powers.is_empty() => Some(t.factor),
            _ => None,
        }
    }

    /// The size with numbers for all symbols; `None` if it is not a whole number from 0 to 2^63.
    pub fn eval(&self, value: &impl Fn(Sym) -> Option<u64>) -> Option<u64> {
        let ratio = self.ratio(value)?;
        let number = (ratio.den == 1).then_some(ratio.num)?;
        i64::try_from(number).ok().and_then(|n| u64::try_from(n).ok())
    }

    /// The length with lengths for all symbols, of which at most one factor per term counts
    /// samples: `B * T` with B = samples and T = 256 is 256 per sample.
    pub fn dim(&self, length: &impl Fn(Sym) -> Option<Dim>) -> Option<Dim> {
        let is_batch = |s: &Sym| length(*s).is_some_and(|d| d.batch);
        let degree =
            |t: &Term| -> i32 { t.powers.iter().filter(|p| is_batch(&p.0)).map(|p| p.1).sum() };
        let batch = match self.terms.iter().map(degree).max() {
            Some(1) if self.terms.iter().all(|t| degree(t) == 1) => true,
            None | Some(0) if self.terms.iter().all(|t| degree(t) == 0) => false,
            _ => return None,
        };
        let per = self.eval(&|sym| length(sym).map(|d| d.per))?;
        Some(Dim { per, batch })
    }

    /// The size in the words of `name`: `4 * D`, `D / H`, `T + 1`.
    pub fn text(&self, name: &impl Fn(Sym) -> String) -> String {
        if self.terms.is_empty() {
            return "0".to_owned();
        }
        let mut out = String::new();
        for (i, term) in self.terms.iter().enumerate() {
            let negative = term.factor.num < 0;
            match (i, negative) {
                (0, true) => out.push('-'),
                (0, false) => {}
                (_, true) => out.push_str(" - "),
                (_, false) => out.push_str(" + "),
            }
            out.push_str(&term.text(name));
        }
        out
    }
}

impl Term {
    fn mul(&self, other: &Term) -> Option<Term> {
        let mut powers = self.powers.clone();
        for (sym, power) in &other.powers {
            match powers.iter_mut().find(|p| p.0 == *sym) {
                Some(same) => same.1 += power,
                None => powers.push((*sym, *power)),
            }
        }
        powers.retain(|p| p.1 != 0);
        powers.sort_unstable();
        if powers.iter().any(|p| p.1.abs() > MAX_POWER) {
            return None;
        }
        Some(Term { powers, factor: self.factor.mul(other.factor)? })
    }

    /// Without its sign.
    fn text(&self, name: &impl Fn(Sym) -> String) -> String {
        let power = |s: Sym, n: i32| match n {
            1 => name(s),
            n => format!("{}^{n}", name(s)),
        };
        let above = self.powers.iter().filter(|p| p.1 > 0).map(|p| power(p.0, p.1));
        let below = self.powers.iter().filter(|p| p.1 < 0).map(|p| power(p.0, -p.1));
        let mut top: Vec<String> = above.collect();
        let mut bottom: Vec<String> = below.collect();
        let factor = self.factor.num.unsigned_abs();
        if factor != 1 || top.is_empty() {
            top.insert(0, factor.to_string());
        }
        if self.factor.den != 1 {
            bottom.insert(0, self.factor.den.to_string());
        }
        let mut out = top.join(" * ");
        for divisor in bottom {
            out.push_str(" / ");
            out.push_str(&divisor);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sym: Sym) -> String {
        ["D", "H", "B", "T"][sym.index()].to_owned()
    }

    #[test]
    fn quotients_multiply_back() {
        let (d, h) = (Poly::symbol(Sym(0)), Poly::symbol(Sym(1)));
        let k = d.div(&h).unwrap();
        assert_eq!(k.text(&names), "D / H");
        assert!(!k.is_whole());
        assert_eq!(h.mul(&k).unwrap(), d);
        assert_eq!(k.eval(&|s| Some([384, 6][s.index()])), Some(64));
        assert_eq!(k.eval(&|s| Some([400, 6][s.index()])), None);
    }

    #[test]
    fn normal_form_and_text() {
        let d = Poly::symbol(Sym(0));
        let four = Poly::number(4).mul(&d).unwrap();
        let sum = d.add(&d).unwrap().add(&d).unwrap().add(&d).unwrap();
        assert_eq!(four, sum);
        assert_eq!(four.text(&names), "4 * D");
        assert_eq!(d.add(&Poly::number(1)).unwrap().text(&names), "D + 1");
        assert_eq!(d.sub(&d).unwrap().as_number(), Some(0));
        let half = d.add(&Poly::number(4)).unwrap().div(&Poly::number(2)).unwrap();
        assert_eq!(half.text(&names), "D / 2 + 2");
    }

    #[test]
    fn lengths_that_count_samples() {
        let bt = Poly::symbol(Sym(2)).mul(&Poly::symbol(Sym(3))).unwrap();
        let env = |s: Sym| match s.0 {
            2 => Some(Dim::samples()),
            _ => Some(Dim::fixed(256)),
        };
        assert_eq!(bt.dim(&env), Some(Dim { per: 256, batch: true }));
        assert_eq!(bt.mul(&bt).unwrap().dim(&env), None);
        assert_eq!(Poly::number(3).dim(&env), Some(Dim::fixed(3)));
        let mixed = bt.add(&Poly::number(1)).unwrap();
        assert_eq!(mixed.dim(&env), None);
    }

    #[test]
    fn growth_is_bounded() {
        let mut p = Poly::symbol(Sym(0)).add(&Poly::number(1)).unwrap();
        let mut refused = false;
        for _ in 0..20 {
            match p.mul(&p) {
                Some(next) => p = next,
                None => {
                    refused = true;
                    break;
                }
            }
        }
        assert!(refused);
    }
}
