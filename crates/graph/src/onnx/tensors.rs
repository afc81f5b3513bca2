//! Tensors in ONNX messages, files and external data.

use super::proto::TensorProto;
use prost::Message;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};
use tensor::{DType, Tensor};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum TensorError {
    #[error("cannot read the file: {0}")]
    Io(#[from] std::io::Error),
    #[error("not a whole ONNX tensor ({0}); the file is damaged or cut short")]
    Decode(#[from] prost::DecodeError),
    #[error("its element type, {0}, is not supported")]
    Type(String),
    #[error("{0}")]
    Invalid(String),
}

/// The largest tensor that is read, in bytes.
const LIMIT: u64 = 1 << 36;

/// Our element type for a number of ONNX's `TensorProto.DataType`.
///
/// # Errors
/// Names the type that has no counterpart.
pub fn dtype_of(data_type: i32) -> Result<DType, TensorError> {
    const UNSUPPORTED: [(i32, &str); 18] = [
        (0, "undefined"),
        (4, "uint16"),
        (5, "int16"),
        (8, "string"),
        (12, "uint32"),
        (13, "uint64"),
        (14, "complex64"),
        (15, "complex128"),
        (17, "float8e4m3fn"),
        (18, "float8e4m3fnuz"),
        (19, "float8e5m2"),
        (20, "float8e5m2fnuz"),
        (21, "uint4"),
        (22, "int4"),
        (23, "float4e2m1"),
        (24, "float8e8m0"),
        (25, "uint2"),
        (26, "int2"),
    ];
    Ok(match data_type {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        16 => DType::BF16,
        other => {
            let name = UNSUPPORTED
                .iter()
                .find(|(n, _)| *n == other)
                .map(|(_, name)| *name);
            return Err(TensorError::Type(
                name.map_or_else(|| format!("number {other}"), str::to_string),
            ));
        }
    })
}

/// Reads one serialised `TensorProto` (`.pb`): its name and value.
///
/// # Errors
/// If the bytes are not a whole tensor of a supported type.
pub fn read_tensor_proto(bytes: &[u8]) -> Result<(String, Tensor), TensorError> {
    let proto = TensorProto::decode(bytes)?;
    let name = proto.name().to_string();
    Ok((name, tensor_from(proto, None)?))
}

/// [`read_tensor_proto`] of a file.
///
/// # Errors
/// As there, or if the file cannot be read.
pub fn read_tensor_proto_file(path: &Path) -> Result<(String, Tensor), TensorError> {
    read_tensor_proto(&std::fs::read(path)?)
}

/// The value of a message. External data is looked for in `folder`.
pub(super) fn tensor_from(
    proto: TensorProto,
    folder: Option<&Path>,
) -> Result<Tensor, TensorError> {
    let dtype = dtype_of(proto.data_type())?;
    let (shape, bytes) = shape_of(&proto, dtype)?;
    let invalid = |have: usize| {
        TensorError::Invalid(format!(
            "{dtype}{shape:?} takes {bytes} bytes and has {have}"
        ))
    };
    if proto.data_location() == 1 {
        let data = read_external(&proto, folder, bytes)?;
        return from_raw(dtype, &shape, &data).ok_or_else(|| invalid(data.len()));
    }
    if let Some(raw) = &proto.raw_data {
        return from_raw(dtype, &shape, raw).ok_or_else(|| invalid(raw.len()));
    }
    let mut data: Vec<u8> = Vec::new();
    let ints = proto.int32_data.iter();
    match dtype {
        DType::F32 => proto
            .float_data
            .iter()
            .for_each(|v| data.extend(v.to_le_bytes())),
        DType::F64 => proto
            .double_data
            .iter()
            .for_each(|v| data.extend(v.to_le_bytes())),
        DType::I64 => proto
            .int64_data
            .iter()
            .for_each(|v| data.extend(v.to_le_bytes())),
        DType::I32 => ints.for_each(|v| data.extend(v.to_le_bytes())),
        // The low bytes of each number: 16-bit floats are stored as their bits.
        DType::F16 | DType::BF16 => ints.for_each(|v| data.extend((*v as u16).to_le_bytes())),
        DType::I8 | DType::U8 | DType::Bool => data.extend(ints.map(|v| *v as u8)),
    }
    from_raw(dtype, &shape, &data).ok_or_else(|| invalid(data.len()))
}

fn shape_of(proto: &TensorProto, dtype: DType) -> Result<(Vec<usize>, u64), TensorError> {
    let shape: Option<Vec<usize>> = proto
        .dims
        .iter()
        .map(|d| usize::try_from(*d).ok())
        .collect();
    let invalid = || TensorError::Invalid(format!("the dimensions {:?} are invalid", proto.dims));
    let shape = shape.ok_or_else(invalid)?;
    let bytes = byte_size(dtype, &shape)
        .filter(|n| *n <= LIMIT)
        .ok_or_else(invalid)?;
    Ok((shape, bytes))
}

/// The bytes of a tensor, or `None` if its dimensions overflow even without zeros.
pub(super) fn byte_size(dtype: DType, shape: &[usize]) -> Option<u64> {
    let full = shape.iter().try_fold(dtype.size() as u64, |n, d| {
        n.checked_mul((*d).max(1) as u64)
    });
    full.map(|n| if shape.contains(&0) { 0 } else { n })
}

fn from_raw(dtype: DType, shape: &[usize], data: &[u8]) -> Option<Tensor> {
    if byte_size(dtype, shape) != Some(data.len() as u64) {
        return None;
    }
    let mut t = Tensor::from_bytes(dtype, shape, data)?;
    if dtype == DType::Bool {
        t.bytes_mut()
            .iter_mut()
            .for_each(|b| *b = u8::from(*b != 0));
    }
    Some(t)
}

fn read_external(
    proto: &TensorProto,
    folder: Option<&Path>,
    bytes: u64,
) -> Result<Vec<u8>, TensorError> {
    let entry = |key: &str| {
        proto
            .external_data
            .iter()
            .find(|e| e.key() == key)
            .map(|e| e.value())
    };
    let invalid = |m: String| TensorError::Invalid(m);
    let number = |key: &str| match entry(key).map(str::parse::<u64>) {
        None => Ok(None),
        Some(Ok(n)) => Ok(Some(n)),
        Some(Err(_)) => Err(invalid(format!("its external `{key}` is not a number"))),
    };
    let location =
        entry("location").ok_or_else(|| invalid("its external data has no location".into()))?;
    let folder = folder.ok_or_else(|| {
        invalid(format!(
            "its data is in `{location}`: import the model from its file"
        ))
    })?;
    let inside = Path::new(location)
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !inside {
        return Err(invalid(format!(
            "its data is in `{location}`, outside the model's folder"
        )));
    }
    let (offset, length) = (
        number("offset")?.unwrap_or(0),
        number("length")?.unwrap_or(bytes),
    );
    if length != bytes {
        return Err(invalid(format!(
            "its external data is {length} bytes long and must be {bytes}"
        )));
    }
    let mut file = File::open(folder.join(location))?;
    file.seek(SeekFrom::Start(offset))?;
    let mut data = Vec::new();
    file.take(bytes).read_to_end(&mut data)?;
    Ok(data)
}
