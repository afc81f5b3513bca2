//! Models whose inputs and outputs are integers of 16 bits, or unsigned ones of 32 or 64: what operators give at the borders
//! of these types. The values are NumPy's (the specification's reference), and onnxruntime's where its kernels take the type.

mod build_onnx;

use build_onnx::{file, import, int, int64s, known, node, text, undeclared};
use graph::{Keep, evaluate, simplify};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Tensor};

const I16: i32 = 5;
const U16: i32 = 4;
const U32: i32 = 12;
const U64: i32 = 13;
const TOP: u64 = u64::MAX;
const HALF: u64 = 1 << 63;

/// Integers as the type has them, of their bits.
fn tensor(dtype: DType, values: &[u64]) -> Tensor {
    let mut t = Tensor::zeros(dtype, &[values.len()]);
    (0..values.len()).for_each(|i| t.set_i64(i, values[i] as i64));
    t
}

fn dtype(elem_type: i32) -> DType {
    match elem_type {
        I16 => DType::I16,
        U16 => DType::U16,
        U32 => DType::U32,
        _ => DType::U64,
    }
}

/// A constant of a file.
fn proto(name: &str, t: &Tensor) -> TensorProto {
    let number = match t.dtype() {
        DType::F32 => 1,
        DType::I64 => 7,
        DType::I16 => I16,
        DType::U16 => U16,
        DType::U32 => U32,
        DType::U64 => U64,
        other => panic!("a constant of {other}"),
    };
    TensorProto {
        name: Some(name.into()),
        data_type: Some(number),
        dims: t.shape().iter().map(|n| *n as i64).collect(),
        raw_data: Some(t.bytes().to_vec().into()),
        ..Default::default()
    }
}

/// A model of one operator.
fn model(
    operator: &str,
    attributes: Vec<AttributeProto>,
    inputs: &[(i32, &Tensor)],
    constants: Vec<TensorProto>,
) -> ModelProto {
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let given = constants.iter().map(|c| c.name().to_string());
    let operands: Vec<String> = names.iter().cloned().chain(given).collect();
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    let declared = names.iter().zip(inputs).map(|(name, (elem_type, t))| {
        let shape: Vec<i64> = t.shape().iter().map(|n| *n as i64).collect();
        known(name, *elem_type, &shape)
    });
    file(
        26,
        GraphProto {
            name: Some("g".into()),
            input: declared.collect(),
            node: vec![node(operator, &operands, &["y"], attributes)],
            initializer: constants,
            output: vec![undeclared("y")],
            ..Default::default()
        },
    )
}

/// What the model gives, as read and simplified.
fn given(m: &ModelProto, inputs: &[&Tensor]) -> Tensor {
    let model = import(m).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|t| Arc::new((*t).clone())).collect();
    let plain = evaluate(&model, &inputs, Keep::Outputs).unwrap().outputs();
    let simplified = simplify(&model);
    let again = evaluate(&simplified, &inputs, Keep::Outputs)
        .unwrap()
        .outputs();
    assert_eq!(plain[0], again[0]);
    (*plain[0]).clone()
}

#[track_caller]
fn check(operator: &str, elem_type: i32, operands: &[&[u64]], expected: &[u64]) {
    check_with(operator, vec![], elem_type, operands, expected);
}

#[track_caller]
fn check_with(
    operator: &str,
    attributes: Vec<AttributeProto>,
    elem_type: i32,
    operands: &[&[u64]],
    expected: &[u64],
) {
    let of = dtype(elem_type);
    let inputs: Vec<Tensor> = operands.iter().map(|v| tensor(of, v)).collect();
    let typed: Vec<_> = inputs.iter().map(|t| (elem_type, t)).collect();
    let m = model(operator, attributes, &typed, vec![]);
    let y = given(&m, &inputs.iter().collect::<Vec<_>>());
    let orders = ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"];
    let result = match operator {
        _ if orders.contains(&operator) => DType::Bool,
        "ArgMax" | "ArgMin" => DType::I64,
        _ => of,
    };
    assert_eq!(y, tensor(result, expected), "{operator}: {:?}", numbers(&y));
}

fn numbers(t: &Tensor) -> Vec<i64> {
    (0..t.len()).map(|i| t.get_i64(i)).collect()
}

fn signed(v: i64) -> u64 {
    v as u64
}

#[test]
fn sums_and_products_wrap() {
    let (x, y) = ([65_535, 40_000, 3], [1, 40_000, 65_535]);
    check("Add", U16, &[&x, &y], &[0, 14_464, 2]);
    check("Mul", U16, &[&x, &y], &[65_535, 4096, 65_533]);
    check("Sub", U16, &[&y, &x], &[2, 0, 65_532]);
    let (x, y) = ([32_767, signed(-32_768), 300], [1, signed(-1), 300]);
    check("Add", I16, &[&x, &y], &[signed(-32_768), 32_767, 600]);
    check("Mul", I16, &[&x, &y], &[32_767, signed(-32_768), 24_464]);
    check(
        "Neg",
        I16,
        &[&x],
        &[signed(-32_767), signed(-32_768), signed(-300)],
    );
    check("Abs", I16, &[&x], &[32_767, signed(-32_768), 300]);
    let (x, y) = ([4_294_967_295, 65_536, 5], [4_294_967_295, 65_537, 7]);
    check("Add", U32, &[&x, &y], &[4_294_967_294, 131_073, 12]);
    check("Mul", U32, &[&x, &y], &[1, 65_536, 35]);
    check("Sub", U32, &[&x, &y], &[0, 4_294_967_295, 4_294_967_294]);
    let (x, y) = ([TOP, HALF, 5], [2, HALF, 7]);
    check("Add", U64, &[&x, &y], &[1, 0, 12]);
    check("Mul", U64, &[&x, &y], &[TOP - 1, 0, 35]);
    check("Sub", U64, &[&x, &y], &[TOP - 2, 0, TOP - 1]);
}

#[test]
fn quotients_and_remainders_are_of_unsigned_numbers() {
    let x = [
        TOP,
        TOP,
        HALF,
        HALF - 1,
        7,
        TOP,
        HALF + 5,
        10_000_000_000_000_000_000,
    ];
    let y = [2, TOP, 3, HALF, 2, HALF + 1, 1, 3];
    let quotients = [
        HALF - 1,
        1,
        3_074_457_345_618_258_602,
        0,
        3,
        1,
        HALF + 5,
        3_333_333_333_333_333_333,
    ];
    check("Div", U64, &[&x, &y], &quotients);
    let remainders = [1, 0, 2, HALF - 1, 1, HALF - 2, 0, 1];
    check("Mod", U64, &[&x, &y], &remainders);
    check_with("Mod", vec![int("fmod", 1)], U64, &[&x, &y], &remainders);
    let (x, y) = (
        [4_294_967_295, 4_294_967_295, 7],
        [2, 4_294_967_295, 4_000_000_000],
    );
    check("Div", U32, &[&x, &y], &[2_147_483_647, 1, 0]);
    check("Mod", U32, &[&x, &y], &[1, 0, 7]);
    check("Div", U16, &[&[65_535, 50_000], &[2, 65_535]], &[32_767, 0]);
    let (x, y) = (
        [signed(-32_768), signed(-7), 7],
        [signed(-1), 2, signed(-2)],
    );
    check(
        "Div",
        I16,
        &[&x, &y],
        &[signed(-32_768), signed(-3), signed(-3)],
    );
    check("Mod", I16, &[&x, &y], &[0, 1, signed(-1)]);
    check_with(
        "Mod",
        vec![int("fmod", 1)],
        I16,
        &[&x, &y],
        &[0, signed(-1), 1],
    );
}

#[test]
fn orders_are_of_unsigned_numbers() {
    let (x, y) = ([TOP, 1, HALF, 5], [1, HALF, HALF - 1, 5]);
    check("Less", U64, &[&x, &y], &[0, 1, 0, 0]);
    check("LessOrEqual", U64, &[&x, &y], &[0, 1, 0, 1]);
    check("Greater", U64, &[&x, &y], &[1, 0, 1, 0]);
    check("GreaterOrEqual", U64, &[&x, &y], &[1, 0, 1, 1]);
    check("Equal", U64, &[&x, &y], &[0, 0, 0, 1]);
    check("Max", U64, &[&x, &y], &[TOP, HALF, HALF, 5]);
    check("Min", U64, &[&x, &y], &[1, 1, HALF - 1, 5]);
    check_with("ArgMax", vec![int("keepdims", 1)], U64, &[&x], &[0]);
    check_with(
        "ArgMin",
        vec![int("keepdims", 1)],
        U64,
        &[&[TOP, 9, 3, HALF]],
        &[2],
    );
    check("ReduceMax", U64, &[&[1, HALF, 7]], &[HALF]);
    check("ReduceMin", U64, &[&[TOP, HALF, TOP]], &[HALF]);
    check("Sign", U64, &[&[0, 1, TOP]], &[0, 1, 1]);
    check("Sign", I16, &[&[0, 9, signed(-9)]], &[0, 1, signed(-1)]);
    check("Abs", U64, &[&[0, 1, TOP]], &[0, 1, TOP]);
    check(
        "Less",
        U32,
        &[&[4_294_967_295, 1], &[1, 4_294_967_295]],
        &[0, 1],
    );
    check("Less", U16, &[&[65_535, 1], &[1, 65_535]], &[0, 1]);
    check("Less", I16, &[&[signed(-1), 1], &[1, signed(-1)]], &[1, 0]);
    check("Max", I16, &[&[signed(-1), 1], &[1, signed(-2)]], &[1, 1]);
}

/// Bounds of 2^53 and more are no f64s.
#[test]
fn large_numbers_are_clipped_to_large_bounds() {
    let x = tensor(DType::U64, &[0, 7, HALF + 3, TOP]);
    let mut bounds = [tensor(DType::U64, &[5]), tensor(DType::U64, &[HALF + 1])];
    bounds = bounds.map(|b| b.reshaped(&[]));
    let constants = vec![proto("low", &bounds[0]), proto("high", &bounds[1])];
    let y = given(&model("Clip", vec![], &[(U64, &x)], constants), &[&x]);
    assert_eq!(y, tensor(DType::U64, &[5, 7, HALF + 1, HALF + 1]));
    let x = Tensor::from_slice(&[3], &[i64::MIN, 0, i64::MAX]);
    let low = Tensor::from_slice(&[], &[-(1i64 << 60) - 1]);
    let high = Tensor::from_slice(&[], &[(1i64 << 60) + 1]);
    let constants = vec![proto("low", &low), proto("high", &high)];
    let y = given(&model("Clip", vec![], &[(7, &x)], constants), &[&x]);
    assert_eq!(numbers(&y), [-(1 << 60) - 1, 0, (1 << 60) + 1]);
}

#[test]
fn bits_are_shifted_and_combined() {
    let shift = |d| vec![text("direction", d)];
    let (x, by) = ([TOP, HALF, 5, TOP], [1, 63, 0, 63]);
    check_with(
        "BitShift",
        shift("RIGHT"),
        U64,
        &[&x, &by],
        &[HALF - 1, 1, 5, 1],
    );
    // The specification leaves such counts open; numpy moves all bits out, as other types do here.
    let (all, beyond) = ([TOP, 5, HALF, TOP], [64, 64, 200, TOP]);
    for direction in ["RIGHT", "LEFT"] {
        check_with(
            "BitShift",
            shift(direction),
            U64,
            &[&all, &beyond],
            &[0, 0, 0, 0],
        );
    }
    check_with(
        "BitShift",
        shift("LEFT"),
        U64,
        &[&x, &by],
        &[TOP - 1, 0, 5, HALF],
    );
    let (x, by) = ([65_535, 32_768, 16], [1, 15, 4]);
    check_with(
        "BitShift",
        shift("LEFT"),
        U16,
        &[&x, &by],
        &[65_534, 0, 256],
    );
    check_with("BitShift", shift("RIGHT"), U16, &[&x, &by], &[32_767, 1, 1]);
    check_with(
        "BitShift",
        shift("LEFT"),
        U32,
        &[&[4_294_967_295], &[31]],
        &[1 << 31],
    );
    let (x, y) = ([TOP, HALF | 5], [HALF, 6]);
    check("BitwiseAnd", U64, &[&x, &y], &[HALF, 4]);
    check("BitwiseOr", U64, &[&x, &y], &[TOP, HALF | 7]);
    check("BitwiseXor", U64, &[&x, &y], &[HALF - 1, HALF | 3]);
    check("BitwiseNot", U64, &[&x], &[0, !(HALF | 5)]);
    check("BitwiseNot", U16, &[&[0, 65_535, 5]], &[65_535, 0, 65_530]);
    check(
        "BitwiseNot",
        I16,
        &[&[0, signed(-1), 5]],
        &[signed(-1), 0, signed(-6)],
    );
    check(
        "BitwiseAnd",
        I16,
        &[&[signed(-1)], &[signed(-32_768)]],
        &[signed(-32_768)],
    );
}

#[test]
fn casts_are_of_the_numbers() {
    const F32: i64 = 1;
    const F64: i64 = 11;
    let cast = |elem_type, values: &[u64], to| {
        let x = tensor(dtype(elem_type), values);
        given(
            &model("Cast", vec![int("to", to)], &[(elem_type, &x)], vec![]),
            &[&x],
        )
    };
    let y = cast(U64, &[TOP, HALF, HALF + 1025, 3], F64);
    let expected = [2f64.powi(64), 2f64.powi(63), 2f64.powi(63) + 2048.0, 3.0];
    assert_eq!(y.as_slice::<f64>(), expected);
    let y = cast(U32, &[4_294_967_295, 16_777_217], F32);
    assert_eq!(y.as_slice::<f32>(), [4_294_967_296.0, 16_777_216.0]);
    assert_eq!(
        cast(I16, &[signed(-32_768)], F32).as_slice::<f32>(),
        [-32_768.0]
    );
    assert_eq!(cast(U16, &[65_535], 10).get_f64(0), f64::INFINITY);
    assert_eq!(
        cast(U64, &[TOP, 5], 12),
        tensor(DType::U32, &[4_294_967_295, 5])
    );
    assert_eq!(
        cast(U32, &[4_294_967_295], 5),
        tensor(DType::I16, &[signed(-1)])
    );
    assert_eq!(cast(I16, &[signed(-1)], 13), tensor(DType::U64, &[TOP]));
    let cast = |values: &[f32], to| {
        let x = Tensor::from_slice(&[values.len()], values);
        given(
            &model("Cast", vec![int("to", to)], &[(1, &x)], vec![]),
            &[&x],
        )
    };
    let expected = [9_999_999_980_506_447_872, 5];
    assert_eq!(cast(&[1e19, 5.9], 13), tensor(DType::U64, &expected));
    let expected = [4_000_000_000, 65_535];
    assert_eq!(cast(&[4e9, 65_535.9], 12), tensor(DType::U32, &expected));
    assert_eq!(cast(&[65_535.0], 4), tensor(DType::U16, &[65_535]));
}

#[test]
fn results_of_16_bits_end_at_their_range() {
    let x = Tensor::from_slice(&[5], &[1e9f32, -1e9, 0.75, -1.25, 32_767.4]);
    let quantized = |elem_type, zero: u64| {
        let scale = Tensor::from_slice(&[], &[0.5f32]);
        let zero = tensor(dtype(elem_type), &[zero]).reshaped(&[]);
        let constants = vec![proto("scale", &scale), proto("zero", &zero)];
        given(
            &model("QuantizeLinear", vec![], &[(1, &x)], constants),
            &[&x],
        )
    };
    // x / 0.5 is 1.5, -2.5 and 65534.8, rounded to 2, -2 and 65535.
    let expected = [65_535, 0, 102, 98, 65_535];
    assert_eq!(quantized(U16, 100), tensor(DType::U16, &expected));
    let expected = [32_767, signed(-32_768), signed(-98), signed(-102), 32_767];
    assert_eq!(quantized(I16, signed(-100)), tensor(DType::I16, &expected));
}

#[test]
fn elements_are_moved() {
    let x = tensor(DType::U64, &[TOP, HALF, 1, 2, 3, TOP - 1]).reshaped(&[2, 3]);
    let y = given(&model("Transpose", vec![], &[(U64, &x)], vec![]), &[&x]);
    let turned = tensor(DType::U64, &[TOP, 2, HALF, 3, 1, TOP - 1]).reshaped(&[3, 2]);
    assert_eq!(y, turned);
    let m = model(
        "Unsqueeze",
        vec![],
        &[(U64, &x)],
        vec![int64s("axes", &[0])],
    );
    assert_eq!(given(&m, &[&x]), x.clone().reshaped(&[1, 2, 3]));
    let m = model("Gather", vec![], &[(U64, &x)], vec![int64s("at", &[1])]);
    assert_eq!(
        given(&m, &[&x]),
        tensor(DType::U64, &[2, 3, TOP - 1]).reshaped(&[1, 3])
    );
    // An input that is the output as well.
    let y = given(&model("Identity", vec![], &[(U64, &x)], vec![]), &[&x]);
    assert_eq!(y, x);
    let shape = Tensor::from_slice(&[1], &[4i64]);
    let value = proto("", &tensor(DType::U16, &[65_535]));
    let value = AttributeProto {
        name: Some("value".into()),
        t: Some(value),
        r#type: Some(4),
        ..Default::default()
    };
    let m = model(
        "ConstantOfShape",
        vec![value],
        &[],
        vec![proto("shape", &shape)],
    );
    assert_eq!(given(&m, &[]), tensor(DType::U16, &[65_535; 4]));
}

#[test]
fn sums_of_many_wrap_and_reductions_combine() {
    check("ReduceSum", U32, &[&[4_294_967_295, 3]], &[2]);
    check("ReduceSum", U64, &[&[TOP, 3]], &[2]);
    check("ReduceProd", U64, &[&[TOP, 3]], &[TOP - 2]);
    let matrix = tensor(DType::U32, &[4_000_000_000, 2, 3, 4_000_000_000]).reshaped(&[2, 2]);
    let y = given(
        &model("MatMul", vec![], &[(U32, &matrix), (U32, &matrix)], vec![]),
        &[&matrix, &matrix],
    );
    let expected = [1_983_905_798, 3_115_098_112, 2_525_163_520, 1_983_905_798];
    assert_eq!(y, tensor(DType::U32, &expected).reshaped(&[2, 2]));
}

#[test]
fn bits_are_read_as_another_type() {
    let cast = |elem_type, x: &Tensor, to| {
        given(
            &model("BitCast", vec![int("to", to)], &[(elem_type, x)], vec![]),
            &[x],
        )
    };
    let x = tensor(DType::U32, &[4_294_967_295, 7]);
    assert_eq!(cast(U32, &x, 6), Tensor::from_slice(&[2], &[-1i32, 7]));
    let x = tensor(DType::U16, &[65_535, 7]);
    assert_eq!(cast(U16, &x, 5), tensor(DType::I16, &[signed(-1), 7]));
    let x = Tensor::from_slice(&[2], &[-1i64, 7]);
    assert_eq!(cast(7, &x, 13), tensor(DType::U64, &[TOP, 7]));
    let x = Tensor::from_slice(&[2], &[-1i8, 7]);
    assert_eq!(cast(3, &x, 2), Tensor::from_slice(&[2], &[255u8, 7]));
    // onnxruntime: 1.5 is 0x3fc00000, and -0 has the highest bit only.
    let constant = proto("k", &Tensor::from_slice(&[2], &[1.5f32, -0.0]));
    let y = given(
        &model("BitCast", vec![int("to", 6)], &[], vec![constant]),
        &[],
    );
    assert_eq!(y, Tensor::from_slice(&[2], &[1_069_547_520, i32::MIN]));
    let float = Tensor::from_slice(&[1], &[1f32]);
    let m = model("BitCast", vec![int("to", 7)], &[(1, &float)], vec![]);
    let e = import(&m).unwrap_err().to_string();
    assert!(
        e.contains("i64 has 64 bits and its input f32 has 32"),
        "{e}"
    );
}

/// The data decide how many numbers are chosen; what is computed of them is as long.
#[test]
fn chosen_numbers_keep_their_count() {
    let x = tensor(DType::U16, &[0, 65_535, 0, 7]);
    let flat = int64s("flat", &[-1]);
    let m = file(
        21,
        GraphProto {
            name: Some("g".into()),
            input: vec![known("x", U16, &[4]), known("k", 9, &[4])],
            node: vec![
                node("Compress", &["x", "k"], &["some"], vec![int("axis", 0)]),
                node("Add", &["some", "some"], &["sum"], vec![]),
                node("Reshape", &["sum", "flat"], &["y"], vec![]),
            ],
            initializer: vec![flat],
            output: vec![undeclared("y")],
            ..Default::default()
        },
    );
    let keep = Tensor::from_bools(&[4], &[false, true, false, true]);
    let inputs = [Arc::new(x), Arc::new(keep)];
    let all = evaluate(&import(&m).unwrap(), &inputs, Keep::Outputs)
        .unwrap()
        .outputs();
    // The result at its bound, and the count of its live elements.
    assert_eq!(all.len(), 2);
    assert_eq!(all[1].get_i64(0), 2);
    assert_eq!(all[0].dtype(), DType::U16);
    assert_eq!(numbers(&all[0])[..2], [65_534, 14]);
}
