//! Sizes that a file fixes, and options that ask for others.
//!
//! Promises that another size is taken only where the model at that size does to each row
//! what the model in the file does, which is proven and not believed.

use super::{BATCH, BoundModel, ImportOptions, takes_batch};
use crate::error::ImportError;
use crate::proto::tensor_shape_proto::Dimension;
use crate::proto::tensor_shape_proto::dimension::Value as Dim;
use crate::proto::{GraphProto, ValueInfoProto};
use graph::{Limits, Model, NamedDim, rows_apart, with_rows};
use std::collections::BTreeSet;

/// One option whose size was put in the place of the file's.
pub(super) struct Changed {
    /// None for the batch.
    dim: Option<String>,
    fixed: usize,
    given: usize,
    /// Names of inputs, with the axis.
    axes: Vec<(String, usize)>,
}

fn dims(input: &mut ValueInfoProto) -> &mut [Dimension] {
    let tensor = input.r#type.as_mut().and_then(|t| t.tensor_type.as_mut());
    let shape = tensor.and_then(|t| t.shape.as_mut());
    shape.map_or(&mut [], |s| &mut s.dim)
}

fn size(d: &Dimension) -> Option<usize> {
    match d.value {
        Some(Dim::DimValue(n)) => usize::try_from(n).ok(),
        _ => None,
    }
}

/// Puts sizes of options in the place of those that the file fixes; the first such option,
/// if there is one. Sizes that are open are left to [`super::bind_shape`].
pub(super) fn change(graph: &mut GraphProto, options: &ImportOptions) -> Option<Changed> {
    let given: BTreeSet<String> = graph.initializer.iter().map(|t| t.name().into()).collect();
    let is_input =
        |i: &ValueInfoProto| !given.contains(i.name()) && !options.consts.contains_key(i.name());
    let mut changed: Option<Changed> = None;
    let mut inputs: Vec<&mut ValueInfoProto> =
        graph.input.iter_mut().filter(|i| is_input(i)).collect();
    for input in &mut inputs {
        let name = input.name().to_string();
        for (axis, d) in dims(input).iter_mut().enumerate() {
            let position = format!("{name}.{axis}");
            let Some((fixed, wanted)) = size(d).zip(options.dims.get(&position).copied()) else {
                continue;
            };
            if fixed != wanted {
                d.value = Some(Dim::DimValue(wanted as i64));
                changed.get_or_insert(Changed {
                    dim: Some(position),
                    fixed,
                    given: wanted,
                    axes: vec![(name.clone(), axis)],
                });
            }
        }
    }
    let own = change_batch(&mut inputs, options);
    changed.or(own)
}

fn change_batch(inputs: &mut [&mut ValueInfoProto], options: &ImportOptions) -> Option<Changed> {
    let given = options.batch?;
    let symbol = |d: &Dimension| match &d.value {
        Some(Dim::DimParam(name)) if !name.is_empty() => Some(name.clone()),
        _ => None,
    };
    let mut fixed = None;
    for input in inputs.iter_mut() {
        for (axis, d) in dims(input).iter().enumerate() {
            let size = size(d);
            // The file leaves a batch open: nothing that it fixes is one.
            if size.is_none() && takes_batch(axis, symbol(d).as_deref()) {
                return None;
            }
            if axis == 0 {
                fixed = fixed.or(size);
            }
        }
    }
    let fixed = fixed.filter(|n| *n != given)?;
    let mut axes = Vec::new();
    for input in inputs {
        let name = input.name().to_string();
        if let Some(first) = dims(input).first_mut().filter(|d| size(d) == Some(fixed))
            && !options.dims.contains_key(&format!("{name}.0"))
        {
            first.value = Some(Dim::DimValue(given as i64));
            axes.push((name, 0));
        }
    }
    (!axes.is_empty()).then_some(Changed {
        dim: None,
        fixed,
        given,
        axes,
    })
}

impl Changed {
    /// The options that leave the file's size as it is.
    pub(super) fn options_without(&self, options: &ImportOptions) -> ImportOptions {
        let mut options = options.clone();
        match &self.dim {
            Some(dim) => _ = options.dims.remove(dim),
            None => options.batch = None,
        }
        options
    }

    /// The model at the option's size: as it was `read`, if it was and does to each row what the
    /// file's `original` does; else the original with another number of rows.
    ///
    /// # Errors
    /// Says what stops the proof, and how to export the model.
    pub(super) fn follow(
        &self,
        original: BoundModel,
        read: Option<BoundModel>,
        limits: Limits,
    ) -> Result<BoundModel, ImportError> {
        let places = self.places(&original.model);
        // At the file's own sizes more declarations count.
        let (notes, untrained) = (original.notes, original.untrained);
        if let Some(bound) = read
            && self.check(&original.model, &bound.model, &places).is_ok()
        {
            return Ok(BoundModel { notes, ..bound });
        }
        let mut model = with_rows(&original.model, &places, self.given)
            .and_then(|m| self.check(&original.model, &m, &places).map(|()| m))
            .map_err(|reason| self.refused(&original.model, reason))?;
        model.set_limits(limits);
        let mut dims = original.dims;
        dims.push(NamedDim {
            name: self.dim.clone().unwrap_or_else(|| BATCH.into()),
            size: self.given,
            inputs: places,
            padding: None,
        });
        dims.sort_by_key(|d| d.inputs.first().copied());
        Ok(BoundModel {
            model,
            dims,
            notes,
            untrained,
        })
    }

    /// The axes as positions of an input and of an axis.
    fn places(&self, model: &Model) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for (at, id) in model.inputs().iter().enumerate() {
            let name = model[*id].name();
            let own = self.axes.iter().filter(|(input, _)| input == name);
            places.extend(own.map(|(_, axis)| (at, *axis)));
        }
        places
    }

    /// Proves that the model at the option's size does to each row what it does at the
    /// file's.
    ///
    /// # Errors
    /// Says what stops the proof.
    fn check(
        &self,
        original: &Model,
        changed: &Model,
        places: &[(usize, usize)],
    ) -> Result<(), String> {
        let (small, large) = match self.fixed < self.given {
            true => (original, changed),
            false => (changed, original),
        };
        rows_apart(small, large, places).map(|_| ())
    }

    fn refused(&self, model: &Model, reason: String) -> ImportError {
        let (option, open) = match &self.dim {
            Some(dim) => (format!("--dim {dim}={}", self.given), dim.replace('.', "_")),
            None => (format!("--batch {}", self.given), BATCH.to_string()),
        };
        let axis = |(input, axis): &(String, usize)| {
            format!("'{input}': {{{axis}: torch.export.Dim('{open}')}}")
        };
        let mut inputs = model.inputs().iter().map(|id| &model[*id]);
        let several_axes = inputs.find(|v| v.ty().rank() > 1);
        let elsewhere = match (&self.dim, several_axes) {
            (None, Some(input)) => format!(
                ". A batch on another axis is given as --dim {}.1={}",
                input.name(),
                self.given
            ),
            _ => String::new(),
        };
        ImportError::FixedSize {
            option,
            elsewhere,
            fixed: self.fixed,
            axes: self.axes.iter().map(axis).collect::<Vec<_>>().join(", "),
            reason,
        }
    }
}
