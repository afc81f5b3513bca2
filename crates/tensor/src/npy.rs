//! NumPy `.npy` files, versions 1 to 3, little-endian, C order.

use crate::{DType, Tensor};
use std::io::{Read, Write};
use std::path::Path;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum NpyError {
    #[error("cannot read or write the file: {0}")]
    Io(#[from] std::io::Error),
    #[error("not a .npy file: {0}")]
    Format(String),
    #[error("unsupported .npy content: {0}")]
    Unsupported(String),
}

const MAGIC: &[u8] = b"\x93NUMPY";

fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::BF16 => return None,
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::Bool => "|b1",
    })
}

/// Reads one array. Fortran order and big-endian data are refused.
pub fn read_npy(mut r: impl Read) -> Result<Tensor, NpyError> {
    let bad = |m: &str| NpyError::Format(m.to_string());
    let mut head = [0u8; 8];
    r.read_exact(&mut head)
        .map_err(|_| bad("shorter than its header"))?;
    if &head[..6] != MAGIC {
        return Err(bad("the magic bytes are missing"));
    }
    let mut len = [0u8; 4];
    let width = if head[6] == 1 { 2 } else { 4 };
    r.read_exact(&mut len[..width])
        .map_err(|_| bad("shorter than its header"))?;
    let mut header = vec![0u8; u32::from_le_bytes(len).min(1 << 20) as usize];
    r.read_exact(&mut header)
        .map_err(|_| bad("shorter than its header"))?;
    let header = String::from_utf8_lossy(&header).into_owned();
    let field = |name: &str| {
        let at = header.find(&format!("'{name}'"))? + name.len() + 2;
        Some(header[at..].trim_start().strip_prefix(':')?.trim_start())
    };
    let kind = field("descr")
        .and_then(|v| v.strip_prefix('\''))
        .and_then(|v| v.split('\'').next())
        .ok_or_else(|| bad("the header has no 'descr'"))?;
    let dtype = DType::ALL
        .into_iter()
        .find(|d| descr(*d).is_some_and(|s| s == kind || s[1..] == kind[1..] && d.size() == 1))
        .ok_or_else(|| NpyError::Unsupported(format!("element type '{kind}'")))?;
    if field("fortran_order").is_some_and(|v| v.starts_with("True")) {
        return Err(NpyError::Unsupported(
            "Fortran order; save it with order='C'".into(),
        ));
    }
    let dims = field("shape")
        .and_then(|v| v.strip_prefix('('))
        .and_then(|v| v.split(')').next())
        .ok_or_else(|| bad("the header has no 'shape'"))?;
    let shape = dims
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| {
            s.parse::<usize>()
                .map_err(|_| bad("the shape is not a tuple of integers"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let count = shape
        .iter()
        .try_fold(dtype.size(), |n, d| n.checked_mul(*d));
    let count = count.ok_or_else(|| bad("the shape is too large"))?;
    let mut data = Vec::new();
    r.take(count as u64).read_to_end(&mut data)?;
    Tensor::from_bytes(dtype, &shape, &data)
        .ok_or_else(|| bad("the file ends before the last element"))
}

pub fn write_npy(mut w: impl Write, t: &Tensor) -> Result<(), NpyError> {
    let kind = descr(t.dtype())
        .ok_or_else(|| NpyError::Unsupported("NumPy has no bf16; cast to f32 first".into()))?;
    let dims: String = t.shape().iter().map(|d| format!("{d},")).collect();
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({dims}), }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    w.write_all(MAGIC)?;
    w.write_all(&[1, 0])?;
    w.write_all(&(header.len() as u16).to_le_bytes())?;
    w.write_all(header.as_bytes())?;
    w.write_all(t.bytes())?;
    Ok(())
}

pub fn read_npy_file(path: &Path) -> Result<Tensor, NpyError> {
    read_npy(std::io::BufReader::new(std::fs::File::open(path)?))
}

pub fn write_npy_file(path: &Path, t: &Tensor) -> Result<(), NpyError> {
    write_npy(std::io::BufWriter::new(std::fs::File::create(path)?), t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fill, fill_tensor};

    #[test]
    fn every_type_and_rank_reads_back() {
        for dtype in DType::ALL {
            for shape in [&[][..], &[3], &[2, 3], &[0, 4]] {
                let t = fill_tensor(dtype, shape, Fill::Integers { lo: 0, hi: 1 }, 7);
                let mut file = Vec::new();
                match write_npy(&mut file, &t) {
                    Ok(()) => assert_eq!(read_npy(&file[..]).unwrap(), t),
                    Err(e) => assert!(dtype == DType::BF16, "{e}"),
                }
            }
        }
    }

    #[test]
    fn truncation_at_every_byte_is_an_error() {
        let mut file = Vec::new();
        write_npy(&mut file, &Tensor::from_slice(&[2], &[1i32, 2])).unwrap();
        for n in 0..file.len() {
            assert!(read_npy(&file[..n]).is_err(), "{n} bytes");
        }
    }
}
