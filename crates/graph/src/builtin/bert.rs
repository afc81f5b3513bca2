//! BERT-base (Devlin et al. 2018), in the form that PyTorch exports.

use super::net::Net;
use crate::model::ValueId;
use crate::ops::{Binary, Gather, Gelu, LayerNorm, Op, Slice, Softmax, Transpose, Unary};
use tensor::DType;

const TOKENS: usize = 128;
const WIDTH: usize = 768;
const HEADS: usize = 12;
const INNER: usize = 3072;
const LAYERS: usize = 12;
const VOCABULARY: usize = 30522;

/// Inputs `input_ids`, `token_type_ids`, `attention_mask`: i64 [1,128]. Outputs
/// `last_hidden_state` and `pooler_output`.
pub(super) fn base(net: &mut Net) {
    let [ids, types, mask] = ["input_ids", "token_type_ids", "attention_mask"]
        .map(|name| net.model.add_input(name, DType::I64, &[1, TOKENS]));
    let mut x = embeddings(net, ids, types);
    let mask = additive_mask(net, mask);
    for i in 0..LAYERS {
        x = layer(net, &format!("layer{i}"), x, mask);
    }
    let first = Slice {
        starts: vec![0; 3],
        steps: vec![1; 3],
        sizes: vec![1, 1, WIDTH],
    };
    let token = net.add("pooler.first", Op::Slice(first), &[x]);
    let token = net.flatten("pooler.flatten", token);
    let pooled = net.linear("pooler.dense", token, WIDTH, 1.0);
    let pooled = net.add("pooler.tanh", Op::Unary(Unary::Tanh), &[pooled]);
    net.output("last_hidden_state", x);
    net.output("pooler_output", pooled);
}

fn embeddings(net: &mut Net, ids: ValueId, types: ValueId) -> ValueId {
    let mut table = |name: &str, rows: usize, indices: ValueId| {
        let t = net.uniform(&format!("{name}.weight"), &[rows, WIDTH], -1.0, 1.0);
        net.add(name, Op::Gather(Gather { axis: 0 }), &[t, indices])
    };
    let words = table("embeddings.word", VOCABULARY, ids);
    let types = table("embeddings.type", 2, types);
    let positions = net.uniform("embeddings.position", &[1, TOKENS, WIDTH], -1.0, 1.0);
    let x = net.binary("embeddings.add", Binary::Add, words, types);
    let x = net.binary("embeddings.add_position", Binary::Add, x, positions);
    norm(net, "embeddings.norm", x)
}

/// 0 where a token counts, -10000 where it does not: [1,1,1,128].
fn additive_mask(net: &mut Net, mask: ValueId) -> ValueId {
    let mask = net.reshape("mask.unsqueeze", mask, &[1, 1, 1, TOKENS]);
    let mask = net.add("mask.cast", Op::Cast(DType::F32), &[mask]);
    let one = net.scalar("mask.one", 1.0);
    let far = net.scalar("mask.far", -10000.0);
    let away = net.binary("mask.sub", Binary::Sub, one, mask);
    net.binary("mask.mul", Binary::Mul, away, far)
}

fn layer(net: &mut Net, name: &str, x: ValueId, mask: ValueId) -> ValueId {
    let part = |what: &str| format!("{name}.{what}");
    let attended = attention(net, &part("attention"), x, mask);
    let x = net.binary(&part("attention.residual"), Binary::Add, attended, x);
    let x = norm(net, &part("attention.norm"), x);
    let y = dense(net, &part("inner"), x, INNER);
    let y = net.add(&part("gelu"), Op::Unary(Unary::Gelu(Gelu::Exact)), &[y]);
    let y = dense(net, &part("outer"), y, WIDTH);
    let y = net.binary(&part("residual"), Binary::Add, y, x);
    norm(net, &part("norm"), y)
}

fn attention(net: &mut Net, name: &str, x: ValueId, mask: ValueId) -> ValueId {
    let part = |what: &str| format!("{name}.{what}");
    let size = WIDTH / HEADS;
    let mut head = |what: &str, perm: [usize; 4]| {
        let y = dense(net, &part(what), x, WIDTH);
        let y = net.reshape(
            &part(&format!("{what}.split")),
            y,
            &[1, TOKENS, HEADS, size],
        );
        let perm = perm.to_vec();
        let name = part(&format!("{what}.heads"));
        net.add(&name, Op::Transpose(Transpose { perm }), &[y])
    };
    let q = head("query", [0, 2, 1, 3]);
    let k = head("key", [0, 2, 3, 1]);
    let v = head("value", [0, 2, 1, 3]);
    let scores = net.add(&part("scores"), Op::MatMul, &[q, k]);
    let root = net.scalar(&part("root"), (size as f32).sqrt());
    let scores = net.binary(&part("scale"), Binary::Div, scores, root);
    let scores = net.binary(&part("mask"), Binary::Add, scores, mask);
    let weights = net.add(
        &part("softmax"),
        Op::Softmax(Softmax { axis: 3 }),
        &[scores],
    );
    let mixed = net.add(&part("mix"), Op::MatMul, &[weights, v]);
    let perm = vec![0, 2, 1, 3];
    let mixed = net.add(&part("join"), Op::Transpose(Transpose { perm }), &[mixed]);
    let mixed = net.reshape(&part("merge"), mixed, &[1, TOKENS, WIDTH]);
    dense(net, &part("output"), mixed, WIDTH)
}

/// x W + b over the last axis.
fn dense(net: &mut Net, name: &str, x: ValueId, maps: usize) -> ValueId {
    let depth = net.model[x].shape()[2];
    let w = net.weight(&format!("{name}.weight"), &[depth, maps], depth, 1.0);
    let b = net.uniform(&format!("{name}.bias"), &[maps], -0.1, 0.1);
    let y = net.add(name, Op::MatMul, &[x, w]);
    net.binary(&format!("{name}.add"), Binary::Add, y, b)
}

fn norm(net: &mut Net, name: &str, x: ValueId) -> ValueId {
    let scale = net.uniform(&format!("{name}.scale"), &[WIDTH], 0.8, 1.2);
    let shift = net.uniform(&format!("{name}.shift"), &[WIDTH], -0.1, 0.1);
    let norm = LayerNorm {
        axis: 2,
        epsilon: 1e-12,
        statistics: false,
    };
    net.add(name, Op::LayerNorm(norm), &[x, scale, shift])
}
