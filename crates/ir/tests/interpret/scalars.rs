//! Expressions of variables and constants.

use ir::interpret::{InterpretError, Scalar, erf, evaluate};
use ir::{BinaryOp, BufferId, DType, Expr, UnaryOp, VarId};
use proptest::prelude::{any, proptest};

fn value(e: Expr) -> Scalar {
    evaluate(&e, &|v| i64::from(v.0) * 10).unwrap()
}

fn float(e: Expr) -> f64 {
    match value(e) {
        Scalar::F(v) => v,
        Scalar::I(v) => panic!("integer {v}"),
    }
}

#[test]
fn expressions_of_variables() {
    let v = |i| Expr::var(VarId(i));
    assert_eq!(value(v(3) * 2 - (v(1) + 4) * v(2)), Scalar::I(60 - 14 * 20));
    assert_eq!(value((v(2) - v(2)).equals(0)), Scalar::I(1));
    assert_eq!(value(v(7).floor_div(-20)), Scalar::I(-4));
    assert_eq!(value(v(1).min(v(2)).max(15)), Scalar::I(15));
    assert_eq!(
        value(Expr::int(i64::MAX) + v(1)),
        Scalar::I(i64::MIN + 9),
        "wraps"
    );
    let zero = evaluate(&v(1).floor_mod(v(0)), &|v| v.0.into());
    assert!(matches!(zero, Err(InterpretError::DivisionByZero { .. })));
    let guarded = Expr::select(v(0).equals(0), Expr::int(5), v(1) / v(0));
    assert_eq!(value(guarded), Scalar::I(5));
    for open in [Expr::load(BufferId(0), [v(0)]), Expr::arg(0, DType::I64)] {
        let e = evaluate(&open, &|_| 0).unwrap_err();
        assert!(matches!(e, InterpretError::IllTyped { .. }), "{e}");
    }
}

#[test]
fn minimum_and_maximum_of_floats_give_nan_and_the_second_of_equals() {
    let (nan, one) = (|| Expr::f32(f32::NAN), || Expr::f32(1.));
    for of in [Expr::min, Expr::max] {
        for (a, b) in [(nan(), one()), (one(), nan()), (nan(), nan())] {
            assert!(float(of(a, b)).is_nan());
        }
    }
    let (plus, minus) = (|| Expr::f32(0.), || Expr::f32(-0.));
    assert!(float(plus().min(minus())).is_sign_negative());
    assert!(float(minus().min(plus())).is_sign_positive());
    assert!(float(plus().max(minus())).is_sign_negative());
}

#[test]
fn conversions() {
    let to = |v: f64, d| value(Expr::constant(v, DType::F64).cast(d));
    assert_eq!(to(-2.9, DType::I32), Scalar::I(-2));
    assert_eq!(to(300., DType::U8), Scalar::I(255));
    assert_eq!(to(-300., DType::I8), Scalar::I(-128));
    assert_eq!(to(-1., DType::U8), Scalar::I(0));
    assert_eq!(to(1e30, DType::I64), Scalar::I(i64::MAX));
    assert_eq!(to(f64::NAN, DType::I32), Scalar::I(0));
    assert_eq!(to(0.5, DType::Bool), Scalar::I(1));
    assert_eq!(to(-0., DType::Bool), Scalar::I(0));
    assert_eq!(to(f64::NAN, DType::Bool), Scalar::I(1));
    assert_eq!(to(0.1, DType::F32), Scalar::F(f64::from(0.1f32)));
    assert_eq!(to(1e39, DType::F32), Scalar::F(f64::INFINITY));
    let from = |v: i64, d| value(Expr::int(v).cast(d));
    assert_eq!(from(300, DType::U8), Scalar::I(44));
    assert_eq!(from(200, DType::I8), Scalar::I(-56));
    assert_eq!(from(1 << 40, DType::I32), Scalar::I(0));
    assert_eq!(from(256, DType::Bool), Scalar::I(1));
    assert_eq!(from((1 << 24) + 1, DType::F32), Scalar::F(16777216.));
    assert_eq!(value(Expr::bool(true).cast(DType::F32)), Scalar::F(1.));
    assert_eq!(value(Expr::bool(true).cast(DType::I8)), Scalar::I(1));
}

#[test]
fn functions_of_one_operand() {
    let of = |op, v: f32| float(Expr::unary(op, Expr::f32(v)));
    for (v, rounded) in [(0.5, 0.), (1.5, 2.), (2.5, 2.), (-2.5, -2.), (2.51, 3.)] {
        assert_eq!(of(UnaryOp::Round, v), rounded);
    }
    assert_eq!(of(UnaryOp::Floor, -1.5), -2.);
    assert_eq!(of(UnaryOp::Ceil, -1.5), -1.);
    assert_eq!(of(UnaryOp::Abs, -1.5), 1.5);
    assert_eq!(of(UnaryOp::Neg, 1.5), -1.5);
    // e, ln 2, tanh 1, erf 1 and 1 / sqrt 2, correctly rounded to f32.
    assert_eq!(of(UnaryOp::Exp, 1.), f64::from(std::f32::consts::E));
    assert_eq!(of(UnaryOp::Log, 2.), f64::from(std::f32::consts::LN_2));
    assert_eq!(of(UnaryOp::Tanh, 1.), f64::from(0.761_594_2_f32));
    assert_eq!(of(UnaryOp::Erf, 1.), f64::from(0.842_700_8_f32));
    assert_eq!(
        of(UnaryOp::Rsqrt, 2.),
        f64::from(std::f32::consts::FRAC_1_SQRT_2)
    );
    assert!(of(UnaryOp::Sqrt, -1.).is_nan());
    let int = |op, v: f64, d| value(Expr::unary(op, Expr::constant(v, d)));
    assert_eq!(int(UnaryOp::Neg, -128., DType::I8), Scalar::I(-128));
    assert_eq!(int(UnaryOp::Abs, -128., DType::I8), Scalar::I(-128));
    assert_eq!(int(UnaryOp::Neg, 1., DType::U8), Scalar::I(255));
    assert_eq!(
        value(Expr::unary(UnaryOp::Not, Expr::bool(true))),
        Scalar::I(0)
    );
    assert_eq!(
        value(Expr::unary(UnaryOp::Bits, Expr::f32(-1.0))),
        Scalar::I(-0x4080_0000)
    );
    let exp_of_int = Expr::unary(UnaryOp::Exp, Expr::int(1));
    assert!(evaluate(&exp_of_int, &|_| 0).is_err());
}

#[test]
fn operators_of_two_floats() {
    let of = |op, a: f32, b: f32| float(Expr::binary(op, Expr::f32(a), Expr::f32(b)));
    assert_eq!(of(BinaryOp::Pow, 2., 0.5), f64::from(2f32.sqrt()));
    assert_eq!(of(BinaryOp::FloorDiv, -7., 2.), -4.);
    assert_eq!(of(BinaryOp::FloorMod, -7., 2.), 1.);
    assert_eq!(of(BinaryOp::Div, 1., 0.), f64::INFINITY);
    let nan = || Expr::f32(f32::NAN);
    assert_eq!(value(nan().equals(nan())), Scalar::I(0));
    assert_eq!(
        value(Expr::binary(BinaryOp::Ne, nan(), nan())),
        Scalar::I(1)
    );
    assert_eq!(value(nan().le(nan())), Scalar::I(0));
}

#[test]
fn error_function() {
    assert!((erf(0.5) - 0.520_499_877_813_046_5).abs() < 1e-15);
    assert_eq!(erf(-7.), -1.);
}

proptest! {
    #[test]
    fn single_precision_is_that_of_the_hardware(a in any::<f32>(), b in any::<f32>()) {
        type Op = fn(f32, f32) -> f32;
        let ops: [(BinaryOp, Op); 4] = [
            (BinaryOp::Add, |a, b| a + b),
            (BinaryOp::Sub, |a, b| a - b),
            (BinaryOp::Mul, |a, b| a * b),
            (BinaryOp::Div, |a, b| a / b),
        ];
        for (op, f) in ops {
            let expected = f64::from(f(a, b));
            let got = float(Expr::binary(op, Expr::f32(a), Expr::f32(b)));
            assert!(got == expected || got.is_nan() && expected.is_nan(), "{op:?} {a} {b}");
        }
        let root = float(Expr::unary(UnaryOp::Sqrt, Expr::f32(a.abs())));
        assert_eq!(root, f64::from(a.abs().sqrt()));
    }

    #[test]
    fn narrow_integers_are_those_of_the_hardware(a in any::<i32>(), b in any::<i32>()) {
        type Op = fn(i32, i32) -> i32;
        let ops: [(BinaryOp, Op); 5] = [
            (BinaryOp::Add, i32::wrapping_add),
            (BinaryOp::Sub, i32::wrapping_sub),
            (BinaryOp::Mul, i32::wrapping_mul),
            (BinaryOp::Min, i32::min),
            (BinaryOp::Max, i32::max),
        ];
        for (op, f) in ops {
            let constant = |v: i32| Expr::constant(f64::from(v), DType::I32);
            let e = Expr::binary(op, constant(a), constant(b));
            assert_eq!(value(e), Scalar::I(f(a, b).into()), "{op:?} {a} {b}");
        }
    }
}
