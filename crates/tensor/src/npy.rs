//! NumPy `.npy` files, versions 1 to 3; written little-endian and in C order, read in any order. NumPy has no bf16: arrays of
//! the package ml_dtypes are written as two bytes without a type, and so are ours.

use crate::{AlignedBytes, DType, DataFile, Tensor, byte_size};
use std::collections::BTreeSet;
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

/// The longest header that is read, in bytes; NumPy itself stops at 10,000.
const HEADER_LIMIT: usize = 1 << 16;

fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::Bool => "|b1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
    }
}

fn bad<T>(reason: impl Into<String>) -> Result<T, NpyError> {
    Err(NpyError::Format(reason.into()))
}

/// What stands before the elements.
struct Header {
    dtype: DType,
    /// Whether the bytes of an element come with the most significant first.
    big_endian: bool,
    /// Whether the first index is the one that changes fastest.
    fortran: bool,
    shape: Vec<usize>,
    /// Bytes of the elements.
    size: usize,
    /// Where they start in the file.
    start: usize,
}

impl Header {
    fn read(mut r: impl Read) -> Result<Header, NpyError> {
        let cut = |_| NpyError::Format("shorter than its header".into());
        let mut head = [0u8; 8];
        r.read_exact(&mut head).map_err(cut)?;
        if &head[..6] != MAGIC {
            return bad("the magic bytes are missing");
        }
        let width = match head[6] {
            1 => 2,
            2 | 3 => 4,
            other => return Err(NpyError::Unsupported(format!("format version {other}"))),
        };
        let mut len = [0u8; 4];
        r.read_exact(&mut len[..width]).map_err(cut)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > HEADER_LIMIT {
            return bad(format!("its header of {len} bytes is too long"));
        }
        let mut text = vec![0u8; len];
        r.read_exact(&mut text).map_err(cut)?;
        let Described {
            dtype,
            big_endian,
            fortran,
            shape,
        } = match std::str::from_utf8(&text) {
            Ok(text) if text.is_ascii() => Literal(text).header()?,
            _ => return bad("its header is not ASCII"),
        };
        let Some(size) = byte_size(dtype, &shape) else {
            return bad(format!("its shape {shape:?} is too large"));
        };
        let start = head.len() + width + len;
        Ok(Header {
            dtype,
            big_endian,
            fortran,
            shape,
            size,
            start,
        })
    }

    fn tensor(&self, data: AlignedBytes) -> Result<Tensor, NpyError> {
        let turned = self.fortran && self.shape.len() > 1;
        let whole = data.len() >= self.size;
        let data = match whole && (turned || self.big_endian) {
            true => AlignedBytes::shared(self.reordered(&data[..self.size], turned)),
            false => data,
        };
        let t = Tensor::from_data(self.dtype, &self.shape, data);
        t.map_or_else(|| bad("the file ends before the last element"), Ok)
    }
}

impl Header {
    /// The elements in C order, each with the least significant byte first; `turned` if they
    /// come in Fortran order.
    fn reordered(&self, data: &[u8], turned: bool) -> Vec<u8> {
        let each = self.dtype.size();
        let mut out = Vec::with_capacity(data.len());
        // From one element to the next along each axis, in elements.
        let mut strides = vec![1; self.shape.len()];
        for axis in 1..self.shape.len() {
            strides[axis] = strides[axis - 1] * self.shape[axis - 1];
        }
        let mut index = vec![0; self.shape.len()];
        for n in 0..data.len() / each {
            let at = match turned {
                true => index.iter().zip(&strides).map(|(i, s)| i * s).sum(),
                false => n,
            };
            let element = &data[at * each..(at + 1) * each];
            match self.big_endian {
                true => out.extend(element.iter().rev()),
                false => out.extend(element),
            }
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                if index[axis] < self.shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        out
    }
}

/// What the dictionary of a header says.
struct Described {
    dtype: DType,
    big_endian: bool,
    fortran: bool,
    shape: Vec<usize>,
}

/// What is left of a header: a Python dictionary, as NumPy writes it.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    fn header(mut self) -> Result<Described, NpyError> {
        let (mut dtype, mut fortran, mut shape) = (None, None, None);
        self.must("{")?;
        while !self.takes("}") {
            let key = self.string("a key")?;
            self.must(":")?;
            let again = match key {
                "descr" => dtype.replace(self.dtype()?).is_some(),
                "fortran_order" => fortran.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.sizes()?).is_some(),
                other => return bad(format!("its header has a key '{other}'")),
            };
            if again {
                return bad(format!("its header has two keys '{key}'"));
            }
            if !self.takes(",") {
                self.must("}")?;
                break;
            }
        }
        if !self.0.trim().is_empty() {
            return bad("its header goes on after the dictionary");
        }
        match (dtype, fortran, shape) {
            (Some((dtype, big_endian)), Some(fortran), Some(shape)) => Ok(Described {
                dtype,
                big_endian,
                fortran,
                shape,
            }),
            (None, ..) => bad("its header has no 'descr'"),
            (_, None, _) => bad("its header has no 'fortran_order'"),
            (.., None) => bad("its header has no 'shape'"),
        }
    }

    fn takes(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn must(&mut self, token: &str) -> Result<(), NpyError> {
        if self.takes(token) {
            return Ok(());
        }
        bad(format!("its header lacks a `{token}`"))
    }

    fn string(&mut self, what: &str) -> Result<&'a str, NpyError> {
        let quote = ["'", "\""].into_iter().find(|q| self.takes(q));
        match quote.and_then(|q| self.0.split_once(q)) {
            Some((text, rest)) => {
                self.0 = rest;
                Ok(text)
            }
            None => bad(format!("{what} of its header is not a string")),
        }
    }

    /// The element type, and whether its bytes are big-endian.
    fn dtype(&mut self) -> Result<(DType, bool), NpyError> {
        if self.takes("[") {
            return Err(NpyError::Unsupported("structured elements".into()));
        }
        let kind = self.string("'descr'")?;
        // The byte order of single bytes means nothing, nor that of bytes without a type.
        let is = |d: &DType| {
            let s = descr(*d);
            let single = d.size() == 1 && kind.strip_prefix(['<', '>', '=', '|']) == Some(&s[1..]);
            s == kind || single || (*d == DType::BF16 && kind == "|V2")
        };
        let known = DType::ALL.into_iter().find(is).map(|d| (d, false));
        let of_big = |d: &DType| {
            let numbers = d.size() > 1 && *d != DType::BF16;
            numbers && kind.strip_prefix('>') == Some(&descr(*d)[1..])
        };
        let big = || DType::ALL.into_iter().find(of_big).map(|d| (d, true));
        known
            .or_else(big)
            .ok_or_else(|| NpyError::Unsupported(format!("element type '{kind}'")))
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        match (self.takes("True"), self.takes("False")) {
            (false, false) => bad("'fortran_order' of its header is not True or False"),
            (yes, _) => Ok(yes),
        }
    }

    fn sizes(&mut self) -> Result<Vec<usize>, NpyError> {
        self.must("(")?;
        let Some((list, rest)) = self.0.split_once(')') else {
            return bad("its header lacks a `)`");
        };
        self.0 = rest;
        let list = list.trim();
        let list = list.strip_suffix(',').unwrap_or(list);
        if list.is_empty() {
            return Ok(vec![]);
        }
        let size = |s: &str| match s.trim().parse() {
            Ok(n) => Ok(n),
            Err(_) => bad("'shape' of its header is not a tuple of sizes"),
        };
        list.split(',').map(size).collect()
    }
}

/// Reads one array.
///
/// # Errors
/// If the bytes are not a whole array of a supported type.
pub fn read_npy(mut r: impl Read) -> Result<Tensor, NpyError> {
    let header = Header::read(&mut r)?;
    let mut data = Vec::new();
    r.take(header.size as u64).read_to_end(&mut data)?;
    header.tensor(AlignedBytes::shared(data))
}

/// What a `.npy` file has before the elements, in row-major order. Its dictionary is written as numpy writes it.
pub fn npy_header(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    let sizes = match sizes.as_slice() {
        [one] => format!("{one},"),
        all => all.join(", "),
    };
    let kind = descr(dtype);
    let mut dictionary =
        format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({sizes}), }}");
    while (dictionary.len() + 11) % 64 != 0 {
        dictionary.push(' ');
    }
    dictionary.push('\n');
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend((dictionary.len() as u16).to_le_bytes());
    header.extend(dictionary.as_bytes());
    header
}

pub fn write_npy(mut w: impl Write, t: &Tensor) -> Result<(), NpyError> {
    w.write_all(&npy_header(t.dtype(), t.shape()))?;
    w.write_all(t.bytes())?;
    Ok(())
}

/// [`read_npy`] of a file.
///
/// # Errors
/// As there, or if it is no regular file or cannot be read.
pub fn read_npy_file(path: &Path) -> Result<Tensor, NpyError> {
    let file = DataFile::open(path)?;
    let mut head = vec![0; file.len().min(12 + HEADER_LIMIT as u64) as usize];
    file.read_at(0, &mut head)?;
    let header = Header::read(&head[..])?;
    if file.len() - (header.start as u64) < header.size as u64 {
        return bad("the file ends before the last element");
    }
    header.tensor(file.read(header.start as u64, header.size)?)
}

pub fn write_npy_file(path: &Path, t: &Tensor) -> Result<(), NpyError> {
    write_npy(std::io::BufWriter::new(std::fs::File::create(path)?), t)
}

/// A file name for a tensor's name, not among those in `taken`, and of a length that file systems
/// take: a long name keeps its end.
pub fn npy_file_name(tensor: &str, taken: &mut BTreeSet<String>) -> String {
    const LONGEST: usize = 200;
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let safe: String = tensor
        .chars()
        .map(|c| if keep(c) { c } else { '_' })
        .collect();
    let end = &safe[safe.len().saturating_sub(LONGEST)..];
    let safe = match end.trim_matches(|c| matches!(c, '.' | '_')) {
        "" => "output",
        name => name,
    };
    let mut name = format!("{safe}.npy");
    let mut copy = 1;
    while !taken.insert(name.clone()) {
        copy += 1;
        name = format!("{safe}_{copy}.npy");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fill, fill_tensor};
    use proptest::prelude::*;

    #[test]
    fn file_names_are_safe_and_differ() {
        let mut taken = BTreeSet::new();
        let mut name = |n| npy_file_name(n, &mut taken);
        assert_eq!(name("a/b:0"), "a_b_0.npy");
        assert_eq!(name("a_b.0"), "a_b.0.npy");
        assert_eq!(name("a b 0"), "a_b_0_2.npy");
        assert_eq!(name("../../x"), "x.npy");
        assert_eq!(name(".."), "output.npy");
        assert_eq!(name(""), "output_2.npy");
        let long = format!("{}é/layer", "x".repeat(300));
        let end = format!("{}__layer", "x".repeat(193));
        assert_eq!(name(&long), format!("{end}.npy"));
        assert_eq!(name(&long), format!("{end}_2.npy"));
    }

    #[test]
    fn every_type_and_rank_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.npy");
        for dtype in DType::ALL {
            for shape in [&[][..], &[3], &[2, 3], &[0, 4]] {
                let t = fill_tensor(dtype, shape, Fill::Integers { lo: 0, hi: 1 }, 7);
                let mut file = Vec::new();
                write_npy(&mut file, &t).unwrap();
                assert_eq!(read_npy(&file[..]).unwrap(), t);
                write_npy_file(&path, &t).unwrap();
                assert_eq!(read_npy_file(&path).unwrap(), t);
            }
        }
    }

    #[test]
    fn truncation_at_every_byte_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.npy");
        let mut file = Vec::new();
        write_npy(&mut file, &Tensor::from_slice(&[2], &[1i32, 2])).unwrap();
        for n in 0..file.len() {
            assert!(read_npy(&file[..n]).is_err(), "{n} bytes");
            std::fs::write(&path, &file[..n]).unwrap();
            assert!(read_npy_file(&path).is_err(), "{n} bytes");
        }
    }

    /// A file of version 2 with this header and 64 bytes of data.
    fn file(header: &[u8]) -> Vec<u8> {
        let len = (header.len() as u32).to_le_bytes();
        [MAGIC, &[2, 0], &len, header, &[7; 64]].concat()
    }

    #[test]
    fn forms_that_numpy_reads() {
        for header in [
            "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }  \n",
            "{'shape':(2,3),'fortran_order':False,'descr':'<i4'}",
            "{\"descr\": \"<i4\", \"fortran_order\": False, \"shape\": (2, 3,)}\n",
        ] {
            let t = read_npy(&file(header.as_bytes())[..]).unwrap();
            assert_eq!(
                (t.dtype(), t.shape()),
                (DType::I32, &[2, 3][..]),
                "{header}"
            );
        }
        for (descr, shape, dtype) in [("|b1", "()", DType::Bool), ("<u1", "(1,)", DType::U8)] {
            let header =
                format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}");
            let t = read_npy(&file(header.as_bytes())[..]).unwrap();
            assert_eq!(t.dtype(), dtype);
            assert_eq!(t.bytes(), [if dtype == DType::Bool { 1 } else { 7 }]);
        }
    }

    #[test]
    fn arrays_are_read_in_any_order() {
        let read = |descr: &str, fortran: &str, shape: &str, data: &[u8]| {
            let header =
                format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
            let mut bytes = MAGIC.to_vec();
            bytes.extend([1, 0]);
            bytes.extend((header.len() as u16).to_le_bytes());
            bytes.extend(header.as_bytes());
            bytes.extend(data);
            read_npy(&bytes[..])
        };
        // 0..6 as 2 rows of 3, by columns and with the high byte first.
        let numbers = |values: [i32; 6]| values.map(i32::to_le_bytes).concat();
        let by_columns = numbers([0, 3, 1, 4, 2, 5]);
        let expected = numbers([0, 1, 2, 3, 4, 5]);
        let t = read("<i4", "True", "(2, 3)", &by_columns).unwrap();
        assert_eq!((t.shape(), t.bytes()), (&[2, 3][..], &expected[..]));
        let big: Vec<u8> = [0, 1, 2, 3, 4, 5i32].map(i32::to_be_bytes).concat();
        let t = read(">i4", "False", "(2, 3)", &big).unwrap();
        assert_eq!((t.dtype(), t.bytes()), (DType::I32, &expected[..]));
        let both: Vec<u8> = [0, 3, 1, 4, 2, 5i32].map(i32::to_be_bytes).concat();
        assert_eq!(
            read(">i4", "True", "(2, 3)", &both).unwrap().bytes(),
            expected
        );
        // One axis has one order; a file that is cut has none.
        assert_eq!(
            read("<i4", "True", "(6,)", &expected).unwrap().bytes(),
            expected
        );
        let cut = read(">i4", "True", "(2, 3)", &both[..23]).unwrap_err();
        assert!(cut.to_string().contains("before the last element"), "{cut}");
    }

    #[test]
    fn malformed_headers_are_errors() {
        let with = |descr: &str, fortran: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
        };
        for (header, part) in [
            (with("''", "False", "(2,)"), "element type ''"),
            (with("'é'", "False", "(2,)"), "not ASCII"),
            (with("'|é1'", "False", "(2,)"), "not ASCII"),
            (with("'>V2'", "False", "(2,)"), "element type '>V2'"),
            (with("'>f5'", "False", "(2,)"), "element type '>f5'"),
            (with("'|O'", "False", "(2,)"), "element type '|O'"),
            (with("[('a', '<f4')]", "False", "(2,)"), "structured"),
            (
                with("4", "False", "(2,)"),
                "'descr' of its header is not a string",
            ),
            (with("'<f4", "False", "(2,)"), "element type '<f4, '"),
            (with("'<f4'", "Perhaps", "(2,)"), "not True or False"),
            (with("'<f4'", "False", "(-2,)"), "not a tuple of sizes"),
            (with("'<f4'", "False", "(2,,2)"), "not a tuple of sizes"),
            (with("'<f4'", "False", "((2,), 2)"), "not a tuple of sizes"),
            (with("'<f4'", "False", "2"), "lacks a `(`"),
            (with("'<f4'", "False", "(2"), "lacks a `)`"),
            (
                with("'<f4'", "False", "(17,)"),
                "ends before the last element",
            ),
            (
                with("'<f4'", "False", "(4294967296, 4294967296)"),
                "too large",
            ),
            (
                with("'<f4'", "False", "(0, 4294967296, 4294967296)"),
                "too large",
            ),
            (
                with("'<f4'", "False", "(99999999999999999999,)"),
                "not a tuple of sizes",
            ),
            (
                "{'fortran_order': False, 'shape': (2,)}".into(),
                "no 'descr'",
            ),
            (
                "{'descr': '<f4', 'shape': (2,)}".into(),
                "no 'fortran_order'",
            ),
            (
                "{'descr': '<f4', 'fortran_order': False}".into(),
                "no 'shape'",
            ),
            (
                "{'descr': '<f4', 'descr': '<f4'}".into(),
                "two keys 'descr'",
            ),
            ("{'owner': 'me'}".into(), "a key 'owner'"),
            ("{} {".into(), "goes on"),
            (String::new(), "lacks a `{`"),
        ] {
            let error = read_npy(&file(header.as_bytes())[..])
                .unwrap_err()
                .to_string();
            assert!(error.contains(part), "{header}: {error}");
        }
        let mut long = file(b"");
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = read_npy(&long[..]).unwrap_err().to_string();
        assert!(error.contains("4294967295 bytes is too long"), "{error}");
        long[6] = 9;
        let error = read_npy(&long[..]).unwrap_err().to_string();
        assert!(error.contains("format version 9"), "{error}");
    }

    proptest! {
        #[test]
        fn damaged_files_are_errors_or_no_larger_than_they_are(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            insert in "[0-9(){}',: <|a-z]{0,6}",
            at in any::<prop::sample::Index>(),
        ) {
            let mut file = Vec::new();
            write_npy(&mut file, &Tensor::from_slice(&[2, 3], &[1.0f32; 6])).unwrap();
            for (i, byte) in changes {
                let i = i.index(file.len());
                file[i] = byte;
            }
            let at = at.index(file.len());
            file.splice(at..at, insert.bytes());
            file.truncate(file.len() - cut.index(file.len()) / 8);
            if let Ok(t) = read_npy(&file[..]) {
                prop_assert!(t.bytes().len() <= file.len());
            }
        }
    }
}
