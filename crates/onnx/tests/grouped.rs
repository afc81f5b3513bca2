//! Attention whose queries share keys, with a cache, against its formula.

mod build_onnx;

use build_onnx::{float, floats_of, import, int, node, one_node, proto};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, ModelProto, OperatorSetIdProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
const SIZE: usize = 4;

fn random(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, Fill::Normal { std: 0.8 }, seed)
}

fn int32s(name: &str, shape: &[i64], values: &[i32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: shape.to_vec(),
        data_type: Some(6),
        int32_data: values.to_vec(),
        ..Default::default()
    }
}

/// One sequence: `past` rows of the cache before `rows` new ones.
struct Case {
    past: usize,
    rows: usize,
    window: i64,
    rotates: bool,
    packed: bool,
    /// One score more, 0, is in the sums of weights.
    smooth: bool,
    /// One score more, the head's own, is in the sums of weights.
    sinks: bool,
}

/// The score that a head has besides those of keys.
fn sink(head: usize) -> f32 {
    0.5 * head as f32 - 0.75
}

impl Case {
    fn cache(&self, seed: u64) -> Tensor {
        random(&[1, KEY_HEADS, self.past.max(1), SIZE], seed)
    }

    fn angle(&self, position: usize, i: usize) -> f64 {
        position as f64 / f64::from(1 << (2 * i))
    }

    /// Queries, keys and values beside each other: [rows, width].
    fn all(&self) -> Tensor {
        random(&[1, self.rows, (HEADS + 2 * KEY_HEADS) * SIZE], 1)
    }

    /// Columns of [`Case::all`].
    fn columns(&self, start: usize, width: usize) -> Tensor {
        let all = self.all();
        let own = all.shape()[2];
        let row = |r: usize| (0..width).map(move |c| r * own + start + c);
        let values: Vec<f32> = (0..self.rows)
            .flat_map(row)
            .map(|i| all.as_slice::<f32>()[i])
            .collect();
        Tensor::from_slice(&[1, self.rows, width], &values)
    }

    fn model(&self) -> (ModelProto, Tensor) {
        let (queries, keys) = (HEADS * SIZE, KEY_HEADS * SIZE);
        let x = match self.packed {
            true => self.all(),
            false => self.columns(0, queries),
        };
        let total = (self.past + self.rows) as i32;
        let mut given: Vec<(&str, TensorProto)> = Vec::new();
        if !self.packed {
            given.push(("k", proto("k", &self.columns(queries, keys))));
            given.push(("v", proto("v", &self.columns(queries + keys, keys))));
        }
        if self.past > 0 {
            given.push(("past_k", proto("past_k", &self.cache(2))));
            given.push(("past_v", proto("past_v", &self.cache(3))));
        }
        given.push(("last", int32s("last", &[1], &[total - 1])));
        given.push(("total", int32s("total", &[], &[total])));
        let half = SIZE / 2;
        let places = (0..16).flat_map(|p| (0..half).map(move |i| (p, i)));
        let angles: Vec<f64> = places.map(|(p, i)| self.angle(p, i)).collect();
        for (name, f) in [("cos", f64::cos as fn(f64) -> f64), ("sin", f64::sin)] {
            let values: Vec<f32> = angles.iter().map(|a| f(*a) as f32).collect();
            given.push((name, proto(name, &Tensor::from_slice(&[16, half], &values))));
        }
        if self.sinks {
            let sinks: Vec<f32> = (0..HEADS).map(sink).collect();
            given.push((
                "sinks",
                proto("sinks", &Tensor::from_slice(&[HEADS], &sinks)),
            ));
        }
        let place = |name: &str| given.iter().find(|g| g.0 == name).map_or("", |g| g.0);
        let order = [
            "k", "v", "past_k", "past_v", "last", "total", "cos", "sin", "", "", "sinks",
        ];
        let inputs: Vec<&str> = std::iter::once("x").chain(order.map(place)).collect();
        let attributes = vec![
            int("num_heads", HEADS as i64),
            int("kv_num_heads", KEY_HEADS as i64),
            int("local_window_size", self.window),
            int("do_rotary", i64::from(self.rotates)),
            int("smooth_softmax", i64::from(self.smooth)),
        ];
        let node = in_microsoft(node(
            "GroupQueryAttention",
            &inputs,
            &["y", "present_k", "present_v"],
            attributes,
        ));
        let shape: Vec<i64> = x.shape().iter().map(|n| *n as i64).collect();
        let constants = given.iter().map(|g| g.1.clone()).collect();
        (with_microsoft(one_node(17, &shape, node, constants)), x)
    }

    /// Element of a head of rows of [`Case::columns`], turned.
    fn turned(&self, x: &[f64], [heads, row, head, i]: [usize; 4]) -> f64 {
        let at = |i: usize| x[(row * heads + head) * SIZE + i];
        if !self.rotates {
            return at(i);
        }
        let half = SIZE / 2;
        let angle = self.angle(self.past + row, i % half);
        match i < half {
            true => at(i) * angle.cos() - at(i + half) * angle.sin(),
            false => at(i - half) * angle.sin() + at(i) * angle.cos(),
        }
    }

    /// The result by its formula.
    fn expected(&self) -> Vec<f64> {
        let (queries, keys) = (HEADS * SIZE, KEY_HEADS * SIZE);
        let [q, k, v] = [(0, queries), (queries, keys), (queries + keys, keys)]
            .map(|(start, width)| floats_of(&self.columns(start, width)));
        let caches = [2, 3].map(|seed| floats_of(&self.cache(seed)));
        let key = |head: usize, c: usize, i: usize| match c.checked_sub(self.past) {
            Some(row) => self.turned(&k, [KEY_HEADS, row, head, i]),
            None => caches[0][(head * self.past + c) * SIZE + i],
        };
        let value = |head: usize, c: usize, i: usize| match c.checked_sub(self.past) {
            Some(row) => v[(row * KEY_HEADS + head) * SIZE + i],
            None => caches[1][(head * self.past + c) * SIZE + i],
        };
        let mut out = vec![0.0; self.rows * queries];
        for r in 0..self.rows {
            for head in 0..HEADS {
                let of = head / (HEADS / KEY_HEADS);
                let last = self.past + r;
                let first = match self.window {
                    w if w > 0 => (last + 1).saturating_sub(w as usize),
                    _ => 0,
                };
                let score = |c: usize| {
                    let term = |i| self.turned(&q, [HEADS, r, head, i]) * key(of, c, i);
                    ((0..SIZE).map(term).sum::<f64>() / (SIZE as f64).sqrt()).exp()
                };
                let more = match self.sinks {
                    true => f64::from(sink(head)).exp(),
                    false => f64::from(u8::from(self.smooth)),
                };
                let sum: f64 = (first..=last).map(score).sum::<f64>() + more;
                for i in 0..SIZE {
                    let term = |c: usize| score(c) / sum * value(of, c, i);
                    out[(r * HEADS + head) * SIZE + i] = (first..=last).map(term).sum();
                }
            }
        }
        out
    }
}

fn in_microsoft(mut node: onnx::proto::NodeProto) -> onnx::proto::NodeProto {
    node.domain = Some("com.microsoft".into());
    node
}

fn with_microsoft(mut model: ModelProto) -> ModelProto {
    model.opset_import.push(OperatorSetIdProto {
        domain: Some("com.microsoft".into()),
        version: Some(1),
    });
    model
}

fn near(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() < 2e-5, "{i}: {a}, not {e}");
    }
}

#[test]
fn queries_of_a_group_share_keys_and_a_cache() {
    for i in 0..24 {
        let case = Case {
            past: [0, 3, 5][i % 3],
            rows: [4, 1][i / 3 % 2],
            window: [-1, 2][i / 6 % 2],
            rotates: i / 12 == 1,
            packed: i % 2 == 1,
            smooth: i % 5 == 1,
            sinks: i % 5 == 2,
        };
        let (model, x) = case.model();
        let m = import(&model).unwrap();
        m.verify().unwrap();
        let y = evaluate(&m, &[Arc::new(x)], Keep::Outputs)
            .unwrap()
            .outputs();
        near(&floats_of(&y[0]), &case.expected());
        let total = case.past + case.rows;
        assert_eq!(y[1].shape(), [1, KEY_HEADS, total, SIZE]);
        // The cache's own rows stay where they are.
        let (held, new) = (floats_of(&case.cache(3)), floats_of(&y[2]));
        let rows = case.past * SIZE;
        near(&new[..rows], &held[..rows]);
        near(
            &new[total * SIZE..][..rows],
            &held[held.len() / 2..][..rows],
        );
    }
}

#[test]
fn what_is_not_attention_of_groups_is_refused() {
    let case = Case {
        past: 0,
        rows: 2,
        window: -1,
        rotates: false,
        packed: false,
        smooth: false,
        sinks: false,
    };
    let refused = |attribute: AttributeProto| {
        let (mut model, _) = case.model();
        let node = &mut model.graph.as_mut().unwrap().node[0];
        node.attribute.retain(|a| a.name != attribute.name);
        node.attribute.push(attribute);
        import(&model).unwrap_err().to_string()
    };
    assert!(refused(int("kv_cache_bit_width", 4)).contains("kv_cache_bit_width is set"));
    assert!(refused(int("num_heads", 3)).contains("3 heads"));
    assert!(refused(float("softness", 1.0)).contains("softness"));
}
