//! Building a model layer by layer with seeded weights.

use crate::model::{Model, ModelError, ValueId};
use crate::ops::{
    BatchNorm, Binary, Conv, Gemm, Op, Pool, PoolKind, Reduce, ReduceKind, Reshape, Unary,
};
use tensor::{DType, Fill, Tensor, fill_tensor};

/// A model under construction. Every drawn tensor has a seed of its own.
pub(super) struct Net {
    pub model: Model,
    seed: u64,
    batch: usize,
}

/// The attributes of a two-dimensional convolution layer.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    pub maps: usize,
    pub kernel: usize,
    pub stride: usize,
    pub pad: usize,
    pub groups: usize,
}

impl Layer {
    pub fn new(maps: usize, kernel: usize, stride: usize, pad: usize) -> Layer {
        Layer {
            maps,
            kernel,
            stride,
            pad,
            groups: 1,
        }
    }
}

const EXPECT: &str = "a built-in architecture fits together";

impl Net {
    pub fn new(name: &str, seed: u64, batch: usize) -> Net {
        Net {
            model: Model::new(name, 0),
            // Neighbouring seeds share no tensor.
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            batch,
        }
    }

    pub fn finish(self) -> Model {
        self.model
    }

    /// Square images of three channels, so many as the batch has.
    pub fn image(&mut self, size: usize) -> ValueId {
        let shape = [self.batch, 3, size, size];
        self.model.add_input("image", DType::F32, &shape)
    }

    pub fn add(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> ValueId {
        self.model.add(name, op, inputs).expect(EXPECT)
    }

    fn draw(&mut self, name: &str, shape: &[usize], fill: Fill) -> ValueId {
        self.seed = self.seed.wrapping_add(1);
        let t = fill_tensor(DType::F32, shape, fill, self.seed);
        self.model.add_constant(name, t)
    }

    pub fn uniform(&mut self, name: &str, shape: &[usize], lo: f64, hi: f64) -> ValueId {
        self.draw(name, shape, Fill::Uniform { lo, hi })
    }

    /// Uniform with variance `gain / fan_in`: 2 after a rectifier (He et al.
    /// 2015, equation 10), 1 otherwise.
    pub fn weight(&mut self, name: &str, shape: &[usize], fan_in: usize, gain: f64) -> ValueId {
        let bound = (3.0 * gain / fan_in as f64).sqrt();
        self.uniform(name, shape, -bound, bound)
    }

    /// Weights of i8 over their whole range.
    pub fn bytes(&mut self, name: &str, shape: &[usize]) -> ValueId {
        self.seed = self.seed.wrapping_add(1);
        let all = Fill::Integers { lo: -128, hi: 127 };
        let t = fill_tensor(DType::I8, shape, all, self.seed);
        self.model.add_constant(name, t)
    }

    pub fn constant(&mut self, name: &str, value: Tensor) -> ValueId {
        self.model.add_constant(name, value)
    }

    pub fn scalar(&mut self, name: &str, value: f32) -> ValueId {
        self.constant(name, Tensor::from_slice(&[], &[value]))
    }

    /// With bias if `bias`.
    pub fn conv(&mut self, name: &str, x: ValueId, l: Layer, gain: f64, bias: bool) -> ValueId {
        let depth = self.model[x].shape()[1] / l.groups;
        let shape = [l.maps, depth, l.kernel, l.kernel];
        let fan_in = depth * l.kernel * l.kernel;
        let w = self.weight(&format!("{name}.weight"), &shape, fan_in, gain);
        let mut inputs = vec![Some(x), Some(w)];
        if bias {
            let b = self.uniform(&format!("{name}.bias"), &[l.maps], -0.1, 0.1);
            inputs.push(Some(b));
        }
        let conv = Conv {
            strides: vec![l.stride; 2],
            dilations: vec![1; 2],
            pads: vec![(l.pad, l.pad); 2],
            groups: l.groups,
        };
        self.model
            .add_node(name, Op::Conv(conv), &inputs)
            .expect(EXPECT)[0]
    }

    /// With statistics near those of standardised activations; `scale` is the
    /// middle of the drawn scales.
    pub fn batch_norm(&mut self, name: &str, x: ValueId, scale: f64) -> ValueId {
        let channels = [self.model[x].shape()[1]];
        let part = |what: &str| format!("{name}.{what}");
        let inputs = [
            x,
            self.uniform(&part("scale"), &channels, 0.8 * scale, 1.2 * scale),
            self.uniform(&part("shift"), &channels, -0.1, 0.1),
            self.uniform(&part("mean"), &channels, -0.1, 0.1),
            self.uniform(&part("variance"), &channels, 0.8, 1.2),
        ];
        self.add(name, Op::BatchNorm(BatchNorm { epsilon: 1e-5 }), &inputs)
    }

    pub fn relu(&mut self, name: &str, x: ValueId) -> ValueId {
        self.add(name, Op::Unary(Unary::Relu), &[x])
    }

    pub fn binary(&mut self, name: &str, op: Binary, x: ValueId, y: ValueId) -> ValueId {
        self.add(name, Op::Binary(op), &[x, y])
    }

    pub fn max_pool(
        &mut self,
        name: &str,
        x: ValueId,
        kernel: usize,
        stride: usize,
        pad: usize,
        ceil_mode: bool,
    ) -> ValueId {
        let pool = Pool {
            kind: PoolKind::Max { indices: None },
            kernel: vec![kernel; 2],
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads: vec![(pad, pad); 2],
            ceil_mode,
        };
        self.add(name, Op::Pool(pool), &[x])
    }

    /// The mean of every channel, as [N,C,1,1].
    pub fn global_average(&mut self, name: &str, x: ValueId) -> ValueId {
        let mean = Reduce {
            kind: ReduceKind::Mean,
            axes: vec![2, 3],
            keepdims: true,
        };
        self.add(name, Op::Reduce(mean), &[x])
    }

    pub fn reshape(&mut self, name: &str, x: ValueId, shape: &[usize]) -> ValueId {
        let shape = shape.to_vec();
        self.add(name, Op::Reshape(Reshape { shape }), &[x])
    }

    /// [N, everything else].
    pub fn flatten(&mut self, name: &str, x: ValueId) -> ValueId {
        let shape = self.model[x].shape();
        let (n, rest) = (shape[0], shape[1..].iter().product());
        self.reshape(name, x, &[n, rest])
    }

    /// x W' + b, as PyTorch's `Linear` is exported.
    pub fn linear(&mut self, name: &str, x: ValueId, maps: usize, gain: f64) -> ValueId {
        let depth = self.model[x].shape()[1];
        let w = self.weight(&format!("{name}.weight"), &[maps, depth], depth, gain);
        let b = self.uniform(&format!("{name}.bias"), &[maps], -0.1, 0.1);
        let gemm = Gemm {
            alpha: 1.0,
            beta: 1.0,
            trans_a: false,
            trans_b: true,
        };
        self.add(name, Op::Gemm(gemm), &[x, w, b])
    }

    pub fn output(&mut self, name: &str, v: ValueId) {
        self.model.rename(v, name);
        self.model.add_output(v);
    }

    /// As [`Net::add`], for operators whose operands the user sizes.
    pub fn try_add(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId, ModelError> {
        let name = op.name();
        self.model.add(name, op, inputs)
    }
}
