//! Inference on tensors of any size that the model has, by name.

use crate::{
    Fallible, ModelC, Status, TYPES, bad, cannot_run, handle, status, text, type_number, words,
};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null;
use tensor::Tensor;

/// `tunesmith_value`.
#[repr(C)]
pub struct ValueC {
    name: *const c_char,
    ty: i32,
    rank: usize,
    shape: *const usize,
    data: *const c_void,
}

/// `tunesmith_results`.
pub struct ResultsC {
    all: Vec<(CString, Tensor)>,
}

impl ValueC {
    /// The tensor with its name.
    ///
    /// # Safety
    /// Its pointers are null or lead to a text, `rank` sizes, and as many elements as these say.
    unsafe fn tensor(&self) -> Fallible<(String, Tensor)> {
        // SAFETY: as the caller promises.
        let name = unsafe { words(self.name, "the name of an input") }?;
        if self.shape.is_null() && self.rank > 0 {
            return bad(format!("the shape of input `{name}` is a null pointer"));
        }
        let Some((dtype, _)) = TYPES.iter().find(|(_, number)| *number == self.ty) else {
            return bad(format!(
                "input `{name}` has a type {} that is not known",
                self.ty
            ));
        };
        let shape = match self.rank {
            0 => &[][..],
            // SAFETY: as the caller promises.
            rank => unsafe { std::slice::from_raw_parts(self.shape, rank) },
        };
        let mut sizes = shape.iter().copied();
        let bytes = sizes.try_fold(dtype.size(), usize::checked_mul);
        let Some(bytes) = bytes.filter(|b| isize::try_from(*b).is_ok()) else {
            return bad(format!("input `{name}` has more bytes than there can be"));
        };
        if self.data.is_null() && bytes > 0 {
            return bad(format!("the data of input `{name}` are a null pointer"));
        }
        let data = match bytes {
            0 => &[][..],
            // SAFETY: as the caller promises.
            bytes => unsafe { std::slice::from_raw_parts(self.data.cast::<u8>(), bytes) },
        };
        match Tensor::from_bytes(*dtype, shape, data) {
            Some(tensor) => Ok((name.to_string(), tensor)),
            None => bad(format!("the data of input `{name}` do not fit its shape")),
        }
    }
}

/// One inference on inputs by name.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed; `inputs` leads to `count` values, whose pointers are
/// null or lead to what they say; `to` is null or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_infer(
    model: *mut ModelC,
    inputs: *const ValueC,
    count: usize,
    to: *mut *mut ResultsC,
) -> Status {
    status(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle(model) }?;
        if to.is_null() || (inputs.is_null() && count > 0) {
            return bad("the inputs, or the place for the results, are a null pointer");
        }
        let mut given = Vec::with_capacity(count);
        for i in 0..count {
            // SAFETY: as the caller promises.
            given.push(unsafe { (*inputs.add(i)).tensor() }?);
        }
        let all = handle.with(|model| {
            let given: Vec<(&str, &Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t)).collect();
            let results = model.run(&given).map_err(cannot_run)?;
            let compiled = model.compiled();
            let names = compiled
                .results()
                .iter()
                .map(|id| text(&compiled.tensor(*id).name));
            Ok(names.zip(results).collect())
        })?;
        // SAFETY: it has room for a pointer.
        unsafe { to.write(Box::into_raw(Box::new(ResultsC { all }))) };
        Ok(())
    })
}

/// How many results there are.
///
/// # Safety
/// The handle is null or of results that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_results_count(results: *const ResultsC) -> usize {
    // SAFETY: as the caller promises.
    unsafe { results.as_ref() }.map_or(0, |r| r.all.len())
}

/// One of the results.
///
/// # Safety
/// The handle is null or of results that were not freed; `to` is null or has room for a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_result(
    results: *const ResultsC,
    i: usize,
    to: *mut ValueC,
) -> Status {
    status(|| {
        // SAFETY: as the caller promises.
        let result = unsafe { results.as_ref() }.and_then(|r| r.all.get(i));
        let (Some((name, tensor)), false) = (result, to.is_null()) else {
            return bad(format!("there is no result {i}, or no place for it"));
        };
        let value = ValueC {
            name: name.as_ptr(),
            ty: type_number(tensor.dtype()),
            rank: tensor.rank(),
            shape: tensor.shape().as_ptr(),
            data: match tensor.bytes() {
                [] => null(),
                bytes => bytes.as_ptr().cast(),
            },
        };
        // SAFETY: the caller gives room for one.
        unsafe { to.write(value) };
        Ok(())
    })
}

/// Frees results.
///
/// # Safety
/// The handle is null or of results that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_results_free(results: *mut ResultsC) {
    if !results.is_null() {
        // SAFETY: it came from a box, and nobody else has it.
        drop(unsafe { Box::from_raw(results) });
    }
}
