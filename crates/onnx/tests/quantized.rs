//! Zero points of quantised ONNX operators, against sums written out: every
//! shape that the documentation allows, as constants and as inputs.

mod build_onnx;

use build_onnx::{file, import, int, ints, known, node, undeclared};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

const U8: i32 = 2;
const I8: i32 = 3;
const I32: i32 = 6;
const F32: i32 = 1;
const F16: i32 = 10;

fn onnx_type(t: &Tensor) -> i32 {
    match t.dtype() {
        DType::U8 => U8,
        DType::I8 => I8,
        other => panic!("{other} is not quantised"),
    }
}

/// Any bytes of a type, the extremes too.
fn bytes(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let (lo, hi) = match dtype {
        DType::U8 => (0, 255),
        _ => (-128, 127),
    };
    fill_tensor(dtype, shape, Fill::Integers { lo, hi }, seed)
}

fn initializer(name: &str, t: &Tensor) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: t.shape().iter().map(|n| *n as i64).collect(),
        data_type: Some(onnx_type(t)),
        int32_data: (0..t.len()).map(|i| t.get_i64(i) as i32).collect(),
        ..Default::default()
    }
}

/// A model of one node; the first operand is an input, the others are if
/// `constants` is not set.
fn model(
    op: &str,
    attributes: Vec<AttributeProto>,
    operands: &[Option<&Tensor>],
    constants: bool,
) -> ModelProto {
    let names = ["a", "b", "p", "q"];
    let given = || {
        names
            .iter()
            .zip(operands)
            .filter_map(|(n, t)| Some((*n, (*t)?)))
    };
    let used: Vec<&str> = names
        .iter()
        .zip(operands)
        .map(|(n, t)| t.map_or("", |_| *n))
        .collect();
    let is_input = |name: &str| !constants || name == "a";
    let shape = |t: &Tensor| -> Vec<i64> { t.shape().iter().map(|n| *n as i64).collect() };
    let input = |(n, t): (&str, &Tensor)| known(n, onnx_type(t), &shape(t));
    file(
        13,
        GraphProto {
            name: Some("g".into()),
            node: vec![node(op, &used, &["y"], attributes)],
            input: given().filter(|g| is_input(g.0)).map(input).collect(),
            output: vec![undeclared("y")],
            initializer: given()
                .filter(|g| !is_input(g.0))
                .map(|(n, t)| initializer(n, t))
                .collect(),
            ..Default::default()
        },
    )
}

/// What the model gives, with operands as constants and as inputs: the same.
fn run(op: &str, attributes: &[AttributeProto], operands: &[Option<&Tensor>]) -> Vec<i64> {
    let of = |constants: bool| {
        let m = import(&model(op, attributes.to_vec(), operands, constants)).unwrap();
        m.verify().unwrap();
        let given: Vec<&Tensor> = operands.iter().flatten().copied().collect();
        let inputs: Vec<Arc<Tensor>> = given
            .into_iter()
            .take(m.inputs().len())
            .map(|t| Arc::new(t.clone()))
            .collect();
        let y = evaluate(&m, &inputs, Keep::Outputs).unwrap().outputs();
        (0..y[0].len()).map(|i| y[0].get_i64(i)).collect()
    };
    let y: Vec<i64> = of(true);
    assert_eq!(y, of(false), "{op}: constants and inputs differ");
    y
}

/// The zero point of row, column or map `i`.
fn at(zero_point: Option<&Tensor>, i: usize) -> i64 {
    match zero_point {
        None => 0,
        Some(z) if z.len() == 1 => z.get_i64(0),
        Some(z) => z.get_i64(i),
    }
}

#[test]
fn products_take_zero_points_of_every_shape() {
    let (m, k, n) = (3, 5, 4);
    let mut seed = 0;
    let mut next = |dtype, shape: &[usize]| {
        seed += 1;
        bytes(dtype, shape, seed)
    };
    for (left, right) in [(DType::U8, DType::I8), (DType::I8, DType::U8)] {
        let (a, b) = (next(left, &[m, k]), next(right, &[k, n]));
        let of_a = [vec![], vec![1], vec![m]].map(|shape| next(left, &shape));
        let of_b = [vec![], vec![1], vec![n]].map(|shape| next(right, &shape));
        let all_a: Vec<Option<&Tensor>> = of_a.iter().map(Some).chain([None]).collect();
        let all_b: Vec<Option<&Tensor>> = of_b.iter().map(Some).chain([None]).collect();
        for p in &all_a {
            for q in &all_b {
                let mut expected = Vec::new();
                for i in 0..m {
                    for j in 0..n {
                        let term = |t| {
                            (a.get_i64(i * k + t) - at(*p, i)) * (b.get_i64(t * n + j) - at(*q, j))
                        };
                        expected.push((0..k).map(term).sum::<i64>());
                    }
                }
                let y = run("MatMulInteger", &[], &[Some(&a), Some(&b), *p, *q]);
                let shapes = (p.map(Tensor::shape), q.map(Tensor::shape));
                assert_eq!(y, expected, "zero points of shapes {shapes:?}");
            }
        }
    }
}

#[test]
fn products_of_vectors_take_zero_points() {
    let (m, k, n) = (3, 5, 4);
    let p = bytes(DType::U8, &[], 1);
    let q = bytes(DType::I8, &[], 2);
    let (row, rows) = (bytes(DType::U8, &[k], 3), bytes(DType::U8, &[m, k], 4));
    let (column, columns) = (bytes(DType::I8, &[k], 5), bytes(DType::I8, &[k, n], 6));
    for (a, b, m, n) in [
        (&row, &columns, 1, n),
        (&rows, &column, m, 1),
        (&row, &column, 1, 1),
    ] {
        let mut expected = Vec::new();
        for i in 0..m {
            for j in 0..n {
                let term = |t| {
                    let (a, b) = (a.get_i64(i * k + t), b.get_i64(t * n + j));
                    (a - p.get_i64(0)) * (b - q.get_i64(0))
                };
                expected.push((0..k).map(term).sum::<i64>());
            }
        }
        let y = run(
            "MatMulInteger",
            &[],
            &[Some(a), Some(b), Some(&p), Some(&q)],
        );
        assert_eq!(y, expected, "{:?} by {:?}", a.shape(), b.shape());
    }
}

/// Height and width of the input of a convolution, and its other sizes.
struct Windows {
    channels: usize,
    size: [usize; 2],
    maps: usize,
    kernel: usize,
    groups: usize,
    stride: usize,
    pad: usize,
}

impl Windows {
    /// Sums of (x - p)(w - q) over windows; what lies outside counts nothing.
    fn sums(&self, x: &Tensor, w: &Tensor, p: Option<&Tensor>, q: Option<&Tensor>) -> Vec<i64> {
        let [rows, columns] = self.size;
        let out = |n: usize| (n + 2 * self.pad - self.kernel) / self.stride + 1;
        let inner = self.channels / self.groups;
        let mut y = Vec::new();
        for map in 0..self.maps {
            let first = map / (self.maps / self.groups) * inner;
            for (i, j) in (0..out(rows)).flat_map(|i| (0..out(columns)).map(move |j| (i, j))) {
                let mut sum = 0;
                for (c, u, v) in (0..inner)
                    .flat_map(|c| (0..self.kernel).map(move |u| (c, u)))
                    .flat_map(|(c, u)| (0..self.kernel).map(move |v| (c, u, v)))
                {
                    let row = (i * self.stride + u).wrapping_sub(self.pad);
                    let column = (j * self.stride + v).wrapping_sub(self.pad);
                    if row < rows && column < columns {
                        let pixel = x.get_i64(((first + c) * rows + row) * columns + column);
                        let weight =
                            w.get_i64(((map * inner + c) * self.kernel + u) * self.kernel + v);
                        sum += (pixel - at(p, 0)) * (weight - at(q, map));
                    }
                }
                y.push(sum);
            }
        }
        y
    }
}

#[test]
fn convolutions_take_zero_points_of_every_shape() {
    for (pad, groups, stride) in [(0, 1, 1), (1, 1, 1), (1, 2, 2), (0, 2, 1)] {
        let s = Windows {
            channels: 4,
            size: [6, 5],
            maps: 6,
            kernel: 3,
            groups,
            stride,
            pad,
        };
        let x = bytes(DType::U8, &[1, s.channels, s.size[0], s.size[1]], 1);
        let shape = [s.maps, s.channels / groups, s.kernel, s.kernel];
        let w = bytes(DType::I8, &shape, 2);
        let attributes = [
            int("group", groups as i64),
            ints("pads", &[pad as i64; 4]),
            ints("strides", &[stride as i64; 2]),
        ];
        let one = [bytes(DType::U8, &[], 3), bytes(DType::U8, &[1], 4)];
        let of_w = [bytes(DType::I8, &[], 5), bytes(DType::I8, &[s.maps], 6)];
        for p in one.iter().map(Some).chain([None]) {
            for q in of_w.iter().map(Some).chain([None]) {
                let y = run("ConvInteger", &attributes, &[Some(&x), Some(&w), p, q]);
                let shapes = (p.map(Tensor::shape), q.map(Tensor::shape));
                let case = format!("pad {pad}, {groups} groups, zero points of {shapes:?}");
                assert_eq!(y, s.sums(&x, &w, p, q), "{case}");
            }
        }
    }
}

/// `DequantizeLinear` of 4 bytes along axis 1 of [1, 2, 2], with so many scales.
fn dequantized(scales: usize, attributes: Vec<AttributeProto>) -> Result<DType, String> {
    let scale = TensorProto {
        name: Some("b".into()),
        dims: vec![scales as i64],
        data_type: Some(F32),
        float_data: vec![0.5; scales],
        ..Default::default()
    };
    let model = file(
        23,
        GraphProto {
            name: Some("g".into()),
            node: vec![node("DequantizeLinear", &["a", "b"], &["y"], attributes)],
            input: vec![known("a", I8, &[1, 2, 2])],
            output: vec![undeclared("y")],
            initializer: vec![scale],
            ..Default::default()
        },
    );
    let m = import(&model).map_err(|e| e.to_string())?;
    Ok(m[m.outputs()[0]].dtype())
}

#[test]
fn the_type_of_what_is_dequantized_may_be_asked_for() {
    let of = |ty| dequantized(2, vec![int("output_dtype", ty)]);
    assert_eq!(dequantized(2, vec![]), Ok(DType::F32));
    assert_eq!(of(0), Ok(DType::F32));
    assert_eq!(of(i64::from(F16)), Ok(DType::F16));
    assert!(of(i64::from(I32)).unwrap_err().contains("output_dtype=6"));
}

#[test]
fn scales_are_as_many_as_the_axis_has() {
    assert!(dequantized(2, vec![]).is_ok());
    assert!(dequantized(1, vec![]).is_ok());
    let error = dequantized(3, vec![]).unwrap_err();
    assert!(
        error.contains("3 scales") && error.contains("axis of 2"),
        "{error}"
    );
}

/// 255 steps from the least to the largest of the values and 0; zeros alone have steps of 1, as onnxruntime 1.31.1 gives them.
#[test]
fn a_range_of_its_own_may_be_empty() {
    let ranges: [(&[f32], &[u8], f64, i64); 3] = [
        (&[0.0, 0.0, -0.0], &[0, 0, 0], 1.0, 0),
        (&[0.0, 51.0, 255.0], &[0, 51, 255], 1.0, 0),
        (&[-2.0, 0.0, 0.55], &[0, 200, 255], 0.01, 200),
    ];
    for (x, bytes, scale, zero_point) in ranges {
        let x = Tensor::from_slice(&[x.len()], x);
        let proto = file(
            17,
            GraphProto {
                name: Some("g".into()),
                node: vec![node(
                    "DynamicQuantizeLinear",
                    &["x"],
                    &["y", "scale", "zero"],
                    vec![],
                )],
                input: vec![known("x", F32, &[3])],
                output: ["y", "scale", "zero"].map(undeclared).into(),
                ..Default::default()
            },
        );
        let found = evaluate(&import(&proto).unwrap(), &[Arc::new(x)], Keep::Outputs);
        let found = found.unwrap().results();
        assert_eq!(*found[0], Tensor::from_slice(&[3], bytes));
        assert!((found[1].get_f64(0) - scale).abs() < 1e-6 * scale);
        assert_eq!(found[2].get_i64(0), zero_point);
    }
}

/// The attribute `precision` of operator set 23 names the type of the quotient: 0, 0.5, 1 and
/// 1.5 here, whose halves round to even.
#[test]
fn a_quotient_of_f32_may_be_asked_for() {
    let quantized = |precision: i64| {
        let scale = build_onnx::floats("scale", &[], &[2.0]);
        let zero = TensorProto {
            name: Some("zero".into()),
            data_type: Some(I8),
            int32_data: vec![-3],
            ..Default::default()
        };
        let names = ["x", "scale", "zero"];
        let attributes = vec![int("precision", precision)];
        let node = node("QuantizeLinear", &names, &["y"], attributes);
        build_onnx::one_node(23, &[4], node, vec![scale, zero])
    };
    let y = build_onnx::outputs(&quantized(i64::from(F32))).remove(0);
    assert_eq!(build_onnx::floats_of(&y), [-3.0, -3.0, -2.0, -1.0]);
    let refused = import(&quantized(i64::from(F16))).unwrap_err();
    assert!(refused.to_string().contains("precision=10"), "{refused}");
}
