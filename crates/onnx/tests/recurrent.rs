//! Recurrent networks against their definitions, one element after the other.

mod build_onnx;

use build_onnx::{F32, I64, float, import, int, node, one_node, text};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

const STEPS: usize = 5;
const INPUTS: usize = 3;
const HIDDEN: usize = 4;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// What a case leaves open.
#[derive(Clone, Copy, Debug)]
struct Case {
    op: &'static str,
    gates: usize,
    steps: usize,
    batch: usize,
    direction: &'static str,
    lengths: bool,
    clip: Option<f32>,
    layout: bool,
    /// `input_forget` of an LSTM, `linear_before_reset` of a GRU.
    variant: bool,
}

struct Operands {
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor,
    h: Tensor,
    c: Tensor,
    p: Tensor,
    lengths: Vec<usize>,
}

impl Case {
    fn directions(&self) -> &'static [bool] {
        match self.direction {
            "forward" => &[false],
            "reverse" => &[true],
            _ => &[false, true],
        }
    }

    fn operands(&self) -> Operands {
        let random =
            |shape: &[usize], seed| fill_tensor(DType::F32, shape, Fill::Normal { std: 0.7 }, seed);
        let (d, rows) = (self.directions().len(), self.gates * HIDDEN);
        let lengths = (0..self.batch).map(|b| match self.lengths {
            true => [3, 5, 1][b % 3].min(self.steps),
            false => self.steps,
        });
        Operands {
            x: random(&[self.steps, self.batch, INPUTS], 1),
            w: random(&[d, rows, INPUTS], 2),
            r: random(&[d, rows, HIDDEN], 3),
            b: random(&[d, 2 * rows], 4),
            h: random(&[d, self.batch, HIDDEN], 5),
            c: random(&[d, self.batch, HIDDEN], 6),
            p: random(&[d, 3 * HIDDEN], 7),
            lengths: lengths.collect(),
        }
    }

    /// One step of one sequence: the gates' inputs from x and from h, the state, the peepholes.
    fn step(&self, o: &Operands, d: usize, x: &[f64], h: &mut [f64], c: &mut [f64]) {
        let rows = self.gates * HIDDEN;
        let clip = |v: f64| {
            self.clip
                .map_or(v, |m| v.clamp(-f64::from(m), f64::from(m)))
        };
        let bias = |i: usize| o.b.get_f64(d * 2 * rows + i);
        let of_x = |g: usize, j: usize| {
            let row = d * rows + g * HIDDEN + j;
            let terms = (0..INPUTS).map(|i| o.w.get_f64(row * INPUTS + i) * x[i]);
            terms.sum::<f64>() + bias(g * HIDDEN + j)
        };
        let of_h = |g: usize, j: usize, h: &[f64]| {
            let row = d * rows + g * HIDDEN + j;
            let terms = (0..HIDDEN).map(|i| o.r.get_f64(row * HIDDEN + i) * h[i]);
            terms.sum::<f64>() + bias(rows + g * HIDDEN + j)
        };
        let old = h.to_vec();
        let reset: Vec<f64> = match self.op {
            "GRU" => (0..HIDDEN)
                .map(|j| old[j] * sigmoid(clip(of_x(1, j) + of_h(1, j, &old))))
                .collect(),
            _ => Vec::new(),
        };
        for j in 0..HIDDEN {
            let sum = |g: usize| of_x(g, j) + of_h(g, j, &old);
            let peep = |i: usize, c: f64| o.p.get_f64((d * 3 + i) * HIDDEN + j) * c;
            h[j] = match self.op {
                "LSTM" => {
                    let i = sigmoid(clip(sum(0) + peep(0, c[j])));
                    let f = match self.variant {
                        true => 1.0 - i,
                        false => sigmoid(clip(sum(2) + peep(2, c[j]))),
                    };
                    c[j] = f * c[j] + i * clip(sum(3)).tanh();
                    sigmoid(clip(sum(1) + peep(1, c[j]))) * clip(c[j]).tanh()
                }
                "GRU" => {
                    let z = sigmoid(clip(sum(0)));
                    let r = sigmoid(clip(sum(1)));
                    let inner = match self.variant {
                        true => of_x(2, j) + r * of_h(2, j, &old),
                        false => of_x(2, j) + of_h(2, j, &reset),
                    };
                    (1.0 - z) * clip(inner).tanh() + z * old[j]
                }
                _ => clip(sum(0)).tanh(),
            };
        }
    }

    /// Y, Y_h and Y_c, as without `layout`.
    fn expected(&self, o: &Operands) -> [Vec<f64>; 3] {
        let d = self.directions().len();
        let mut y = vec![0.0; self.steps * d * self.batch * HIDDEN];
        let (mut last_h, mut last_c) = (Vec::new(), Vec::new());
        for (i, reverse) in self.directions().iter().enumerate() {
            for b in 0..self.batch {
                let state = |t: &Tensor| -> Vec<f64> {
                    let first = (i * self.batch + b) * HIDDEN;
                    (first..first + HIDDEN).map(|j| t.get_f64(j)).collect()
                };
                let (mut h, mut c) = (state(&o.h), state(&o.c));
                let mut order: Vec<usize> = (0..o.lengths[b]).collect();
                if *reverse {
                    order.reverse();
                }
                for t in order {
                    let first = (t * self.batch + b) * INPUTS;
                    let x: Vec<f64> = (first..first + INPUTS).map(|j| o.x.get_f64(j)).collect();
                    self.step(o, i, &x, &mut h, &mut c);
                    let at = ((t * d + i) * self.batch + b) * HIDDEN;
                    y[at..at + HIDDEN].copy_from_slice(&h);
                }
                last_h.extend(h);
                last_c.extend(c);
            }
        }
        [y, last_h, last_c]
    }

    fn attributes(&self) -> Vec<AttributeProto> {
        let mut all = vec![
            int("hidden_size", HIDDEN as i64),
            text("direction", self.direction),
            int("layout", i64::from(self.layout)),
        ];
        all.extend(self.clip.map(|c| float("clip", c)));
        match self.op {
            "LSTM" => all.push(int("input_forget", i64::from(self.variant))),
            "GRU" => all.push(int("linear_before_reset", i64::from(self.variant))),
            _ => {}
        }
        all
    }
}

/// Axes 0 and 1 exchanged, of a tensor with three axes.
fn swapped(t: &Tensor) -> Tensor {
    let [a, b, c] = t.shape()[..] else {
        panic!("three axes")
    };
    let mut out = Tensor::zeros(t.dtype(), &[b, a, c]);
    for i in 0..t.len() {
        let (x, y, z) = (i / (b * c), i / c % b, i % c);
        out.set_f64((y * a + x) * c + z, t.get_f64(i));
    }
    out
}

fn proto(name: &str, t: &Tensor) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: t.shape().iter().map(|n| *n as i64).collect(),
        data_type: Some(F32),
        float_data: (0..t.len()).map(|i| t.get_f64(i) as f32).collect(),
        ..Default::default()
    }
}

fn judge(case: Case) {
    let o = case.operands();
    let swap = |t: &Tensor| if case.layout { swapped(t) } else { t.clone() };
    let x = swap(&o.x);
    let mut constants = vec![
        proto("w", &o.w),
        proto("r", &o.r),
        proto("b", &o.b),
        proto("h", &swap(&o.h)),
    ];
    let mut inputs = vec!["x", "w", "r", "b", "", "h"];
    if case.lengths {
        constants.push(TensorProto {
            name: Some("lengths".into()),
            dims: vec![case.batch as i64],
            data_type: Some(I64),
            int64_data: o.lengths.iter().map(|l| *l as i64).collect(),
            ..Default::default()
        });
        inputs[4] = "lengths";
    }
    let mut outputs = vec!["y", "y_h"];
    if case.op == "LSTM" {
        constants.extend([proto("c", &swap(&o.c)), proto("p", &o.p)]);
        inputs.extend(["c", "p"]);
        outputs.push("y_c");
    }
    let shape: Vec<i64> = x.shape().iter().map(|n| *n as i64).collect();
    let node = node(case.op, &inputs, &outputs, case.attributes());
    let model = import(&one_node(14, &shape, node, constants)).unwrap();
    model.verify().unwrap();
    let results = evaluate(&model, &[Arc::new(x)], Keep::Outputs)
        .unwrap()
        .outputs();
    for (i, (result, expected)) in results.iter().zip(case.expected(&o)).enumerate() {
        let d = case.directions().len();
        // Results with the batch first, in the order of those without.
        let place = |at: usize| {
            if !case.layout {
                return at;
            }
            let (j, b, k) = (
                at % HIDDEN,
                at / HIDDEN % case.batch,
                at / HIDDEN / case.batch,
            );
            match i {
                0 => ((b * case.steps + k / d) * d + k % d) * HIDDEN + j,
                _ => (b * d + k) * HIDDEN + j,
            }
        };
        assert_eq!(result.len(), expected.len(), "{case:?}");
        for (at, e) in expected.iter().enumerate() {
            let a = result.get_f64(place(at));
            assert!(
                (a - e).abs() < 1e-5,
                "{case:?}: output {i}, {at}: {a}, not {e}"
            );
        }
    }
}

#[test]
fn recurrent_networks_follow_their_definitions() {
    for (op, gates) in [("LSTM", 4), ("GRU", 3), ("RNN", 1)] {
        for (steps, batch) in [(STEPS, 1), (STEPS, 3), (0, 1), (0, 3)] {
            for direction in ["forward", "reverse", "bidirectional"] {
                for options in 0..16 {
                    let on = |bit: u32| options >> bit & 1 == 1;
                    judge(Case {
                        op,
                        gates,
                        steps,
                        batch,
                        direction,
                        lengths: on(0),
                        clip: on(1).then_some(0.4),
                        layout: on(2),
                        variant: on(3) && op != "RNN",
                    });
                }
            }
        }
    }
}

#[test]
fn what_a_recurrent_network_lacks_is_said() {
    let case = Case {
        op: "GRU",
        gates: 3,
        steps: STEPS,
        batch: 1,
        direction: "forward",
        lengths: false,
        clip: None,
        layout: false,
        variant: false,
    };
    let o = case.operands();
    let refused = |attributes: Vec<AttributeProto>, w: &Tensor| {
        let shape = [STEPS as i64, 1, INPUTS as i64];
        let node = node("GRU", &["x", "w", "r"], &["y"], attributes);
        let constants = vec![proto("w", w), proto("r", &o.r)];
        import(&one_node(14, &shape, node, constants))
            .unwrap_err()
            .to_string()
    };
    let message = refused(vec![text("direction", "sideways")], &o.w);
    assert!(message.contains("direction=`sideways`"), "{message}");
    let message = refused(vec![], &o.r);
    assert!(message.contains("its W is"), "{message}");
}
