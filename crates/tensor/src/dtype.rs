//! Element types.

use std::fmt;
use std::str::FromStr;

/// The element type of a tensor, a buffer or a scalar expression.
///
/// `I16`, `U16`, `U32` and `U64` are how inputs and outputs of a model are stored. Operators move them and cast them to
/// other integers; they compute in the others ([`DType::is_stored_only`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    F32 = 0,
    F64 = 1,
    F16 = 2,
    BF16 = 3,
    I8 = 4,
    U8 = 5,
    I32 = 6,
    I64 = 7,
    Bool = 8,
    I16 = 9,
    U16 = 10,
    U32 = 11,
    U64 = 12,
}

impl DType {
    pub const ALL: [DType; 13] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::I64,
        DType::Bool,
        DType::I16,
        DType::U16,
        DType::U32,
        DType::U64,
    ];

    /// Size of one element in bytes. `Bool` takes one byte, 0 or 1.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    pub const fn bits(self) -> usize {
        self.size() * 8
    }

    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }

    /// Integers that operators compute with: without `Bool` and those that are only stored.
    pub const fn is_int(self) -> bool {
        matches!(self, DType::I8 | DType::U8 | DType::I32 | DType::I64)
    }

    /// Integers that tensors hold, and no operator computes with.
    pub const fn is_stored_only(self) -> bool {
        matches!(self, DType::I16 | DType::U16 | DType::U32 | DType::U64)
    }

    pub const fn is_signed(self) -> bool {
        !matches!(
            self,
            DType::U8 | DType::Bool | DType::U16 | DType::U32 | DType::U64
        )
    }

    /// The name used in text forms and records, e.g. `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;
    fn from_str(s: &str) -> Result<DType, String> {
        DType::ALL
            .into_iter()
            .find(|d| d.name() == s)
            .ok_or_else(|| format!("unknown element type `{s}`"))
    }
}

/// A Rust type that stores one element of a tensor.
pub trait Element: bytemuck::Pod {
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
element!(f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => BF16, i8 => I8, u8 => U8, i32 => I32, i64 => I64,
    i16 => I16, u16 => U16, u32 => U32, u64 => U64);
