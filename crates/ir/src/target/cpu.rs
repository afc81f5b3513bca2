//! Facts about CPUs.

use super::isa::{ByteDot, HalfDot, Isa, TileDot};
use std::fmt;
use std::str::FromStr;

/// Makers of cores whose predictions of cost differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    Amd,
    Intel,
}

impl Vendor {
    pub const ALL: [Vendor; 2] = [Vendor::Amd, Vendor::Intel];

    pub fn name(self) -> &'static str {
        match self {
            Vendor::Amd => "amd",
            Vendor::Intel => "intel",
        }
    }
}

/// A CPU that is compiled for: all that schedules, lowering and code generation
/// for CPUs ask about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CpuTarget {
    pub isa: Isa,
    /// LLVM's name of the processor whose scheduling model orders instructions,
    /// e.g. `znver5`. It lets code use no instruction that the family lacks.
    /// `None`: the model of the architecture level.
    pub tune_cpu: Option<String>,
    /// Who makes the cores, if that is known: predictions of cost differ by what no
    /// instruction tells, such as the bandwidth of the last-level cache.
    pub vendor: Option<Vendor>,
    /// Width of the vectors that schedules use, in bits; 0 without vectors.
    pub vector_bits: u32,
    /// Architectural vector registers; without vectors those for floats.
    pub vector_registers: u32,
    /// Dot products of bytes, which belong to `isa`.
    pub byte_dot: Option<ByteDot>,
    /// Dot products of bf16, which belong to `isa`.
    pub half_dot: Option<HalfDot>,
    /// Dot products of tiles, which belong to `isa`.
    pub tile_dot: Option<TileDot>,
    pub l1_bytes: u64,
    pub l2_bytes: u64,
    /// Last-level cache, the part one core can use.
    pub llc_bytes: u64,
    pub cache_line_bytes: u64,
    /// Workers of a parallel loop.
    pub threads: u32,
}

impl CpuTarget {
    /// A generic target of the family with typical caches; the host's real
    /// facts come from the command line's `doctor`.
    pub fn generic(isa: Isa) -> CpuTarget {
        let family = isa.family();
        CpuTarget {
            isa,
            tune_cpu: None,
            vendor: None,
            vector_bits: family.vector_bits,
            vector_registers: family.vector_registers,
            byte_dot: None,
            half_dot: None,
            tile_dot: None,
            l1_bytes: 32 << 10,
            l2_bytes: 512 << 10,
            llc_bytes: 8 << 20,
            cache_line_bytes: 64,
            threads: 1,
        }
    }

    /// Vector elements of a type, at least 1.
    pub fn lanes(&self, dtype: tensor::DType) -> i64 {
        (i64::from(self.vector_bits) / dtype.bits() as i64).max(1)
    }

    /// LLVM features, with signs and commas: the family's, and those of the
    /// instructions beyond it.
    pub fn features(&self) -> String {
        let bytes = self.byte_dot.map(ByteDot::features);
        let halves = self.half_dot.map(HalfDot::features);
        let tiles = self.tile_dot.map(TileDot::features);
        let all = [Some(self.isa.features()), bytes, halves, tiles];
        let all = all.into_iter().flatten().filter(|f| !f.is_empty());
        all.collect::<Vec<_>>().join(",")
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
            value
                .parse()
                .map_err(|_| format!("target field {name}: `{value}` is not valid"))
        }
        match name {
            "tune_cpu" => self.tune_cpu = Some(value.into()),
            "vendor" => {
                let found = Vendor::ALL.into_iter().find(|v| v.name() == value);
                self.vendor = Some(found.ok_or_else(|| format!("unknown vendor `{value}`"))?);
            }
            "vector_bits" => self.vector_bits = number(name, value)?,
            "registers" => self.vector_registers = number(name, value)?,
            "byte_dot" => {
                let of = |d: &ByteDot| d.name() == value && d.isa() == self.isa;
                let found = ByteDot::ALL.into_iter().find(of);
                let missing = || format!("{} has no byte dot product `{value}`", self.isa.name());
                self.byte_dot = Some(found.ok_or_else(missing)?);
            }
            "half_dot" => {
                let of = |d: &HalfDot| d.name() == value && d.isa() == self.isa;
                let found = HalfDot::ALL.into_iter().find(of);
                let missing = || format!("{} has no bf16 dot product `{value}`", self.isa.name());
                self.half_dot = Some(found.ok_or_else(missing)?);
            }
            "tile_dot" => {
                let of = |d: &TileDot| d.name() == value && d.isa() == self.isa;
                let found = TileDot::ALL.into_iter().find(of);
                let missing =
                    || format!("{} has no dot product of tiles `{value}`", self.isa.name());
                self.tile_dot = Some(found.ok_or_else(missing)?);
            }
            "l1" => self.l1_bytes = number(name, value)?,
            "l2" => self.l2_bytes = number(name, value)?,
            "llc" => self.llc_bytes = number(name, value)?,
            "line" => self.cache_line_bytes = number(name, value)?,
            "threads" => self.threads = number(name, value)?,
            _ => return Err(format!("unknown target field `{name}`")),
        }
        Ok(())
    }
}

impl fmt::Display for CpuTarget {
    /// One line of `name=value` fields that parses back; facts that are `None`
    /// are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without `..`: objects are cached by this text, so it says every fact.
        let CpuTarget {
            isa,
            tune_cpu,
            vendor,
            vector_bits,
            vector_registers,
            byte_dot,
            half_dot,
            tile_dot,
            l1_bytes,
            l2_bytes,
            llc_bytes,
            cache_line_bytes,
            threads,
        } = self;
        write!(f, "isa={}", isa.name())?;
        if let Some(name) = tune_cpu {
            write!(f, " tune_cpu={name}")?;
        }
        if let Some(vendor) = vendor {
            write!(f, " vendor={}", vendor.name())?;
        }
        write!(f, " vector_bits={vector_bits} registers={vector_registers}")?;
        if let Some(dot) = byte_dot {
            write!(f, " byte_dot={}", dot.name())?;
        }
        if let Some(dot) = half_dot {
            write!(f, " half_dot={}", dot.name())?;
        }
        if let Some(dot) = tile_dot {
            write!(f, " tile_dot={}", dot.name())?;
        }
        write!(
            f,
            " l1={l1_bytes} l2={l2_bytes} llc={llc_bytes} line={cache_line_bytes} threads={threads}"
        )
    }
}

impl FromStr for CpuTarget {
    type Err = String;

    /// Facts that the text leaves out are the generic target's.
    fn from_str(s: &str) -> Result<CpuTarget, String> {
        let mut fields = s.split_ascii_whitespace();
        let isa = fields
            .next()
            .and_then(|f| f.strip_prefix("isa="))
            .ok_or("a CPU target starts with isa=NAME")?;
        let isa = Isa::ALL.into_iter().find(|i| i.name() == isa);
        let mut target = CpuTarget::generic(isa.ok_or("unknown instruction set family")?);
        for field in fields {
            let (name, value) = field
                .split_once('=')
                .ok_or_else(|| format!("`{field}` is not name=value"))?;
            target.set(name, value)?;
        }
        Ok(target)
    }
}
