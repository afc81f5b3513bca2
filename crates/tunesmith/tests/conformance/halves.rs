//! Models of f16 and bf16, made of the built-in ones and read from files, and f32 models whose
//! products are of bf16.

use crate::judge::{Judge, conforms, settings};
use graph::ops::Op;
use graph::{Model, ValueId};
use std::collections::HashMap;
use std::path::PathBuf;
use tensor::{DType, Tensor};
use tunesmith::{Precision, load};

/// A model with another type instead of f32.
fn halved(model: &Model, to: DType) -> Model {
    let of = |d: DType| if d == DType::F32 { to } else { d };
    let mut half = Model::new("halves", 17);
    let mut found: HashMap<ValueId, ValueId> = HashMap::new();
    for v in model.inputs() {
        let value = &model[*v];
        let new = half.add_input(value.name(), of(value.dtype()), value.shape());
        found.insert(*v, new);
    }
    for (_, node) in model.nodes() {
        let mut inputs = Vec::new();
        for v in &node.inputs {
            inputs.push(v.map(|v| {
                *found.entry(v).or_insert_with(|| {
                    let t = model.constant(v).expect("it comes before its reader");
                    let mut new = Tensor::zeros(of(t.dtype()), t.shape());
                    match t.dtype().is_float() {
                        true => (0..t.len()).for_each(|i| new.set_f64(i, t.get_f64(i))),
                        false => (0..t.len()).for_each(|i| new.set_i64(i, t.get_i64(i))),
                    }
                    half.add_constant(model[v].name(), new)
                })
            }));
        }
        let op = match &node.op {
            Op::Cast(d) => Op::Cast(of(*d)),
            op => op.clone(),
        };
        let outputs = half
            .add_node(&node.name, op, &inputs)
            .expect("a node of halves");
        found.extend(node.outputs.iter().copied().zip(outputs));
    }
    model
        .outputs()
        .iter()
        .for_each(|v| half.add_output(found[v]));
    half
}

/// A file of the halves of a built-in model or operator, in a folder that is deleted.
fn file(name: &str, to: DType) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("halves.onnx");
    let source = load(name, &onnx::ImportOptions::default()).unwrap();
    let bytes = onnx::export(&halved(&source.model, to)).unwrap();
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn of_halves(names: &[&str]) {
    for name in names {
        for to in [DType::F16, DType::BF16] {
            let (_folder, path) = file(name, to);
            conforms(path.to_str().unwrap());
        }
    }
}

#[test]
fn convolutions() {
    of_halves(&[
        "op:conv2d(c=3,h=11,w=13,k=32,r=3,s=3,stride=2,bias=yes,activation=relu)",
        "op:conv2d(n=2,c=32,h=7,w=6,k=48,r=3,s=3,bias=yes,activation=relu)",
        "op:conv2d(c=32,h=7,w=7,k=32,r=1,s=1,pad=0,activation=sigmoid)",
        "op:conv2d(c=24,h=9,w=10,k=40,r=3,s=3,bias=yes)",
        "op:conv2d(c=10,h=6,w=7,k=9,r=3,s=3,bias=yes,layout=nchw)",
        "op:conv2d(c=64,h=14,w=14,k=272,r=1,s=1,pad=0)",
        "op:conv2d(c=3,h=32,w=48,k=32,r=16,s=16,stride=16,pad=0)",
        "op:conv1d(c=32,k=32,w=20)",
        "op:conv1d(c=40,k=48,w=19)",
        "op:conv2d(c=32,h=4,w=4,k=32,r=1,s=1,pad=1,bias=yes,layout=nhwc)",
        "op:grouped_conv2d(c=32,h=6,w=7,k=32,r=3,s=3,groups=8,bias=yes,activation=relu)",
        "op:depthwise_conv2d(c=32,h=9,w=7,r=3,s=3,bias=yes,activation=relu)",
        "op:conv2d_transpose(c=16,h=4,w=5,k=32,r=4,s=4,stride=2,pad=1,bias=yes)",
    ]);
}

/// In groups of whole blocks of channels, of two blocks, and of parts of one: lines of odd numbers of
/// pixels, borders, steps of two, several images, and a last block that groups do not fill.
const IN_GROUPS: [&str; 8] = [
    "op:grouped_conv2d(c=48,h=9,w=13,k=48,r=3,s=3,groups=3,bias=yes,activation=relu)",
    "op:grouped_conv2d(n=2,c=32,h=15,w=14,k=32,r=3,s=3,groups=2,stride=2,bias=yes)",
    "op:grouped_conv2d(c=64,h=7,w=7,k=64,r=3,s=3,groups=2,activation=relu)",
    "op:grouped_conv2d(c=64,h=11,w=19,k=128,r=3,s=3,groups=2,stride=2,bias=yes)",
    "op:grouped_conv2d(c=64,h=5,w=9,k=64,r=1,s=1,pad=0,groups=4)",
    "op:grouped_conv2d(n=2,c=40,h=9,w=13,k=40,r=3,s=3,groups=5,bias=yes,activation=relu)",
    "op:grouped_conv2d(c=32,h=14,w=15,k=32,r=3,s=3,groups=8,stride=2)",
    "op:grouped_conv2d(c=32,h=7,w=7,k=32,r=3,s=3,groups=4,pad=0)",
];

#[test]
fn convolutions_in_groups() {
    for name in IN_GROUPS {
        let judge = Judge::with_precision(name, Precision::Bf16);
        settings().iter().for_each(|s| judge.defaults(s));
    }
    of_halves(&IN_GROUPS[..6]);
}

#[test]
fn products() {
    of_halves(&[
        "op:matmul(m=7,n=9,k=5,activation=relu)",
        "op:matmul(m=33,n=64,k=24)",
        "op:batch_matmul(b=2,m=16,n=32,k=8,activation=gelu)",
        "op:dense(m=1,n=40,k=33,bias=yes,activation=relu)",
        "op:dense(m=13,n=64,k=32,bias=yes,activation=gelu)",
        "op:dense(m=1,n=80,k=64,bias=yes)",
        "op:dense(m=75,n=40,k=512,bias=yes)",
        "op:contract(a=3,b=4,c=5,d=17,e=6)",
    ]);
}

#[test]
fn rows_windows_and_moves() {
    of_halves(&[
        "op:softmax(rows=6,cols=64)",
        "op:softmax(rows=7,cols=150)",
        "op:layer_norm(rows=4,cols=141)",
        "op:group_norm(c=32,h=4,w=4,groups=4)",
        "op:max_pool2d(c=32,h=9,w=8)",
        "op:avg_pool2d(n=2,c=5,h=8,w=7,r=2,s=3,stride=1,pad=1)",
        "op:global_avg_pool2d(n=2,c=32,h=5,w=3)",
        "op:reduce_sum(rows=33,cols=32)",
        "op:transpose(rows=9,cols=50)",
        "op:transpose(rows=96,cols=160)",
        "op:add(rows=9,cols=11,activation=sigmoid)",
        "op:concat(n=2,c=5,h=3,w=4)",
        "op:gather(table=10,rows=7,cols=33)",
        "op:attention(heads=3,n=16,d=8)",
        "op:attention(heads=2,n=33,d=32)",
    ]);
}

#[test]
fn attention_in_one_kernel() {
    for to in [DType::F16, DType::BF16] {
        let (_folder, path) = file("op:attention(heads=12,n=260,d=32)", to);
        let judge = Judge::new(path.to_str().unwrap());
        settings().iter().for_each(|s| judge.defaults(s));
    }
}

#[test]
fn a_network_of_halves_and_one_with_products_of_bf16() {
    for to in [DType::F16, DType::BF16] {
        let (_folder, path) = file("squeezenet1.1", to);
        let judge = Judge::new(path.to_str().unwrap());
        settings().iter().for_each(|s| judge.defaults(s));
    }
    for name in ["squeezenet1.1", "op:attention(heads=2,n=49,d=32)"] {
        let judge = Judge::with_precision(name, Precision::Bf16);
        settings().iter().for_each(|s| judge.defaults(s));
    }
}
