//! Tensors in ONNX messages, files and external data.

use crate::file::{DataFolder, FileBuf};
use crate::narrow::Narrow;
use crate::proto::TensorProto;
use graph::TensorType;
use prost::Message;
use std::path::Path;
use tensor::{AlignedBytes, DType, Tensor, byte_size};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum TensorError {
    #[error("cannot read the file: {0}")]
    Io(#[from] std::io::Error),
    #[error("not a whole ONNX tensor ({0}); the file is damaged or cut short")]
    Decode(#[from] prost::DecodeError),
    #[error("its element type, {0}, is not supported")]
    Type(String),
    #[error("its data is in `{location}`: {reason}")]
    External { location: String, reason: String },
    #[error("{0}")]
    Invalid(String),
}

/// The largest tensor that is read, in bytes.
const LIMIT: usize = 1 << 36;

/// Our element type for a number of ONNX's `TensorProto.DataType`.
///
/// # Errors
/// Names the type that has no counterpart.
pub fn dtype_of(data_type: i32) -> Result<DType, TensorError> {
    element_type(data_type).map_err(TensorError::Type)
}

/// As [`dtype_of`], or the name alone of the type that has no counterpart.
pub(crate) fn element_type(data_type: i32) -> Result<DType, String> {
    const UNSUPPORTED: [(i32, &str); 14] = [
        (0, "undefined"),
        (8, "string"),
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
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        other => {
            let name = UNSUPPORTED
                .iter()
                .find(|(n, _)| *n == other)
                .map(|(_, name)| *name);
            return Err(name.map_or_else(|| format!("number {other}"), str::to_string));
        }
    })
}

/// The number of `TensorProto.DataType`.
pub(crate) fn data_type(d: DType) -> i32 {
    match d {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
    }
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
/// As there, or if it is no regular file or cannot be read.
pub fn read_tensor_proto_file(path: &Path) -> Result<(String, Tensor), TensorError> {
    let mut file = FileBuf::open(path)?;
    let proto = TensorProto::decode(&mut file);
    file.finish()?;
    let proto = proto?;
    let name = proto.name().to_string();
    Ok((name, tensor_from(proto, None)?))
}

/// The value of a message. External data is looked for in `folder`.
pub(crate) fn tensor_from(
    mut proto: TensorProto,
    folder: Option<&DataFolder>,
) -> Result<Tensor, TensorError> {
    let dtype = dtype_of(proto.data_type())?;
    let (shape, bytes) = shape_of(&proto, dtype)?;
    let field = data_field(&proto)?;
    let data = match field {
        "external_data" => read_external(&proto, folder, bytes)?,
        "raw_data" => AlignedBytes::shared(proto.raw_data.take().unwrap_or_default()),
        _ => listed(&proto, dtype, field)?,
    };
    let have = data.len();
    Tensor::from_data(dtype, &shape, data).ok_or_else(|| {
        TensorError::Invalid(format!(
            "{dtype}{shape:?} needs {bytes} bytes, but there are {have}"
        ))
    })
}

/// As [`tensor_from`], also of a type that no tensor here has, which is named then.
pub(crate) fn any_tensor_from(
    mut proto: TensorProto,
    folder: Option<&DataFolder>,
) -> Result<(Tensor, Option<&'static Narrow>), TensorError> {
    let Some(narrow) = Narrow::of(proto.data_type()) else {
        return Ok((tensor_from(proto, folder)?, None));
    };
    let (shape, _) = shape_of(&proto, narrow.carrier)?;
    let bytes = narrow.byte_size(shape.iter().product());
    let data = match data_field(&proto)? {
        "external_data" => read_external(&proto, folder, bytes)?,
        "raw_data" => AlignedBytes::shared(proto.raw_data.take().unwrap_or_default()),
        "int32_data" => bytes_of(proto.int32_data.iter().map(|v| *v as u64), narrow),
        "uint64_data" => bytes_of(proto.uint64_data.iter().copied(), narrow),
        field => {
            return Err(TensorError::Invalid(format!(
                "its elements are {}, but {field} holds them",
                narrow.name
            )));
        }
    };
    if data.len() != bytes {
        return Err(TensorError::Invalid(format!(
            "{}{shape:?} needs {bytes} bytes, but there are {}",
            narrow.name,
            data.len()
        )));
    }
    let (tensor, narrow) = narrow.tensor(&shape, &data);
    Ok((tensor, Some(narrow)))
}

fn bytes_of(numbers: impl Iterator<Item = u64>, narrow: &Narrow) -> AlignedBytes {
    let size = narrow.listed_size();
    let bytes = numbers.flat_map(|v| v.to_le_bytes().into_iter().take(size));
    AlignedBytes::shared(bytes.collect::<Vec<u8>>())
}

/// The one field of a message that holds its elements; of a tensor without
/// elements, any.
fn data_field(proto: &TensorProto) -> Result<&'static str, TensorError> {
    let raw = proto.raw_data.as_ref().is_some_and(|r| !r.is_empty());
    let fields = [
        ("external_data", proto.data_location() == 1),
        ("raw_data", raw),
        ("float_data", !proto.float_data.is_empty()),
        ("double_data", !proto.double_data.is_empty()),
        ("int32_data", !proto.int32_data.is_empty()),
        ("int64_data", !proto.int64_data.is_empty()),
        ("uint64_data", !proto.uint64_data.is_empty()),
        ("string_data", !proto.string_data.is_empty()),
    ];
    let mut held = fields.iter().filter(|f| f.1).map(|f| f.0);
    match (held.next(), held.next()) {
        (Some(a), Some(b)) => Err(TensorError::Invalid(format!(
            "its elements are given twice, in {a} and {b}"
        ))),
        (field, _) => Ok(field.unwrap_or("raw_data")),
    }
}

/// Elements that stand in a list of numbers.
fn listed(proto: &TensorProto, dtype: DType, field: &str) -> Result<AlignedBytes, TensorError> {
    fn bytes<T: Copy, const N: usize>(list: &[T], bytes: impl Fn(T) -> [u8; N]) -> AlignedBytes {
        let mut data = AlignedBytes::zeroed(list.len() * N);
        let (places, _) = data.as_chunks_mut::<N>();
        for (place, v) in places.iter_mut().zip(list) {
            *place = bytes(*v);
        }
        data
    }
    let ints = &proto.int32_data;
    // Narrow elements are stored as numbers, 16-bit floats as their bits.
    let within = |low: i32, high: i32| match ints.iter().find(|v| !(low..=high).contains(*v)) {
        Some(v) => Err(TensorError::Invalid(format!(
            "it holds {v}, which is not a value of type {dtype}"
        ))),
        None => Ok(()),
    };
    Ok(match (dtype, field) {
        (DType::F32, "float_data") => bytes(&proto.float_data, f32::to_le_bytes),
        (DType::F64, "double_data") => bytes(&proto.double_data, f64::to_le_bytes),
        (DType::I64, "int64_data") => bytes(&proto.int64_data, i64::to_le_bytes),
        (DType::I32, "int32_data") => bytes(ints, i32::to_le_bytes),
        (DType::F16 | DType::BF16, "int32_data") => {
            within(0, i32::from(u16::MAX))?;
            bytes(ints, |v| (v as u16).to_le_bytes())
        }
        (DType::U32, "uint64_data") => bytes(&proto.uint64_data, |v| (v as u32).to_le_bytes()),
        (DType::U64, "uint64_data") => bytes(&proto.uint64_data, u64::to_le_bytes),
        (DType::I16, "int32_data") => {
            within(i32::from(i16::MIN), i32::from(i16::MAX))?;
            bytes(ints, |v| (v as i16).to_le_bytes())
        }
        (DType::U16, "int32_data") => {
            within(0, i32::from(u16::MAX))?;
            bytes(ints, |v| (v as u16).to_le_bytes())
        }
        (DType::I8 | DType::U8 | DType::Bool, "int32_data") => {
            match dtype {
                DType::I8 => within(-128, 127)?,
                DType::U8 => within(0, 255)?,
                _ => within(0, 1)?,
            }
            bytes(ints, |v| [v as u8])
        }
        _ => {
            return Err(TensorError::Invalid(format!(
                "its elements are {dtype}, but {field} holds them"
            )));
        }
    })
}

fn shape_of(proto: &TensorProto, dtype: DType) -> Result<(Vec<usize>, usize), TensorError> {
    let shape: Option<Vec<usize>> = proto
        .dims
        .iter()
        .map(|d| usize::try_from(*d).ok())
        .collect();
    let bytes = shape.as_ref().and_then(|s| byte_size(dtype, s));
    match (shape, bytes) {
        (Some(shape), Some(bytes))
            if bytes <= LIMIT && TensorType::new(dtype, &shape).is_possible() =>
        {
            Ok((shape, bytes))
        }
        _ => Err(TensorError::Invalid(format!(
            "the dimensions {:?} are invalid",
            proto.dims
        ))),
    }
}

fn read_external(
    proto: &TensorProto,
    folder: Option<&DataFolder>,
    bytes: usize,
) -> Result<AlignedBytes, TensorError> {
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
    let (offset, length) = (number("offset")?, number("length")?);
    if let Some(length) = length.filter(|n| *n != bytes as u64) {
        return Err(invalid(format!(
            "its external data has {length} bytes, but must have {bytes}"
        )));
    }
    let read = match folder {
        Some(folder) => folder.read(location, offset.unwrap_or(0), bytes),
        None => Err("import the model from its file".into()),
    };
    read.map_err(|reason| TensorError::External {
        location: location.to_string(),
        reason,
    })
}
