//! Convolution and transposed convolution over any number of spatial axes.

use super::{OpError, Operands, refuse};
use crate::model::TensorType;
use tensor::DType;

/// Grouped, strided, dilated cross-correlation with zero padding; one entry a
/// spatial axis in each list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Zeros before and after.
    pub pads: Vec<(usize, usize)>,
    pub groups: usize,
}

/// [`Conv`] of bytes, with sums in i32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvInteger {
    pub conv: Conv,
    /// What windows read outside of the image, where quantised images have their zero
    /// point: a value of the image's type.
    pub outside: i64,
    /// Whether this value is taken off every element, so that what lies outside counts nothing.
    pub centred: bool,
}

impl Conv {
    /// Stride 1, no padding, one group.
    pub fn unit(spatial: usize) -> Conv {
        Conv {
            strides: vec![1; spatial],
            dilations: vec![1; spatial],
            pads: vec![(0, 0); spatial],
            groups: 1,
        }
    }

    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let (x, w) = (inputs.at_most(3)?.float(0)?, inputs.get(1)?);
        if w.dtype != x.dtype {
            return refuse(format!("{x} does not fit weight {w}"));
        }
        inputs.expect(2, x.dtype, &w.shape[..w.rank().min(1)])?;
        Ok(TensorType {
            dtype: x.dtype,
            shape: self.result_shape(x, w)?,
        })
    }

    fn result_shape(&self, x: &TensorType, w: &TensorType) -> Result<Vec<usize>, OpError> {
        let lists = [self.strides.len(), self.dilations.len(), self.pads.len()];
        let spatial = check_window(x, w, &lists)?;
        let g = self.groups;
        if g == 0 || x.shape[1] != w.shape[1] * g || !w.shape[0].is_multiple_of(g) {
            return refuse(format!("{x} does not fit weight {w} in {g} groups"));
        }
        let mut shape = vec![x.shape[0], w.shape[0]];
        for d in 0..spatial {
            let size = x.shape[2 + d] + self.pads[d].0 + self.pads[d].1;
            shape.push(window_count(
                size,
                w.shape[2 + d],
                self.dilations[d],
                self.strides[d],
            )?);
        }
        Ok(shape)
    }
}

impl ConvInteger {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let (x, w) = (inputs.exactly(2)?.byte(0)?, inputs.byte(1)?);
        let values = match x.dtype {
            DType::I8 => -128..=127,
            _ => 0..=255,
        };
        if !values.contains(&self.outside) {
            return refuse(format!(
                "{} outside of {x} is none of its values",
                self.outside
            ));
        }
        Ok(TensorType {
            dtype: DType::I32,
            shape: self.conv.result_shape(x, w)?,
        })
    }
}

/// The gradient of [`Conv`] with respect to its input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvTranspose {
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Elements cut off before and after; negative adds zeros.
    pub pads: Vec<(i64, i64)>,
    /// Elements added after.
    pub output_padding: Vec<usize>,
    pub groups: usize,
}

impl ConvTranspose {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let (x, w) = (inputs.at_most(3)?.float(0)?, inputs.get(1)?);
        let lists = [
            self.strides.len(),
            self.dilations.len(),
            self.pads.len(),
            self.output_padding.len(),
        ];
        if w.dtype != x.dtype {
            return refuse(format!("{x} does not fit weight {w}"));
        }
        let spatial = check_window(x, w, &lists)?;
        if self.groups == 0 || x.shape[1] != w.shape[0] || !w.shape[0].is_multiple_of(self.groups) {
            return refuse(format!(
                "{x} does not fit weight {w} in {} groups",
                self.groups
            ));
        }
        let channels = w.shape[1] * self.groups;
        inputs.expect(2, x.dtype, &[channels])?;
        let mut shape = vec![x.shape[0], channels];
        for d in 0..spatial {
            let reach = (w.shape[2 + d] - 1) * self.dilations[d] + 1;
            let full = match x.shape[2 + d] {
                0 => 0,
                n => (n - 1) * self.strides[d] + reach + self.output_padding[d],
            };
            let size = full as i64 - self.pads[d].0 - self.pads[d].1;
            match usize::try_from(size) {
                Ok(size) => shape.push(size),
                Err(_) => {
                    return refuse(format!("pads {:?} cut off more than there is", self.pads));
                }
            }
        }
        Ok(TensorType {
            dtype: x.dtype,
            shape,
        })
    }
}

/// Columns, each of the elements of one window, added up to images where windows overlap:
/// what [`Conv`] reads, written back. One entry a spatial axis in each list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Col2Im {
    pub image: Vec<usize>,
    pub window: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Elements of windows before and after the image, which are dropped.
    pub pads: Vec<(usize, usize)>,
}

impl Col2Im {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.float(0)?;
        let rank = self.image.len();
        let lists = [
            self.window.len(),
            self.strides.len(),
            self.dilations.len(),
            self.pads.len(),
        ];
        if rank == 0 || lists.iter().any(|n| *n != rank) {
            return refuse(format!("its attributes are not for {rank} spatial axes"));
        }
        let windows = self.windows()?;
        let product =
            |sizes: &[usize]| sizes.iter().fold(1, |all: usize, n| all.saturating_mul(*n));
        let taps = product(&self.window);
        let [batch, channels, columns] = x.shape[..] else {
            return refuse(format!("{x} is no batch of columns"));
        };
        if !channels.is_multiple_of(taps) || columns != product(&windows) {
            return refuse(format!(
                "{x} does not fit {windows:?} windows of {taps} elements"
            ));
        }
        Ok(TensorType {
            dtype: x.dtype,
            shape: [&[batch, channels / taps], &self.image[..]].concat(),
        })
    }

    /// How many windows there are along each axis.
    ///
    /// # Errors
    /// Where a window does not fit the image.
    pub fn windows(&self) -> Result<Vec<usize>, OpError> {
        let one = |d: usize| {
            let (before, after) = self.pads[d];
            window_count(
                self.image[d] + before + after,
                self.window[d],
                self.dilations[d],
                self.strides[d],
            )
        };
        (0..self.image.len()).map(one).collect()
    }
}

fn check_window(x: &TensorType, w: &TensorType, lists: &[usize]) -> Result<usize, OpError> {
    if x.rank() < 3 || w.rank() != x.rank() {
        return refuse(format!("{x} does not fit weight {w}"));
    }
    let spatial = x.rank() - 2;
    if lists.iter().any(|n| *n != spatial) {
        return refuse(format!("its attributes are not for {spatial} spatial axes"));
    }
    if w.shape[2..].contains(&0) {
        return refuse(format!("the kernel of weight {w} is empty"));
    }
    Ok(spatial)
}

/// How many windows fit: floor((size - reach) / stride) + 1.
pub(super) fn window_count(
    size: usize,
    kernel: usize,
    dilation: usize,
    stride: usize,
) -> Result<usize, OpError> {
    if stride == 0 || dilation == 0 || kernel == 0 {
        return refuse("strides, dilations and kernels start at 1");
    }
    let reach = (kernel - 1) * dilation + 1;
    match size.checked_sub(reach) {
        Some(slack) => Ok(slack / stride + 1),
        None => refuse(format!(
            "a window of {reach} does not fit {size} padded elements"
        )),
    }
}
