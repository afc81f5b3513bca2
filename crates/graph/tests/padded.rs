//! Which models may be padded: every proof is held against the references, which run the model
//! at both sizes.

use graph::ops::{
    Binary, Cumulative, CumulativeKind, Expand, Gather, GatherElements, GatherNd, Reduce,
    ReduceKind, Reshape, Slice, Softmax, Transpose,
};
use graph::{Keep, Model, Op, Padded, Rows, ValueId, evaluate, padded};
use std::sync::Arc;
use tensor::{DType, Tensor};

const SIZES: [(usize, usize); 3] = [(2, 5), (4, 5), (1, 3)];
const WIDTH: usize = 4;

/// A model of so many rows under construction. Its inputs are x [2,rows,4] and mask [2,rows],
/// whose elements are 0 or 1.
struct Build {
    m: Model,
    rows: usize,
    x: ValueId,
    mask: ValueId,
}

impl Build {
    fn new(rows: usize) -> Build {
        let mut m = Model::new("m", 17);
        let x = m.add_input("x", DType::F32, &[2, rows, WIDTH]);
        let mask = m.add_input("mask", DType::I64, &[2, rows]);
        Build { m, rows, x, mask }
    }

    fn op(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let name = op.name();
        let inputs: Vec<_> = inputs.iter().map(|v| Some(*v)).collect();
        self.m.add_node(name, op, &inputs).unwrap()[0]
    }

    fn binary(&mut self, op: Binary, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::Binary(op), &[a, b])
    }

    fn scalar(&mut self, value: f32) -> ValueId {
        let t = Tensor::from_slice(&[], &[value]);
        self.m.add_constant("c", t)
    }

    /// A constant [rows,rows] of what a query sees of a key.
    fn square(&mut self, of: impl Fn(usize, usize) -> f32) -> ValueId {
        let n = self.rows;
        let values: Vec<f32> = (0..n * n).map(|i| of(i / n, i % n)).collect();
        let t = Tensor::from_slice(&[n, n], &values);
        self.m.add_constant("square", t)
    }

    fn reshape(&mut self, x: ValueId, shape: &[usize]) -> ValueId {
        let shape = shape.to_vec();
        self.op(Op::Reshape(Reshape { shape }), &[x])
    }

    fn sum(&mut self, x: ValueId, kind: ReduceKind) -> ValueId {
        let (axes, keepdims) = (vec![1], false);
        self.op(
            Op::Reduce(Reduce {
                kind,
                axes,
                keepdims,
            }),
            &[x],
        )
    }

    /// (1 - mask) * lowest, as [2,rows] in this shape.
    fn additive(&mut self, lowest: f32, shape: &[usize]) -> ValueId {
        let mask = self.op(Op::Cast(DType::F32), &[self.mask]);
        let mask = self.reshape(mask, shape);
        let (one, lowest) = (self.scalar(1.0), self.scalar(lowest));
        let hidden = self.binary(Binary::Sub, one, mask);
        self.binary(Binary::Mul, hidden, lowest)
    }

    fn keys(&self) -> [usize; 3] {
        [2, 1, self.rows]
    }

    /// Each row's products with each row.
    fn scores(&mut self) -> ValueId {
        let perm = vec![0, 2, 1];
        let keys = self.op(Op::Transpose(Transpose { perm }), &[self.x]);
        let scores = self.op(Op::MatMul, &[self.x, keys]);
        let scale = self.scalar(0.5);
        self.binary(Binary::Mul, scores, scale)
    }

    fn weighted(&mut self, scores: ValueId, axis: usize) -> ValueId {
        let weights = self.op(Op::Softmax(Softmax { axis }), &[scores]);
        self.op(Op::MatMul, &[weights, self.x])
    }

    fn running_sum(&mut self, reverse: bool) -> ValueId {
        let running = Cumulative {
            kind: CumulativeKind::Sum,
            axis: 1,
            exclusive: false,
            reverse,
        };
        self.op(Op::Cumulative(running), &[self.x])
    }

    fn picked(&mut self, row: i64) -> ValueId {
        let row = Tensor::from_slice(&[], &[row]);
        let row = self.m.add_constant("row", row);
        self.op(Op::Gather(Gather { axis: 1 }), &[self.x, row])
    }

    fn attention(&mut self, added: ValueId) -> ValueId {
        let scores = self.scores();
        let scores = self.binary(Binary::Add, scores, added);
        self.weighted(scores, 2)
    }
}

type Body = fn(&mut Build) -> ValueId;

fn model(body: Body, rows: usize) -> Model {
    let mut build = Build::new(rows);
    let y = body(&mut build);
    build.m.add_output(y);
    build.m
}

fn proof(body: Body, (from, to): (usize, usize)) -> Result<Padded, String> {
    padded(&model(body, from), &model(body, to), &[(0, 1), (1, 1)])
}

/// x and the mask of so many rows, behind which others follow.
fn inputs(rows: usize, all: usize, zeros: &[usize]) -> Vec<Arc<Tensor>> {
    let value = |i: usize| {
        let (batch, row, column) = (i / (all * WIDTH), i / WIDTH % all, i % WIDTH);
        let own = ((batch * 31 + row.min(rows + 1) * 7 + column) % 11) as f32 / 4.0 - 1.0;
        if row >= rows && zeros.contains(&0) {
            0.0
        } else {
            own
        }
    };
    let x: Vec<f32> = (0..2 * all * WIDTH).map(value).collect();
    let shown = |i: usize| {
        let (batch, row) = (i / all, i % all);
        let own = row == 0 || (batch + row) % 3 > 0;
        i64::from(if row < rows { own } else { !zeros.contains(&1) })
    };
    let mask: Vec<i64> = (0..2 * all).map(shown).collect();
    vec![
        Arc::new(Tensor::from_slice(&[2, all, WIDTH], &x)),
        Arc::new(Tensor::from_slice(&[2, all], &mask)),
    ]
}

fn first(t: &Tensor, to: usize, from: usize, rows: Option<Rows>) -> Tensor {
    let Some(Rows { axis, each }) = rows else {
        return t.clone();
    };
    let mut shape = t.shape().to_vec();
    assert_eq!(shape[axis], to * each);
    shape[axis] = from * each;
    let inner: usize = shape[axis + 1..].iter().product();
    let (own, all) = (from * each * inner, to * each * inner);
    let mut out = Tensor::zeros(t.dtype(), &shape);
    for i in 0..out.len() {
        out.set_f64(i, t.get_f64(i / own * all + i % own));
    }
    out
}

/// The body may be padded, with zeros for these inputs.
fn accepted(zeros: &[usize], body: Body) {
    for (from, to) in SIZES {
        let how = proof(body, (from, to)).unwrap();
        assert_eq!(how.zeros, zeros);
        let run = |rows, all| {
            let inputs = inputs(rows, all, &how.zeros);
            let all = evaluate(&model(body, all), &inputs, Keep::Outputs).unwrap();
            all.outputs().remove(0)
        };
        let (small, large) = (run(from, from), run(from, to));
        let large = first(&large, to, from, how.outputs[0]);
        assert_eq!(small.shape(), large.shape());
        let close = tensor::compare(&large, &small).within(1e-5);
        assert!(close, "{from} of {to}: {small:?} {large:?}");
    }
}

fn refused(node: &str, body: Body) {
    for sizes in SIZES {
        let why = proof(body, sizes).unwrap_err();
        assert!(why.contains(node), "{sizes:?}: {why}");
    }
}

#[test]
fn a_mask_hides_the_padding() {
    for body in [
        (|b| {
            let added = b.additive(f32::MIN, &b.keys());
            b.attention(added)
        }) as Body,
        |b| {
            let added = b.additive(-1e30, &b.keys());
            b.attention(added)
        },
        // As exporters wrote it once.
        |b| {
            let added = b.additive(-1e4, &b.keys());
            b.attention(added)
        },
        // A choice of -inf, repeated for each query.
        |b| {
            let shown = b.op(Op::Cast(DType::Bool), &[b.mask]);
            let shown = b.reshape(shown, &b.keys());
            let shape = vec![2, b.rows, b.rows];
            let shown = b.op(Op::Expand(Expand { shape }), &[shown]);
            let (zero, hidden) = (b.scalar(0.0), b.scalar(f32::NEG_INFINITY));
            let added = b.op(Op::Where, &[shown, zero, hidden]);
            b.attention(added)
        },
        // Scores are chosen instead.
        |b| {
            let zero = b.m.add_constant("z", Tensor::from_slice::<i64>(&[], &[0]));
            let hidden = b.binary(Binary::Equal, b.mask, zero);
            let hidden = b.reshape(hidden, &b.keys());
            let (scores, lowest) = (b.scores(), b.scalar(f32::MIN));
            let scores = b.op(Op::Where, &[hidden, lowest, scores]);
            b.weighted(scores, 2)
        },
        // The mask is read by its positions.
        |b| {
            let rows = b.rows as i64;
            let at = |i: i64| [i / rows, i % rows];
            let at: Vec<i64> = (0..2 * rows).flat_map(at).collect();
            let at = Tensor::from_slice(&[2, 1, b.rows, 2], &at);
            let at = b.m.add_constant("at", at);
            let shown = b.op(Op::Cast(DType::Bool), &[b.mask]);
            let shown = b.op(Op::GatherNd(GatherNd { batch: 0 }), &[shown, at]);
            let (zero, hidden) = (b.scalar(0.0), b.scalar(f32::NEG_INFINITY));
            let added = b.op(Op::Where, &[shown, zero, hidden]);
            b.attention(added)
        },
    ] {
        accepted(&[1], body);
    }
}

#[test]
fn what_a_mask_takes_from_scores_is_told() {
    fn masked(b: &mut Build, lowest: f32) -> ValueId {
        let added = b.additive(lowest, &b.keys());
        b.attention(added)
    }
    let hidden_by = |body| proof(body, SIZES[0]).unwrap().hidden_by;
    assert_eq!(hidden_by(|b| masked(b, -1e4)), Some(1e4));
    // The least of several.
    let several: Body = |b| {
        let (weak, strong) = (masked(b, -1e4), masked(b, -1e9));
        b.binary(Binary::Add, strong, weak)
    };
    assert_eq!(hidden_by(several), Some(1e4));
    assert_eq!(hidden_by(|b| b.running_sum(false)), None);
}

#[test]
fn a_mask_that_hides_too_little_is_refused() {
    for body in [
        // Of the queries.
        (|b| {
            let added = b.additive(f32::MIN, &[2, b.rows, 1]);
            b.attention(added)
        }) as Body,
        // By what scores may reach.
        |b| {
            let added = b.additive(-10.0, &b.keys());
            b.attention(added)
        },
        |b| {
            let added = b.additive(-9_000.0, &b.keys());
            b.attention(added)
        },
        // What the scores of all keys get.
        |b| {
            let (scores, low) = (b.scores(), b.scalar(-20_000.0));
            let lower = b.binary(Binary::Add, scores, low);
            b.weighted(lower, 2)
        },
        |b| {
            let (scores, high) = (b.scores(), b.scalar(20_000.0));
            let lower = b.binary(Binary::Sub, scores, high);
            b.weighted(lower, 2)
        },
        |b| {
            let (scores, low) = (b.scores(), b.scalar(-20_000.0));
            let lower = b.binary(Binary::Min, scores, low);
            b.weighted(lower, 2)
        },
        // Of the rows that are zero's opposite.
        |b| {
            let mask = b.op(Op::Cast(DType::F32), &[b.mask]);
            let mask = b.reshape(mask, &b.keys());
            let lowest = b.scalar(f32::MIN);
            let added = b.binary(Binary::Mul, mask, lowest);
            b.attention(added)
        },
        |b| {
            let scores = b.scores();
            b.weighted(scores, 2)
        },
        // A softmax over the queries.
        |b| {
            let added = b.additive(f32::MIN, &b.keys());
            let scores = b.scores();
            let scores = b.binary(Binary::Add, scores, added);
            b.weighted(scores, 1)
        },
    ] {
        refused("node `softmax` (softmax) mixes rows", body);
    }
}

#[test]
fn earlier_rows_do_not_see_the_padding() {
    accepted(&[], |b| {
        let added = b.square(|query, key| if key > query { f32::MIN } else { 0.0 });
        b.attention(added)
    });
    // Computed from positions.
    accepted(&[], |b| {
        let rows = b.rows;
        let all: Vec<f32> = (0..rows).map(|i| i as f32).collect();
        let keys =
            b.m.add_constant("keys", Tensor::from_slice(&[1, rows], &all));
        let queries = Tensor::from_slice(&[rows, 1], &all);
        let queries = b.m.add_constant("queries", queries);
        let seen = b.square(|query, key| f32::from(u8::from(key <= query)));
        let seen = b.op(Op::Cast(DType::Bool), &[seen]);
        let (zero, hidden) = (b.scalar(0.0), b.scalar(f32::NEG_INFINITY));
        let distance = b.binary(Binary::Sub, queries, keys);
        let hides = b.op(Op::Where, &[seen, zero, hidden]);
        let added = b.binary(Binary::Add, distance, hides);
        b.attention(added)
    });
    // Of the first table entries as many as there are rows.
    accepted(&[], |b| {
        let all: Vec<f32> = (0..9 * WIDTH).map(|i| i as f32).collect();
        let table = b.m.add_constant("t", Tensor::from_slice(&[9, WIDTH], &all));
        let slice = Slice {
            starts: vec![0, 0],
            steps: vec![1, 1],
            sizes: vec![b.rows, WIDTH],
        };
        let own = b.op(Op::Slice(slice), &[table]);
        b.binary(Binary::Add, b.x, own)
    });
    accepted(&[], |b| b.running_sum(false));
    // Table entries at positions that the mask counts.
    accepted(&[], |b| {
        let running = Cumulative {
            kind: CumulativeKind::Sum,
            axis: 1,
            exclusive: true,
            reverse: false,
        };
        let positions = b.op(Op::Cumulative(running), &[b.mask]);
        let all: Vec<f32> = (0..18).map(|i| i as f32).collect();
        let table = b.m.add_constant("t", Tensor::from_slice(&[2, 9], &all));
        let own = b.op(
            Op::GatherElements(GatherElements { axis: 1 }),
            &[table, positions],
        );
        let own = b.reshape(own, &[2, b.rows, 1]);
        b.binary(Binary::Add, b.x, own)
    });
    // Later rows are seen.
    refused("node `softmax` (softmax) mixes rows", |b| {
        let added = b.square(|query, key| if key < query { f32::MIN } else { 0.0 });
        b.attention(added)
    });
    // Each row sees the next one.
    refused("node `softmax` (softmax) mixes rows", |b| {
        let added = b.square(|query, key| if key > query + 1 { f32::MIN } else { 0.0 });
        b.attention(added)
    });
    refused("node `cumulative_sum` (cumulative_sum) mixes rows", |b| {
        b.running_sum(true)
    });
}

#[test]
fn pooled_rows() {
    refused("node `reduce_mean` (reduce_mean) mixes rows", |b| {
        b.sum(b.x, ReduceKind::Mean)
    });
    refused("node `reduce_sum` (reduce_sum) mixes rows", |b| {
        let one = b.scalar(1.0);
        let more = b.binary(Binary::Add, b.x, one);
        b.sum(more, ReduceKind::Sum)
    });
    // Zeros add nothing.
    accepted(&[0], |b| b.sum(b.x, ReduceKind::Sum));
    // The mean of what the mask shows.
    accepted(&[1], |b| {
        let mask = b.op(Op::Cast(DType::F32), &[b.mask]);
        let mask = b.reshape(mask, &[2, b.rows, 1]);
        let shape = vec![2, b.rows, WIDTH];
        let mask = b.op(Op::Expand(Expand { shape }), &[mask]);
        let shown = b.binary(Binary::Mul, b.x, mask);
        let sum = b.sum(shown, ReduceKind::Sum);
        let count = b.sum(mask, ReduceKind::Sum);
        b.binary(Binary::Div, sum, count)
    });
    accepted(&[], |b| b.picked(0));
    // The last row is another one at each size.
    refused("node `gather` (gather) mixes rows", |b| b.picked(-1));
    accepted(&[], |b| {
        let slice = Slice {
            starts: vec![0; 3],
            steps: vec![1; 3],
            sizes: vec![2, 1, WIDTH],
        };
        b.op(Op::Slice(slice), &[b.x])
    });
}
