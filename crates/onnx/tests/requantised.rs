//! Bytes that are dequantised, moved or computed with one by one, and quantised again: for each
//! of the 256 bytes the results are those of the definition, in f32, before and after the model
//! is simplified.

mod build_onnx;
#[path = "build_onnx/steps.rs"]
mod steps;

use build_onnx::{file, float, floats, import, int, ints, known, node, undeclared};
use graph::{Keep, Model, evaluate, simplify};
use onnx::proto::{AttributeProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto};
use std::sync::Arc;
use steps::{Steps, dequantised, quantised, range};
use tensor::{DType, Tensor};

use DType::{I8, U8};

/// Ratios that are ties in real numbers, powers of two, far apart, and too small or too large for
/// a reciprocal; zero points at and between the bounds.
const PAIRS: [[Steps; 2]; 16] = [
    [Steps(U8, 0.05, 100), Steps(U8, 0.02, 100)],
    [Steps(U8, 0.05, 100), Steps(I8, 0.02, -28)],
    [Steps(I8, 0.05, -3), Steps(I8, 0.02, 7)],
    [Steps(I8, 0.03, 127), Steps(U8, 0.02, 0)],
    [Steps(U8, 0.1, 0), Steps(U8, 0.2, 0)],
    [Steps(U8, 0.1, 255), Steps(U8, 0.2, 255)],
    [Steps(I8, 0.7, -128), Steps(I8, 0.1, -128)],
    [Steps(U8, 0.021, 117), Steps(U8, 0.034, 12)],
    [Steps(U8, 0.25, 128), Steps(U8, 0.5, 128)],
    [Steps(U8, 0.3, 128), Steps(U8, 0.15, 3)],
    [Steps(U8, 0.05, 100), Steps(U8, 0.05, 100)],
    [Steps(U8, 0.05, 100), Steps(I8, 0.05, -28)],
    [Steps(U8, 1e-39, 100), Steps(U8, 4e-40, 90)],
    [Steps(I8, 3e-45, 0), Steps(I8, 1e-44, 0)],
    [Steps(U8, 3e36, 0), Steps(U8, 2e36, 1)],
    [Steps(I8, 0.0625, 5), Steps(U8, 0.012_345, 77)],
];

/// Every byte of a type, in a shape of 256 elements.
fn all_bytes(d: DType, shape: &[usize]) -> Tensor {
    let (least, most) = range(d);
    of_bytes(d, shape, &(least..=most).collect::<Vec<_>>())
}

fn of_bytes(d: DType, shape: &[usize], values: &[i32]) -> Tensor {
    let mut t = Tensor::zeros(d, shape);
    let all = values.iter().enumerate();
    all.for_each(|(i, v)| t.set_i64(i, i64::from(*v)));
    t
}

fn elem_type(d: DType) -> i32 {
    if d == U8 { 2 } else { 3 }
}

fn bytes(name: &str, d: DType, values: &[i32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: if values.len() == 1 {
            vec![]
        } else {
            vec![values.len() as i64]
        },
        data_type: Some(elem_type(d)),
        int32_data: values.to_vec(),
        ..Default::default()
    }
}

/// A graph being written, of inputs `x0`, ...; the last node's result is the output.
#[derive(Default)]
struct Net {
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
}

impl Net {
    fn steps(&mut self, s: Steps) -> [String; 2] {
        let n = self.constants.len();
        let names = [format!("scale{n}"), format!("zero{n}")];
        self.constants.push(floats(&names[0], &[], &[s.1]));
        self.constants.push(bytes(&names[1], s.0, &[s.2]));
        names
    }

    fn add(&mut self, op: &str, domain: &str, inputs: &[&str], a: Vec<AttributeProto>) -> String {
        let name = format!("y{}", self.nodes.len());
        let mut node = node(op, inputs, &[&name], a);
        node.domain = Some(domain.into());
        self.nodes.push(node);
        name
    }

    fn cast(&mut self, op: &str, x: &str, s: Steps) -> String {
        let [scale, zero] = self.steps(s);
        self.add(op, "", &[x, &scale, &zero], vec![])
    }

    fn dequantise(&mut self, x: &str, s: Steps) -> String {
        self.cast("DequantizeLinear", x, s)
    }

    fn quantise(&mut self, x: &str, s: Steps) -> String {
        self.cast("QuantizeLinear", x, s)
    }

    fn model(self, operands: &[Tensor]) -> Model {
        let input = |(i, t): (usize, &Tensor)| {
            let shape: Vec<i64> = t.shape().iter().map(|n| *n as i64).collect();
            known(&format!("x{i}"), elem_type(t.dtype()), &shape)
        };
        let last = self.nodes.last().expect("there are nodes").output[0].clone();
        let graph = GraphProto {
            name: Some("g".into()),
            node: self.nodes,
            input: operands.iter().enumerate().map(input).collect(),
            output: vec![undeclared(&last)],
            initializer: self.constants,
            ..Default::default()
        };
        let mut model = file(17, graph);
        model.opset_import.push(OperatorSetIdProto {
            domain: Some("com.microsoft".into()),
            version: Some(1),
        });
        import(&model).unwrap()
    }

    /// Checks the results of the model, as it is and simplified.
    fn check(self, operands: &[Tensor], want: &[i32], what: &str) {
        let model = self.model(operands);
        let given: Vec<_> = operands.iter().cloned().map(Arc::new).collect();
        for m in [&model, &simplify(&model)] {
            let y = evaluate(m, &given, Keep::Outputs).unwrap().outputs();
            let y: Vec<i32> = (0..y[0].len()).map(|i| y[0].get_i64(i) as i32).collect();
            let wrong = y.iter().zip(want).filter(|(y, want)| y != want).count();
            assert_eq!(
                (y.len(), wrong),
                (want.len(), 0),
                "{what}: {y:?}, not {want:?}"
            );
        }
    }
}

fn each(d: DType, f: impl Fn(i32) -> i32) -> Vec<i32> {
    let (least, most) = range(d);
    (least..=most).map(f).collect()
}

#[test]
fn bytes_are_requantised_as_defined() {
    let [from, to] = PAIRS[0];
    assert_eq!(quantised(dequantised(71, from), to), 27);
    for [from, to] in PAIRS {
        let x = [all_bytes(from.0, &[256])];
        let mut net = Net::default();
        let y = net.dequantise("x0", from);
        net.quantise(&y, to);
        let once = each(from.0, |q| quantised(dequantised(q, from), to));
        net.check(&x, &once, &format!("{from:?} to {to:?}"));

        let mut net = Net::default();
        let y = net.dequantise("x0", from);
        let y = net.add("Relu", "", &[&y], vec![]);
        net.quantise(&y, to);
        let want = each(from.0, |q| quantised(dequantised(q, from).max(0.0), to));
        net.check(&x, &want, &format!("{from:?}, relu, {to:?}"));

        // There, back, and there again.
        let mut net = Net::default();
        let mut y = "x0".to_string();
        for [from, to] in [[from, to], [to, from], [from, to]] {
            y = net.dequantise(&y, from);
            y = net.quantise(&y, to);
        }
        let again = |q| quantised(dequantised(q, to), from);
        let want = each(from.0, |q| {
            quantised(
                dequantised(again(quantised(dequantised(q, from), to)), from),
                to,
            )
        });
        net.check(&x, &want, &format!("{from:?} to {to:?} and again"));
    }
}

#[test]
fn bytes_that_are_moved_are_requantised_as_defined() {
    for [from, to] in PAIRS {
        let x = all_bytes(from.0, &[1, 1, 16, 16]);
        let mut net = Net::default();
        let y = net.dequantise("x0", from);
        let y = net.add("MaxPool", "", &[&y], vec![ints("kernel_shape", &[1, 2])]);
        net.quantise(&y, to);
        let all = each(from.0, |q| quantised(dequantised(q, from), to));
        let want: Vec<i32> = (0..256)
            .filter(|i| i % 16 != 15)
            .map(|i| all[i + 1])
            .collect();
        net.check(
            std::slice::from_ref(&x),
            &want,
            &format!("{from:?}, pool, {to:?}"),
        );

        // Parts of two scales, as nodes and as one.
        let other = all_bytes(to.0, &[1, 1, 16, 16]);
        let both = [all, each(to.0, |q| quantised(dequantised(q, to), to))].concat();
        let mut net = Net::default();
        let (a, b) = (net.dequantise("x0", from), net.dequantise("x1", to));
        let y = net.add("Concat", "", &[&a, &b], vec![int("axis", 0)]);
        net.quantise(&y, to);
        let x = [x, other];
        net.check(&x, &both, &format!("{from:?} beside {to:?}"));
        let mut net = Net::default();
        let ([ys, yz], [s0, z0], [s1, z1]) = (net.steps(to), net.steps(from), net.steps(to));
        let operands: [&str; 8] = [&ys, &yz, "x0", &s0, &z0, "x1", &s1, &z1];
        net.add(
            "QLinearConcat",
            "com.microsoft",
            &operands,
            vec![int("axis", 0)],
        );
        net.check(&x, &both, &format!("{from:?} joined with {to:?}"));
    }
}

#[test]
fn a_scale_for_each_channel() {
    let (scales, zeros) = ([0.05f32, 0.03, 0.07], [100, 0, 255]);
    let (new, moved) = ([0.02f32, 0.015, 0.1], [100, 3, 250]);
    let steps = |s: [f32; 3], z: [i32; 3]| [0, 1, 2].map(|c| Steps(U8, s[c], z[c]));
    let (from, to) = (steps(scales, zeros), steps(new, moved));
    let constants = vec![
        floats("s", &[3], &scales),
        bytes("z", U8, &zeros),
        floats("t", &[3], &new),
        bytes("w", U8, &moved),
    ];
    let nodes = Vec::new();
    let mut net = Net { nodes, constants };
    let axis = || vec![int("axis", 0)];
    let y = net.add("DequantizeLinear", "", &["x0", "s", "z"], axis());
    net.add("QuantizeLinear", "", &[&y, "t", "w"], axis());
    let all: Vec<i32> = (0..3).flat_map(|_| 0..256).collect();
    let want = (0..3).flat_map(|c| each(U8, |q| quantised(dequantised(q, from[c]), to[c])));
    let want: Vec<i32> = want.collect();
    net.check(&[of_bytes(U8, &[3, 256], &all)], &want, "a scale a channel");
}

#[test]
fn operators_of_two_bytes_and_of_one() {
    for [a, b] in PAIRS {
        let y = Steps(b.0, b.1 * 1.7, b.2);
        let (left, right) = (range(a.0), range(b.0));
        let pairs = (left.0..=left.1).flat_map(|p| (right.0..=right.1).map(move |q| (p, q)));
        let (xs, ys): (Vec<i32>, Vec<i32>) = pairs.unzip();
        let x = [
            of_bytes(a.0, &[256 * 256], &xs),
            of_bytes(b.0, &[256 * 256], &ys),
        ];
        for (op, of_two) in [
            ("QLinearAdd", (|a, b| a + b) as fn(f32, f32) -> f32),
            ("QLinearMul", |a, b| a * b),
        ] {
            let mut net = Net::default();
            let ([s0, z0], [s1, z1], [s, z]) = (net.steps(a), net.steps(b), net.steps(y));
            let operands: [&str; 8] = ["x0", &s0, &z0, "x1", &s1, &z1, &s, &z];
            net.add(op, "com.microsoft", &operands, vec![]);
            let of =
                |(p, q): (&i32, &i32)| quantised(of_two(dequantised(*p, a), dequantised(*q, b)), y);
            let want: Vec<i32> = xs.iter().zip(&ys).map(of).collect();
            net.check(&x, &want, &format!("{op} of {a:?} and {b:?}"));
        }
        let leaky = |x: f32| if x < 0.0 { x * 0.3 } else { x };
        // Rounded to f32 once.
        let sigmoid = |x: f32| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32;
        for (op, of_one) in [
            ("QLinearLeakyRelu", &leaky as &dyn Fn(f32) -> f32),
            ("QLinearSigmoid", &sigmoid),
        ] {
            let mut net = Net::default();
            let ([s0, z0], [s, z]) = (net.steps(a), net.steps(b));
            let alpha = match op {
                "QLinearLeakyRelu" => vec![float("alpha", 0.3)],
                _ => vec![],
            };
            net.add(op, "com.microsoft", &["x0", &s0, &z0, &s, &z], alpha);
            let want = each(a.0, |q| quantised(of_one(dequantised(q, a)), b));
            net.check(
                &[all_bytes(a.0, &[256])],
                &want,
                &format!("{op} of {a:?} to {b:?}"),
            );
        }
    }
}

/// Bytes of windows of an average pool and of a whole image, by the mean in f32.
#[test]
fn average_pools_of_bytes() {
    let windows = |x: &[i32], size: usize| -> Vec<Vec<i32>> {
        let places = 17 - size;
        let one = |at: usize| {
            let corner = at / places * 16 + at % places;
            let pixel = |t: usize| x[corner + t / size * 16 + t % size];
            (0..size * size).map(pixel).collect()
        };
        (0..places * places).map(one).collect()
    };
    for [a, b] in PAIRS
        .into_iter()
        .filter(|[a, _]| (1e-30..1e30).contains(&a.1))
    {
        let x = all_bytes(a.0, &[1, 1, 16, 16]);
        let bytes = each(a.0, |q| q);
        // Four and 256 are powers of two: where the sums are exact, so are the means.
        for (op, size) in [("QLinearAveragePool", 2), ("QLinearGlobalAveragePool", 16)] {
            let mut net = Net::default();
            let ([s0, z0], [s, z]) = (net.steps(a), net.steps(b));
            let attributes = match size {
                2 => vec![ints("kernel_shape", &[2, 2])],
                _ => vec![],
            };
            net.add(op, "com.microsoft", &["x0", &s0, &z0, &s, &z], attributes);
            let model = net.model(std::slice::from_ref(&x));
            let given = [Arc::new(x.clone())];
            for m in [&model, &simplify(&model)] {
                let y = evaluate(m, &given, Keep::Outputs).unwrap().outputs();
                let windows = windows(&bytes, size);
                assert_eq!(y[0].len(), windows.len());
                for (i, window) in windows.iter().enumerate() {
                    let sum: f64 = window.iter().map(|q| f64::from(dequantised(*q, a))).sum();
                    let mean = (sum / window.len() as f64) as f32;
                    // The order of a rounded sum is open: neighbouring means may be meant.
                    let sizes = window.iter().map(|q| dequantised(*q, a).abs());
                    let near = sizes.sum::<f32>() * f32::EPSILON;
                    let allowed = quantised(mean - near, b)..=quantised(mean + near, b);
                    let found = y[0].get_i64(i) as i32;
                    assert!(
                        allowed.contains(&found),
                        "{op} of {a:?} to {b:?}: {window:?} is {found}"
                    );
                }
            }
        }
    }
}
