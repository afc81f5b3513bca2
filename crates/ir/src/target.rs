//! Facts about targets that schedules, lowering and code generation ask for.
//!
//! A target is of one kind, and each kind has facts of its own. Code for one
//! kind takes that kind's facts (`CpuTarget`); a public function that takes any
//! target matches the kind, so that a new kind does not compile until each of
//! these functions says what it does with it.

mod cpu;
mod isa;

pub use cpu::{CpuTarget, Vendor};
pub use isa::{ByteDot, HalfDot, Isa, TileDot};

use std::fmt;
use std::str::FromStr;

/// What a program is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Cpu(CpuTarget),
}

impl Target {
    /// As [`CpuTarget::generic`].
    pub fn generic(isa: Isa) -> Target {
        Target::Cpu(CpuTarget::generic(isa))
    }

    /// The name on the command line and in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Target::Cpu(cpu) => cpu.isa.name(),
        }
    }

    /// LLVM triple.
    pub fn triple(&self) -> &'static str {
        match self {
            Target::Cpu(cpu) => cpu.isa.triple(),
        }
    }

    /// LLVM's CPU name for the architecture level, which says with `features`
    /// which instructions code may use.
    pub fn level(&self) -> &'static str {
        match self {
            Target::Cpu(cpu) => cpu.isa.level(),
        }
    }

    /// LLVM features, with signs and commas.
    pub fn features(&self) -> String {
        match self {
            Target::Cpu(cpu) => cpu.features(),
        }
    }

    /// CPU threads that a call of a kernel occupies.
    pub fn threads(&self) -> u32 {
        match self {
            Target::Cpu(cpu) => cpu.threads,
        }
    }

    #[must_use]
    pub fn with_threads(mut self, threads: u32) -> Target {
        match &mut self {
            Target::Cpu(cpu) => cpu.threads = threads,
        }
        self
    }

    /// Bytes of the cache nearest to memory: data beyond it come from memory.
    pub fn llc_bytes(&self) -> u64 {
        match self {
            Target::Cpu(cpu) => cpu.llc_bytes,
        }
    }
}

impl From<CpuTarget> for Target {
    fn from(cpu: CpuTarget) -> Target {
        Target::Cpu(cpu)
    }
}

impl fmt::Display for Target {
    /// One line, the kind first, that parses back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cpu(cpu) => write!(f, "cpu {cpu}"),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(s: &str) -> Result<Target, String> {
        match s.split_once(' ') {
            Some(("cpu", facts)) => Ok(Target::Cpu(facts.parse()?)),
            _ => Err("a target starts with its kind: cpu".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A target and others, each of which differs from it in one fact.
    fn variations() -> Vec<CpuTarget> {
        let base = CpuTarget::generic(Isa::AArch64Neon);
        let change = |f: fn(&mut CpuTarget)| {
            let mut t = base.clone();
            f(&mut t);
            t
        };
        let mut all = vec![
            change(|t| t.isa = Isa::RiscV64Rvv),
            change(|t| t.tune_cpu = Some("neoverse-v2".into())),
            change(|t| t.vendor = Some(Vendor::Amd)),
            change(|t| t.vendor = Some(Vendor::Intel)),
            change(|t| t.vector_bits += 1),
            change(|t| t.vector_registers += 1),
            change(|t| t.l1_bytes += 1),
            change(|t| t.l2_bytes += 1),
            change(|t| t.llc_bytes += 1),
            change(|t| t.cache_line_bytes += 1),
            change(|t| t.threads += 1),
        ];
        let of_family = ByteDot::ALL.into_iter().filter(|d| d.isa() == base.isa);
        all.extend(of_family.map(|dot| CpuTarget {
            byte_dot: Some(dot),
            ..base.clone()
        }));
        all.push(base);
        let wide = CpuTarget::generic(Isa::X86Avx512);
        all.extend(HalfDot::ALL.map(|dot| CpuTarget {
            half_dot: Some(dot),
            ..wide.clone()
        }));
        all.extend(TileDot::ALL.map(|dot| CpuTarget {
            tile_dot: Some(dot),
            ..wide.clone()
        }));
        all
    }

    #[test]
    fn targets_parse_back_and_each_fact_is_in_the_text() {
        let mut texts = HashSet::new();
        let generic = Isa::ALL.map(CpuTarget::generic);
        let all = generic.into_iter().chain(variations());
        for t in all.map(Target::Cpu).collect::<HashSet<_>>() {
            let text = t.to_string();
            assert_eq!(text.parse::<Target>(), Ok(t), "{text}");
            assert!(texts.insert(text));
        }
        assert!(texts.len() > variations().len());
    }

    #[test]
    fn texts_that_are_no_target_are_refused() {
        for text in [
            "",
            "isa=x86-avx2",
            "cpu isa=vax",
            "cpu isa=x86-avx2 l1=many",
            "cpu isa=x86-avx2 colour=red",
            "cpu isa=x86-avx2 threads",
            "cpu isa=x86-avx2 byte_dot=avx512vnni",
            "cpu isa=x86-avx2 half_dot=avx512bf16",
            "cpu isa=x86-avx2 tile_dot=amx",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn dot_products_of_bytes_switch_their_features_on() {
        for dot in ByteDot::ALL {
            let without = CpuTarget::generic(dot.isa());
            let with = CpuTarget {
                byte_dot: Some(dot),
                ..without.clone()
            };
            let expected = format!("{},{}", without.features(), dot.features());
            assert_eq!(Target::Cpu(with).features(), expected);
            assert!(dot.is_direct(true) || dot.is_direct(false));
        }
        assert_eq!(Target::generic(Isa::X86Sse2).features(), "");
    }

    #[test]
    fn the_baseline_of_an_architecture_is_its_narrowest_family() {
        assert_eq!(Isa::baseline("x86_64"), Some(Isa::X86Sse2));
        assert_eq!(Isa::baseline("aarch64"), Some(Isa::AArch64Neon));
        assert_eq!(Isa::baseline("x86"), None);
        for isa in Isa::ALL {
            let triple = isa.triple().split('-').next().unwrap();
            let narrowest = Isa::baseline(triple).unwrap();
            let bits = |i: Isa| CpuTarget::generic(i).vector_bits;
            assert!(bits(narrowest) <= bits(isa));
        }
    }
}
