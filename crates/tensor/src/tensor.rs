//! Owned tensors: an element type, a shape and 64-byte aligned row-major data.

use crate::{DType, Element};
use memmap2::MmapMut;
use std::fmt::Display;
use std::io;
use std::sync::Arc;

const ALIGN: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

/// Buffers at least this large are pages of their own and ask for huge ones:
/// reading tens of megabytes of weights misses address translations otherwise.
const PAGES_BYTES: usize = 4 << 20;

/// Refuses more than the machine has: the system may promise memory that is not there.
///
/// # Errors
/// If `bytes` exceed the memory of this machine.
pub fn check_memory(bytes: u64) -> io::Result<()> {
    // SAFETY: sysconf reads constants of the system.
    let [pages, size] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    // A system that does not say gives -1.
    match (u64::try_from(pages), u64::try_from(size)) {
        (Ok(pages), Ok(size)) if pages > 0 && bytes > pages.saturating_mul(size) => {
            let reason = format!("the machine has {} bytes", pages.saturating_mul(size));
            Err(io::Error::new(io::ErrorKind::OutOfMemory, reason))
        }
        _ => Ok(()),
    }
}

/// A byte buffer whose start is aligned to 64 bytes.
pub struct AlignedBytes {
    memory: Memory,
    len: usize,
}

enum Memory {
    Lines(Vec<Line>),
    Pages(MmapMut),
    /// Of an owner with other users, who never see a change.
    Shared(Arc<Owner>),
}

type Owner = dyn AsRef<[u8]> + Send + Sync;

impl AlignedBytes {
    /// # Panics
    /// If there is not so much memory.
    pub fn zeroed(len: usize) -> AlignedBytes {
        AlignedBytes::try_zeroed(len).unwrap_or_else(|e| panic!("{e}"))
    }

    /// [`AlignedBytes::zeroed`] for sizes that come from outside.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn try_zeroed(len: usize) -> io::Result<AlignedBytes> {
        let refused = |reason: &dyn Display| {
            let reason = format!("cannot allocate {len} bytes: {reason}");
            io::Error::new(io::ErrorKind::OutOfMemory, reason)
        };
        let memory = if len >= PAGES_BYTES {
            let pages = check_memory(len as u64).and_then(|()| MmapMut::map_anon(len));
            let pages = pages.map_err(|e| refused(&e))?;
            // A system without huge pages refuses, which costs speed only.
            #[cfg(target_os = "linux")]
            let _ = pages.advise(memmap2::Advice::HugePage);
            Memory::Pages(pages)
        } else {
            let (mut lines, count) = (Vec::new(), len.div_ceil(ALIGN));
            lines.try_reserve_exact(count).map_err(|e| refused(&e))?;
            lines.resize(count, Line([0; ALIGN]));
            Memory::Lines(lines)
        };
        Ok(AlignedBytes { memory, len })
    }

    /// The bytes of an owner, which always gives the same ones, without a copy
    /// if they are aligned. The first change copies them.
    pub fn shared(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> AlignedBytes {
        let bytes = owner.as_ref();
        let len = bytes.len();
        if !bytes.as_ptr().addr().is_multiple_of(ALIGN) {
            return AlignedBytes::copied(bytes);
        }
        let memory = Memory::Shared(Arc::new(owner));
        AlignedBytes { memory, len }
    }

    fn copied(bytes: &[u8]) -> AlignedBytes {
        let mut copy = AlignedBytes::zeroed(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for AlignedBytes {
    /// Shared bytes stay shared; others are copied.
    fn clone(&self) -> AlignedBytes {
        match &self.memory {
            Memory::Shared(owner) => AlignedBytes {
                memory: Memory::Shared(owner.clone()),
                len: self.len,
            },
            Memory::Lines(_) | Memory::Pages(_) => AlignedBytes::copied(self),
        }
    }
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: there are at least `len` initialised bytes, and any byte is a valid u8.
            Memory::Lines(lines) => unsafe {
                std::slice::from_raw_parts(lines.as_ptr().cast(), self.len)
            },
            Memory::Pages(pages) => pages,
            Memory::Shared(owner) => (**owner).as_ref(),
        }
    }
}

impl std::ops::DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        if let Memory::Shared(owner) = &self.memory {
            *self = AlignedBytes::copied((**owner).as_ref());
        }
        match &mut self.memory {
            // SAFETY: as in `deref`; the borrow is unique.
            Memory::Lines(lines) => unsafe {
                std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), self.len)
            },
            Memory::Pages(pages) => pages,
            Memory::Shared(_) => unreachable!("just replaced by a copy"),
        }
    }
}

/// A dense row-major tensor in host memory.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: AlignedBytes,
}

impl Tensor {
    /// A tensor of zeros.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
        let len = shape.iter().product::<usize>() * dtype.size();
        Tensor {
            dtype,
            shape: shape.to_vec(),
            data: AlignedBytes::zeroed(len),
        }
    }

    /// # Panics
    /// If the number of values is not the product of `shape`.
    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Tensor {
        let mut t = Tensor::zeros(T::DTYPE, shape);
        assert_eq!(
            t.len(),
            values.len(),
            "shape {shape:?} against {} values",
            values.len()
        );
        t.data.copy_from_slice(bytemuck::cast_slice(values));
        t
    }

    /// # Panics
    /// If the number of values is not the product of `shape`.
    pub fn from_bools(shape: &[usize], values: &[bool]) -> Tensor {
        let mut t = Tensor::zeros(DType::Bool, shape);
        assert_eq!(
            t.len(),
            values.len(),
            "shape {shape:?} against {} values",
            values.len()
        );
        for (d, s) in t.data.iter_mut().zip(values) {
            *d = u8::from(*s);
        }
        t
    }

    /// `bytes` are little-endian elements in row-major order; `None` if their length does not fit.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Option<Tensor> {
        let fits = byte_size(dtype, shape) == Some(bytes.len());
        let t = fits.then(|| Tensor::from_data(dtype, shape, AlignedBytes::copied(bytes)));
        t.flatten()
    }

    /// [`Tensor::from_bytes`] without a copy. Any byte but 0 is true.
    pub fn from_data(dtype: DType, shape: &[usize], mut data: AlignedBytes) -> Option<Tensor> {
        if byte_size(dtype, shape) != Some(data.len()) {
            return None;
        }
        if dtype == DType::Bool && data.iter().any(|b| *b > 1) {
            data.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
        let shape = shape.to_vec();
        Some(Tensor { dtype, shape, data })
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// # Panics
    /// If `T` is not the element type.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert_eq!(self.dtype, T::DTYPE);
        bytemuck::cast_slice(&self.data)
    }

    /// # Panics
    /// If `T` is not the element type.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(self.dtype, T::DTYPE);
        bytemuck::cast_slice_mut(&mut self.data)
    }

    /// The same data under another shape.
    ///
    /// # Panics
    /// If the number of elements differs.
    pub fn reshaped(mut self, shape: &[usize]) -> Tensor {
        assert_eq!(
            self.len(),
            shape.iter().product::<usize>(),
            "{:?} to {shape:?}",
            self.shape
        );
        self.shape = shape.to_vec();
        self
    }

    /// Element `i` (row-major) as f64; integers above 2^53 round.
    pub fn get_f64(&self, i: usize) -> f64 {
        match self.dtype {
            DType::F32 => f64::from(self.as_slice::<f32>()[i]),
            DType::F64 => self.as_slice::<f64>()[i],
            DType::F16 => self.as_slice::<half::f16>()[i].to_f64(),
            DType::BF16 => self.as_slice::<half::bf16>()[i].to_f64(),
            DType::I8 => f64::from(self.as_slice::<i8>()[i]),
            DType::U8 => f64::from(self.as_slice::<u8>()[i]),
            DType::Bool => f64::from(self.data[i]),
            DType::I32 => f64::from(self.as_slice::<i32>()[i]),
            DType::I64 => self.as_slice::<i64>()[i] as f64,
            DType::I16 => f64::from(self.as_slice::<i16>()[i]),
            DType::U16 => f64::from(self.as_slice::<u16>()[i]),
            DType::U32 => f64::from(self.as_slice::<u32>()[i]),
            DType::U64 => self.as_slice::<u64>()[i] as f64,
        }
    }

    /// Element `i` (row-major) as i64; floats truncate towards zero and saturate, and u64 keeps its bits.
    pub fn get_i64(&self, i: usize) -> i64 {
        match self.dtype {
            DType::I64 => self.as_slice::<i64>()[i],
            DType::U64 => self.as_slice::<u64>()[i] as i64,
            _ => self.get_f64(i) as i64,
        }
    }

    /// Sets element `i` from f64, rounding to nearest for floats and truncating
    /// and saturating for integers.
    pub fn set_f64(&mut self, i: usize, v: f64) {
        match self.dtype {
            DType::F32 => self.as_mut_slice::<f32>()[i] = v as f32,
            DType::F64 => self.as_mut_slice::<f64>()[i] = v,
            DType::F16 => self.as_mut_slice::<half::f16>()[i] = half::f16::from_f64(v),
            DType::BF16 => self.as_mut_slice::<half::bf16>()[i] = half::bf16::from_f64(v),
            DType::I8 => self.as_mut_slice::<i8>()[i] = v as i8,
            DType::U8 => self.as_mut_slice::<u8>()[i] = v as u8,
            DType::Bool => self.data[i] = u8::from(v != 0.0),
            DType::I32 => self.as_mut_slice::<i32>()[i] = v as i32,
            DType::I64 => self.as_mut_slice::<i64>()[i] = v as i64,
            DType::I16 => self.as_mut_slice::<i16>()[i] = v as i16,
            DType::U16 => self.as_mut_slice::<u16>()[i] = v as u16,
            DType::U32 => self.as_mut_slice::<u32>()[i] = v as u32,
            DType::U64 => self.as_mut_slice::<u64>()[i] = v as u64,
        }
    }

    /// Sets element `i` from i64, wrapping for narrower integers.
    pub fn set_i64(&mut self, i: usize, v: i64) {
        match self.dtype {
            DType::I8 => self.as_mut_slice::<i8>()[i] = v as i8,
            DType::U8 => self.as_mut_slice::<u8>()[i] = v as u8,
            DType::I32 => self.as_mut_slice::<i32>()[i] = v as i32,
            DType::I64 => self.as_mut_slice::<i64>()[i] = v,
            DType::I16 => self.as_mut_slice::<i16>()[i] = v as i16,
            DType::U16 => self.as_mut_slice::<u16>()[i] = v as u16,
            DType::U32 => self.as_mut_slice::<u32>()[i] = v as u32,
            DType::U64 => self.as_mut_slice::<u64>()[i] = v as u64,
            _ => self.set_f64(i, v as f64),
        }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({} {:?})", self.dtype, self.shape)
    }
}

impl PartialEq for Tensor {
    /// Bit-wise equality of type, shape and data.
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && *self.data == *other.data
    }
}

/// The bytes of a tensor. `None` if they cannot be addressed, or if the other
/// dimensions of one without elements could not.
pub fn byte_size(dtype: DType, shape: &[usize]) -> Option<usize> {
    let full = shape
        .iter()
        .try_fold(dtype.size(), |n, d| n.checked_mul((*d).max(1)));
    let full = full.filter(|n| isize::try_from(*n).is_ok())?;
    Some(if shape.contains(&0) { 0 } else { full })
}

/// Strides, in elements, of a dense row-major tensor.
pub fn row_major_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_are_copied_by_the_first_change_only() {
        let owner = AlignedBytes::copied(&[1, 2, 3, 4]);
        let at = owner.as_ptr();
        let a = AlignedBytes::shared(owner);
        let mut b = a.clone();
        assert_eq!([a.as_ptr(), b.as_ptr()], [at; 2]);
        b[0] = 9;
        assert_eq!((&*a, &*b), (&[1, 2, 3, 4][..], &[9, 2, 3, 4][..]));
        let at = b.as_ptr();
        b[1] = 8;
        assert_eq!(b.as_ptr(), at);
    }

    #[test]
    fn shared_bytes_that_are_not_aligned_are_copied() {
        struct Tail(AlignedBytes);
        impl AsRef<[u8]> for Tail {
            fn as_ref(&self) -> &[u8] {
                &self.0[4..]
            }
        }
        let shared = AlignedBytes::shared(Tail(AlignedBytes::copied(&[1, 2, 3, 4, 5, 6])));
        assert_eq!(*shared, [5, 6]);
        assert!(shared.as_ptr().addr().is_multiple_of(ALIGN));
    }

    #[test]
    fn sizes_that_cannot_be_addressed_are_none() {
        assert_eq!(byte_size(DType::F32, &[]), Some(4));
        assert_eq!(byte_size(DType::F32, &[0, 3]), Some(0));
        for shape in [
            &[1 << 61][..],
            &[1 << 62, 1 << 62],
            &[0, 1 << 62],
            &[1 << 62, 0],
        ] {
            assert_eq!(byte_size(DType::F32, shape), None, "{shape:?}");
            assert!(
                Tensor::from_bytes(DType::F32, shape, &[]).is_none(),
                "{shape:?}"
            );
        }
    }
}
