//! Whether this processor can run code generated for a target.
//!
//! Owns the mapping from LLVM's feature names to what the processor reports.
//! Promises that a feature the generated code may use and the processor lacks
//! is named. Choosing a target is the compiler's business.

use crate::kernel::KernelTarget;
use std::collections::HashSet;
use std::sync::OnceLock;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    #[error("the code is for a GPU, not for this processor; run it through the CUDA runner")]
    NotHostCode,
    #[error(
        "the code is for {built_for} and this machine is {host}; compile the model for this machine"
    )]
    Architecture {
        built_for: String,
        host: &'static str,
    },
    #[error(
        "the code needs the CPU feature `{feature}`, which this machine lacks; compile the model \
         for this machine or without `{feature}`"
    )]
    MissingFeature { feature: String },
}

/// Checks the triple's architecture, what the CPU's name stands for, and every `+feature`.
pub fn check_target(target: &KernelTarget) -> Result<(), HostError> {
    let arch = match target.triple.split('-').next().unwrap_or_default() {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    if arch != std::env::consts::ARCH {
        let host = std::env::consts::ARCH;
        return Err(HostError::Architecture {
            built_for: target.triple.clone(),
            host,
        });
    }
    let missing = |features| missing_feature(features, host_has);
    match missing(implied(&target.cpu)).or_else(|| missing(&target.features)) {
        Some(feature) => Err(HostError::MissingFeature {
            feature: feature.to_string(),
        }),
        None => Ok(()),
    }
}

/// The features of the x86-64 levels. Some of what they add is other code on a processor
/// that lacks it, which gives other results: `lzcnt` is `bsr` there.
fn implied(cpu: &str) -> &'static str {
    match cpu {
        "x86-64-v2" => "+popcnt,+sse4.2",
        "x86-64-v3" => "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+popcnt",
        "x86-64-v4" => {
            "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+popcnt,\
             +avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl"
        }
        _ => "",
    }
}

/// The first `+feature` of an LLVM feature string that `has` denies.
fn missing_feature(features: &str, has: impl Fn(&str) -> bool) -> Option<&str> {
    features
        .split(',')
        .filter_map(|f| f.trim().strip_prefix('+'))
        .find(|f| !is_irrelevant(f) && !has(f))
}

/// Features that change tuning only, or add instructions which a compiler does
/// not emit for arithmetic; LLVM reports them for a host whose kernel hides them.
fn is_irrelevant(feature: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "fast-",
        "slow-",
        "prefer-",
        "tuning",
        "false-deps",
        "no-",
        "allow-",
        "idiv",
        "xsave",
    ];
    const NAMES: [&str; 44] = [
        "64bit",
        "cldemote",
        "clflushopt",
        "clwb",
        "clzero",
        "cmpccxadd",
        "crc32",
        "cx8",
        "enqcmd",
        "fsgsbase",
        "fxsr",
        "hreset",
        "invpcid",
        "kl",
        "lwp",
        "macrofusion",
        "branchfusion",
        "movdir64b",
        "movdiri",
        "mwaitx",
        "nopl",
        "pconfig",
        "pku",
        "prefetchi",
        "prfchw",
        "ptwrite",
        "raoint",
        "rdpid",
        "rdpru",
        "rdrnd",
        "rdseed",
        "rtm",
        "sahf",
        "serialize",
        "sgx",
        "shstk",
        "tsxldtrk",
        "uintr",
        "usermsr",
        "vzeroupper",
        "waitpkg",
        "wbnoinvd",
        "widekl",
        "x87",
    ];
    PREFIXES.iter().any(|p| feature.starts_with(p)) || NAMES.contains(&feature)
}

#[cfg(target_arch = "x86_64")]
fn host_has(feature: &str) -> bool {
    macro_rules! detect {
        ($($llvm:literal => $std:tt,)*) => {
            match feature {
                $($llvm => Some(std::arch::is_x86_feature_detected!($std)),)*
                _ => None,
            }
        };
    }
    let detected = detect! {
        "sse" => "sse", "sse2" => "sse2", "sse3" => "sse3", "ssse3" => "ssse3",
        "sse4.1" => "sse4.1", "sse4.2" => "sse4.2", "sse4a" => "sse4a", "mmx" => "mmx",
        "aes" => "aes", "pclmul" => "pclmulqdq", "sha" => "sha", "popcnt" => "popcnt",
        "avx" => "avx", "avx2" => "avx2", "f16c" => "f16c", "fma" => "fma",
        "bmi" => "bmi1", "bmi2" => "bmi2", "lzcnt" => "lzcnt", "adx" => "adx",
        "movbe" => "movbe", "cx16" => "cmpxchg16b", "gfni" => "gfni", "vaes" => "vaes",
        "vpclmulqdq" => "vpclmulqdq", "avxvnni" => "avxvnni",
        "avx512f" => "avx512f", "avx512cd" => "avx512cd", "avx512bw" => "avx512bw",
        "avx512dq" => "avx512dq", "avx512vl" => "avx512vl", "avx512ifma" => "avx512ifma",
        "avx512vbmi" => "avx512vbmi", "avx512vbmi2" => "avx512vbmi2",
        "avx512vnni" => "avx512vnni", "avx512bitalg" => "avx512bitalg",
        "avx512vpopcntdq" => "avx512vpopcntdq", "avx512bf16" => "avx512bf16",
        "avx512fp16" => "avx512fp16", "avx512vp2intersect" => "avx512vp2intersect",
    };
    let has = detected.unwrap_or_else(|| cpuinfo_flags().contains(&normalised(feature)));
    has && (!feature.starts_with("amx-") || may_use_tiles())
}

/// Whether the system lets this process use the registers of AMX: they are 8 KiB that it saves for
/// each thread, and only those processes have them that asked.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn may_use_tiles() -> bool {
    /// `ARCH_REQ_XCOMP_PERM` and `XFEATURE_XTILE_DATA` of Linux.
    const REQUEST_PERMISSION: libc::c_int = 0x1023;
    const TILE_DATA: libc::c_ulong = 18;
    static GRANTED: OnceLock<bool> = OnceLock::new();
    *GRANTED.get_or_init(|| {
        // SAFETY: the request reads and writes no memory of this process.
        let asked = unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) };
        asked == 0
    })
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn may_use_tiles() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn host_has(feature: &str) -> bool {
    let alias = match feature {
        "neon" | "fp-armv8" => "asimd",
        "dotprod" => "asimddp",
        "fullfp16" => "asimdhp",
        "lse" => "atomics",
        "rdm" => "asimdrdm",
        "crc" => "crc32",
        other => other,
    };
    cpuinfo_flags().contains(&normalised(alias))
}

/// The feature names of /proc/cpuinfo, normalised; empty where there is no such file.
fn cpuinfo_flags() -> &'static HashSet<String> {
    static FLAGS: OnceLock<HashSet<String>> = OnceLock::new();
    FLAGS.get_or_init(|| {
        parse_cpuinfo(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    })
}

/// Reads the flags of the first processor: `flags` (x86), `Features` (Arm) or
/// `isa` (RISC-V, whose single-letter extensions follow `rv32` or `rv64`).
fn parse_cpuinfo(text: &str) -> HashSet<String> {
    let line = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "flags" | "Features" | "isa").then_some((key.trim(), value))
    });
    let Some((key, value)) = line else {
        return HashSet::new();
    };
    if key != "isa" {
        return value.split_whitespace().map(normalised).collect();
    }
    let mut parts = value.trim().split('_');
    let letters = parts.next().unwrap_or_default();
    let single = letters
        .get(4..)
        .unwrap_or_default()
        .chars()
        .map(String::from);
    single.chain(parts.map(normalised)).collect()
}

/// The kernel writes `avx512_bf16` and `amx_tile` where LLVM writes `avx512bf16` and `amx-tile`.
fn normalised(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(triple: &str, features: &str) -> KernelTarget {
        KernelTarget {
            triple: triple.into(),
            cpu: "generic".into(),
            features: features.into(),
            vector_bits: 128,
        }
    }

    #[test]
    fn the_missing_feature_is_named() {
        let has = |f: &str| f == "avx2" || f == "fma";
        assert_eq!(missing_feature("", has), None);
        assert_eq!(
            missing_feature("+avx2,+fma,-avx512f,+fast-gather,+clwb", has),
            None
        );
        assert_eq!(
            missing_feature("+avx2, +avx512f,+amx-tile", has),
            Some("avx512f")
        );
        let here = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        assert_eq!(
            check_target(&target(&here, "+warp-drive")),
            Err(HostError::MissingFeature {
                feature: "warp-drive".into()
            })
        );
        assert_eq!(check_target(&target(&here, "-warp-drive")), Ok(()));
        let masked = |f: &str| f != "lzcnt";
        assert_eq!(missing_feature(implied("x86-64-v3"), masked), Some("lzcnt"));
        assert_eq!(missing_feature(implied("x86-64-v4"), masked), Some("lzcnt"));
        assert_eq!(missing_feature(implied("znver3"), masked), None);
    }

    #[test]
    fn another_architecture_is_refused() {
        let other = if cfg!(target_arch = "x86_64") {
            "aarch64"
        } else {
            "x86_64"
        };
        let triple = format!("{other}-unknown-linux-gnu");
        let error = check_target(&target(&triple, "")).unwrap_err();
        assert_eq!(
            error,
            HostError::Architecture {
                built_for: triple,
                host: std::env::consts::ARCH
            }
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_every_x86_64_has_is_found_both_ways() {
        assert!(host_has("sse2"));
        assert!(cpuinfo_flags().contains("sse2"));
        assert_eq!(
            check_target(&target("x86_64-unknown-linux-gnu", "+sse,+sse2,+cx8")),
            Ok(())
        );
    }

    #[test]
    fn cpuinfo_of_three_architectures() {
        let x86 = parse_cpuinfo("processor : 0\nflags\t\t: fpu avx512_bf16 amx_tile\n");
        assert!(x86.contains("avx512bf16") && x86.contains("amxtile"));
        let arm = parse_cpuinfo("processor\t: 0\nFeatures\t: fp asimd asimddp\n");
        assert!(arm.contains("asimd") && !arm.contains("sve"));
        let riscv = parse_cpuinfo("hart : 0\nisa : rv64imafdcv_zicsr_zvl256b\n");
        assert!(riscv.contains("v") && riscv.contains("zvl256b") && !riscv.contains("b"));
    }
}
