use super::*;
use monarch_graph::Dim;

fn axis(size: Poly) -> Axis {
    Axis { name: None, size }
}

fn param(rest: bool, axes: Vec<Axis>) -> ParamDef {
    let ty = TensorType { dtype: DType::F32, rest, axes };
    ParamDef { name: "x".into(), local: LocalId(0), ty, span: Span::default() }
}

#[test]
fn free_axes_are_bound_by_the_arguments() {
    let (d, b, t) = (Poly::symbol(Sym(0)), Poly::symbol(Sym(1)), Poly::symbol(Sym(2)));
    let x = param(false, vec![axis(b), axis(t.clone()), axis(d.clone())]);
    let known = |s: Sym| (s.0 == 0).then(|| Dim::fixed(32));
    let shape = vec![Dim::samples(), Dim::fixed(16), Dim::fixed(32)];
    let bound = bind(std::slice::from_ref(&x), &[shape], 3, &known).unwrap();
    assert_eq!(bound, [Some(Dim::fixed(32)), Some(Dim::samples()), Some(Dim::fixed(16))]);
    let wrong = vec![Dim::samples(), Dim::fixed(16), Dim::fixed(31)];
    assert_eq!(bind(&[x], &[wrong], 3, &known), None);

    let rest = param(true, vec![axis(d)]);
    let shape = vec![Dim::samples(), Dim::fixed(16), Dim::fixed(32)];
    assert!(bind(&[rest], &[shape], 3, &known).is_some());
}
