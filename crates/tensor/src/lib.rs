//! Tensors in host memory: element types, owned buffers with a shape, `.npy`
//! files, seeded fills, cropping and tolerance comparison. Also how files of data are
//! opened and files are replaced, whatever their format.
//!
//! Owns the meaning of element types for the whole workspace. Promises that
//! tensor storage is 64-byte aligned and row-major. Knows nothing about
//! programs, models or devices.

mod compare;
mod crop;
mod data_file;
mod dtype;
mod fill;
mod new_file;
mod npy;
mod tensor;

pub use compare::{Difference, compare};
pub use crop::{Crop, cropped, results};
pub use data_file::DataFile;
pub use dtype::{DType, Element};
pub use fill::{Fill, fill, fill_tensor};
pub use new_file::NewFile;
pub use npy::{
    NpyError, npy_file_name, npy_header, read_npy, read_npy_file, write_npy, write_npy_file,
};
pub use tensor::{AlignedBytes, Tensor, byte_size, check_memory, row_major_strides};
