//! Inputs and outputs of integers that operators do not compute in, from file to file.

use super::program::place;
use onnx::proto::tensor_shape_proto::{Dimension, dimension};
use onnx::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};
use prost::Message;
use tempfile::tempdir;
use tensor::{Element, Tensor, read_npy_file, write_npy_file};

const COUNT: usize = 37;

fn value(name: &str, elem_type: i32) -> ValueInfoProto {
    let dim = Dimension {
        value: Some(dimension::Value::DimValue(COUNT as i64)),
    };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            tensor_type: Some(type_proto::Tensor {
                elem_type: Some(elem_type),
                shape: Some(TensorShapeProto { dim: vec![dim] }),
            }),
        }),
        ..Default::default()
    }
}

/// The sum, the product and the quotient of two inputs.
fn model(elem_type: i32) -> Vec<u8> {
    let operators = [("Add", "sum"), ("Mul", "product"), ("Div", "quotient")];
    let node = |(operator, output): (&str, &str)| NodeProto {
        op_type: Some(operator.into()),
        input: vec!["x".into(), "y".into()],
        output: vec![output.into()],
        ..Default::default()
    };
    let graph = GraphProto {
        name: Some("g".into()),
        node: operators.map(node).to_vec(),
        input: ["x", "y"].map(|name| value(name, elem_type)).to_vec(),
        output: operators.map(|(_, name)| value(name, elem_type)).to_vec(),
        ..Default::default()
    };
    let model = ModelProto {
        ir_version: Some(10),
        opset_import: vec![OperatorSetIdProto {
            version: Some(21),
            ..Default::default()
        }],
        graph: Some(graph),
        ..Default::default()
    };
    model.encode_to_vec()
}

/// Runs the model compiled, on numbers near the borders of the type, and compares with Rust's own arithmetic.
fn check<T: Element + PartialEq + std::fmt::Debug>(
    elem_type: i32,
    number: impl Fn(usize) -> T,
    compute: [fn(T, T) -> T; 3],
) {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("m.onnx"), model(elem_type)).unwrap();
    p.ok(&["compile", "m.onnx", "--threads", "1", "--out", "m.tsm"]);
    let x: Vec<T> = (0..COUNT).map(|i| number(7 * i + 1)).collect();
    let y: Vec<T> = (0..COUNT).map(|i| number(3 * i + 2)).collect();
    for (name, values) in [("x.npy", &x), ("y.npy", &y)] {
        write_npy_file(&path(name), &Tensor::from_slice(&[COUNT], values)).unwrap();
    }
    let inputs = ["--input", "x=x.npy", "--input", "y=y.npy"];
    p.ok(&[&["run", "m.tsm"][..], &inputs, &["--out", "results/"]].concat());
    for (name, compute) in ["sum", "product", "quotient"].iter().zip(compute) {
        let result = read_npy_file(&path(&format!("results/{name}.npy"))).unwrap();
        let expected: Vec<T> = x.iter().zip(&y).map(|(x, y)| compute(*x, *y)).collect();
        assert_eq!(result.as_slice::<T>(), expected, "{name}");
    }
    p.ok(&["check", "m.onnx", "--artifact", "m.tsm", "--threads", "1"]);
}

/// Numbers spread over 64 bits, of which a type takes the highest; none is 0.
fn spread(i: usize) -> u64 {
    match i % 5 {
        // It has no next number, which an index always has.
        0 => u64::MAX,
        1 => i as u64,
        _ => (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 60,
    }
}

#[test]
fn integers_of_every_width_are_read_computed_and_written() {
    check::<u64>(
        13,
        spread,
        [u64::wrapping_add, u64::wrapping_mul, u64::wrapping_div],
    );
    check::<u32>(
        12,
        |i| (spread(i) >> 32) as u32 | 1,
        [u32::wrapping_add, u32::wrapping_mul, u32::wrapping_div],
    );
    check::<u16>(
        4,
        |i| (spread(i) >> 48) as u16 | 1,
        [u16::wrapping_add, u16::wrapping_mul, u16::wrapping_div],
    );
    check::<i16>(
        5,
        |i| (spread(i) >> 48) as i16 | 1,
        [i16::wrapping_add, i16::wrapping_mul, i16::wrapping_div],
    );
}
